from typing import Any

from shoal.model.derive import derive
from shoal.model.ids import JobId, OwnerId
from shoal.model.job import Job
from shoal.model.resources import GIB
from shoal.model.spec.canonical import spec_of
from shoal.model.totals import Amounts, totals


def derived(document: dict[str, Any]) -> Job:
    return derive(spec_of(document), JobId("j"), OwnerId("ann"))


def test_an_array_needs_as_much_as_all_its_tasks() -> None:
    found = totals(
        derived(
            {
                "command": "x",
                "array": 100,
                "resources": {"gpu": "24GB:2", "cpu": 4, "ram": "16GB", "disk": "1GB"},
            }
        )
    )

    assert found.tasks == 100
    assert found.whole == Amounts(400_000, 1600 * GIB, 100 * GIB, 200_000)
    assert found.peak == found.whole
    assert str(found) == "100 tasks: 400 CPU · 1600 GiB RAM · 100 GiB disk · 200 GPU"


def test_steps_that_follow_each_other_do_not_need_their_resources_at_once() -> None:
    found = totals(
        derived(
            {
                "steps": {
                    "a": {"command": "x", "resources": {"cpu": 8}},
                    "b": {"command": "x", "needs": ["a"], "resources": {"gpu": 0.5}},
                    "c": {"command": "x", "resources": {"cpu": 2}},
                }
            }
        )
    )

    assert found.whole == Amounts(cpu_milli=11_000, gpu_milli=500)
    assert found.peak == Amounts(cpu_milli=10_000, gpu_milli=500)
    assert str(found) == "3 tasks: 11 CPU · 0.5 GPU; at most 10 CPU · 0.5 GPU at once"


def test_large_sizes_are_told_in_tib_and_small_ones_in_mib() -> None:
    assert str(Amounts(1_000, 20 << 20)) == "1 CPU · 20 MiB RAM · no GPU"
    assert str(Amounts(1_000, 9_999 * GIB, 20 << 40)) == (
        "1 CPU · 9999 GiB RAM · 20.0 TiB disk · no GPU"
    )


def test_a_task_that_could_use_more_gpus_counts_with_the_least() -> None:
    found = totals(derived({"command": "x", "resources": {"gpu": "2..4"}}))

    assert found.whole.gpu_milli == 2_000


def test_the_peak_is_exact_where_a_step_needs_only_some_of_those_before() -> None:
    steps = {
        "a": {"command": "x"},
        "b": {"command": "x"},
        "e": {"command": "x", "resources": {"cpu": 0}},
        "x": {"command": "x", "needs": ["a", "b"]},
        "y": {"command": "x", "needs": ["a", "e"]},
    }

    assert totals(derived({"steps": steps})).peak.cpu_milli == 2_000


def test_the_favourite_alternative_counts() -> None:
    found = totals(derived({"command": "x", "any_of": [{"gpu": 1}, {"gpu": 8}]}))

    assert str(found) == "1 task: 1 CPU · 1 GPU"
