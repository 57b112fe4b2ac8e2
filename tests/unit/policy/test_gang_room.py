"""Gangs are planned as one: under as few switches as possible."""

from __future__ import annotations

from random import Random

import pytest
from tests.unit.policy.gang_oracle import Oracle, Parts, Path, least_by_trying, used

from shoal.model.ids import NodeId
from shoal.model.resources import Capacity, Device, GpuNeed, Profile
from shoal.policy.interface import GangNeed
from shoal.policy.placement import place
from shoal.policy.ranking.compact import CompactGangs
from shoal.policy.table import gang_planner
from shoal.policy.table.gang_planner import LEAF, GangPlan
from shoal.policy.table.task_shapes import TaskShape
from shoal.policy.table.worker_table import WorkerTable, WorkerView

ONE_CPU = TaskShape(Profile(cpu_milli=1_000))


def table(*workers: tuple[str, int, str], cost_us: int = 9) -> WorkerTable:
    """Make workers of: name, CPUs, and `site/pod/leaf`."""
    made = WorkerTable()
    for name, cpus, where in workers:
        labels = tuple(zip(("site", "pod", "leaf"), where.split("/"), strict=True))
        capacity = Capacity(cpu_milli=1_000 * cpus, labels=labels)
        made.put(WorkerView.idle(NodeId(name), capacity, path_cost_us=cost_us))
    return made


def planned(made: WorkerTable, count: int, **more: object) -> dict[str, int]:
    """Return how many tasks of a gang each worker gets."""
    plan = made.gang_room(ONE_CPU).plan(count, **more)  # type: ignore[arg-type]
    return {made.row(row).node: tasks for row, tasks in plan}


def test_a_gang_takes_the_narrowest_domain_that_holds_it() -> None:
    made = table(
        ("a", 2, "s/p/1"), ("b", 2, "s/p/1"), ("c", 3, "s/p/2"), ("d", 9, "t/q/3")
    )

    assert planned(made, 3) == {"c": 3}
    assert planned(made, 8) == {"d": 8}
    assert planned(made, 9) == {"d": 9}
    made.take(NodeId("d"), Profile(cpu_milli=8_000))
    assert planned(made, 4) == {"a": 2, "b": 2}
    assert planned(made, 7) == {"c": 3, "a": 2, "b": 2}
    assert planned(made, 8) == {"a": 2, "b": 2, "c": 3, "d": 1}


def test_of_equal_domains_the_one_with_least_room_and_then_the_nearest_is_taken() -> (
    None
):
    made = table(("a", 8, "s/p/1"), ("b", 5, "s/p/2"), ("c", 5, "s/p/3"))
    made.set_path_cost(NodeId("c"), 1)

    assert planned(made, 4) == {"c": 4}
    assert planned(made, 4, skip=made.indices([NodeId("c")])) == {"b": 4}


def test_few_large_workers_are_better_than_many_small_ones() -> None:
    small = [(f"s{number}", 1, "s/p/1") for number in range(8)]
    made = table(*small, ("a", 5, "s/p/2"), ("b", 5, "s/p/2"))

    assert planned(made, 8) == {"a": 5, "b": 3}


def test_one_leaf_holds_a_gang_on_few_workers_and_with_little_left_over() -> None:
    made = table(
        ("a", 4, "s/p/1"), ("b", 4, "s/p/1"), ("c", 3, "s/p/2"), ("d", 1, "s/p/2")
    )
    room = made.gang_room(ONE_CPU)

    def leaf(count: int, *skip: str) -> list[str]:
        rows = room.leaf(count, made.indices([NodeId(name) for name in skip]))
        return [made.row(row).node for row in rows]

    assert leaf(3) == ["c", "d"]
    assert leaf(4) == ["a", "b"]
    assert leaf(3, "c") == ["a", "b"]
    assert leaf(9) == []
    made.take(NodeId("c"), ONE_CPU.profile)
    assert leaf(3) == ["a", "b"]


def test_more_tasks_join_the_domain_of_those_that_sit_already() -> None:
    made = table(("a", 1, "s/p/1"), ("b", 4, "s/p/1"), ("c", 2, "s/p/2"))
    beside = made.indices([NodeId("a")])

    assert planned(made, 2, beside=beside) == {"b": 2}
    assert planned(made, 5, beside=beside, skip=beside, narrow=LEAF) == {}
    assert planned(made, 5, beside=beside, skip=beside) == {"b": 4, "c": 1}


def test_a_gang_waits_for_the_narrowest_domain_that_could_hold_it() -> None:
    made = table(
        ("a", 2, "s/p/1"), ("b", 2, "s/p/1"), ("c", 2, "s/p/2"), ("d", 2, "s/p/2")
    )
    room = made.gang_room(ONE_CPU)
    for node in "abc":
        made.take(NodeId(node), Profile(cpu_milli=1_000))

    assert [made.row(row).node for row in room.to_wait_for(4)] == ["c", "d"]
    assert len(room.to_wait_for(5)) == 4
    assert room.to_wait_for(5, LEAF) == []
    assert room.to_wait_for(9) == []


def test_a_patient_gang_is_not_spread_and_an_impatient_one_is() -> None:
    made = table(*((f"w{number}", 2, f"s/p/{number // 2}") for number in range(6)))
    for number in (0, 2, 4):
        made.take(NodeId(f"w{number}"), Profile(cpu_milli=2_000))

    waits = place(
        ONE_CPU.profile,
        4,
        made,
        CompactGangs(),
        Random(1),
        gang=GangNeed(4, slowdown_max=1.9),
    )
    goes = place(ONE_CPU.profile, 4, made, CompactGangs(), Random(1), gang=GangNeed(4))

    assert waits.takens == ()
    assert waits.reason == "no part of the network has room for the whole gang yet"
    assert sorted(goes.nodes) == ["w1", "w1", "w3", "w3"]


def test_links_that_are_wide_above_a_leaf_are_not_worth_waiting_for() -> None:
    def goes(ratio: str, slowdown_max: float) -> bool:
        made = WorkerTable()
        for number in range(6):
            labels = (("leaf", str(number // 2)), ("oversubscription", ratio))
            capacity = Capacity(cpu_milli=2_000, labels=labels)
            made.put(WorkerView.idle(NodeId(f"w{number}"), capacity))
        for number in (0, 2, 4):
            made.take(NodeId(f"w{number}"), Profile(cpu_milli=2_000))
        gang = GangNeed(4, slowdown_max=slowdown_max)
        policy = CompactGangs()
        found = place(ONE_CPU.profile, 4, made, policy, Random(1), gang=gang)
        return len(found.takens) == 4

    assert goes("1", 1.0)
    assert not goes("2", 1.3)
    assert goes("2", 1.4)
    assert not goes("10", 3.9)
    assert goes("10", 4.0)
    for nonsense in ("nan", "inf", "-1", "0", "1e9", "wide", ""):
        assert not goes(nonsense, 1.9)
        assert goes(nonsense, 2.0)


def test_a_gang_that_must_cross_takes_uplinks_that_carry_few_others() -> None:
    made = table(*((f"w{number}", 2, f"s/p/{number}") for number in range(5)))
    room = made.gang_room(ONE_CPU)

    def rows(*names: str) -> list[int]:
        return made.indices([NodeId(name) for name in names])

    assert set(planned(made, 4)) == {"w0", "w1"}
    run(made, "one", "w0", "w1")
    run(made, "two", "w1", "w3")
    run(made, "three", "w2", "w2")
    assert set(planned(made, 4)) == {"w2", "w4"}, "w2 talks to itself"
    assert planned(made, 2) == {"w0": 2}, "nothing crosses"
    assert room.slowdown(rows("w2", "w4"), 2) == pytest.approx(2.0)
    assert room.slowdown(rows("w0", "w2"), 2) == pytest.approx(1 + 7 / 3)
    assert room.slowdown(rows("w1", "w2"), 2) == pytest.approx(1 + 11 / 3)
    assert room.slowdown(rows("w1", "w2"), 2, "two") == pytest.approx(1 + 7 / 3)
    assert room.slowdown(rows("w1"), 2) == 1.0


def run(made: WorkerTable, mark: str, *names: str) -> None:
    """Let a gang run on some workers, as its scheduler knows."""
    for name in names:
        made.links.add(NodeId(name), mark)


def test_gangs_of_others_load_links_as_workers_tell_and_only_once() -> None:
    made = table(*((f"w{number}", 2, f"s/p/{number}") for number in range(4)))
    tell = made.links.tell
    run(made, "ours", "w0", "w1")
    for name in ("w0", "w1"):
        tell(NodeId(name), ("ours", "theirs"))

    assert made.links.crossing == {
        ("s", "p", "leaf 0"): 2,
        ("s", "p", "leaf 1"): 2,
    }
    assert set(planned(made, 4)) == {"w2", "w3"}
    tell(NodeId("w0"), ("ours",))
    assert made.links.crossing == dict.fromkeys(made.links.of("ours"), 1)
    made.remove(NodeId("w1"))
    assert not made.links.crossing, "nobody knows where the others are"


def test_pods_have_links_too() -> None:
    made = table(
        *((f"w{number}", 1, f"s/{number // 2}/{number}") for number in range(8))
    )
    run(made, "a", "w0", "w2")
    run(made, "b", "w0", "w3")

    assert set(planned(made, 2)) == {"w4", "w5"}
    assert set(planned(made, 4)) == {"w4", "w5", "w6", "w7"}


def test_links_are_as_narrow_as_they_were_measured() -> None:
    made = WorkerTable()
    for number in range(6):
        made.put(WorkerView.idle(NodeId(f"w{number}"), Capacity(cpu_milli=1_000)))
        made.set_site(
            NodeId(f"w{number}"), f"near {number // 2}", (4, 16, 1)[number // 2]
        )
    room = made.gang_room(ONE_CPU)

    assert set(planned(made, 4)) == {"w0", "w1", "w4", "w5"}
    rows = made.indices([NodeId("w0"), NodeId("w4")])
    assert room.slowdown(rows, 2) == pytest.approx(2.0)
    made.set_site(NodeId("w0"), "near 0", 1.0)
    made.set_site(NodeId("w1"), "near 0", 1.0)
    assert room.slowdown(rows, 2) == 1.0


def test_a_gang_waits_longer_for_a_place_if_others_talk_over_the_links() -> None:
    def goes(slowdown_max: float, *others: str) -> bool:
        made = table(*((f"w{number}", 2, f"s/p/{number // 2}") for number in range(4)))
        for number in (0, 2):
            made.take(NodeId(f"w{number}"), Profile(cpu_milli=2_000))
        run(made, "others", *others)
        gang = GangNeed(4, slowdown_max=slowdown_max)
        found = place(ONE_CPU.profile, 4, made, CompactGangs(), Random(1), gang=gang)
        return len(found.takens) == 4

    assert goes(2.0)
    assert not goes(2.0, "w0", "w2")
    assert goes(3.4, "w0", "w2")


def test_of_equal_places_the_one_with_the_code_is_taken() -> None:
    made = table(
        *((f"a{n}", 1, "s/p/1") for n in range(4)),
        *((f"b{n}", 1, "s/p/2") for n in range(5)),
    )
    warm = made.indices([NodeId("b3"), NodeId("b4")])

    assert sorted(planned(made, 3)) == ["a0", "a1", "a2"]
    assert {"b3", "b4"} < set(planned(made, 3, warm=warm))


def test_single_tasks_leave_the_local_network_only_if_it_is_full() -> None:
    made = WorkerTable()
    gpus = tuple(Device(str(n), "nvidia", "A100", 80 << 30) for n in range(4))
    for name, cost_us in (("near", 90), ("lab", 900), ("far", 40_000)):
        capacity = Capacity(cpu_milli=8_000, devices=gpus)
        made.put(WorkerView.idle(NodeId(name), capacity, path_cost_us=cost_us))
    made.take(NodeId("far"), Profile(gpu=GpuNeed(3, 3)))

    placed = place(Profile(gpu=GpuNeed()), 9, made, CompactGangs(), Random(1))

    assert placed.nodes == [*["near"] * 4, *["lab"] * 4, "far"], "far wastes least"


def test_within_a_network_a_full_worker_is_better_than_a_near_one() -> None:
    made = WorkerTable()
    gpus = tuple(Device(str(n), "nvidia", "A100", 80 << 30) for n in range(4))
    for name, cost_us in (("self", 0), ("next", 400)):
        capacity = Capacity(cpu_milli=8_000, devices=gpus)
        made.put(WorkerView.idle(NodeId(name), capacity, path_cost_us=cost_us))
    made.take(NodeId("next"), Profile(gpu=GpuNeed(2, 2)))

    placed = place(Profile(gpu=GpuNeed()), 2, made, CompactGangs(), Random(1))

    assert placed.nodes == ["next", "next"]


def test_no_worker_gets_more_of_a_gang_than_allowed() -> None:
    made = table(("a", 4, "s/p/1"), ("b", 4, "s/p/1"))

    placed = place(
        ONE_CPU.profile, 4, made, CompactGangs(), Random(1), at_most=1, gang=GangNeed(4)
    )

    assert placed.nodes == ["a"]


def parts_of(made: WorkerTable, plan: dict[str, int]) -> Parts:
    """Return what a plan uses, as the oracle counts it."""
    return used(places(made), crossing(made), [*plan])


def places(made: WorkerTable) -> dict[str, Path]:
    """Return where each worker is, as it was declared."""
    rows = [made.row(index) for index in made.grid.order().tolist()]
    return {row.node: tuple(dict(row.capacity.labels).values()) for row in rows}


def crossing(made: WorkerTable) -> dict[Path, int]:
    """Return how many gangs cross the uplinks of each domain."""
    return {
        tuple(name.removeprefix("leaf ") for name in path): gangs
        for path, gangs in made.links.crossing.items()
    }


def drawn(rng: Random, workers: int, most: int, width: int) -> dict[str, int]:
    """Draw the free slots of some workers; their names begin with where they are."""
    return {
        f"{rng.randrange(2)}/{rng.randrange(2)}/{rng.randrange(width)} w{number}": (
            rng.randint(0, most)
        )
        for number in range(workers)
    }


def with_room(free: dict[str, int]) -> WorkerTable:
    """Return a table of workers that were drawn."""
    return table(*((name, cpus, name.split()[0]) for name, cpus in free.items()))


def crowded(rng: Random, free: dict[str, int], gangs: int) -> WorkerTable:
    """Return a table of workers that were drawn, and gangs that talk over links."""
    made = with_room(free)
    for mark in range(gangs):
        run(made, str(mark), *rng.sample([*free], rng.randint(2, 4)))
    return made


def test_plans_are_the_best_of_all() -> None:
    for seed in range(200):
        rng = Random(seed)
        free = drawn(rng, workers=6, most=4, width=2)
        if sum(free.values()) == 0:
            continue
        made, count = crowded(rng, free, rng.randrange(6)), rng.randint(1, 24)
        count = min(count, sum(free.values()))

        got = parts_of(made, planned(made, count))

        best = least_by_trying(places(made), free, crossing(made), count)
        assert got == best, f"seed {seed}"
        oracle = Oracle(places(made), free, crossing(made), count)
        assert oracle.best[count] == best, f"seed {seed}: the oracle is wrong"


@pytest.mark.parametrize("seed", range(6))
def test_plans_for_more_workers_are_as_good_as_any(seed: int) -> None:
    rng = Random(seed)
    free = drawn(rng, workers=30, most=8, width=4)
    made = crowded(rng, free, gangs=12)
    most = min(64, sum(free.values()))
    oracle = Oracle(places(made), free, crossing(made), most)

    for count in rng.sample(range(1, most + 1), 24):
        got = parts_of(made, planned(made, count))

        assert got == oracle.best[count], f"{count} tasks"


@pytest.mark.parametrize("seed", range(3))
def test_large_gangs_need_little_more_than_at_least(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = Random(seed)
    free = drawn(rng, workers=60, most=8, width=10)
    made = crowded(rng, free, gangs=20)
    counts = range(10, min(160, sum(free.values())), 15)
    oracle = Oracle(places(made), free, crossing(made), counts[-1])
    best = [oracle.best[count] for count in counts]
    monkeypatch.setattr(gang_planner, "EXACT_WORK_MAX", 20_000)

    rough = [parts_of(made, planned(made, count)) for count in counts]

    switches = [0, 0]
    for got, least in zip(rough, best, strict=True):
        assert least is not None
        assert got[0] == least[0]
        assert got >= least
        for at, parts in enumerate((got, least)):
            sites, pods, leaves, _, workers = parts
            switches[at] += sites + pods + leaves + workers
    assert switches[0] <= 1.05 * switches[1], switches


def whole(plan: GangPlan) -> int:
    """Return the tasks of a plan."""
    return sum(tasks for _, tasks in plan)


@pytest.mark.parametrize("seed", range(5))
def test_counts_kept_up_to_date_equal_counts_made_anew(seed: int) -> None:
    rng = Random(seed)
    device = Device("0", "nvidia", "A100", 80 << 30)
    half = TaskShape(Profile(cpu_milli=500, gpu=GpuNeed(count=1, milli=500)))
    pair = TaskShape(Profile(gpu=GpuNeed(count=2, count_max=3)))
    made = WorkerTable()
    nodes = [NodeId(f"w{number}") for number in range(20)]
    for node in nodes:
        made.put(view(node, rng, device))
    rooms = {shape: made.gang_room(shape) for shape in (half, pair, ONE_CPU)}
    taken = []
    for _ in range(200):
        node = rng.choice(nodes)
        shape = rng.choice([*rooms])
        if rng.random() < 0.1:
            made.put(view(node, rng, device))
        elif (known := made.view(node)) is not None and known.fits(shape):
            taken.append(made.take(node, shape.profile))
        elif taken:
            made.give(taken.pop(rng.randrange(len(taken))))
        anew = WorkerTable()
        for other in made.nodes():
            seen = made.view(other)
            assert seen is not None
            anew.put(seen)
        assert whole(rooms[shape].plan(999)) == whole(anew.gang_room(shape).plan(999))
        for other in made.nodes():
            seen = made.view(other)
            assert seen is not None
            slots = made.row(made.indices([other])[0]).slots(rooms[shape].need)
            assert slots == seen.ledger.use_up(shape.profile, 99), (other, shape)


def view(node: NodeId, rng: Random, device: Device) -> WorkerView:
    """Draw an idle worker."""
    devices = tuple(
        Device(str(number), device.vendor, device.model, device.memory_bytes)
        for number in range(rng.randint(0, 3))
    )
    labels = (("leaf", str(rng.randrange(4))),)
    capacity = Capacity(cpu_milli=rng.randint(0, 8_000), devices=devices, labels=labels)
    return WorkerView.idle(node, capacity)
