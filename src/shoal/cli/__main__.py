"""Runs `shoal` as `python -m shoal.cli`: how a node in the background is started."""

from shoal.cli import main

main()
