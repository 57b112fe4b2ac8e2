"""Whatever workers say and files do, syncs are closed in order and by a quorum."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from shoal.train.diloco import rounds
from shoal.train.diloco.messages import Contribution, KeptState, Status, Update

WORKERS = st.sampled_from(["a", "b", "c", "d"])
QUORUM = 2


class RoundsRules(RuleBasedStateMachine):
    """Says anything at any time, and performs what it is told to in any order."""

    def __init__(self) -> None:
        super().__init__()
        rules = rounds.RoundRules(
            rounds=3, inner_steps=8, fragments=2, quorum=QUORUM, workers=3
        )
        self.machine = rounds.Rounds(rules, epoch=1)
        self.now = 0.0
        self.seq = 0
        self.todo: list[rounds.Effect] = []
        self.averages: list[int] = []
        self.stops = 0
        self.loads = 0

    def feed(self, event: rounds.Event) -> None:
        for effect in self.machine.handle(event, self.now):
            match effect:
                case rounds.Average():
                    assert len(effect.parts) >= QUORUM
                    assert len({name for name, _ in effect.parts}) == len(effect.parts)
                    assert all(c.sync == effect.sync for _, c in effect.parts)
                    self.averages.append(effect.sync)
                    self.todo.append(effect)
                case rounds.StopTraining():
                    self.stops += 1
                case rounds.DirectMember():
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
        leaving=st.booleans(),
    )
    def say(
        self,
        worker: str,
        life: int,
        merged: int,
        syncs: list[int],
        holds: int | None,
        leaving: bool,
    ) -> None:
        self.seq += 1
        self.feed(
            rounds.StatusReceived(
                Status(
                    worker=worker,
                    life=life,
                    seq=self.seq,
                    merged=merged,
                    initial="start",
                    contributions=tuple(
                        Contribution(sync, f"{worker}{life}{sync}", 10, 8, 1.0)
                        for sync in syncs
                    ),
                    holds=None if holds is None else KeptState(holds, f"kept{holds}"),
                    leaving=leaving,
                )
            )
        )

    @rule(worker=WORKERS)
    def lose(self, worker: str) -> None:
        self.feed(rounds.WorkerLost(worker))

    @rule(seconds=st.floats(0.0, 700.0))
    def let_time_pass(self, seconds: float) -> None:
        self.now += seconds
        due = self.machine.next_deadline()
        if due is not None and due <= self.now:
            self.feed(rounds.RoundDeadline())

    @precondition(lambda self: self.todo)
    @rule(data=st.data(), works=st.booleans())
    def perform(self, data: st.DataObject, works: bool) -> None:
        place = data.draw(st.integers(0, len(self.todo) - 1))
        match self.todo.pop(place):
            case rounds.Fetch() as order if works:
                self.feed(rounds.Fetched(order.worker, order.contribution))
            case rounds.Fetch() as order:
                self.feed(rounds.FetchFailed(order.worker, order.contribution))
            case rounds.LoadState() as order if works:
                self.loads += 1
                self.feed(rounds.Loaded(order.syncs, "weights", "checkpoint"))
            case rounds.LoadState() as order:
                self.feed(rounds.LoadFailed(order.worker))
            case rounds.Average() as order:
                update = Update(order.sync, f"u{order.sync}", order.sync)
                self.feed(rounds.Averaged(update, f"w{order.sync}", f"c{order.sync}"))
            case _:
                pass

    @invariant()
    def syncs_are_closed_once_and_in_order(self) -> None:
        assert self.averages == sorted(set(self.averages))
        if self.averages:
            first = self.averages[0]
            assert self.averages == list(range(first, first + len(self.averages)))

    @invariant()
    def it_loads_and_stops_once(self) -> None:
        assert self.loads <= 1
        assert self.stops <= 1
        if self.stops:
            assert self.machine.phase == "finished"


TestRounds = RoundsRules.TestCase
