"""Results of a sweep: the best first, by the objective or by a good guess."""

import math

import pytest

from shoal.api import shoal_pb2 as pb
from shoal.api.results import Order, best_first, order_of, results, task_name


def job(*metrics: dict[str, float], objective: tuple[str, str] = ("", "")) -> pb.Job:
    tasks = [
        pb.Task(id=f"j.main.{n}", label=f"x={n}", params={"x": str(n)}, metrics=each)
        for n, each in enumerate(metrics)
    ]
    aim = pb.Objective(metric=objective[0], goal=objective[1])
    return pb.Job(tasks=tasks, objective=aim)


def order(found: pb.Job, by: str = "") -> list[str]:
    return [row.task for row in results(found, order_of(by) if by else None)]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["lr", "loss"], Order("loss")),
        (["train_loss", "val_loss"], Order("val_loss")),
        (["loss", "val/acc"], Order("val/acc", descending=True)),
        (["Accuracy"], Order("Accuracy", descending=True)),
        (["glossary", "speed"], None),
        ([], None),
    ],
)
def test_what_counts_is_guessed_by_its_name(
    names: list[str], expected: Order | None
) -> None:
    assert best_first(job(dict.fromkeys(names, 1.0))) == expected


def test_the_objective_counts_more_than_a_guess_and_an_order_more_than_both() -> None:
    found = job(
        {"loss": 1, "speed": 1}, {"loss": 2, "speed": 9}, objective=("speed", "max")
    )

    assert order(found) == ["x=1", "x=0"]
    assert order(found, "loss") == ["x=0", "x=1"]
    assert order(found, "-x") == ["x=1", "x=0"]


def test_what_was_not_measured_comes_last_either_way() -> None:
    found = job({"loss": math.nan}, {}, {"loss": 3.0}, {"loss": 1.0})

    assert order(found)[:2] == ["x=3", "x=2"]
    assert order(found, "-loss")[:2] == ["x=2", "x=3"]


@pytest.mark.parametrize(
    ("id_", "label", "name"),
    [
        ("j.main.3", "lr=0.1", "lr=0.1"),
        ("j.main.3", "3", "main.3"),
        ("j.train.3", "lr=0.1", "train.3 lr=0.1"),
        ("j.prep.0", "", "prep.0"),
    ],
)
def test_a_task_is_called_by_its_params(id_: str, label: str, name: str) -> None:
    assert task_name(pb.Task(id=id_, label=label)) == name


def test_params_that_are_no_json_do_no_harm() -> None:
    task = pb.Task(id="j.main.0", params={"x": "{"}, label="x")

    [row] = results(pb.Job(tasks=[task]), Order("x"))

    assert row.params == {"x": "{"}
