"""How far this scheduler trusts the owners of workers, judged by their past results.

Theory of operation. An owner of several machines could make all of them lie, so trust
goes to owners; machines are only counted, for display. An owner starts *unknown*: each
of its results is compared with those of others. After `TRUSTED_AFTER` results in a row
that agreed it is *trusted*, and most of its results need no second opinion (`verifier`
says which do). A result that proves wrong makes it *shunned*: for an hour, and twice as
long for each further offence, it gets no verified task, and others only if no other
worker has room. Then it is unknown again. A failure where others succeeded ends the
trust but is no lie: machines run out of memory. `FAILURES_MAX` of them in a row count
as one offence. An owner that becomes trusted again has one offence less.

Everything here follows from journal entries: replaying them gives the same standings.
Times are of the wall clock, because they outlive the process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, final

import msgspec

from shoal.core.durability.journal import Judged, StandingKept
from shoal.model.backoff import Backoff

if TYPE_CHECKING:
    from shoal.model.ids import NodeId, OwnerId

TRUSTED_AFTER: Final = 20
"""Results in a row that must agree with others before an owner is trusted."""

SHUNNED: Final = Backoff(3_600.0, 30 * 86_400.0)
STANDINGS_MAX: Final = 10_000
"""Owners that are remembered; owners without offence are forgotten first."""

FAILURES_MAX: Final = 3

Trust = Literal["unknown", "trusted", "shunned"]


class Tally(msgspec.Struct):
    """How many results of one worker were compared, and how many were wrong."""

    judged: int = 0
    disagreed: int = 0


class Standing(msgspec.Struct):
    """What is known of one owner."""

    in_row: int = 0  # results that agreed in a row
    believed: int = 0  # results accepted unchecked in a row
    failures: int = 0  # failures where others succeeded, in a row
    offences: int = 0
    shunned_until_s: float = 0.0
    workers: dict[NodeId, Tally] = msgspec.field(default_factory=dict["NodeId", Tally])


@final
class Standings:
    """All owners whose results were ever compared."""

    def __init__(self) -> None:
        self._all: dict[OwnerId, Standing] = {}
        self._owners: dict[NodeId, OwnerId] = {}
        self._offenders: dict[OwnerId, None] = {}

    # Reading.

    def get(self, owner: OwnerId) -> Standing | None:
        """Return what is known of an owner."""
        return self._all.get(owner)

    def trust(self, owner: OwnerId, wall_s: float) -> Trust:
        """Return how far an owner is trusted at this time of day."""
        standing = self._all.get(owner)
        if standing is None:
            return "unknown"
        if standing.shunned_until_s > wall_s:
            return "shunned"
        return "trusted" if standing.in_row >= TRUSTED_AFTER else "unknown"

    def shunned(self, wall_s: float) -> list[OwnerId]:
        """Return the owners that are shunned now; usually none."""
        return [o for o in self._offenders if self._all[o].shunned_until_s > wall_s]

    def tally(self, worker: NodeId) -> tuple[OwnerId, Tally] | None:
        """Return how the results of a worker compared with others, if any did."""
        owner = self._owners.get(worker)
        return None if owner is None else (owner, self._all[owner].workers[worker])

    def kept(self) -> list[StandingKept]:
        """Return the entries whose replay restores all standings."""
        return [
            StandingKept(
                owner=owner,
                in_row=standing.in_row,
                believed=standing.believed,
                failures=standing.failures,
                offences=standing.offences,
                shunned_until_s=standing.shunned_until_s,
                workers=tuple(
                    (worker, tally.judged, tally.disagreed)
                    for worker, tally in standing.workers.items()
                ),
            )
            for owner, standing in self._all.items()
        ]

    # Changes.

    def take(self, entry: Judged | StandingKept) -> None:
        """Apply a judgement, made now or in an earlier life."""
        if isinstance(entry, StandingKept):
            self._restore(entry)
            return
        standing = self._of(entry.owner)
        if entry.verdict == "believed":
            standing.believed += 1
            return
        standing.believed = 0
        tally = standing.workers.setdefault(entry.worker, Tally())
        self._owners[entry.worker] = entry.owner
        tally.judged += 1
        match entry.verdict:
            case "agreed":
                standing.in_row += 1
                standing.failures = 0
                if standing.in_row == TRUSTED_AFTER and standing.offences:
                    standing.offences -= 1
            case "failed":
                standing.in_row = 0
                standing.failures += 1
                if standing.failures >= FAILURES_MAX:
                    self._punish(entry, standing)
            case "disagreed":
                tally.disagreed += 1
                self._punish(entry, standing)

    def _punish(self, entry: Judged, standing: Standing) -> None:
        standing.in_row = 0
        standing.offences += 1
        until_s = entry.wall_s + SHUNNED.pause_s(standing.offences - 1)
        standing.shunned_until_s = max(standing.shunned_until_s, until_s)
        self._offenders[entry.owner] = None

    def _of(self, owner: OwnerId) -> Standing:
        found = self._all.get(owner)
        if found is None:
            if len(self._all) >= STANDINGS_MAX:
                self._forget_one()
            found = self._all[owner] = Standing()
        return found

    def _forget_one(self) -> None:
        spared = (o for o, standing in self._all.items() if not standing.offences)
        oldest = next(spared, next(iter(self._all)))
        for worker in self._all.pop(oldest).workers:
            del self._owners[worker]
        self._offenders.pop(oldest, None)

    def _restore(self, entry: StandingKept) -> None:
        standing = self._of(entry.owner)
        standing.in_row = entry.in_row
        standing.believed = entry.believed
        standing.failures = entry.failures
        standing.offences = entry.offences
        standing.shunned_until_s = entry.shunned_until_s
        for worker, judged, disagreed in entry.workers:
            standing.workers[worker] = Tally(judged, disagreed)
            self._owners[worker] = entry.owner
        if entry.shunned_until_s > 0:
            self._offenders[entry.owner] = None
