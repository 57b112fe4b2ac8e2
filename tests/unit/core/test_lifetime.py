"""How long an allocated worker is there, and what it takes meanwhile."""

from random import Random

import pytest

from shoal.core.events import Booted, DeadlineReached, DrainRequested, Effect, Tell
from shoal.core.leasing.worker import Worker
from shoal.core.lending.events import EndNode, LongestTaskChanged
from shoal.core.lending.lifetime import Lifetime, rounded_down
from shoal.core.membership.roster import Roster
from shoal.model.ids import NodeId
from shoal.model.resources import Capacity, Profile
from shoal.sim.node import trust

START = 1_000.0


def worker() -> Worker:
    roster = Roster(trust.members(), trust.WALL_AT_START_S)
    capacity = Capacity(cpu_milli=2_000)
    return Worker(NodeId("w"), capacity, roster, epoch=1, rng=Random(1))


def lived(lifetime: Lifetime, until: float) -> list[tuple[float, Effect]]:
    """Wake the machine whenever it asks to be; return what it wanted, and when."""
    said = [(START, effect) for effect in lifetime.handle(Booted(), START)]
    while (due := lifetime.next_deadline()) is not None and due <= until:
        said += [(due, each) for each in lifetime.handle(DeadlineReached(), due)]
    return said


def longest(said: list[tuple[float, Effect]]) -> list[tuple[float, int]]:
    return [
        (at, effect.event.longest_s)
        for at, effect in said
        if isinstance(effect, Tell) and isinstance(effect.event, LongestTaskChanged)
    ]


def test_what_is_told_is_always_true_and_hardly_less_than_what_is_left() -> None:
    said = lived(Lifetime(worker(), 36_000.0), START + 40_000.0)

    told, closes = longest(said), START + 36_000.0 - 60.0
    ends = [at for at, _ in told[1:]] + [closes]
    for (at, longest_s), until in zip(told, ends, strict=True):
        assert longest_s <= closes - until
        assert longest_s >= (closes - at) * 15 / 16 - 1
    assert len(told) < 250


def test_near_its_end_it_gives_notice_and_then_it_ends() -> None:
    said = lived(Lifetime(worker(), 600.0), START + 700.0)

    assert (START + 540.0, Tell(DrainRequested(grace_s=0.0))) in said
    assert said[-1] == (START + 541.0, EndNode("its allocation ends"))


def test_the_last_part_of_a_short_life_is_short() -> None:
    said = lived(Lifetime(worker(), 20.0), START + 30.0)

    assert (START + 18.0, Tell(DrainRequested(grace_s=0.0))) in said


def test_an_idle_worker_ends_and_one_without_an_end_tells_none() -> None:
    said = lived(Lifetime(worker(), None, 5.0), START + 60.0)

    assert longest(said) == []
    assert [effect for _, effect in said] == [
        Tell(DrainRequested(grace_s=0.0)),
        EndNode("nobody needed it"),
    ]


@pytest.mark.parametrize("left_s", [0.5, 1.0, 1.5, 17.0, 64.0, 1e3, 86_400.0])
def test_less_than_what_is_left_is_told(left_s: float) -> None:
    told = rounded_down(left_s)

    assert 0 <= told < left_s
    assert told >= left_s * 15 / 16 - 1


def test_a_worker_says_how_long_a_task_may_take() -> None:
    machine = worker()
    machine.handle(Booted(), START)

    machine.handle(LongestTaskChanged(3_360), START)

    refusal = machine.leases.ledger.fit(Profile(cpu_milli=1_000, longest_s=3_610))
    assert refusal == "takes tasks of at most 56m now, it may take 1h10s"
    assert not isinstance(machine.leases.ledger.fit(Profile(cpu_milli=1_000)), str)
