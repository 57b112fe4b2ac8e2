"""An age counts as far as the worker has seen it."""

from shoal.core.leasing.demand_age import (
    AGE_MAX_S,
    CREDIT_S,
    PATIENCE_S,
    PEERS_MAX,
    PROFILES_MAX,
    SILENCE_S,
    DemandAges,
)
from shoal.model.ids import NodeId
from shoal.model.resources import Profile

EVE, BOB = NodeId("eve"), NodeId("bob")
CPU = Profile(cpu_milli=1_000)
YEARS_S = 3e8


def test_of_a_stranger_a_little_is_believed() -> None:
    ages = DemandAges()

    assert ages.believed(EVE, CPU, YEARS_S, 0.0) == CREDIT_S
    assert ages.believed(BOB, CPU, 3.0, 0.0) == 3.0


def test_an_age_grows_while_a_scheduler_asks_and_ends_somewhere() -> None:
    ages = DemandAges()
    ages.believed(BOB, CPU, YEARS_S, 0.0)

    assert ages.believed(BOB, CPU, YEARS_S, 20.0) == 20.0 + CREDIT_S
    assert ages.believed(BOB, CPU, YEARS_S, 55.0) == AGE_MAX_S


def test_who_is_served_starts_anew() -> None:
    ages = DemandAges()
    ages.believed(EVE, CPU, YEARS_S, 0.0)

    ages.served(EVE, CPU, 30.0)

    assert ages.believed(EVE, CPU, YEARS_S, 30.0) == 0.0
    assert ages.believed(EVE, CPU, YEARS_S, 34.0) == 4.0


def test_another_profile_does_not_inherit_an_age() -> None:
    ages = DemandAges()
    ages.believed(EVE, CPU, YEARS_S, 0.0)

    other = Profile(cpu_milli=1_001)

    assert ages.believed(EVE, other, YEARS_S, 50.0) == CREDIT_S


def test_who_is_kept_room_for_and_never_takes_it_starts_anew() -> None:
    ages = DemandAges()
    now = 0.0
    while now <= PATIENCE_S:
        ages.believed(EVE, CPU, YEARS_S, now)
        now += SILENCE_S / 2

    assert ages.believed(EVE, CPU, YEARS_S, now) == CREDIT_S


def test_who_is_silent_is_forgotten() -> None:
    ages = DemandAges()
    ages.believed(EVE, CPU, YEARS_S, 0.0)

    assert ages.believed(EVE, CPU, YEARS_S, SILENCE_S + 1.0) == CREDIT_S


def test_what_is_remembered_has_a_bound() -> None:
    ages = DemandAges()

    for n in range(PEERS_MAX + 10):
        for milli in range(PROFILES_MAX + 3):
            ages.believed(NodeId(f"e{n}"), Profile(cpu_milli=milli), 1.0, 0.0)

    assert len(ages._waits) == PEERS_MAX
    assert max(len(waits) for waits in ages._waits.values()) == PROFILES_MAX
