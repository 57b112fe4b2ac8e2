"""When a machine is lent to others: rules in words.

`--lend nights,idle` lends a machine at night, while its owner does not use it. Words of
different kinds must all hold; of several times it is enough if one does:

    always          no condition (the default)
    away            only while there is no input; `away:10m` only after that long
    idle            likewise, and only while other programs use hardly any CPU or GPU
    nights          22:00-07:00
    weekends        Saturday and Sunday
    09:30-11:00     these hours of every day, by the clock of the machine
    plugged-in      not on battery

Each `format` is exact: parsing what it returns gives the same rule.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from shoal.errors import UsageError
from shoal.model.units import format_duration, parse_duration

IDLE_S: Final = 20.0
IDLE_MIN_S: Final = 10.0
IDLE_MAX_S: Final = 86_400.0
DAY_MINUTES: Final = 1_440
NIGHT: Final = (22 * 60, 7 * 60)
WEEKEND: Final = (5, 6)
WORDS: Final = (
    *("always", "idle", "away", "away:10m", "nights", "weekends", "22:00-07:00"),
    "plugged-in",
)
_HOURS: Final = re.compile(r"(\d{1,2}):(\d{2})-(\d{1,2}):(\d{2})", re.ASCII)
_WINDOWS_MAX: Final = 32


class LendWindow(msgspec.Struct, frozen=True):
    """Some hours of some days; one that ends before it begins goes past midnight."""

    begin: int = 0  # minutes of the day
    end: int = 0
    days: tuple[int, ...] = ()  # from 0, Monday; empty: every day

    def holds(self, week_minute: int) -> bool:
        """Whether a minute of the week is inside."""
        day, minute = divmod(week_minute % (7 * DAY_MINUTES), DAY_MINUTES)
        if self.begin < self.end:
            return self._on(day) and self.begin <= minute < self.end
        late = self._on(day) and minute >= self.begin
        return late or (self._on((day - 1) % 7) and minute < self.end)

    def _on(self, day: int) -> bool:
        return not self.days or day in self.days

    def __str__(self) -> str:
        if self.days == WEEKEND:
            return "weekends"
        if (self.begin, self.end) == NIGHT:
            return "nights"
        return f"{_clock(self.begin)}-{_clock(self.end)}"


class LendRule(msgspec.Struct, frozen=True):
    """When tasks of other owners may run on a machine."""

    windows: tuple[LendWindow, ...] = ()  # in one of them; empty: at any time
    idle_s: float | None = None  # once the owner has been away for so long
    calm: bool = False  # and the owner's programs have been calm for so long
    plugged_in: bool = False  # not on battery

    @property
    def is_always(self) -> bool:
        """Whether nothing needs to be watched."""
        return not self.windows and self.idle_s is None and not self.plugged_in

    def __str__(self) -> str:
        parts = [str(each) for each in self.windows]
        if self.idle_s is not None:
            after = "" if self.idle_s == IDLE_S else f":{format_duration(self.idle_s)}"
            parts.append(f"{'idle' if self.calm else 'away'}{after}")
        if self.plugged_in:
            parts.append("plugged-in")
        return ",".join(parts) or "always"


def parse_lend(text: str) -> LendRule:
    """Return the rule that a user wrote; raise with what can be written if wrong."""
    words = [word.strip().lower() for word in text.split(",")]
    if words == [""]:
        raise _wrong(text, "it is empty")
    windows: dict[LendWindow, None] = {}
    idle_s: float | None = None
    calm = plugged_in = False
    for word in words:
        name, _, after = word.partition(":")
        if word == "always":
            if len(words) > 1:
                raise _wrong(text, "`always` has no conditions beside it")
        elif name in ("idle", "away"):
            if idle_s is not None:
                raise _wrong(text, "only one of `idle` and `away` can be there")
            calm = name == "idle"
            idle_s = _idle(text, after) if ":" in word else IDLE_S
        elif word == "plugged-in":
            plugged_in = True
        else:
            windows[_window(text, word)] = None
    if len(windows) > _WINDOWS_MAX:
        raise _wrong(text, f"{len(windows)} times are too many")
    return LendRule(tuple(windows), idle_s, calm, plugged_in)


def _idle(text: str, after: str) -> float:
    seconds = parse_duration(after)
    if not IDLE_MIN_S <= seconds <= IDLE_MAX_S:
        raise _wrong(text, "the time without input is between 10s and 1d")
    return seconds


def _window(text: str, word: str) -> LendWindow:
    if word == "nights":
        return LendWindow(*NIGHT)
    if word == "weekends":
        return LendWindow(days=WEEKEND)
    found = _HOURS.fullmatch(word)
    if found is None:
        raise _wrong(text, f"'{word[:32]}' is not a time or a condition")
    hours = [int(part) for part in found.groups()]
    begin, end = hours[0] * 60 + hours[1], hours[2] * 60 + hours[3]
    if max(hours[1], hours[3]) > 59 or max(begin, end) > DAY_MINUTES:
        raise _wrong(text, f"'{word}' is not a time of the day")
    begin, end = begin % DAY_MINUTES, end % DAY_MINUTES
    if begin == end:
        raise _wrong(text, f"'{word}' begins when it ends")
    return LendWindow(begin, end)


def _clock(minutes: int) -> str:
    return f"{minutes // 60:02}:{minutes % 60:02}"


def _wrong(text: str, because: str) -> UsageError:
    return UsageError(
        f"--lend {text[:64]} cannot be understood",
        because=because,
        hint=f"write words like {', '.join(WORDS)}, separated by commas",
    )
