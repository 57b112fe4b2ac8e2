"""Whatever the workers and the wishes, placing keeps its promises."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.policy.pools import PROFILES, SHAPES, needs, pools, table_of

from shoal.model.ids import NodeId
from shoal.model.resources import Allocation, Profile
from shoal.policy.explanation import explain
from shoal.policy.filters import FILTERS, idle, mask, reason
from shoal.policy.interface import Policy
from shoal.policy.placement import place
from shoal.policy.ranking.fragmentation import Fgd
from shoal.policy.ranking.ranking import Ranking
from shoal.policy.ranking.rankings import (
    Balanced,
    BestFit,
    DotProduct,
    Nearest,
    Simple,
    Uniform,
)
from shoal.policy.table.rows import WorkerRow
from shoal.policy.table.task_shapes import TaskShape
from shoal.policy.table.worker_table import TakenRoom, WorkerTable, WorkerView

TYPICAL = (
    (needs(cpus=1, count=1, milli=250), 5),
    (needs(count=2, models=("A100",)), 3),
    (needs(cpus=2), 2),
)
RANKINGS: list[Ranking] = [
    Simple(),
    Balanced(),
    Nearest(),
    BestFit(),
    DotProduct(),
    Fgd(TYPICAL),
]
POLICIES: list[Policy] = [*RANKINGS, Uniform()]


def rows_of(table: WorkerTable) -> list[tuple[int, WorkerRow]]:
    return [(i, row) for i, row in enumerate(table.grid.rows) if row is not None]


def scan(shape: TaskShape, table: WorkerTable, ranking: Ranking) -> NodeId | None:
    """Look at every worker, one by one: slow, and plainly right."""
    need = table.need(shape)
    views = [(view, row) for _, row in rows_of(table) if (view := table.view(row.node))]
    fitting = [row for view, row in views if reason(shape, view) is None]
    ranked = [(ranking.key(need, row), row.node) for row in fitting]
    return min(ranked)[1] if ranked else None


@given(pools(), SHAPES)
def test_masks_reasons_rows_views_and_ledgers_agree(
    pool: list[WorkerView], shape: TaskShape
) -> None:
    table = table_of(*pool)
    need = table.need(shape)
    meets = mask(need, table.grid)
    each = [condition.mask(need, table.grid) for condition in FILTERS]

    for index, row in rows_of(table):
        view = table.view(row.node)
        assert view is not None
        why = reason(shape, view)
        assert meets[index] == (why is None)
        assert row.fits(need) == (why is None)
        assert view.fits(shape) == (why is None)
        if why is None:
            assert isinstance(view.ledger.fit(shape.profile), Allocation)
        firsts = [c.reason(shape, view) for c in FILTERS]
        for condition, column, words in zip(FILTERS, each, firsts, strict=True):
            holds = column if isinstance(column, bool) else bool(column[index])
            # HasGpus asks a ledger, which also knows the conditions before it.
            if condition.name != "gpu":
                assert holds == (words is None)


@given(pools(), SHAPES)
def test_a_ranking_gives_one_worker_the_same_key_as_all_of_them(
    pool: list[WorkerView], shape: TaskShape
) -> None:
    table = table_of(*pool)
    need = table.need(shape)
    fitting = [(index, row) for index, row in rows_of(table) if row.fits(need)]

    for ranking in RANKINGS:
        columns = ranking.key(need, table.grid.columns)
        for index, row in fitting:
            for one, column in zip(ranking.key(need, row), columns, strict=True):
                assert one == (
                    column if isinstance(column, int | float) else column[index]
                )


@given(pools(), SHAPES, PROFILES)
def test_rankings_tell_truly_what_becomes_of_a_worker_that_gets_fuller(
    pool: list[WorkerView], shape: TaskShape, booked: Profile
) -> None:
    table = table_of(*pool)
    need = table.need(shape)
    for _, row in rows_of(table):
        if row.mixed or not row.fits(table.need(TaskShape(booked))):
            continue
        before = [ranking.key(need, row) for ranking in RANKINGS if row.fits(need)]
        table.take(row.node, booked)
        after = [ranking.key(need, row) for ranking in RANKINGS if row.fits(need)]

        for ranking, old, new in zip(RANKINGS, before, after, strict=False):
            assert ranking.when_fuller != "better" or new <= old
            assert ranking.when_fuller != "worse" or new >= old


@given(pools(), SHAPES)
def test_a_booking_is_what_a_ledger_would_give(
    pool: list[WorkerView], shape: TaskShape
) -> None:
    table = table_of(*pool)

    for view in pool:
        known = table.view(view.node)
        assert known is not None
        expected = known.ledger.fit(shape.profile)
        if isinstance(expected, Allocation):
            taken = table.take(view.node, shape.profile)
            assert taken.allocation == expected
            table.give(taken)
            assert table.view(view.node) == known


@given(pools(), SHAPES, st.integers(0, 6), st.randoms(use_true_random=False))
def test_the_order_in_which_workers_came_does_not_matter(
    pool: list[WorkerView], shape: TaskShape, count: int, rng: Random
) -> None:
    shuffled = list(pool)
    rng.shuffle(shuffled)

    for policy in POLICIES:
        answers = [
            place(
                shape.profile,
                count,
                table_of(*views),
                policy,
                Random(1),
                driver=shape.driver,
                rtt_max_us=shape.rtt_max_us,
            )
            for views in (pool, shuffled)
        ]
        assert answers[0].nodes == answers[1].nodes


@given(pools(), PROFILES, st.integers(0, 12), st.integers(1, 3))
def test_placing_never_books_more_than_there_is(
    pool: list[WorkerView], profile: Profile, count: int, at_most: int
) -> None:
    for policy in POLICIES:
        table = table_of(*pool)
        ledgers = {
            v.node: v.ledger for node in table.nodes() if (v := table.view(node))
        }
        barred = table.nodes()[:1]

        placed = place(
            profile, count, table, policy, Random(1), exclude=barred, at_most=at_most
        )

        assert len(placed.takens) <= count
        for taken in placed.takens:
            ledgers[taken.node].take(taken.allocation)  # It asserts that this fits.
        assert all(placed.nodes.count(node) <= at_most for node in placed.nodes)
        assert not [node for node in placed.nodes if node in barred]


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["place", "place", "give", "report", "leave", "join", "far"]),
        st.integers(0, 99),
    ),
    max_size=40,
)


@given(pools(), st.lists(SHAPES, min_size=1, max_size=3), STEPS)
def test_a_shortlist_gives_the_same_answers_as_a_full_scan(
    pool: list[WorkerView], shapes: list[TaskShape], steps: list[tuple[str, int]]
) -> None:
    table, held = table_of(*pool), list[TakenRoom]()

    for what, number in steps:
        view = pool[number % len(pool)] if pool else None
        if what == "place":
            held += place_as_a_scan_would(table, shapes, number)
        elif what == "give" and held:
            table.give(held.pop(number % len(held)))
        elif view is not None and what == "report":
            table.set_load(
                view.node, cpu_milli=500 * (number % 7), gpu_milli=view.gpu_milli
            )
        elif view is not None and what == "leave":
            table.remove(view.node)
        elif view is not None and what == "join":
            table.put(view)
        elif view is not None and what == "far":
            table.set_path_cost(view.node, 1_000 * number)


def place_as_a_scan_would(
    table: WorkerTable, shapes: list[TaskShape], number: int
) -> tuple[TakenRoom, ...]:
    shape, ranking = shapes[number % len(shapes)], RANKINGS[number % len(RANKINGS)]
    expected = scan(shape, table, ranking)
    placed = place(
        shape.profile,
        1,
        table,
        ranking,
        Random(1),
        driver=shape.driver,
        rtt_max_us=shape.rtt_max_us,
    )
    assert placed.nodes == ([] if expected is None else [expected])
    return placed.takens


@given(pools(), SHAPES)
def test_an_explanation_names_every_worker_that_does_not_fit(
    pool: list[WorkerView], shape: TaskShape
) -> None:
    table = table_of(*pool)
    views = [view for node in table.nodes() if (view := table.view(node))]

    answer = explain(
        shape.profile, table, driver=shape.driver, rtt_max_us=shape.rtt_max_us
    )

    expected = [(v.node, why) for v in views if (why := reason(shape, v)) is not None]
    told = [(each.node, each.reason) for each in answer.rejected]
    assert sorted(told) == sorted(expected)
    able = [view.node for view in views if reason(shape, idle(view)) is None]
    busy = [each.node for each in answer.rejected if each.is_busy]
    assert answer.able == len(able)
    assert busy == [node for node, _ in expected if node in able]
    assert bool(answer.never) == (bool(views) and not able)
    assert answer.fitting == len(pool) - len(expected)
    assert sum(count for _, count in answer.summary) == len(expected)
