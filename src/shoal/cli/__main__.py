"""Run `shoal` as `python -m shoal.cli`; background nodes are started this way."""

import gc

gc.set_threshold(20_000)  # As in `shoal.entry`.

from shoal.cli import main  # noqa: E402 - What it imports is no garbage.

main()
