"""Run `shoal` as `python -m shoal.cli`; background nodes are started this way."""

from shoal.cli import main

main()
