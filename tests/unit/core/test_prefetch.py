"""How many tasks are sent ahead to a lease, and which leases have room for more."""

from tests.unit.core.builders import attempt

from shoal.core.deadlines import DeadlineHeap
from shoal.core.dispatch.prefetch import WAITING_MAX, share
from shoal.core.negotiation.held_leases import HeldLease, HeldLeases, LeaseShape
from shoal.core.timing import RECALL_S, TENURE_S
from shoal.model.ids import GroupId, LeaseId, NodeId, OwnerId, RequestId
from shoal.model.resources import Profile
from shoal.policy.table.worker_table import WorkerTable

SHAPE = LeaseShape(Profile(), "process", OwnerId("ann"), 0, preemptible=True)
GROUP = GroupId("j.g")


class Pier:
    """Some leases, each with a task that runs."""

    def __init__(self, leases: int = 1) -> None:
        heap = DeadlineHeap()
        self.holdings = HeldLeases(WorkerTable(), heap)
        self.lines = self.holdings.prefetch
        self.held = [self._hold(n) for n in range(leases)]

    def _hold(self, number: int) -> HeldLease:
        holding = HeldLease(
            lease=LeaseId(f"w/1/{number}"),
            worker=NodeId("w"),
            request=RequestId("r"),
            group=GROUP,
            shape=SHAPE,
            state="committed",
            line=[attempt(number + 1)],
        )
        self.holdings.add(holding, 0.0)
        return holding

    def open(self, now: float = 0.0) -> list[tuple[LeaseId, int]]:
        """Return the leases with room after each was looked at, and how much."""
        for holding in self.held:
            self.lines.changed(holding, now)
        return [(held.lease, room) for held, room in self.lines.open_for(GROUP)]


def test_nothing_waits_until_a_task_was_short() -> None:
    pier = Pier()

    assert pier.open() == []

    pier.lines.measured(pier.held[0], 0.2)
    assert pier.open() == []

    pier.lines.measured(pier.held[0], 0.03)
    assert pier.open() == [("w/1/0", 3)]


def test_a_line_has_a_bound_however_short_tasks_are() -> None:
    pier = Pier()

    pier.lines.measured(pier.held[0], 0.0)

    assert pier.open() == [("w/1/0", WAITING_MAX)]


def test_a_line_is_filled_again_only_when_it_is_nearly_empty() -> None:
    pier = Pier()
    [holding] = pier.held
    pier.lines.measured(holding, 0.001)

    holding.line += [attempt(n) for n in range(2, 5)]
    assert pier.open() == []

    del holding.line[0]
    assert pier.open() == [("w/1/0", WAITING_MAX - 2)]


def test_an_idle_lease_is_no_line() -> None:
    pier = Pier()
    pier.lines.measured(pier.held[0], 0.001)
    pier.held[0].line.clear()

    assert pier.open() == []


def test_a_lease_near_its_end_gets_no_more() -> None:
    pier = Pier()
    pier.lines.measured(pier.held[0], 0.001)

    assert pier.open(TENURE_S) != []
    assert pier.open(TENURE_S + 0.1) == []


def test_a_share_leaves_enough_for_the_other_leases() -> None:
    assert share(100, 4) == 12
    assert share(8, 4) == 1
    assert share(7, 4) == 0


def test_a_lease_that_is_given_up_is_no_line_any_more() -> None:
    pier = Pier()
    [holding] = pier.held
    pier.lines.measured(holding, 0.001)
    holding.line.append(attempt(2))
    assert pier.open() != []

    pier.holdings.drop(holding)

    assert pier.lines.open_for(GROUP) == []
    assert pier.lines.overdue(100.0) == []


def test_what_waits_too_long_is_overdue_until_it_is_gone() -> None:
    pier = Pier()
    [holding] = pier.held
    pier.lines.measured(holding, 0.001)
    holding.line.append(attempt(2))
    pier.lines.changed(holding, 1.0)

    assert list(pier.lines.overdue(1.0 + RECALL_S - 0.01)) == []
    assert list(pier.lines.overdue(1.0 + RECALL_S)) == [holding]
    assert holding.ahead == 0
    assert list(pier.lines.open_for(GROUP)) == []
    assert list(pier.lines.overdue(10.0)) == [holding]

    holding.line.pop()
    pier.lines.changed(holding, 11.0)
    assert list(pier.lines.overdue(20.0)) == []


def test_a_step_of_the_line_gives_it_more_time() -> None:
    pier = Pier()
    [holding] = pier.held
    holding.line += [attempt(2), attempt(3)]
    pier.lines.changed(holding, 0.0)
    del holding.line[0]
    pier.lines.changed(holding, 0.2)

    assert list(pier.lines.overdue(RECALL_S)) == []
    assert list(pier.lines.overdue(0.2 + RECALL_S)) == [holding]
