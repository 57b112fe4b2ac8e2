"""Planted bugs of jobs that outlive their scheduler, and the seeds that find them."""

# ruff: noqa: ANN401 - They take the places of methods that only a machine calls.

from typing import Any, Final

from shoal.core.events import Effect, Send
from shoal.core.scheduling.notices import Consequence
from shoal.core.succession.ballots import ALL, Ballots
from shoal.core.succession.kept_jobs import KeptLog
from shoal.core.succession.kinship import Kinship
from shoal.core.succession.leading import Leading
from shoal.core.succession.succession import Succession
from shoal.model.ids import JobId, NodeId
from shoal.protocol.messages import Assignment

_ballots: Any = vars(Ballots)
_leading: Any = vars(Leading)
_succession: Any = vars(Succession)
_take = KeptLog.take
_stand, _position = _ballots["stand"], _ballots["_position"]
_yield = _succession["_yield"]
_hold_sway, _holds_word = _leading["hold_sway"], _leading["_holds_word"]


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


def goes_on_after_handing_over(self: Any, lead: Any, now: float) -> list[Consequence]:
    """Go on with a job that another member was told to take."""
    told: list[Consequence] = _yield(self, lead, now)
    if told:
        lead.elected, lead.leaving = True, False
        self._book.suspended.pop(lead.job, None)
    return told


def handed_to_whoever(self: Any, lead: Any, now: float) -> list[Consequence]:
    """Hand a job over to a member that lacks some of it, and let it go on with that."""
    others = [m for m in lead.members if m in self._linked and m != self._node]
    lead.whole.update(dict.fromkeys(others, len(lead.entries)))
    told: list[Consequence] = _yield(self, lead, now)
    if told:
        lead.entries = []
    return told


def handover_unheard(_self: Any, *_args: Any) -> list[Consequence]:
    """Wait until a leader that hands its job over was silent for long."""
    return []


def handed_over_and_begun_anew(_self: Any, *_args: Any) -> bool:
    """Refuse to let a new leader have attempts of the one before."""
    return False


def started_without_a_lead(self: Any, job: JobId, effect: Send) -> bool:
    """Say assignments again after a restart, whoever leads by now."""
    is_once = self._book.jobs[job].job.at_most_once
    return is_once and bool(_holds_word(self, job, effect))


def ended_twice(_self: Any, *_args: Any) -> list[Consequence]:
    """Keep a job that ended here and, in a later term, at another node."""
    return []


def new_leader_unnoted(self: Any, entry: Any) -> None:
    """Keep a job for a new leader, and name the old one to who asks."""
    before = self.leader
    _take(self, entry)
    self.leader = before or self.leader


KEPT_BUGS: Final[tuple[tuple[str, Any, str, Any], ...]] = (
    ("no majority asked", Ballots, "stand", no_majority_asked),
    ("length overstated", Ballots, "_position", length_overstated),
    ("sway never lapses", Leading, "hold_sway", sway_never_lapses),
    ("acknowledged before safe", Leading, "_holds_word", acknowledged_before_safe),
    (
        "begun unknown to others",
        Leading,
        "_holds_word",
        once_begun_unknown_to_others,
    ),
    ("kept without its files", KeptLog, "lacking", kept_without_files),
    ("stood without its files", Ballots, "_position", stood_without_files),
    ("goes on after handing over", Succession, "_yield", goes_on_after_handing_over),
    ("handed to whoever is there", Succession, "_yield", handed_to_whoever),
    ("hand-over unheard", Succession, "_on_handover", handover_unheard),
    ("handed over and begun anew", Kinship, "admits", handed_over_and_begun_anew),
    ("started without a lead", Leading, "_holds_start", started_without_a_lead),
    ("new leader unnoted", KeptLog, "take", new_leader_unnoted),
    ("ended twice", Succession, "_cede_end", ended_twice),
)
"""A name, and what of what is replaced by what."""

FOUND_BY: Final = {
    "no majority asked": 8,
    "acknowledged before safe": 0,
    "length overstated": 160,
    "sway never lapses": 179,
    "begun unknown to others": 218,
    "kept without its files": 0,
    "stood without its files": 12,
    "goes on after handing over": 50,
    "handed to whoever is there": 944,
    "hand-over unheard": 42,
    "handed over and begun anew": 1,
    "started without a lead": 1482,
    "new leader unnoted": 10,
    "ended twice": 3422,
}
"""A seed that finds each, and that breaks no promise without it."""
