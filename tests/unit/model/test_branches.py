import random
from collections import Counter

import pytest
from tests.unit.net.shoals import identity

from shoal.model.directory import branches
from shoal.model.directory.capability import ANY, capability_keys
from shoal.model.resources import GIB, Capacity, Device

LABELS = tuple(sorted((f"zone{n}", "eu") for n in range(12)))


def server() -> Capacity:
    gpus = [
        Device(id=f"g{n}", vendor="nvidia", model="H100", memory_bytes=80 * GIB)
        for n in range(8)
    ]
    return Capacity(
        cpu_milli=128_000, memory_bytes=1024 * GIB, devices=tuple(gpus), labels=LABELS
    )


def test_a_worker_provides_ten_keys_at_most() -> None:
    every = capability_keys(server())

    assert len(every) > branches.KEYS_MAX
    assert len(branches.prioritised(every)) == branches.KEYS_MAX


def test_the_rarest_of_each_kind_comes_first_and_that_for_all_is_kept() -> None:
    chosen = branches.prioritised(capability_keys(server()))

    assert chosen[-1] == ANY
    assert "gpu-model/H100" in chosen
    assert "gpu-memory/64" in chosen
    assert "gpu-count/8" in chosen
    assert "ram/512" in chosen
    assert "cpu/64" in chosen


def test_few_keys_are_all_provided() -> None:
    assert set(branches.prioritised(["a/1", "a/2", ANY])) == {"a/1", "a/2", ANY}
    assert branches.prioritised([]) == ()


def test_nodes_spread_evenly_over_the_branches() -> None:
    paths = [branches.path(identity(number).node) for number in range(400)]

    left = sum(path[0] == "0" for path in paths)

    assert {len(path) for path in paths} == {branches.LEVELS_MAX}
    assert 150 < left < 250


class Tree:
    """The records of one key and its branches, and how often each was asked."""

    def __init__(self) -> None:
        self.records: dict[str, set[str]] = {}
        self.asked: Counter[str] = Counter()

    def holds(self, place: str) -> int:
        self.asked[place] += 1
        return len(self.records.get(place, ()))

    def place(self, number: int, nodes: int) -> str:
        path = branches.path(identity(number).node)
        steps = branches.placing(branches.first_level(nodes))
        step: tuple[int, bool] | None = next(steps)
        place = ""
        while step is not None:
            place = path[: step[0]]
            others = self.holds(place)
            if step[1]:
                self.records.setdefault(place, set()).add(str(number))
            step = branches.following(steps, others >= branches.FULL)
        return place

    def find(self, nodes: int, limit: int, rng: random.Random) -> set[str]:
        path = "".join(rng.choices("01", k=branches.LEVELS_MAX))
        steps = branches.searching(branches.first_level(nodes), limit)
        found: set[str] = set()
        level: int | None = next(steps)
        while level is not None:
            count = self.holds(path[:level])
            found |= self.records.get(path[:level], set())
            is_full = count >= branches.FULL
            level = branches.following(steps, (is_full, len(found)))
        return found


@pytest.mark.parametrize("believed", [1, 200, 400, 4_000, 1_000_000])
def test_each_stands_at_the_first_key_with_room_wherever_it_began(
    believed: int,
) -> None:
    tree = Tree()

    places = [tree.place(number, believed) for number in range(300)]

    for place in places:
        above = [place[:level] for level in range(len(place))]
        assert all(len(tree.records[each]) >= branches.FULL for each in above)


def test_a_rare_capability_is_found_whole_in_a_large_shoal() -> None:
    tree = Tree()
    for number in range(9):
        tree.place(number, 1_000_000)

    found = tree.find(1_000_000, 64, random.Random(1))

    assert len(found) == 9


def test_the_root_of_a_common_key_is_left_alone_in_a_large_shoal() -> None:
    tree, rng = Tree(), random.Random(1)
    for number in range(2_000):
        tree.place(number, 2_000)
    tree.asked.clear()

    found = [tree.find(2_000, 16, rng) for _ in range(100)]
    for number in range(2_000, 2_100):
        tree.place(number, 2_000)

    assert tree.asked[""] == 0
    assert max(tree.asked.values()) < 40
    assert min(len(sample) for sample in found) >= 16
