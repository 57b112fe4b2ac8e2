"""Workers that have the code of a task are preferred among equals, and only then."""

from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.policy.pools import gpus, needs, table_of, worker

from shoal.model.caches import cached_words, marks_of
from shoal.model.ids import NodeId
from shoal.model.job import Work
from shoal.model.resources import Profile
from shoal.policy.placement import place
from shoal.policy.ranking.cache_affinity import LOOKED_AT_MAX, WarmRows
from shoal.policy.registry import Registry
from shoal.policy.table.worker_table import WorkerTable, WorkerView

CODE = Work(workdir="tree:abc-1")
MARKS = marks_of(CODE)
BOTH = marks_of(Work(workdir="tree:abc-1", image="pytorch/pytorch"))


def warm(view: WorkerView, marks: tuple[str, ...] = MARKS) -> WorkerView:
    return msgspec.structs.replace(view, warm=marks)


def chosen(
    table: WorkerTable,
    profile: Profile,
    count: int = 1,
    marks: tuple[str, ...] = MARKS,
    policy: str = "balanced",
) -> list[NodeId]:
    ranking = Registry({}).make(policy)
    return place(profile, count, table, ranking, Random(0), warm=marks).nodes


@pytest.mark.parametrize("policy", ["balanced", "simple", "nearest", "best-fit", "fgd"])
def test_of_equal_workers_the_warm_one_is_chosen(policy: str) -> None:
    views = [worker("a"), worker("b"), warm(worker("c"))]

    assert chosen(table_of(*views), needs(1), policy=policy) == ["c"]
    assert chosen(table_of(*views), needs(1), marks=(), policy=policy) == ["a"]


def test_a_worker_that_does_not_fit_is_not_chosen_for_its_warmth() -> None:
    table = table_of(worker("a"), warm(worker("b", cpus=1)))

    assert chosen(table, needs(2)) == ["a"]


def test_a_warm_worker_with_more_load_gives_way_to_an_idle_one() -> None:
    table = table_of(worker("a"), warm(worker("b")))
    table.take(NodeId("b"), needs(1))

    assert chosen(table, needs(1)) == ["a"]


def test_warmth_does_not_waste_larger_gpus() -> None:
    table = table_of(
        worker("a", devices=gpus(1, "A10", 24)), warm(worker("b", devices=gpus(1)))
    )

    assert chosen(table, needs(1, 1), policy="simple") == ["a"]


def test_a_nearer_worker_wins_over_a_warm_one() -> None:
    table = table_of(worker("a"), warm(worker("b", path_cost_us=900)))

    assert chosen(table, needs(1), policy="nearest") == ["a"]


def test_who_has_more_of_what_is_needed_is_warmer() -> None:
    table = table_of(
        worker("a"), warm(worker("b"), BOTH[:1]), warm(worker("c"), BOTH), worker("d")
    )

    assert chosen(table, needs(1), marks=BOTH) == ["c"]


def test_many_tasks_go_to_the_warm_ones_first_and_then_everywhere() -> None:
    table = table_of(worker("a"), worker("b"), warm(worker("c")), warm(worker("d")))

    assert chosen(table, needs(1), count=4) == ["c", "d", "a", "b"]


def test_a_choice_does_not_depend_on_the_order_in_which_workers_came() -> None:
    views = [warm(worker(f"w{n:02}")) for n in range(2 * LOOKED_AT_MAX)]
    views.append(worker("a"))

    forwards = chosen(table_of(*views), needs(1))
    backwards = chosen(table_of(*reversed(views)), needs(1))

    assert forwards == backwards == ["w00"]


def test_a_worker_that_is_warm_no_longer_is_like_the_others() -> None:
    table = table_of(worker("a"), warm(worker("b")))
    table.put(worker("b"))

    assert chosen(table, needs(1)) == ["a"]


def test_a_worker_that_left_is_not_chosen() -> None:
    table = table_of(worker("a"), warm(worker("b")))
    table.remove(NodeId("b"))

    assert chosen(table, needs(1)) == ["a"]


NODES = st.sampled_from([NodeId(name) for name in "abcde"])
SETS = st.lists(st.sampled_from(["p", "q", "r"]), max_size=3).map(tuple)


@given(st.lists(st.tuples(NODES, SETS), max_size=30))
def test_rows_are_found_by_what_their_workers_said_last(
    said: list[tuple[NodeId, tuple[str, ...]]],
) -> None:
    rows, latest = WarmRows(), dict[NodeId, tuple[str, ...]]()
    for node, marks in said:
        if node in latest:
            rows.remove(node, ord(node), latest[node])
        latest[node] = marks
        rows.put(node, ord(node), marks)

    for mark in ("p", "q", "r"):
        expected = sorted(ord(node) for node, marks in latest.items() if mark in marks)
        assert rows.of([mark]) == expected
        assert rows.count(mark) == len(expected)


def test_what_is_cached_is_said_in_words() -> None:
    both = Work(workdir="tree:abc-1", image="i")

    assert cached_words(both, marks_of(both)) == "code and image cached"
    assert cached_words(both, marks_of(both)[:1]) == "code cached"
    assert cached_words(both, ()) == ""
    assert marks_of(Work(workdir="/not/packed")) == ()
