"""The cheapest leases to end."""

from itertools import chain, combinations
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.unit.policy.pools import capacity, gpus, needs

from shoal.model.ids import GroupId, LeaseId
from shoal.model.resources import Allocation, Ledger, Profile
from shoal.policy.queueing.preemption import EXACT_MAX, Victim, choose_victims, cost


def busy(
    *leases: tuple[str, int, int, float], cpus: int = 8
) -> tuple[Ledger, list[Victim]]:
    """Return a ledger with these leases in it: name, cpus, priority and run time."""
    ledger = Ledger(capacity(cpus))
    victims = [
        Victim(
            id=LeaseId(name),
            allocation=Allocation(cpu_milli=size * 1000),
            priority=priority,
            unsaved_s=run_s,
        )
        for name, size, priority, run_s in leases
    ]
    for victim in victims:
        ledger.take(victim.allocation)
    return ledger, victims


def test_nobody_ends_when_there_is_room() -> None:
    ledger, victims = busy(("a", 4, 0, 1.0))

    assert choose_victims(needs(cpus=4), ledger, victims, priority=9) == ()


def test_the_lowest_priority_ends_first_however_long_it_ran() -> None:
    ledger, victims = busy(("a", 4, 3, 1.0), ("b", 4, 0, 9_000.0))

    assert choose_victims(needs(cpus=4), ledger, victims, priority=9) == ("b",)


@pytest.mark.parametrize(("a_runs_s", "ends"), [(50.0, ("a",)), (60.0, ("b", "c"))])
def test_of_equal_priority_the_least_work_is_lost(
    a_runs_s: float, ends: tuple[str, ...]
) -> None:
    ledger, victims = busy(("a", 4, 0, a_runs_s), ("b", 2, 0, 30.0), ("c", 2, 0, 80.0))

    assert choose_victims(needs(cpus=4), ledger, victims, priority=9) == ends


def test_the_work_of_a_whole_gang_is_lost_and_only_once() -> None:
    ledger, victims = busy(("a", 4, 0, 10.0), ("b", 2, 0, 30.0), ("c", 2, 0, 30.0))
    gang = GroupId("j.g")

    def ends(size: int, *members: int) -> object:
        changed = [
            replace(victim, gang=gang, gang_size=size) if at in members else victim
            for at, victim in enumerate(victims)
        ]
        return choose_victims(needs(cpus=4), ledger, changed, priority=9)

    assert ends(1) == ("a",)
    assert ends(4, 0) == ("b", "c")
    assert ends(2, 0) == ("a",), "80 s of two CPUs are less than twice 60 s"
    assert ends(2, 1, 2) == ("a",)
    busier = [replace(victims[0], unsaved_s=35.0), *victims[1:]]
    both = [replace(v, gang=gang, gang_size=2) for v in busier[1:]]
    assert choose_victims(needs(cpus=4), ledger, [busier[0], *both], priority=9) == (
        "b",
        "c",
    ), "the gang is lost once"


def test_two_of_low_priority_end_before_one_of_higher() -> None:
    ledger, victims = busy(("a", 4, 3, 1.0), ("b", 2, 0, 30.0), ("c", 2, 0, 80.0))

    assert choose_victims(needs(cpus=4), ledger, victims, priority=9) == ("b", "c")


@pytest.mark.parametrize("priority", [0, -5])
def test_equal_and_higher_priorities_are_never_displaced(priority: int) -> None:
    ledger, victims = busy(("a", 8, 0, 1.0))

    answer = choose_victims(needs(cpus=4), ledger, victims, priority=priority)

    assert answer == f"no lease here may give way to priority {priority}"


def test_a_lease_that_is_not_preemptible_stays() -> None:
    ledger = Ledger(capacity(8))
    fixed = Victim(
        id=LeaseId("a"), allocation=Allocation(8000), priority=0, preemptible=False
    )
    ledger.take(fixed.allocation)

    answer = choose_victims(needs(cpus=4), ledger, [fixed], priority=9)

    assert answer == "no lease here may give way to priority 9"


def test_room_for_several_tasks_is_made_at_once() -> None:
    ledger, victims = busy(("a", 4, 0, 1.0), ("b", 4, 0, 2.0))

    assert choose_victims(needs(cpus=3), ledger, victims, 9, count=2) == ("a", "b")


def test_nobody_is_displaced_for_more_gpus_than_the_least() -> None:
    ledger = Ledger(capacity(8, gpus(2)))
    found = ledger.fit(needs(count=1))
    assert isinstance(found, Allocation)
    ledger.take(found)
    victim = Victim(id=LeaseId("a"), allocation=found, priority=0)

    assert choose_victims(needs(count=1, count_max=2), ledger, [victim], 9) == ()
    ledger.give(found)
    assert choose_victims(needs(count=1, count_max=2), ledger, [], 9, count=2) == ()


LEASES = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 100)), max_size=7
)


@given(LEASES, st.integers(0, 20), st.integers(0, 5))
def test_no_set_of_victims_is_cheaper(
    leases: list[tuple[int, int, int]], wanted: int, priority: int
) -> None:
    named = [(f"l{n}", *lease) for n, lease in enumerate(leases)]
    ledger, victims = busy(*named, cpus=21)
    profile = needs(cpus=wanted)
    allowed = [victim for victim in victims if victim.priority < priority]
    every = chain.from_iterable(
        combinations(allowed, n) for n in range(len(allowed) + 1)
    )
    enough = [cost(chosen) for chosen in every if suffices(profile, ledger, chosen)]

    answer = choose_victims(profile, ledger, victims, priority)

    if enough:
        assert answer == min(enough)[2]
    else:
        assert isinstance(answer, str)


@given(st.integers(EXACT_MAX + 1, 40), st.integers(1, 60), st.randoms())
def test_among_many_candidates_none_of_the_chosen_could_be_spared(
    count: int, wanted: int, rng: Random
) -> None:
    named = [
        (f"l{n}", rng.randint(0, 3), rng.randint(0, 3), float(rng.randint(0, 99)))
        for n in range(count)
    ]
    ledger, victims = busy(*named, cpus=120)
    ledger.take(Allocation(cpu_milli=ledger.cpu_milli))
    by_id = {victim.id: victim for victim in victims}

    answer = choose_victims(needs(cpus=wanted), ledger, victims, priority=3)

    if isinstance(answer, str):
        below = [victim for victim in victims if victim.priority < 3]
        assert not suffices(needs(cpus=wanted), ledger, below)
        return
    chosen = [by_id[id_] for id_ in answer]
    assert all(victim.priority < 3 for victim in chosen)
    assert suffices(needs(cpus=wanted), ledger, chosen)
    for victim in chosen:
        others = [other for other in chosen if other is not victim]
        assert not suffices(needs(cpus=wanted), ledger, others)


def suffices(
    profile: Profile, ledger: Ledger, ended: list[Victim] | tuple[Victim, ...]
) -> bool:
    room = ledger.copy()
    for victim in ended:
        room.give(victim.allocation)
    return isinstance(room.fit(profile), Allocation)
