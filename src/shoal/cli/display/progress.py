"""How far long work has come, on stderr.

Work of less than `SHOWN_AFTER_S` shows nothing. After that a terminal has a bar with
the time that is left; elsewhere there is a line now and then, for whoever reads a log.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any, Final, Self, final

import click

from shoal.cli.options import talk
from shoal.cli.terminal import clear_line

if TYPE_CHECKING:
    from collections.abc import Callable

SHOWN_AFTER_S: Final = 1.0
LINE_S: Final = 10.0
MINUTE_S: Final = 60.0


@final
class ProgressDisplay:
    """Work whose parts are counted; `told` is called with each count."""

    def __init__(
        self,
        label: str,
        *,
        quiet: bool = False,
        unit: Callable[[int], str] = str,
        shown_after_s: float = SHOWN_AFTER_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Count in numbers that `unit` writes."""
        self._label, self._unit = label, unit
        self._quiet, self._clock = quiet, clock
        self._shown_after_s = shown_after_s
        self._began_at = self._line_at = clock()
        self._bar: Any = None
        self._done = 0

    def __enter__(self) -> Self:
        self._began_at = self._line_at = self._clock()
        return self

    def step(self, label: str, done: int, total: int) -> None:
        """Show how far a step is; another one than before counts and times anew."""
        if label != self._label:
            self._end_bar()
            self._label, self._done = label, 0
            self._began_at = self._line_at = self._clock()
        self.told(done, total)

    def told(self, done: int, total: int) -> None:
        """Show that `done` of `total` parts are done."""
        now = self._clock()
        spent_s = now - self._began_at
        if self._quiet or total <= 0 or spent_s < self._shown_after_s:
            return
        if sys.stderr.isatty():
            self._move_bar(done, total)
        elif now - self._line_at >= LINE_S:
            self._line_at = now
            left = _span(spent_s / done * (total - done)) if done else "unknown"
            parts = f"{self._unit(done)} of {self._unit(total)}"
            talk(f"{self._label}: {parts} · time left {left}")

    def say(self, text: str) -> None:
        """Tell a result that has come, above the bar."""
        if self._bar is not None:
            clear_line(err=True)
        talk(text, quiet=self._quiet)

    def _move_bar(self, done: int, total: int) -> None:
        if self._bar is None:
            self._bar = click.progressbar(
                length=total, label=self._label, file=sys.stderr, show_eta=True
            )
            self._bar.start = self._began_at + time.time() - self._clock()
            self._bar.__enter__()
        self._bar.length = total
        self._bar.update(max(0, done - self._done))
        self._done = max(self._done, done)

    def __exit__(self, *exception: object) -> None:
        self._end_bar()

    def _end_bar(self) -> None:
        if self._bar is not None:
            self._bar.__exit__(None, None, None)
            self._bar = None


def _span(seconds: float) -> str:
    if seconds < MINUTE_S:
        return f"{seconds:.0f} s"
    return f"{seconds / MINUTE_S:.0f} min"
