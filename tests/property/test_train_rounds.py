"""Whatever workers say and files do, syncs are closed in order and by a quorum."""

import math

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from shoal.train.diloco import events, rounds
from shoal.train.diloco.messages import Contribution, KeptState, Status, Update
from shoal.train.diloco.rules import RoundRules

WORKERS = st.sampled_from(["a", "b", "c", "d"])
QUORUM = 2


class RoundsRules(RuleBasedStateMachine):
    """Says anything at any time, and performs what it is told to in any order."""

    def __init__(self) -> None:
        super().__init__()
        rules = RoundRules(
            rounds=3, inner_steps=8, fragments=2, quorum=QUORUM, workers=3
        )
        self.machine = rounds.Rounds(rules, epoch=1)
        self.now = 0.0
        self.seq = 0
        self.todo: list[events.Effect] = []
        self.averages: list[int] = []
        self.stops = 0
        self.failed = False
        self.far = 0
        self.loads = 0

    def feed(self, event: events.Event) -> None:
        if isinstance(event, events.StatusReceived):
            self.far = max(self.far, event.status.merged)
        effects = self.machine.handle(event, self.now)
        for effect in effects:
            match effect:
                case events.Average():
                    assert effect.parts
                    counted = {part.worker for part in effect.parts}
                    assert len(counted) == len(effect.parts)
                    assert not counted & effect.refused.keys()
                    assert all(p.contribution.sync == effect.sync for p in effect.parts)
                    assert all(part.samples > 0 for part in effect.parts)
                    if not self.replaying:
                        assert len(effect.parts) + len(effect.refused) >= QUORUM
                    self.averages.append(effect.sync)
                    self.todo.append(effect)
                case events.StopTraining():
                    self.stops += 1
                    self.failed = bool(effect.failure)
                case events.DirectMember():
                    if effect.directive.running:
                        assert effect.directive.syncs == self.machine.closed
                    assert all(steps >= 1 for steps in effect.directive.steps.values())
                case _:
                    self.todo.append(effect)

    @rule(
        worker=WORKERS,
        life=st.integers(1, 3),
        merged=st.integers(0, 7),
        syncs=st.lists(st.integers(0, 7), max_size=3, unique=True),
        holds=st.none() | st.integers(1, 6),
        inner=st.none() | st.integers(1, 6),
        samples=st.sampled_from([0, 10, 1 << 50]),
        leaving=st.booleans(),
    )
    def say(
        self,
        worker: str,
        life: int,
        merged: int,
        syncs: list[int],
        holds: int | None,
        inner: int | None,
        samples: int,
        leaving: bool,
    ) -> None:
        self.seq += 1
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
                        Contribution(sync, f"{worker}{life}{sync}", samples, 8, 1.0)
                        for sync in sorted(syncs)
                    ),
                    offered=KeptState(merged, f"offered{merged}"),
                    inner_is="fresh" if inner is None else "trained",
                    inner=None if inner is None else KeptState(inner, "inner"),
                    holds=None if holds is None else KeptState(holds, f"kept{holds}"),
                    leaving=leaving,
                )
            )
        )

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
    @rule(
        data=st.data(),
        works=st.booleans(),
        norm=st.sampled_from([0.0, 1.0, 2.0, 1e6, math.nan, math.inf]),
        fault=st.sampled_from(["", "", "garbage"]),
    )
    def perform(
        self, data: st.DataObject, works: bool, norm: float, fault: str
    ) -> None:
        place = data.draw(st.integers(0, len(self.todo) - 1))
        match self.todo.pop(place):
            case events.Fetch() as order if works:
                done = events.Fetched(order.worker, order.contribution, norm, fault)
                self.feed(done)
            case events.Fetch() as order:
                self.feed(events.FetchFailed(order.worker, order.contribution))
            case events.LoadState() as order if works:
                self.loads += 1
                self.feed(events.Loaded(order.syncs))
            case events.LoadState() as order:
                self.feed(events.LoadFailed(order.worker))
            case events.Average() as order:
                update = Update(order.sync, f"u{order.sync}", order.sync)
                self.feed(events.Averaged(update))
            case events.PublishState() as order:
                self.feed(events.Published(order.kind, self.machine.closed, "file"))
            case events.SaveInner():
                self.feed(events.InnerSaved())
            case _:
                pass

    @invariant()
    def syncs_are_closed_once_and_in_order(self) -> None:
        # They may only be skipped, if the workers are ahead and none of them kept it.
        assert self.averages == sorted(set(self.averages))

    @invariant()
    def it_stops_once_at_the_end_or_for_a_reason(self) -> None:
        assert self.stops <= 1
        if self.stops:
            assert self.failed or self.machine.phase == "finished"

    @property
    def replaying(self) -> bool:
        return self.machine.closed < self.far


TestRounds = RoundsRules.TestCase
