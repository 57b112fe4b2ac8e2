"""Whatever owners say, syncs are closed in order, with shares of one decision."""

import math

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from shoal.train.diloco import events, rounds
from shoal.train.diloco.messages import Contribution, KeptState, Status
from shoal.train.diloco.rules import RoundRules
from shoal.train.diloco.shares import coordinator
from shoal.train.diloco.shares.messages import (
    Duties,
    Reduced,
    ShareNorm,
    ShareOutcome,
    ShareReport,
)

WORKERS = st.sampled_from(["a", "b", "c", "d"])
QUORUM = 2


class SharesRules(RuleBasedStateMachine):
    """Says anything at any time, and performs what it is told to in any order."""

    def __init__(self) -> None:
        super().__init__()
        rules = RoundRules(
            rounds=3,
            inner_steps=8,
            fragments=2,
            quorum=QUORUM,
            workers=3,
            reduce="shared",
        )
        self.rounds = rounds.Rounds(rules, epoch=1)
        self.machine = coordinator.ShareCoordinator(self.rounds, epoch=1)
        self.now = 0.0
        self.seq = 0
        self.todo: list[coordinator.SharedEffect] = []
        self.duties: dict[str, Duties] = {}
        self.lives: dict[str, int] = {}
        self.stops = 0
        self.failed = False

    def feed(self, event: coordinator.SharedEvent) -> None:
        for effect in self.machine.handle(event, self.now):
            match effect:
                case coordinator.DirectOwner():
                    self.duties[effect.worker] = effect.duties
                    self.owned(effect.worker, effect.duties)
                case events.DirectMember():
                    self.from_one_decision(effect)
                case coordinator.NoteClosed():
                    assert effect.order.parts
                case events.Fetch() | events.Average():
                    raise AssertionError("data is for workers")
                case events.StopTraining():
                    self.stops += 1
                    self.failed = bool(effect.failure)
                case _:
                    self.todo.append(effect)

    def owned(self, worker: str, duties: Duties) -> None:
        for each in duties.reductions:
            assert each.shares
            assert all(self.machine.owners[share] == worker for share in each.shares)
            named = {source.worker for source in each.sources}
            assert {part.worker for part in each.parts} <= named
            assert all(len(s.files) == len(each.shares) for s in each.sources)

    def from_one_decision(self, effect: events.DirectMember) -> None:
        for update in effect.directive.updates:
            assert len(update.shares) == self.rounds.shares
            assert len({file.partition("-")[0] for file in update.shares}) == 1

    @rule(
        worker=WORKERS,
        life=st.integers(1, 3),
        merged=st.integers(0, 7),
        syncs=st.lists(st.integers(0, 7), max_size=3, unique=True),
        cut=st.sampled_from([9, 9, 9, 2]),
        leaving=st.booleans(),
    )
    def say(
        self,
        worker: str,
        life: int,
        merged: int,
        syncs: list[int],
        cut: int,
        leaving: bool,
    ) -> None:
        self.seq += 1
        self.lives[worker] = max(life, self.lives.get(worker, 0))
        self.feed(
            events.StatusReceived(
                Status(
                    worker=worker,
                    life=life,
                    seq=self.seq,
                    merged=merged,
                    initial="start",
                    loaded=merged > 0,
                    segment=merged,
                    contributions=tuple(
                        Contribution(
                            sync,
                            f"{worker}{life}{sync}",
                            10,
                            8,
                            1.0,
                            shares=tuple(f"{worker}{life}{n}" for n in range(cut)),
                        )
                        for sync in sorted(syncs)
                    ),
                    offered=KeptState(merged, f"offered{merged}"),
                    leaving=leaving,
                )
            )
        )

    @rule(
        worker=WORKERS,
        squares=st.sampled_from([0.0, 1.0, 4.0, 1e12, math.nan, math.inf, -1.0]),
        fault=st.sampled_from(["", "", "garbage"]),
        averages=st.booleans(),
        offers=st.none() | st.integers(0, 7),
        extra=st.integers(0, 63),
    )
    def report(
        self,
        worker: str,
        squares: float,
        fault: str,
        averages: bool,
        offers: int | None,
        extra: int,
    ) -> None:
        """Report what was told, or more than anybody asked for."""
        duties = self.duties.get(worker)
        if duties is None:
            return
        self.seq += 1
        reduced: list[Reduced] = []
        for each in duties.reductions:
            norms = [
                ShareNorm(s.worker, s.contribution[:16], share, squares, fault)
                for s in each.sources
                for share in (*each.shares, extra)
            ]
            outcomes = [
                ShareOutcome(share, f"{each.order}-{share}", share)
                for share in (*each.shares, extra)
                if averages and each.order
            ]
            reduced.append(
                Reduced(each.sync, tuple(norms), each.order, tuple(outcomes))
            )
        report = ShareReport(
            worker=worker,
            life=self.lives[worker],
            seq=self.seq,
            heard=(duties.epoch, duties.seq),
            offered=None if offers is None else KeptState(offers, f"state{offers}"),
            reduced=tuple(reduced),
        )
        self.feed(coordinator.ReportReceived(report))

    @rule(worker=WORKERS)
    def lose(self, worker: str) -> None:
        self.feed(events.WorkerLost(worker))

    @rule(seconds=st.floats(0.0, 700.0))
    def let_time_pass(self, seconds: float) -> None:
        self.now += seconds
        due = self.machine.next_deadline()
        if due is not None and due <= self.now:
            self.feed(events.RoundDeadline())

    @precondition(lambda self: self.todo)
    @rule(data=st.data(), works=st.booleans())
    def perform(self, data: st.DataObject, works: bool) -> None:
        place = data.draw(st.integers(0, len(self.todo) - 1))
        match self.todo.pop(place):
            case events.LoadState() as order if works:
                self.feed(events.Loaded(order.syncs))
            case events.LoadState() as order:
                self.feed(events.LoadFailed(order.worker))
            case events.PublishState() as order:
                self.feed(events.Published(order.kind, self.rounds.closed, "file"))
            case coordinator.SaveState() as order if works:
                kept = order.kept
                self.feed(events.Published("checkpoint", kept.syncs, kept.file))
            case coordinator.SaveState() as order:
                self.feed(coordinator.StateUnsaved(order.worker))
            case events.SaveInner():
                self.feed(events.InnerSaved())
            case _:
                pass

    @invariant()
    def every_share_has_an_owner(self) -> None:
        assert len(self.machine.owners) == self.rounds.shares

    @invariant()
    def it_stops_once_at_the_end_or_for_a_reason(self) -> None:
        assert self.stops <= 1
        if self.stops:
            assert self.failed or self.rounds.phase == "finished"


TestShares = SharesRules.TestCase
