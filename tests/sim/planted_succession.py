"""Planted bugs of jobs that outlive their scheduler, and the seeds that find them."""

# ruff: noqa: ANN401 - They take the places of methods that only a machine calls.

from typing import Any, Final

from shoal.core.events import Effect, Send
from shoal.core.scheduling.notices import Consequence
from shoal.core.succession.kept_jobs import KeptLog
from shoal.core.succession.succession import ALL, Succession
from shoal.model.ids import JobId, NodeId
from shoal.protocol.messages import Assignment

_inside: Any = vars(Succession)
_stand, _position = _inside["_stand"], _inside["_position"]
_hold_sway, _holds_word = _inside["_hold_sway"], _inside["_holds_word"]


def no_majority_asked(
    self: Any, job: JobId, now: float, above: int = 0
) -> list[Consequence]:
    """Take a job up without asking anybody."""
    follows: list[Consequence] = _stand(self, job, now, above)
    won: list[Consequence] = self._win(job, self._stands[job].term, now)
    return follows + won


def length_overstated(self: Any, job: JobId) -> tuple[tuple[NodeId, ...], int, int]:
    """Stand for a term with half a log, as if it were the longest."""
    members, log_term, size = _position(self, job)
    return members, log_term, ALL if job in self._stands else size


def sway_never_lapses(self: Any, lead: Any, now: float) -> list[Consequence]:
    """Let an old leader go on, though it reaches nobody."""
    follows: list[Consequence] = _hold_sway(self, lead, now)
    self._lapses.drop(lead.job)
    return follows


def acknowledged_before_safe(self: Any, job: JobId, effect: Send) -> bool:
    """Acknowledge a result that is on one disk."""
    if isinstance(effect.message, Assignment):
        return bool(_holds_word(self, job, effect))
    return False


def once_begun_unknown_to_others(self: Any, job: JobId, effect: Effect) -> bool:
    """Start what runs at most once before others know of it."""
    if isinstance(effect, Send) and isinstance(effect.message, Assignment):
        return False
    return bool(_holds_word(self, job, effect))


def kept_without_files(_self: Any, _term: int) -> int:
    """Say that a log is kept whose files are not there."""
    return 0


def stood_without_files(self: Any, job: JobId) -> tuple[tuple[NodeId, ...], int, int]:
    """Stand with all entries, whatever files are there, and go on with all of them."""
    members, log_term, size = _position(self, job)
    if (log := self._logs.get(job)) is not None:
        log.log.whole = size = len(log.log.entries)
    return members, log_term, size


KEPT_BUGS: Final[tuple[tuple[str, Any, str, Any], ...]] = (
    ("no majority asked", Succession, "_stand", no_majority_asked),
    ("length overstated", Succession, "_position", length_overstated),
    ("sway never lapses", Succession, "_hold_sway", sway_never_lapses),
    ("acknowledged before safe", Succession, "_holds_word", acknowledged_before_safe),
    (
        "begun unknown to others",
        Succession,
        "_holds_word",
        once_begun_unknown_to_others,
    ),
    ("kept without its files", KeptLog, "lacking", kept_without_files),
    ("stood without its files", Succession, "_position", stood_without_files),
)
"""A name, and what of what is replaced by what."""

FOUND_BY: Final = {
    "no majority asked": 8,
    "acknowledged before safe": 0,
    "length overstated": 103,
    "sway never lapses": 179,
    "begun unknown to others": 218,
    "kept without its files": 0,
    "stood without its files": 12,
}
"""A seed that finds each, and that breaks no promise without it."""
