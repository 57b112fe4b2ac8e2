"""Results of a sweep: what each task was given, what it reported, and which is best.

A task is good by the objective of its job. Without one it is guessed: `loss` and its
like should be small, `accuracy` and its like large, and what was measured on other data
than the training's counts more.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from shoal.api.documents import params_of, state_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shoal.api import shoal_pb2 as pb

STEP: Final = "step"
TASKS_MAX: Final = 10_000
"""As many as a job can have."""

SMALL: Final = ("loss", "error", "perplexity", "ppl", "mse", "rmse", "mae", "nll")
LARGE: Final = ("accuracy", "acc", "score", "reward", "return", "f1", "auc", "bleu")
ELSEWHERE: Final = ("val", "valid", "validation", "test", "eval", "dev")


class Order(NamedTuple):
    """A metric or param to sort by, and whether large values come first."""

    name: str
    descending: bool = False


class Result(NamedTuple):
    """One task of a job, with its params and the latest of each metric."""

    task: str  # its label, or its id in the job
    state: str
    params: dict[str, Any]
    metrics: dict[str, float]
    reason: str
    node: str


def name_of_task(id_: str, label: str) -> str:
    """Return what people call a task: by its params, if it is a point of a sweep."""
    place = id_.partition(".")[2]
    if not label or label.isdigit():
        return place  # An index alone is no name.
    return label if place.startswith("main.") else f"{place} {label}"


def task_name(task: pb.Task) -> str:
    """Return what people call a task."""
    return name_of_task(task.id, task.label)


def order_of(text: str) -> Order:
    """Read an order as it is typed: a name, with `-` before it for large ones first."""
    return Order(text.removeprefix("-"), text.startswith("-"))


def best_first(job: pb.Job) -> Order | None:
    """Return the order in which the best task of a job comes first, if it is known."""
    if job.objective.metric:
        return Order(job.objective.metric, job.objective.goal == "max")
    names = dict.fromkeys(sorted(name for task in job.tasks for name in task.metrics))
    guessed = [order for name in names if (order := _guessed(name)) is not None]
    guessed.sort(key=lambda order: not _is_elsewhere(order.name))
    return guessed[0] if guessed else None


def _words(name: str) -> list[str]:
    return name.lower().replace("/", "_").replace("-", "_").replace(".", "_").split("_")


def _is_elsewhere(name: str) -> bool:
    return any(word in ELSEWHERE for word in _words(name))


def _guessed(name: str) -> Order | None:
    words = _words(name)
    if any(word in SMALL for word in words):
        return Order(name)
    if any(word in LARGE for word in words):
        return Order(name, descending=True)
    return None


def results(job: pb.Job, order: Order | None = None) -> list[Result]:
    """Return what became of each task, the best first; unmeasured ones come last."""
    order = order or best_first(job)
    tasks = list(job.tasks)
    if order is not None:
        tasks.sort(key=lambda task: task_key(task, order))
    return [
        Result(
            task_name(task),
            state_of(task.state),
            params_of(task),
            dict(task.metrics),
            task.reason,
            task.nodes[0].petname if task.nodes else "",
        )
        for task in tasks
    ]


def task_key(task: pb.Task, order: Order) -> tuple[int, float, str]:
    """Return where a task stands in an order."""
    value: Any = params_of(task).get(order.name)
    if order.name in task.metrics:
        value = task.metrics[order.name]
    if isinstance(value, str):
        return 1, 0.0, value
    if not isinstance(value, int | float) or math.isnan(value):
        return 2, 0.0, ""
    return 0, -value if order.descending else value, ""


def measured(found: Iterable[Result], order: Order | None) -> list[str]:
    """Return the names of all metrics, that of the order first, without steps."""
    names = dict.fromkeys(sorted(name for row in found for name in row.metrics))
    names.pop(STEP, None)
    first = [order.name] if order is not None and order.name in names else []
    return [*first, *(name for name in names if name not in first)]
