"""The DiLoCo aggregator as a machine: who joins a sync, and when it closes.

A sync is closed when all that take part have contributed, or when a quorum has and
its time is up. Whoever dies is dropped; a newcomer takes the weights of now and takes
part from the next sync on. What a worker contributed is counted by the samples that
it really processed.

Fail-over: an aggregator that starts knows nothing. Workers tell it in every status
which checkpoint they keep and what they contributed since, so it loads the latest
checkpoint that anybody keeps and closes again the syncs that came after it. Workers
drop a contribution only when enough of them keep a checkpoint that includes it, so no
sync is lost. If all of them are gone as well, it goes on from the checkpoint that an
earlier life left for itself, which is older.
"""

from __future__ import annotations

from typing import Final, Literal, assert_never, final

import msgspec

from shoal.train.diloco.messages import (
    Contribution,
    Directive,
    KeptState,
    Status,
    Update,
)
from shoal.train.diloco.pace import StepPace

UPDATES_KEPT: Final = 8
"""Outcomes that stay for workers who lag; who lags more takes all weights anew."""


class RoundRules(msgspec.Struct, frozen=True, kw_only=True):
    """The rules of a run."""

    rounds: int
    inner_steps: int
    fragments: int = 1
    quorum: int = 1
    workers: int = 1  # as many as are expected to come
    gather_s: float = 20.0  # how long the first waits for the others
    silence_s: float = 20.0  # who is not heard for so long is gone
    timeout_s: float = 600.0  # for a sync whose duration cannot be foreseen
    slack: float = 3.0  # else: this many times as long as it should take
    timeout_least_s: float = 10.0
    keepers: int = 2
    balance: bool = True
    validate_every: int = 1  # rounds

    @property
    def syncs(self) -> int:
        """How many syncs there are in all."""
        return self.rounds * self.fragments

    @property
    def in_flight(self) -> int:
        """How many syncs a worker may be ahead of their outcome."""
        return 0 if self.fragments == 1 else 1


# Facts.


class StatusReceived(msgspec.Struct, frozen=True):
    """A worker reported its status."""

    status: Status


class WorkerLost(msgspec.Struct, frozen=True):
    """A worker is gone for sure."""

    worker: str


class Fetched(msgspec.Struct, frozen=True):
    """The file of a contribution is here."""

    worker: str
    contribution: Contribution


class FetchFailed(msgspec.Struct, frozen=True):
    """The file of a contribution cannot be fetched now."""

    worker: str
    contribution: Contribution


class Loaded(msgspec.Struct, frozen=True):
    """The weights are here, as they were after this many syncs."""

    syncs: int
    weights: str
    checkpoint: str


class LoadFailed(msgspec.Struct, frozen=True):
    """This worker's weights cannot be fetched."""

    worker: str


class Averaged(msgspec.Struct, frozen=True):
    """The outcome of a sync is computed, and its checkpoint is written."""

    update: Update
    weights: str
    checkpoint: str


class RoundDeadline(msgspec.Struct, frozen=True):
    """The time that `next_deadline` named has come."""


Event = (
    StatusReceived
    | WorkerLost
    | Fetched
    | FetchFailed
    | Loaded
    | LoadFailed
    | Averaged
    | RoundDeadline
)


# Orders.


class DirectMember(msgspec.Struct, frozen=True):
    """Send a worker its directive."""

    worker: str
    directive: Directive


class Fetch(msgspec.Struct, frozen=True):
    """Get the file of a contribution; answered by `Fetched` or `FetchFailed`."""

    worker: str
    contribution: Contribution


class LoadState(msgspec.Struct, frozen=True):
    """Get weights to begin with; answered by `Loaded` or `LoadFailed`."""

    kind: Literal["initial", "checkpoint", "weights"]
    worker: str  # who has them; empty if that is an earlier life of the aggregator
    syncs: int
    file: str


class Average(msgspec.Struct, frozen=True):
    """Compute the outcome of a sync; answered by `Averaged`."""

    sync: int
    fragment: int
    parts: tuple[tuple[str, Contribution], ...]
    missing: tuple[str, ...] = ()


class StopTraining(msgspec.Struct, frozen=True):
    """All is done and every worker knows."""


Effect = DirectMember | Fetch | LoadState | Average | StopTraining


class _Member(msgspec.Struct):
    """A worker that takes part, or is about to."""

    status: Status
    heard_at: float
    first: int = 0
    steps: dict[int, int] = msgspec.field(default_factory=dict[int, int])
    asked: dict[int, str] = msgspec.field(default_factory=dict[int, str])
    told: Directive | None = None


@final
class Rounds:
    """Decides; the aggregator's host does it, in the order returned."""

    def __init__(
        self, rules: RoundRules, epoch: int, left: KeptState | None = None
    ) -> None:
        """Start from what an earlier aggregator has `left`, if anything.

        `epoch` is larger than in any earlier life.
        """
        assert rules.quorum >= 1
        self._left = left
        self.rules = rules
        self.phase: Literal["gathering", "loading", "running", "finished"] = "gathering"
        self.closed = 0  # syncs
        self.pace = StepPace()
        self._epoch = epoch
        self._members: dict[str, _Member] = {}
        self._ready: dict[int, dict[str, Contribution]] = {}
        self._updates: dict[int, Update] = {}
        self._weights = ""
        self._checkpoint = ""
        self._safe = 0
        self._seq = 0
        self._gathering_since: float | None = None
        self._opened_at = 0.0
        self._averaging = False
        self._stopped = False

    # What others may read.

    @property
    def members(self) -> tuple[str, ...]:
        """The names of all workers."""
        return tuple(sorted(self._members))

    @property
    def taking_part(self) -> tuple[str, ...]:
        """Workers whose contribution to the open sync is awaited or here."""
        return tuple(name for name in self.members if self._is_awaited(name))

    def handle(self, event: Event, now: float) -> list[Effect]:
        """Take in one fact; return what to do about it. Raising is a bug."""
        match event:
            case StatusReceived():
                effects = self._on_status(event.status, now)
            case WorkerLost():
                self._lose(event.worker)
                effects = []
            case Fetched():
                effects = self._on_fetched(event)
            case FetchFailed():
                self._on_fetch_failed(event)
                effects = []
            case Loaded():
                effects = self._on_loaded(event, now)
            case LoadFailed():
                self._on_load_failed(event, now)
                effects = []
            case Averaged():
                effects = self._on_averaged(event, now)
            case RoundDeadline():
                effects = self._on_deadline(now)
            case _:
                assert_never(event)
        effects += self._advance(now)
        self._check()
        return effects

    def next_deadline(self) -> float | None:
        """When to deliver `RoundDeadline`, if ever."""
        if self._stopped:
            return None
        due = [m.heard_at + self.rules.silence_s for m in self._members.values()]
        if self.phase == "gathering" and self._gathering_since is not None:
            due.append(self._gathering_since + self.rules.gather_s)
        if self.phase == "running" and self._closable():
            due.append(self._time_is_up_at())
        return min(due, default=None)

    # Workers.

    def _on_status(self, status: Status, now: float) -> list[Effect]:
        member = self._members.get(status.worker)
        if member is not None:
            old = member.status
            if (status.life, status.seq) <= (old.life, old.seq):
                return []  # Late or repeated.
            if status.life > old.life:
                self._lose(status.worker)
                member = None
        if member is None:
            member = self._welcome(status, now)
        member.status = status
        member.heard_at = now
        effects: list[Effect] = []
        for contribution in status.contributions:
            effects += self._on_contribution(status.worker, member, contribution)
        if member.told is None or status.heard != (self._epoch, member.told.seq):
            effects += self._tell(status.worker, again=True)
        return effects

    def _welcome(self, status: Status, now: float) -> _Member:
        """Take a newcomer in, from the next sync on unless this one needs it."""
        if self._gathering_since is None:
            self._gathering_since = now
        first = self.closed
        if self.phase == "running":
            if len(self.taking_part) >= self.rules.quorum:
                first = self.closed + 1
            else:
                self._opened_at = now
        member = _Member(status=status, heard_at=now, first=first)
        self._members[status.worker] = member
        return member

    def _on_contribution(
        self, worker: str, member: _Member, contribution: Contribution
    ) -> list[Effect]:
        """Fetch a contribution that is new and can still count."""
        sync = contribution.sync
        known = self._ready.get(sync, {}).get(worker)
        if known == contribution or member.asked.get(sync) == contribution.file:
            return []
        if sync < self.closed or self.phase == "finished":
            return []
        member.asked[sync] = contribution.file
        return [Fetch(worker, contribution)]

    def _on_fetched(self, event: Fetched) -> list[Effect]:
        contribution = event.contribution
        self.pace.measured(event.worker, contribution.steps, contribution.seconds)
        if contribution.sync >= self.closed:
            ready = self._ready.setdefault(contribution.sync, {})
            ready[event.worker] = contribution
        return []

    def _on_fetch_failed(self, event: FetchFailed) -> None:
        """Fetch it again when the worker offers it again."""
        member = self._members.get(event.worker)
        if member is not None:
            member.asked.pop(event.contribution.sync, None)

    def _lose(self, worker: str) -> None:
        """Drop a worker; what it has contributed already still counts."""
        if self._members.pop(worker, None) is not None:
            self.pace.forget(worker)

    # Beginning.

    def _begin(self, now: float) -> list[Effect]:
        """Load the latest checkpoint that any worker keeps, or initial weights."""
        members = self._members
        waited = self._gathering_since is not None and (
            now >= self._gathering_since + self.rules.gather_s
        )
        if len(members) < self.rules.quorum:
            return []
        if len(members) < self.rules.workers and not waited:
            return []
        held = [(s.holds.syncs, s.worker, s.holds) for s in self._said() if s.holds]
        far = max((status.merged for status in self._said()), default=0)
        if self._left is not None and (held or self._left.syncs >= far):
            held.append((self._left.syncs, "", self._left))
        if held:
            syncs, worker, kept = max(held, key=lambda each: each[:2])
            load = LoadState("checkpoint", worker, syncs, kept.file)
        elif far > 0:
            offers = [s for s in self._said() if s.offered and s.offered.syncs == far]
            if not offers:
                return self._ask_for_weights()
            offered = offers[0].offered
            assert offered is not None
            load = LoadState("weights", offers[0].worker, far, offered.file)
        else:
            first = min((s.worker, s.initial) for s in self._said())
            load = LoadState("initial", first[0], 0, first[1])
        self.phase = "loading"
        return [load]

    def _ask_for_weights(self) -> list[Effect]:
        return [
            effect for name in self.members for effect in self._tell(name, again=False)
        ]

    def _said(self) -> list[Status]:
        return [self._members[name].status for name in self.members]

    def _on_loaded(self, event: Loaded, now: float) -> list[Effect]:
        if self.phase != "loading":
            return []
        self.phase = "running"
        self.closed = event.syncs
        self._weights, self._checkpoint = event.weights, event.checkpoint
        self._opened_at = now
        stale = [sync for sync in self._ready if sync < self.closed]
        for sync in stale:
            del self._ready[sync]
        for member in self._members.values():
            member.first = self.closed
        return []

    def _on_load_failed(self, event: LoadFailed, now: float) -> None:
        """Go on without that worker: it is gone, or will offer its state again."""
        if self.phase == "loading":
            self.phase = "gathering"
            self._gathering_since = now - self.rules.gather_s
            self._lose(event.worker)
            self._left = self._left if event.worker else None

    # Closing syncs.

    def _advance(self, now: float) -> list[Effect]:
        """Do all that can be done now."""
        effects: list[Effect] = []
        if self.phase == "gathering":
            effects += self._begin(now)
        if self.phase == "running" and not self._averaging:
            if self.closed >= self.rules.syncs:
                self.phase = "finished"
            elif self._closable() and self._is_due(now):
                effects.append(self._close())
        if self.phase in ("running", "finished"):
            self._note_safe()
            for name in self.members:
                effects += self._tell(name, again=False)
        if self.phase == "finished" and not self._stopped and self._all_know():
            self._stopped = True
            effects.append(StopTraining())
        return effects

    def _is_awaited(self, worker: str) -> bool:
        member = self._members[worker]
        return member.first <= self.closed and not member.status.leaving

    def _closable(self) -> bool:
        """Whether enough is here to close the open sync, if need be."""
        ready = self._ready.get(self.closed, {})
        return not self._averaging and len(ready) >= self.rules.quorum

    def _is_due(self, now: float) -> bool:
        return not self._missing() or now >= self._time_is_up_at()

    def _missing(self) -> tuple[str, ...]:
        ready = self._ready.get(self.closed, {})
        return tuple(name for name in self.taking_part if name not in ready)

    def _time_is_up_at(self) -> float:
        """Say when the open sync closes without the missing workers."""
        longest = 0.0
        for name in self.taking_part:
            steps = self._members[name].steps.get(self.closed, self._segment_steps())
            seconds = self.pace.seconds(name, steps)
            if seconds is None:
                return self._opened_at + self.rules.timeout_s
            longest = max(longest, seconds)
        longest *= self.rules.slack * (1 + self.rules.in_flight)
        return self._opened_at + max(self.rules.timeout_least_s, longest)

    def _close(self) -> Average:
        ready = self._ready.get(self.closed, {})
        self._averaging = True
        return Average(
            sync=self.closed,
            fragment=self.closed % self.rules.fragments,
            parts=tuple(sorted(ready.items(), key=lambda each: each[0])),
            missing=self._missing(),
        )

    def _on_averaged(self, event: Averaged, now: float) -> list[Effect]:
        assert self._averaging
        assert event.update.sync == self.closed
        self._averaging = False
        self._ready.pop(self.closed, None)
        self._updates[self.closed] = event.update
        self._updates.pop(self.closed - UPDATES_KEPT, None)
        self.closed += 1
        self._weights, self._checkpoint = event.weights, event.checkpoint
        self._opened_at = now
        for member in self._members.values():
            for past in [s for s in member.steps if s < self.closed]:
                del member.steps[past]
            for past in [s for s in member.asked if s < self.closed]:
                del member.asked[past]
        return []

    # Telling.

    def _tell(self, worker: str, *, again: bool) -> list[Effect]:
        """Send a worker its directive, if it changed or must be repeated."""
        member = self._members[worker]
        wanted = self._directive(worker, member)
        if member.told is not None:
            same = msgspec.structs.replace(member.told, seq=0)
            if same == wanted:
                return [DirectMember(worker, member.told)] if again else []
        self._seq += 1
        member.told = msgspec.structs.replace(wanted, seq=self._seq)
        return [DirectMember(worker, member.told)]

    def _directive(self, worker: str, member: _Member) -> Directive:
        life = member.status.life
        if self.phase in ("gathering", "loading"):
            far = max((status.merged for status in self._said()), default=0)
            is_wanted = far > 0 and member.status.merged == far
            offer = self.phase == "gathering" and is_wanted
            return Directive(epoch=self._epoch, seq=0, life=life, offer=offer)
        last = min(self.closed + self.rules.in_flight, self.rules.syncs - 1)
        for segment in range(max(member.first, self.closed), last + 1):
            if segment not in member.steps:
                member.steps[segment] = self._steps_of(worker)
        updates = [u for s, u in self._updates.items() if s >= member.status.merged]
        return Directive(
            epoch=self._epoch,
            seq=0,
            life=life,
            syncs=self.closed,
            first=member.first,
            weights=self._weights,
            updates=tuple(updates),
            reload=self._is_astray(member.status),
            steps={str(segment): steps for segment, steps in member.steps.items()},
            keep=self._to_keep(worker),
            safe=self._safe,
            validate=self._is_validator(worker),
            finished=self.phase == "finished",
        )

    def _is_astray(self, status: Status) -> bool:
        """Whether a worker merged another outcome than ours, before a fail-over."""
        ours = self._updates.get(status.merged - 1)
        return ours is not None and ours.check != status.check

    def _segment_steps(self) -> int:
        return max(1, round(self.rules.inner_steps / self.rules.fragments))

    def _steps_of(self, worker: str) -> int:
        most = self._segment_steps()
        if not self.rules.balance:
            return most
        return self.pace.steps(worker, most, self._members)

    def _to_keep(self, worker: str) -> KeptState | None:
        """Return the checkpoint that a worker is to keep, if it is one of the keepers.

        Workers that keep one already go on, so that checkpoints stay where they are.
        """
        if self.closed == 0:
            return None

        def rank(name: str) -> tuple[bool, str]:
            return self._members[name].status.holds is None, name

        if worker not in sorted(self.members, key=rank)[: self.rules.keepers]:
            return None
        return KeptState(self.closed, self._checkpoint)

    def _note_safe(self) -> None:
        """Say up to where contributions are no longer needed: never less than before.

        A checkpoint is safe with as many workers as there are to keep it.
        """
        held = sorted((s.holds.syncs for s in self._said() if s.holds), reverse=True)
        enough = min(self.rules.keepers, len(self._members))
        if enough and len(held) >= enough:
            self._safe = max(self._safe, held[enough - 1])

    def _is_validator(self, worker: str) -> bool:
        """Whether it is a worker's turn to validate the current weights."""
        if self.phase != "finished":
            rounds, rest = divmod(self.closed, self.rules.fragments)
            if rest or rounds == 0 or rounds % self.rules.validate_every:
                return False
        turn = 0 if self.phase == "finished" else self.closed
        return self.members[turn % len(self.members)] == worker

    # The end.

    def _all_know(self) -> bool:
        return all(member.status.leaving for member in self._members.values())

    def _on_deadline(self, now: float) -> list[Effect]:
        for name in self.members:
            if self._members[name].heard_at + self.rules.silence_s <= now:
                self._lose(name)
        return []

    def _check(self) -> None:
        assert self.phase != "finished" or self.closed >= self.rules.syncs
        assert all(sync >= self.closed for sync in self._ready)
        assert len(self._updates) <= UPDATES_KEPT
