"""Policies of users: found, asked, and never trusted."""

from collections.abc import Callable, Mapping
from itertools import count
from pathlib import Path
from random import Random
from typing import cast

import numpy as np
import pytest
from tests.unit.policy.pools import gpus, install, needs, table_of, worker

from shoal.errors import PolicyError
from shoal.policy.conformance import MEANINGS, check
from shoal.policy.custom import Assignment, AssignsTasks, Custom
from shoal.policy.interface import Policy
from shoal.policy.placement import place
from shoal.policy.ranking.ranking import Ranking
from shoal.policy.registry import BUILT_IN, DEFAULT, Registry
from shoal.policy.table.rows import RowRoom, WorkerRow
from shoal.policy.table.shortlist import Key, WhenFuller
from shoal.policy.table.task_shapes import Need, TaskShape
from shoal.policy.table.worker_table import WorkerView

Workers = Mapping[str, WorkerView]


class Tight:
    """The example of the documentation."""

    def assign(self, workers: Workers, task: TaskShape) -> Assignment | None:
        fitting = (w for w in workers.values() if w.fits(task))
        best = min(fitting, key=lambda w: w.free_gpus, default=None)
        return Assignment(best.id, best.pick_gpus(task)) if best else None


class NamesTheLastDevice:
    def assign(self, workers: Workers, task: TaskShape) -> Assignment | None:
        for each in workers.values():
            rooms = zip(each.capacity.devices, each.gpu_milli, strict=True)
            if free := [device.id for device, milli in rooms if milli == 1_000]:
                return Assignment(each.id, (free[-1],))
        return None


class Refuses:
    def assign(self, workers: Workers, task: TaskShape) -> str:
        return "only at night"


class Raises:
    def assign(self, workers: Workers, task: TaskShape) -> Assignment:
        return Assignment(next(iter(workers)))


class AnswersNonsense:
    def assign(self, workers: Workers, task: TaskShape) -> Assignment:
        return cast("Assignment", 42)


class InventsWorkers:
    def assign(self, workers: Workers, task: TaskShape) -> Assignment:
        return Assignment("nobody")


class OverCommits:
    def assign(self, workers: Workers, task: TaskShape) -> Assignment | None:
        return Assignment(min(workers)) if workers else None


class NamesBusyDevices:
    def assign(self, workers: Workers, task: TaskShape) -> Assignment | None:
        for w in workers.values():
            if w.fits(task) and w.capacity.devices:
                return Assignment(w.id, (w.capacity.devices[-1].id,))
        return None


class NamesTooManyDevices:
    def assign(self, workers: Workers, task: TaskShape) -> Assignment | None:
        for w in workers.values():
            if w.fits(task):
                return Assignment(w.id, tuple(d.id for d in w.capacity.devices))
        return None


class Remembers:
    """Goes round, and goes on in the next run where it stopped in the last."""

    turns = count()

    def assign(self, workers: Workers, task: TaskShape) -> Assignment | None:
        fitting = [w for w in workers.values() if w.fits(task)]
        chosen = fitting[next(self.turns) % len(fitting)] if fitting else None
        return Assignment(chosen.id) if chosen else None


class FirstCome(Ranking):
    """Ranks by the row of a table, which nobody should know of."""

    name = "first-come"
    when_fuller: WhenFuller = "unclear"

    def key(self, need: Need, room: RowRoom) -> Key:
        if isinstance(room, WorkerRow):
            return (0,)
        return (np.arange(np.size(room.active)),)


def custom(policy: Callable[[], AssignsTasks]) -> Callable[[], Policy]:
    return lambda: Custom("mine", policy())


def broken(make: Callable[[], Policy]) -> list[str]:
    return [verdict.check for verdict in check(make, Random(7)) if not verdict.kept]


@pytest.mark.parametrize("name", sorted(BUILT_IN))
def test_policies_of_shoal_keep_all_promises(name: str) -> None:
    assert broken(BUILT_IN[name]) == []


def test_the_example_of_the_documentation_keeps_all_promises() -> None:
    assert broken(custom(Tight)) == []


@pytest.mark.parametrize(
    ("make", "promise"),
    [
        (custom(Raises), "total"),
        (custom(AnswersNonsense), "total"),
        (custom(InventsWorkers), "known workers"),
        (custom(OverCommits), "never over-commits"),
        (custom(NamesBusyDevices), "never over-commits"),
        (custom(NamesTooManyDevices), "never over-commits"),
        (custom(Remembers), "deterministic"),
        (FirstCome, "any order"),
    ],
)
def test_a_bad_policy_is_caught_by_the_right_check(
    make: Callable[[], Policy], promise: str
) -> None:
    assert promise in broken(make)
    assert promise in MEANINGS


def test_a_custom_policy_places_tasks() -> None:
    table = table_of(worker("a", devices=gpus(4)), worker("b", devices=gpus(2)))

    placed = place(needs(count=1), 3, table, Custom("tight", Tight()), Random(1))

    assert placed.nodes == ["b", "b", "a"]
    assert placed.reason == ""


def test_the_devices_that_a_custom_policy_names_are_booked_and_asked_for() -> None:
    table = table_of(worker("a", devices=gpus(4)))
    policy = Custom("last", NamesTheLastDevice())

    placed = place(needs(count=1), 2, table, policy, Random(1))

    asked = [taken.devices for taken in placed.takens]
    booked = [taken.allocation.shares[0].device for taken in placed.takens]
    last = [device.id for device in reversed(gpus(4))]
    assert asked == [(last[0],), (last[1],)]
    assert booked == last[:2]


def test_a_custom_policy_does_not_see_excluded_workers() -> None:
    table = table_of(worker("a"), worker("b"))

    placed = place(
        needs(), 1, table, Custom("tight", Tight()), Random(1), exclude=table.nodes()
    )

    assert placed.nodes == []


def test_the_reason_of_a_custom_policy_is_passed_on() -> None:
    table = table_of(worker("a"))

    placed = place(needs(), 1, table, Custom("night", Refuses()), Random(1))

    assert placed.reason == "only at night"
    assert placed.breach is None


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        (AnswersNonsense(), "it answered with int, not an Assignment"),
        (InventsWorkers(), "there is no worker 'nobody'"),
        (OverCommits(), "a: has 16 CPUs, 99 needed"),
    ],
)
def test_a_broken_promise_is_a_reason_and_books_nothing(
    policy: AssignsTasks, words: str
) -> None:
    table = table_of(worker("a"))

    placed = place(needs(cpus=99), 1, table, Custom("bad", policy), Random(1))

    assert placed.takens == ()
    assert placed.reason == f"policy bad broke a promise: {words}"


def test_more_devices_than_asked_for_are_too_many() -> None:
    table = table_of(worker("a", devices=gpus(4)))
    policy = Custom("greedy", NamesTooManyDevices())

    placed = place(needs(count=1), 1, table, policy, Random(1))

    assert placed.breach is not None
    assert placed.breach.how == "a: 1 to 1 devices were asked for, 4 given"


def test_a_policy_that_raises_does_not_stop_the_scheduler() -> None:
    placed = place(needs(), 1, table_of(), Custom("bad", Raises()), Random(1))

    assert placed.reason.startswith(
        "policy bad broke a promise: it raised StopIteration"
    )


def test_the_registry_gives_the_same_policy_each_time() -> None:
    registry = Registry({"tight": Tight})

    assert registry.get("tight") is registry.get("tight")
    assert registry.get("").name == DEFAULT
    assert registry.names() == sorted([*BUILT_IN, "tight"])


def test_an_unknown_name_gets_the_nearest_as_a_hint() -> None:
    with pytest.raises(PolicyError) as caught:
        Registry({}).get("balancd")

    assert caught.value.hint == "did you mean 'balanced'?"


def test_a_policy_that_cannot_be_loaded_says_why() -> None:
    def absent() -> object:
        raise ImportError("no module named mypkg")

    with pytest.raises(PolicyError) as caught:
        Registry({"mine": absent}).get("mine")

    assert caught.value.because == "ImportError: no module named mypkg"


def test_what_cannot_assign_tasks_is_no_policy() -> None:
    with pytest.raises(PolicyError) as caught:
        Registry({"mine": object}).get("mine")

    assert caught.value.because == "object has no method assign(workers, task)"


def test_policies_of_installed_packages_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(
        tmp_path, "tight", "class Tight:\n    def assign(self, w, t): return None\n"
    )
    monkeypatch.syspath_prepend(tmp_path)

    registry = Registry()

    assert "tight" in registry.names()
    assert registry.get("tight").name == "tight"
