"""Moments on the command line: so long ago, or a date."""

from __future__ import annotations

import time
from datetime import datetime
from typing import TYPE_CHECKING

from shoal.errors import UsageError

if TYPE_CHECKING:
    import click


def moment(text: str) -> float:
    """Return the time that a text means: `10m` ago, or a date in local time."""
    from shoal.model.units import parse_duration  # noqa: PLC0415 - Slow to import.

    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        pass
    try:
        return time.time() - parse_duration(text)
    except UsageError:
        raise UsageError(
            f"'{text}' is no time",
            because="it is how long ago, or a date with or without a time",
            hint="write it like 10m, 7d, 2026-11-17 or 2026-11-17T08:30",
        ) from None


def moment_option(
    ctx: click.Context, _param: click.Parameter, text: str | None
) -> float:
    """Read an option that is a moment; 0 if it was not given."""
    return 0.0 if text is None or ctx.resilient_parsing else moment(text)
