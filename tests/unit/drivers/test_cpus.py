"""Which CPUs tasks get."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.drivers.limits.cpus import Cpus, as_list


def test_tasks_get_the_least_used_cpus() -> None:
    cpus = Cpus([4, 5, 6, 7])

    assert cpus.take(2_000) == (4, 5)
    assert cpus.take(1_000) == (6,)
    assert cpus.take(500) == (7,)
    assert cpus.take(500) == (7,)
    assert cpus.take(1_500) == (4, 5)


def test_a_fraction_of_a_cpu_gets_a_whole_one_to_run_on() -> None:
    assert len(Cpus(range(8)).take(2_500)) == 3


@pytest.mark.parametrize("cpu_milli", [0, 4_000, 9_000])
def test_who_asks_for_none_or_all_is_bound_to_none(cpu_milli: int) -> None:
    cpus = Cpus(range(4))

    assert cpus.take(cpu_milli) == ()
    cpus.give((), cpu_milli)
    assert not any(cpus._milli.values())


@given(st.lists(st.integers(0, 9_000), max_size=20), st.integers(1, 16))
def test_what_is_taken_can_be_given_back(wanted: list[int], count: int) -> None:
    cpus = Cpus(range(count))

    taken = [(cpus.take(milli), milli) for milli in wanted]
    for chosen, milli in taken:
        assert len(set(chosen)) == len(chosen)
        cpus.give(chosen, milli)

    assert not any(cpus._milli.values())


def test_cpus_are_written_as_the_kernel_does() -> None:
    assert as_list((0, 3)) == "0,3"
