"""The DiLoCo aggregator as a machine: who joins a sync, and when it closes.

Workers send their `Status`, each second and at every change; each is sent a `Directive`
when something else is wanted of it, and again until it has heard. Both say everything,
and name files instead of data. Nothing is durable here: workers keep checkpoints, and
their contributions since (`safekeeping`). The phases of a run:
- **gathering**, until all workers are there, or a quorum and the time is up: soon, if
  any of them has trained before.
- **loading** (`LoadState`) the latest checkpoint of anybody, or initial weights.
- **running**: one sync is open. Contributions are fetched and judged (`screening`). It
  closes (`Average`) when all that take part have contributed, or a quorum has and the
  others are silent or late (`pace`). Newcomers take weights and what loops keep.
- **finished**: all syncs are closed; workers merge, measure and leave.
"""

from __future__ import annotations

from collections import Counter
from typing import Literal, assert_never, final

import msgspec

from shoal.train.diloco.events import (
    Average,
    Averaged,
    DirectMember,
    Effect,
    Event,
    Fetch,
    Fetched,
    FetchFailed,
    InnerSaved,
    Loaded,
    LoadFailed,
    LoadState,
    PartsLost,
    Published,
    ReportMember,
    RoundDeadline,
    StatusReceived,
    StopTraining,
    UpdatesLost,
    WorkerLost,
)
from shoal.train.diloco.messages import (
    SHARES_TOLD,
    Contribution,
    Directive,
    KeptState,
    Status,
    Update,
    in_flight,
)
from shoal.train.diloco.pace import Patience, StepPace, WaitLimit
from shoal.train.diloco.roster.attendance import Attendance, Judgement
from shoal.train.diloco.roster.enrolled_worker import EnrolledWorker
from shoal.train.diloco.roster.inner_handover import InnerHandover
from shoal.train.diloco.roster.publications import Publications
from shoal.train.diloco.roster.safekeeping import agreeing, state_to_load
from shoal.train.diloco.rules import REJOIN_S, UPDATES_KEPT, RoundRules
from shoal.train.diloco.screening import Received, fault_of, remarks, screened


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
        self.shares = 0  # that workers average themselves; 0 if this is the centre
        self.pace = StepPace()
        self._patience = Patience()
        self._epoch = epoch
        self._members: dict[str, EnrolledWorker] = {}
        self._names: tuple[str, ...] = ()  # of members, in order
        self._heard: dict[str, float] = {}  # when each was, the longest ago first
        self._attendance = Attendance(self._judged)
        self._measured = 0  # how often something about the pace was learned
        self._wait: tuple[tuple[object, ...], WaitLimit] = (), WaitLimit()
        self._far_known: int | None = None  # until it may have changed
        self._began, self._began_far = False, 0  # the latter when the run went on
        self._touched: dict[str, None] = {}  # members of whom there is news
        self._told_of: tuple[object, ...] = ()  # what all members have been told
        self._ready: dict[int, dict[str, Received]] = {}
        self._refused: dict[int, dict[str, str]] = {}
        self._usual: dict[int, float] = {}  # norm of a delta, by fragment
        self._alike: dict[tuple[str, str], None] = {}  # as was reported
        self._updates: dict[int, Update] = {}
        self._received: dict[tuple[str, int], dict[str, int]] = {}  # by worker and life
        self._loading: LoadState | None = None
        self._cannot_replay = False
        self._out = Publications(rules)
        self._inner = InnerHandover(2 * rules.fragments)
        self._seq = 0
        self._gather_until: float | None = None  # 0 once it was waited for
        self._opened_at = self._opened_before = 0.0  # the sync that was closed last
        self._averaging = self._stopped = self._failed = False

    # What others may read.

    @property
    def members(self) -> tuple[str, ...]:
        """The names of all workers."""
        return self._names

    @property
    def taking_part(self) -> tuple[str, ...]:
        """Workers whose contribution to the open sync is awaited or here."""
        part = self._now_here.taking_part
        return tuple(name for name in self.members if name in part)

    @property
    def safe(self) -> int:
        """Syncs to which nobody will be asked for a contribution any more."""
        return self._out.safe

    @property
    def awaited(self) -> tuple[str, ...]:
        """Workers whose contribution to the open sync is not here yet."""
        return tuple(sorted(self._now_here.missing))

    @property
    def received(self) -> dict[str, int]:
        """Bytes that all workers so far took from other nodes, by kind."""
        return dict(sum(map(Counter, self._received.values()), Counter[str]()))

    def handle(self, event: Event, now: float) -> list[Effect]:
        """Take in one fact; return what to do about it. Raising is a bug."""
        effects: list[Effect] = []
        match event:
            case StatusReceived():
                effects = self._on_status(event.status, now)
            case WorkerLost():
                self._lose(event.worker)
            case Fetched():
                effects = self._on_fetched(event, now)
            case FetchFailed():
                self._on_fetch_failed(event)
            case Loaded():
                effects = self._on_loaded(event, now)
            case LoadFailed():
                self._on_load_failed(event)
            case Averaged():
                effects = self._on_averaged(event, now)
            case Published():
                effects = self._on_published(event)
            case PartsLost():
                self._on_parts_lost(event)
            case UpdatesLost():
                self._on_updates_lost(event)
            case InnerSaved():
                self._inner.saved = "yes"
            case RoundDeadline():
                self._on_deadline(now)
            case _:
                assert_never(event)
        effects += self._advance(now)
        self._check()
        return effects

    def next_deadline(self) -> float | None:
        """When to deliver `RoundDeadline`, if ever."""
        if self._stopped:
            return None
        oldest = next(iter(self._heard.values()), None)
        due = [] if oldest is None else [oldest + self.rules.silence_s]
        if self.phase == "gathering" and self._gather_until:
            due.append(self._gather_until)
        if self.phase == "finished" and self._is_saved:
            due.append(self._opened_at + self.rules.timeout_s)
        if self.phase == "running" and self._closable():
            waiting = self._how_long()
            due += [waiting.is_up_at, waiting.all_silent_at]
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
        self._note_changes(member.status, status)
        member.status = status
        self._heard.pop(status.worker, None)
        self._heard[status.worker] = now
        self._attendance.note(status.worker)
        self._touched[status.worker] = None
        self._patience.heard(status.worker, now)
        self._received[status.worker, status.life] = status.received
        effects: list[Effect] = []
        for contribution in status.contributions:
            effects += self._on_contribution(member, contribution, now)
        if member.must_repeat(self._epoch, now):
            effects += self._tell(status.worker, now, again=True)
        return effects

    def _note_changes(self, old: Status, new: Status) -> None:
        """Note what a worker's status changes about all workers."""
        if old.holds != new.holds or (self.shares and old.merged != new.merged):
            self._out.note_keeping()
        if self._far_known is None or old.merged == new.merged:
            return
        merged = min(new.merged, self.rules.syncs)
        if merged >= self._far_known:
            self._far_known = merged
        elif old.merged >= self._far_known:
            self._far_known = None  # It was the most advanced, and is so no more.

    def _welcome(self, status: Status, now: float) -> EnrolledWorker:
        """Take a newcomer in; in the open sync, if it can still do some steps."""
        if self._gather_until is None:
            self._gather_until = now + self.rules.gather_s
        if status.merged and self._gather_until:
            self._gather_until = min(self._gather_until, now + REJOIN_S)
        first, steps = self.closed, 0
        if self.phase == "running":
            if self._is_replaying():
                first = self.closed if status.loaded else self._far
            elif len(self.taking_part) >= self.rules.quorum:
                steps = self._steps_left(now)
                first = self.closed if steps else self.closed + 1
            else:
                self._opened_at = now
        given = {self.closed: steps} if steps else {}
        member = EnrolledWorker(status=status, first=first, steps=given)
        self._members[status.worker] = member
        self._names, self._far_known = tuple(sorted(self._members)), None
        self._out.note_keeping()
        return member

    def _steps_left(self, now: float) -> int:
        """Return how many steps a newcomer can do until the open sync should close."""
        if self._averaging:
            return 0
        expected = (seconds or 0.0 for seconds in self._expected().values())
        left_s = self._opened_at + max(expected, default=0.0) - now
        return self.pace.steps_within(left_s, self._segment_steps())

    def _on_contribution(
        self, member: EnrolledWorker, contribution: Contribution, now: float
    ) -> list[Effect]:
        """Fetch a contribution that is new and can still count."""
        sync, worker = contribution.sync, member.status.worker
        if self.phase != "running" or member.asked.get(sync) == contribution.file:
            return []
        known = self._ready.get(sync, {}).get(worker)
        if known is not None and known.contribution == contribution:
            return []
        if sync < self.closed:
            if sync >= member.first and sync > member.measured:
                # It came too late, and may be waited for the next time.
                self._measure(worker, contribution, 0.0)
                member.measured = sync
                if sync == self.closed - 1:
                    self._note_lateness(worker, contribution, now - self._opened_before)
            return []
        member.asked[sync] = contribution.file
        return [Fetch(worker, self._plausible(member, contribution, now))]

    def _plausible(
        self, member: EnrolledWorker, said: Contribution, now: float
    ) -> Contribution:
        """Return a contribution with no more steps or time than there can have been.

        Others wait, and compute, by what a worker says of its speed.
        """
        if self._is_replaying():
            return said
        most_s = self.rules.timeout_s
        seconds = min(said.seconds, now - member.contributed_at, most_s)
        member.contributed_at = now
        return msgspec.structs.replace(
            said,
            seconds=seconds,
            steps=min(said.steps, self._segment_steps()),
            fetch_s=min(said.fetch_s, most_s),
        )

    def _on_fetched(self, event: Fetched, now: float) -> list[Effect]:
        contribution, worker = event.contribution, event.worker
        self._measure(worker, contribution, event.seconds)
        if contribution.sync == self.closed:
            self._note_lateness(worker, contribution, now - self._opened_at)
        if contribution.sync < self.closed:
            return []
        fault = event.fault or fault_of(contribution, event.norm)
        if fault:
            return self._refuse(worker, contribution.sync, fault)
        ready = self._ready.setdefault(contribution.sync, {})
        ready[worker] = Received(contribution, event.norm)
        self._refused.get(contribution.sync, {}).pop(worker, None)
        if member := self._members.get(worker):
            member.refused = ""
            self._attendance.note(worker)
            self._touched[worker] = None
        return []

    def _measure(self, worker: str, contribution: Contribution, sent_s: float) -> None:
        if worker not in self._members:
            return
        self._measured += 1
        self.pace.measured(worker, contribution.steps, contribution.seconds)
        self.pace.transferred(worker, sent_s + contribution.fetch_s)

    def _note_lateness(self, worker: str, of: Contribution, took_s: float) -> None:
        expected_s = self.pace.seconds(worker, of.steps)
        if expected_s is not None and worker in self._members:
            counts = of.sync == self.closed
            self._patience.came(worker, took_s - expected_s, counts=counts)

    def _refuse(self, worker: str, sync: int, fault: str) -> list[Effect]:
        """Go on without a contribution that cannot count."""
        self._refused.setdefault(sync, {})[worker] = fault
        self._ready.get(sync, {}).pop(worker, None)
        if member := self._members.get(worker):
            member.refused = fault
            member.refusals += 1
            self._attendance.note(worker)
            self._touched[worker] = None
        return [ReportMember("refused", worker, sync, fault)]

    def _on_fetch_failed(self, event: FetchFailed) -> None:
        """Fetch it again when the worker offers it again."""
        member = self._members.get(event.worker)
        if member is not None:
            member.asked.pop(event.contribution.sync, None)

    def _lose(self, worker: str) -> None:
        """Drop a worker; what it has contributed already still counts."""
        if self._members.pop(worker, None) is not None:
            self.pace.forget(worker)
            self._patience.forget(worker)
            self._names, self._far_known = tuple(sorted(self._members)), None
            del self._heard[worker]
            self._out.note_keeping()
        self._inner.forget(worker)

    # Beginning.

    def _begin(self, now: float) -> list[Effect]:
        """Load the latest checkpoint that any worker keeps, or initial weights."""
        if self._gather_until is not None and now >= self._gather_until:
            self._gather_until = 0.0
        if len(self._members) < self.rules.quorum:
            return []
        if len(self._members) < self.rules.workers and self._gather_until:
            return []
        can_replay, left = not self._cannot_replay, self._left
        load = state_to_load(self._said(), self._far, left, can_replay=can_replay)
        if load is None:
            return [
                e for name in self.members for e in self._tell(name, now, again=False)
            ]
        self._loading = load
        self.phase = "loading"
        return [load]

    def _said(self) -> list[Status]:
        return [self._members[name].status for name in self.members]

    @property
    def _far(self) -> int:
        """How many syncs the most advanced worker has merged."""
        if self._far_known is None:
            merged = (min(s.merged, self.rules.syncs) for s in self._said())
            self._far_known = max(merged, default=0)
        # Once this aggregator goes on, nobody has merged what it did not close, or hear
        # of until then: who says so errs, or lies.
        known = max(self._began_far, self.closed)
        return min(self._far_known, known) if self._began else self._far_known

    def _is_replaying(self) -> bool:
        """Whether the open sync was closed before, in an earlier life."""
        return self.phase == "running" and self.closed < self._far

    def _on_loaded(self, event: Loaded, now: float) -> list[Effect]:
        if self.phase != "loading":
            return []
        load = self._loading
        assert load is not None
        self._cannot_replay &= load.kind != "checkpoint"
        self._began, self._began_far = True, max(self._far, event.syncs)
        self.phase = "running"
        self.closed = event.syncs
        self._opened_at = now
        effects = self._out.begin(load, event, is_shared=bool(self.shares))
        if event.inner:
            self._inner.kept = KeptState(event.syncs, event.inner)
        for past in [sync for sync in self._ready if sync < self.closed]:
            del self._ready[past]
        for member in self._members.values():
            replays = member.status.loaded or not self._is_replaying()
            member.first = self.closed if replays else self._far
        return effects

    def _on_load_failed(self, event: LoadFailed) -> None:
        """Go on without that worker: it is gone, or will offer its state again."""
        if self.phase == "loading":
            self.phase = "gathering"
            self._gather_until = 0.0
            self._lose(event.worker)
            self._left = self._left if event.worker else None

    def _on_updates_lost(self, event: UpdatesLost) -> None:
        """Go on from what workers have merged, if one lacks an outcome that is gone."""
        for sync in event.syncs:
            self._updates.pop(sync, None)
        if not event.unmerged:
            return
        self.phase = "gathering"
        self._gather_until = 0.0
        self._averaging = False
        self._out.withdraw()
        for known in (self._updates, self._ready, self._refused):
            known.clear()
        for member in self._members.values():
            member.asked.clear()

    # Closing syncs.

    def _advance(self, now: float) -> list[Effect]:
        """Take every step that is possible now."""
        effects: list[Effect] = []
        if self._stopped:
            return effects
        if self.phase == "gathering":
            effects += self._begin(now)
        if self.phase == "running" and not self._averaging:
            if self.closed >= self.rules.syncs:
                self.phase = "finished"
                self._inner.asked = self.closed
            elif self._closable() and self._is_due(now):
                effects += self._close(now)
            elif self._is_replaying() and self._nothing_can_come():
                self._take_weights_of_others()
        if self.phase in ("running", "finished"):
            narrow, is_shared = self.pace.narrow(), bool(self.shares)
            self._out.choose_keepers(self._said(), narrow, is_shared=is_shared)
            effects += self._take_inner()
            if self._weights_are_wanted():
                effects += self._out.publish("weights")
            if self.phase == "finished" and not self._is_saved:
                effects += self._out.publish("checkpoint")
            effects += self._tell_news(now)
        if self.phase == "finished" and self._all_know(now):
            self._stopped = True
            effects.append(StopTraining())
        return effects

    @property
    def _now_here(self) -> Attendance:
        """Who takes part, and who lacks what, as of now."""
        common = (self.phase, self.closed, self._names, self._far, (*self._updates,))
        self._attendance.refresh(self._names, common)
        return self._attendance

    def _judged(self, worker: str) -> Judgement:
        member = self._members.get(worker)
        if member is None:
            return Judgement()
        status = member.status
        is_awaited = self._is_awaited(member)
        answered = any(worker in answers for answers in self._answered())
        return Judgement(
            takes_part=is_awaited,
            is_missing=is_awaited and not answered,
            cannot_follow=self._cannot_follow(status),
            is_fresh=status.inner_is == "fresh",
            is_trained=status.inner_is == "trained",
        )

    def _is_awaited(self, member: EnrolledWorker) -> bool:
        status = member.status
        if member.first > self.closed or status.leaving:
            return False
        return status.segment <= self.closed or not status.denies(self.closed)

    def _answered(self) -> tuple[dict[str, Received], dict[str, str]]:
        """Return the contributions to the open sync that are here, and the refused."""
        return self._ready.get(self.closed, {}), self._refused.get(self.closed, {})

    def _closable(self) -> bool:
        """Whether enough is here to close the open sync, if need be."""
        ready, refused = self._answered()
        if self._averaging or not (ready or refused):
            return False
        if len(ready) + len(refused) >= self.rules.quorum:
            return bool(ready) or not self._now_here.missing
        return self._is_replaying() and bool(ready) and not self._now_here.missing

    def _nothing_can_come(self) -> bool:
        """Whether all who contributed to the open sync are gone."""
        if not self._members or any(self._answered()):
            return False
        return not self._now_here.missing

    def _take_weights_of_others(self) -> None:
        """Begin again from what the workers have merged."""
        self.phase, self._cannot_replay = "gathering", True

    def _is_due(self, now: float) -> bool:
        missing = self._now_here.missing
        if self._is_replaying():  # Of the past, all are awaited.
            return not missing or now >= self._how_long().is_up_at
        heard = any(not self._patience.is_silent(name) for name in missing)
        return not heard or now >= self._how_long().is_up_at

    def _how_long(self) -> WaitLimit:
        """Say how long the open sync waits.

        A sign of life only puts off when all are silent. So it is computed anew when a
        contribution comes, somebody goes, or a deadline is there, and not for each.
        """
        here = self._now_here
        known_by = (here.version, self._measured, self._opened_at)
        if self._wait[0] != known_by:
            expected, is_past = self._expected(), self._is_replaying()
            found = self._patience.wait_limit(
                self.rules, self._opened_at, expected, here.missing, is_past=is_past
            )
            self._wait = known_by, found
        return self._wait[1]

    def _expected(self) -> dict[str, float | None]:
        """Return how long each should take for the open sync, if that is known."""
        most, open_ = self._segment_steps(), self.closed
        return {
            name: self.pace.seconds(name, self._members[name].steps.get(open_, most))
            for name in self._now_here.taking_part
        }

    def _close(self, now: float) -> list[Effect]:
        """Average what counts of the open sync; report what does not, and why."""
        ready, _ = self._answered()
        fragment = self.closed % self.rules.fragments
        found = screened(ready, self._usual.get(fragment))
        noted = remarks(ready, found, self._alike)
        effects: list[Effect] = [
            ReportMember(k, w, self.closed, r) for k, w, r in noted
        ]
        for worker, fault in found.refused.items():
            effects += self._refuse(worker, self.closed, fault)
        missing = self.awaited
        waited_s = now - self._opened_at
        for worker in missing:
            reason = f"nothing came from it in {waited_s:.0f} s"
            effects.append(ReportMember("left-out", worker, self.closed, reason))
            self.pace.missed(worker)
            self._patience.missed(worker)
            self._measured += 1
        _, refused = self._answered()
        if not found.parts:
            return [*effects, *self._give_up(refused, now)]
        self._usual[fragment] = found.usual
        self._averaging = True
        effects.append(
            Average(self.closed, fragment, found.parts, missing, dict(refused))
        )
        return effects

    def _on_averaged(self, event: Averaged, now: float) -> list[Effect]:
        assert self._averaging
        assert event.update.sync == self.closed
        replayed = self._is_replaying()
        self._averaging = False
        self._ready.pop(self.closed, None)
        self._refused.pop(self.closed, None)
        self._updates[self.closed] = event.update
        self._updates.pop(self.closed - UPDATES_KEPT, None)
        self.closed += 1
        took_s = now - self._opened_at
        self._opened_before, self._opened_at = self._opened_at, now
        for member in self._members.values():
            for past in [s for s in member.steps if s < self.closed]:
                del member.steps[past]
            for past in [s for s in member.asked if s < self.closed - 1]:
                del member.asked[past]
        if replayed and self.closed == self._far:
            found = agreeing(self._said(), self._far)
            if len(found) > 1 and found[0].check != event.update.check:
                self._take_weights_of_others()
        return self._out.after_sync(self.closed, took_s)

    def _on_parts_lost(self, event: PartsLost) -> None:
        """Close the sync without them, if it was about to be closed with them."""
        if event.sync == self.closed:
            self._averaging = False
        self._ready.get(event.sync, {}).pop(event.worker, None)
        self._attendance.note(event.worker)

    # Weights and checkpoints for others.

    @property
    def _is_saved(self) -> bool:
        """Whether the last weights are here: without a centre they are elsewhere."""
        kept = self._out.checkpoint
        return not self.shares or (kept is not None and kept.syncs >= self.closed)

    def _on_published(self, event: Published) -> list[Effect]:
        if event.kind == "checkpoint":  # The host has it as well.
            self._left = KeptState(event.syncs, event.file)
        return self._out.published(event)

    def _weights_are_wanted(self) -> bool:
        """Whether a worker cannot follow because there are no weights to take."""
        return bool(self._now_here.lacking) and self._weights_now() is None

    def _weights_now(self) -> KeptState | None:
        """Return weights from which the kept updates lead to the present ones."""
        return self._out.weights_for(self.closed, self._updates, self._members)

    def _cannot_follow(self, status: Status) -> bool:
        if status.leaving or self._is_replaying():
            return False
        if not status.loaded or self._is_astray(status):
            return True
        return status.merged < self.closed and status.merged not in self._updates

    def _is_astray(self, status: Status) -> bool:
        """Whether a worker merged another outcome than ours, before a fail-over."""
        ours = self._updates.get(status.merged - 1)
        return ours is not None and ours.check != status.check

    def _take_inner(self) -> list[Effect]:
        """Let a worker give what others lack, and save it at the end."""
        here, inner, is_last = self._now_here, self._inner, self.phase == "finished"
        donors = (inner.donor,) if inner.donor in here.trained else (*here.trained,)
        trained = {name: self._members[name].status for name in donors}
        lacked = bool(here.fresh)
        return [*inner.take(trained, self.closed, is_lacked=lacked, is_last=is_last)]

    # Telling.

    def _tell_news(self, now: float) -> list[Effect]:
        """Send news for all to everybody, other news to the workers concerned."""
        out = self._out
        concerns_all = (
            (self.phase, self.closed, self._failed, self._names),
            (self._is_replaying(), self._weights_now(), self.shares),
            (out.checkpoint, out.keepers, out.keep_over_s),
            (self._inner.kept, self._inner.comes(self.closed), self._inner.saved),
            (self._inner.asked, self._inner.donor, tuple(self._updates)),
        )
        names = self._names if concerns_all != self._told_of else (*self._touched,)
        self._told_of = concerns_all
        self._touched.clear()
        known = [name for name in names if name in self._members]
        return [e for name in known for e in self._tell(name, now, again=False)]

    def _tell(self, worker: str, now: float, *, again: bool) -> list[Effect]:
        """Send a worker its directive, if it changed or must be repeated."""
        member = self._members[worker]
        wanted = member.news(self._directive(worker, member), again=again)
        if wanted is None:
            return []
        if not wanted.seq:
            self._seq += 1
            wanted = msgspec.structs.replace(wanted, seq=self._seq)
        member.told, member.told_at = wanted, now
        return [DirectMember(worker, wanted)]

    def _directive(self, worker: str, member: EnrolledWorker) -> Directive:
        status = member.status
        if self.phase in ("gathering", "loading"):
            is_wanted = self._far > 0 and status in agreeing(self._said(), self._far)
            offer = self.phase == "gathering" and is_wanted
            return Directive(epoch=self._epoch, seq=0, life=status.life, offer=offer)
        ahead = in_flight(self.rules.fragments, self.shares)
        last = min(self.closed + ahead, self.rules.syncs - 1)
        for segment in range(max(member.first, self.closed), last + 1):
            if segment not in member.steps:
                member.steps[segment] = self._steps_of(worker)
        weights = self._weights_now() if self._cannot_follow(status) else None
        since = min(status.merged, weights.syncs) if weights else status.merged
        updates = [u for s, u in self._updates.items() if s >= since]
        if self.shares:
            updates = updates[: max(1, SHARES_TOLD // self.shares)]
        lacks = status.inner_is == "fresh"
        inner, out = self._inner, self._out
        waits = lacks and bool(inner.donor) and inner.comes(self.closed)
        keep = out.checkpoint if worker in out.keepers else None
        return Directive(
            epoch=self._epoch,
            seq=0,
            life=status.life,
            running=True,
            syncs=self.closed,
            first=member.first,
            weights=weights,
            updates=tuple(updates),
            reload=self._is_astray(status),
            steps={str(segment): steps for segment, steps in member.steps.items()},
            keep=keep,
            keep_over_s=out.keep_over_s if keep else 0.0,
            safe=out.safe,
            validate=self._is_validator(worker) and not self._failed,
            inner=inner.kept if lacks and not waits else None,
            inner_comes=waits,
            share_inner=inner.asked if worker == inner.donor else 0,
            refused=member.refused,
            start_over=member.refusals,
            shares=self.shares,
            finished=self._failed or self._may_leave(worker),
        )

    def _segment_steps(self) -> int:
        return max(1, round(self.rules.inner_steps / self.rules.fragments))

    def _steps_of(self, worker: str) -> int:
        most = self._segment_steps()
        if not self.rules.balance:
            return most
        overlaps = self.rules.in_flight > 0
        return self.pace.steps(worker, most, overlaps=overlaps)

    def _is_validator(self, worker: str) -> bool:
        """Whether it is a worker's turn to validate the current weights."""
        if self.phase != "finished":
            rounds, rest = divmod(self.closed, self.rules.fragments)
            if rest or rounds == 0 or rounds % self.rules.validate_every:
                return False
        if self.phase != "finished":
            return self.members[self.closed % len(self.members)] == worker
        lacking = self._now_here.lacking
        return next((n for n in self._names if n not in lacking), worker) == worker

    # The end.

    def _give_up(self, refused: dict[str, str], now: float) -> list[Effect]:
        """End the run: no contribution is usable."""
        self._failed = self._stopped = True
        named = "; ".join(f"{name}: {why}" for name, why in sorted(refused.items()))
        return [*self._tell_news(now), StopTraining(named)]

    def _all_know(self, now: float) -> bool:
        """Whether all who have the weights leave; who still loads them has no use.

        It hears that this task has ended. If everybody loads them, they are awaited.
        """
        if not self._is_saved:
            return False
        if now >= self._opened_at + self.rules.timeout_s:
            return True  # Who does not say that it leaves may never mean to.
        if self._inner.saved == "under way":
            return False
        lacking = self._now_here.lacking
        awaited = [n for n in self._names if n not in lacking] or self._names
        return all(self._members[name].status.leaving for name in awaited)

    def _may_leave(self, worker: str) -> bool:
        """Whether all is done, and what others need of a worker is here."""
        is_done = self.phase == "finished" and self._is_saved
        return is_done and not self._inner.needs(worker)

    def _on_deadline(self, now: float) -> None:
        self._patience.listen(now)
        self._measured += 1
        limit_s = self.rules.silence_s
        for name in [n for n, at in self._heard.items() if at + limit_s <= now]:
            self._lose(name)

    def _check(self) -> None:
        assert self.phase != "finished" or self.closed >= self.rules.syncs
        assert all(sync >= self.closed for sync in self._ready)
        assert len(self._updates) <= UPDATES_KEPT
