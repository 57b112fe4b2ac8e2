"""A task knows from its environment who it is, and who aggregates for it."""

import pytest

from shoal.errors import UsageError
from shoal.train.task_context import TaskContext, life_of


@pytest.mark.parametrize(
    ("name", "aggregator"),
    [
        ("train.0", "aggregate.0"),
        ("train.3", "aggregate.0"),
        ("train-2.1", "aggregate.2"),
        ("learn-train.1", "learn-aggregate.0"),
        ("learn-train-4.0", "learn-aggregate.4"),
        ("aggregate.0", "aggregate.0"),
        ("aggregate.3", "aggregate.3"),
    ],
)
def test_every_worker_finds_its_aggregator(name: str, aggregator: str) -> None:
    around = TaskContext(name=name)

    assert around.aggregator == aggregator
    assert around.is_aggregator == (name == aggregator)


@pytest.mark.parametrize(
    "name", ["train.1", "train-0.1", "train-2.0", "learn-train.0", "learn-train-4.1"]
)
def test_an_aggregator_knows_what_its_workers_may_be_called(name: str) -> None:
    aggregator = TaskContext(name=TaskContext(name=name).aggregator)

    workers = aggregator.workers(2)

    assert name in workers
    assert {TaskContext(name=each).aggregator for each in workers} == {aggregator.name}


def test_tasks_of_a_gang_may_be_one_worker_together() -> None:
    tasks = [TaskContext(name=f"train-3.{n}", index=n, spans=True) for n in (0, 1)]
    aggregator = TaskContext(name="aggregate.0", spans=True)

    assert [each.worker for each in tasks] == [3, 3]
    assert {each.aggregator for each in tasks} == {aggregator.name}
    assert aggregator.workers(4)[3] == "train-3.0", "the first speaks for all"


def test_a_later_attempt_is_a_later_life() -> None:
    lives = [life_of(f"node:{text}") for text in ("1.4", "1.5", "1.12", "2.1")]

    assert lives == sorted(lives)
    assert len(set(lives)) == 4


def test_a_program_that_nobody_started_as_a_task_says_so() -> None:
    with pytest.raises(UsageError, match="cannot reach the others"):
        TaskContext(recipe="diloco", name="train.0").exchange()
