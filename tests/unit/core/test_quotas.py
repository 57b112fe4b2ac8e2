"""An owner has no more at one time than a grant allows."""

import msgspec
import pytest

from shoal.core.membership.quotas import Quota, Used
from shoal.model.ids import OwnerId
from shoal.model.resources import GpuNeed, Profile

ANN = OwnerId("ann")
CPU = Profile(cpu_milli=1_000)
PAIR = Profile(cpu_milli=1_000, gpu=GpuNeed(count=2, count_max=2))
SHARE = Profile(gpu=GpuNeed(milli=250))
MANY = Profile(gpu=GpuNeed(count=1, count_max=8))


@pytest.mark.parametrize(
    ("quota", "profile", "slots"),
    [
        (Quota(), PAIR, 9),
        (Quota(gpus=4), PAIR, 1),
        (Quota(gpus=4), CPU, 9),
        (Quota(gpus=4), SHARE, 3),
        (Quota(gpus=4), MANY, 0),
        (Quota(gpus=0), PAIR, 0),
        (Quota(cpu_milli=3_500), CPU, 2),
        (Quota(cpu_milli=3_500), SHARE, 9),
        (Quota(gpus=9, cpu_milli=1_500), PAIR, 0),
    ],
)
def test_so_many_of_nine_slots_are_allowed(
    quota: Quota, profile: Profile, slots: int
) -> None:
    used = Used(leases=1, cpu_milli=1_000, gpus=1)

    assert quota.slots(profile, used, 9) == slots
    assert bool(quota.excess(ANN, profile, used, 9)) == (slots < 9)
    assert not slots or not quota.excess(ANN, profile, used, slots)


def test_who_has_more_than_a_later_quota_gets_nothing() -> None:
    assert Quota(gpus=1).slots(PAIR, Used(gpus=4), 3) == 0


def test_a_task_that_takes_what_it_gets_gets_what_is_left() -> None:
    narrowed = Quota(gpus=4).narrowed(MANY, Used(gpus=1))

    assert narrowed.gpu == GpuNeed(count=1, count_max=3)
    assert Quota(gpus=4).slots(narrowed, Used(gpus=1), 5) == 1


@pytest.mark.parametrize("profile", [CPU, PAIR, SHARE])
def test_a_task_that_says_how_much_it_needs_stays_as_it_is(profile: Profile) -> None:
    assert Quota(gpus=1).narrowed(profile) is profile


def test_a_task_never_gets_less_than_it_needs() -> None:
    need = msgspec.structs.replace(MANY, gpu=GpuNeed(count=4, count_max=8))

    narrowed = Quota(gpus=2).narrowed(need)

    assert narrowed.gpu == GpuNeed(count=4, count_max=4)
    assert not Quota(gpus=2).allows_ever(narrowed, 1)
    assert Quota(gpus=4).allows_ever(narrowed, 1)


def test_a_task_that_asks_for_nothing_costs_something_all_the_same() -> None:
    nothing = Profile()

    assert Quota(cpu_milli=1_000).slots(nothing, Used(), 4_096) == 100
    assert "quota of ann" in Quota(cpu_milli=1_000).excess(ANN, nothing, Used(), 101)
