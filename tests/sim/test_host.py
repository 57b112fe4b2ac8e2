import pytest
from tests.sim.stubs import Scribe, Stage

from shoal.core.events import (
    Booted,
    DeadlineReached,
    Effect,
    Event,
    PeerLost,
    StartTask,
    StopTask,
    TaskEnded,
)
from shoal.model.ids import Attempt, GroupId, JobId, LeaseId, NodeId, TaskId
from shoal.model.job import Task
from shoal.model.resources import Allocation
from shoal.protocol.messages import Outcome
from shoal.sim.node.driver import Behaviour

A = NodeId("a")
TASK = Task(id=TaskId("j.g.0"), job=JobId("j"), group=GroupId("j.g"))
ATTEMPT = Attempt(NodeId("s"), 1, 1)
ALLOCATION = Allocation(cpu_milli=500)


def exited(code: int) -> Outcome:
    """How a process ends that booked a quarter of a GiB, all of which it took."""
    return Outcome("exited", exit_code=code, memory_bytes=1 << 28)


def run_and_stop(event: Event) -> list[Effect]:
    """Start at the loss of one peer, stop at the loss of another."""
    match event:
        case PeerLost(peer="start"):
            return [StartTask(ATTEMPT, LeaseId("l"), TASK, ALLOCATION)]
        case PeerLost(peer="stop"):
            return [StopTask(ATTEMPT, 5.0)]
        case _:
            return []


def worker(behaviour: Behaviour) -> Stage:
    stage = Stage()
    stage.add("a", run_and_stop)
    stage.world.plans[TASK.id] = behaviour
    stage.world.feed(A, PeerLost(NodeId("start")))
    return stage


def ends(scribe: Scribe) -> list[Outcome]:
    return [event.outcome for event in scribe.heard if isinstance(event, TaskEnded)]


def test_clocks_of_two_nodes_do_not_agree_and_drift_apart() -> None:
    stage = Stage()
    stage.add("a", clock_rate=1.01)
    stage.add("b", clock_rate=0.99)
    a, b = stage.world.hosts.values()
    before = (a.clock(), b.clock())

    stage.world.run(100.0)

    assert a.clock() - before[0] == pytest.approx(101.0)
    assert b.clock() - before[1] == pytest.approx(99.0)
    assert abs(before[0] - before[1]) > 1.0


def test_a_deadline_is_told_once_and_on_the_node_s_own_clock() -> None:
    stage = Stage()
    scribe = stage.add("a", clock_rate=1.01)
    host = stage.world.hosts[A]
    scribe.due = host.clock() + 10.1
    host.feed(PeerLost(A))

    stage.world.run(9.999)
    assert not any(isinstance(event, DeadlineReached) for event in scribe.heard)
    stage.world.run(60.0)

    told = [at for at, event in scribe.told if isinstance(event, DeadlineReached)]
    assert len(told) == 1


def test_a_deadline_that_was_put_off_is_told_at_the_later_time() -> None:
    stage = Stage()
    scribe = stage.add("a")
    host = stage.world.hosts[A]
    start = host.clock()
    scribe.due = start + 5.0
    host.feed(PeerLost(A))
    scribe.due = start + 8.0
    host.feed(PeerLost(A))

    stage.world.run(20.0)

    told = [at for at, event in scribe.told if isinstance(event, DeadlineReached)]
    assert told == [pytest.approx(start + 8.0)]


def test_a_process_holds_its_devices_until_it_is_reaped() -> None:
    stage = worker(Behaviour(run_s=3.0, exit_codes=(7,)))
    driver = stage.world.hosts[A].driver

    stage.world.run(2.9)
    assert len(driver.processes) == 1
    assert ends(stage.now("a")) == []
    stage.world.run(9.0)

    assert len(driver.processes) == 0
    assert ends(stage.now("a")) == [exited(7)]


def test_a_willing_process_obeys_the_notice_to_stop() -> None:
    stage = worker(Behaviour(run_s=60.0))

    stage.world.feed(A, PeerLost(NodeId("stop")))
    stage.world.run(4.5)

    assert ends(stage.now("a")) == [exited(143)]


def test_a_deaf_process_is_killed_after_the_grace() -> None:
    stage = worker(Behaviour(run_s=60.0, deaf=True))

    stage.world.feed(A, PeerLost(NodeId("stop")))
    stage.world.run(4.9)
    assert ends(stage.now("a")) == []
    stage.world.run(9.0)

    assert ends(stage.now("a")) == [exited(137)]


def test_a_start_that_fails_leaves_no_process() -> None:
    stage = worker(Behaviour(start_failures=1))

    stage.world.run(1.0)

    assert [outcome.kind for outcome in ends(stage.now("a"))] == ["not-started"]
    assert not stage.world.hosts[A].driver.processes


def test_no_process_is_left_when_a_node_boots_again() -> None:
    stage = worker(Behaviour(run_s=60.0))

    stage.world.crash(A, power=False)
    assert stage.world.hosts[A].driver.processes
    stage.world.restart(A)

    assert not stage.world.hosts[A].driver.processes
    assert stage.now("a").told[0][1] == Booted()
    assert ends(stage.now("a")) == []


def test_a_process_does_not_survive_its_node_for_long() -> None:
    stage = worker(Behaviour(run_s=60.0))

    stage.world.crash(A, power=False)
    stage.world.run(2.0)

    assert not stage.world.hosts[A].driver.processes
