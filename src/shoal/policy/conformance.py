"""Test any placement policy against what every policy must promise.

The cases are fixed and few, and pools are small: a policy that is slow takes longer,
one that never answers hangs, and neither is told apart here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import msgspec

from shoal.model.ids import NodeId
from shoal.model.resources import GIB, Capacity, Device, GpuNeed, Profile
from shoal.model.text.bounds import AMOUNT_MAX, DEVICES_MAX
from shoal.policy.filters import reason
from shoal.policy.interface import Breach, Policy, PolicyPromise
from shoal.policy.placement import place
from shoal.policy.table.shortlist import RUN_MIN
from shoal.policy.table.task_shapes import TaskShape
from shoal.policy.table.worker_table import WorkerTable, WorkerView

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from random import Random

ROUNDS: Final = 30
POOL_MAX: Final = 2 * RUN_MIN  # few rows are ranked one by one, many at once
TASKS_MAX: Final = 8

Check: TypeAlias = Literal[
    "total", "known workers", "never over-commits", "deterministic", "any order"
]

MEANINGS: Final[dict[Check, str]] = {
    "total": "answers for every pool and every task, and never raises",
    "known workers": "names only workers that it was given",
    "never over-commits": "assigns a task only where it fits",
    "deterministic": "the same pool and tasks lead to the same answers",
    "any order": "the order in which workers came does not matter",
}


CHECKS: Final[dict[PolicyPromise, Check]] = {
    "total": "total",
    "known": "known workers",
    "fits": "never over-commits",
}

HUGE: Final = TaskShape(Profile(AMOUNT_MAX, AMOUNT_MAX, AMOUNT_MAX))
HUGE_GPUS: Final = TaskShape(Profile(gpu=GpuNeed(DEVICES_MAX, DEVICES_MAX)))
NEAR: Final = TaskShape(rtt_max_us=1_000)

Answer: TypeAlias = NodeId | Breach | None


class PromiseVerdict(msgspec.Struct, frozen=True):
    """Whether a policy kept one promise, and the first case in which it did not."""

    check: Check
    kept: bool
    how: str = ""


class Case(msgspec.Struct, frozen=True):
    """A pool of workers, and tasks that come one after another."""

    name: str
    workers: tuple[WorkerView, ...]
    tasks: tuple[TaskShape, ...]


def check(make: Callable[[], Policy], rng: Random) -> list[PromiseVerdict]:
    """Return for each promise whether the policy keeps it.

    `make` returns a policy that has seen nothing; each case starts with a new one.
    """
    broken: dict[Check, str] = {}
    for case in cases(rng):
        for promise, how in _breaches(make, case, rng):
            broken.setdefault(promise, f"{case.name}: {how}")
    return [
        PromiseVerdict(each, each not in broken, broken.get(each, ""))
        for each in MEANINGS
    ]


def cases(rng: Random) -> Iterator[Case]:
    """Yield the cases: the odd ones first, then some drawn at random."""
    gpu = TaskShape(Profile(1000, GIB, gpu=GpuNeed()))
    equal = tuple(_worker(f"w{n}", 4, _devices(2, "A100", 80)) for n in range(4))
    yield Case("no workers", (), (TaskShape(), gpu))
    yield Case("no gpus", (_worker("w0", 4), _worker("w1", 4)), (gpu, TaskShape()))
    yield Case("nothing asked", equal, (TaskShape(),) * TASKS_MAX)
    yield Case("a huge task", equal, (HUGE, HUGE_GPUS, TaskShape()))
    yield Case("equal workers", equal, (gpu,) * 2 * TASKS_MAX)
    replace = msgspec.structs.replace
    leaving = tuple(replace(worker, draining=True) for worker in equal)
    yield Case("draining workers", leaving, (gpu, TaskShape()))
    yield Case("another driver", equal, (replace(gpu, driver="container"),))
    yield Case(
        "far away", tuple(replace(w, path_cost_us=9_000) for w in equal), (NEAR,)
    )
    for number in range(ROUNDS):
        workers = [_drawn_worker(f"w{n}", rng) for n in range(rng.randint(1, POOL_MAX))]
        tasks = [_drawn_task(rng) for _ in range(rng.randint(1, TASKS_MAX))]
        yield Case(f"drawn case {number}", tuple(workers), tuple(tasks))


def _breaches(
    make: Callable[[], Policy], case: Case, rng: Random
) -> Iterator[tuple[Check, str]]:
    names = [worker.node for worker in case.workers]
    state = rng.getstate()
    answers: list[list[Answer]] = []
    for order in (names, names, names[::-1]):
        rng.setstate(state)
        answers.append(_answers(make(), case, order, rng))
    first, again, reordered = answers
    for answer in first:
        if isinstance(answer, Breach):
            yield CHECKS[answer.promise], answer.how
    if first != again:
        yield "deterministic", _difference(first, again)
    elif first != reordered:
        yield "any order", _difference(first, reordered)


def _answers(
    policy: Policy, case: Case, order: list[NodeId], rng: Random
) -> list[Answer]:
    """Place the tasks of a case, one after another; workers came in this order."""
    views = {worker.node: worker for worker in case.workers}
    table = WorkerTable()
    for node in order:
        table.put(views[node])
    return [_answer(policy, task, table, rng) for task in case.tasks]


def _answer(policy: Policy, task: TaskShape, table: WorkerTable, rng: Random) -> Answer:
    before = {node: table.view(node) for node in table.nodes()}
    driver, rtt_max_us = task.driver, task.rtt_max_us
    placed = place(
        task.profile, 1, table, policy, rng, driver=driver, rtt_max_us=rtt_max_us
    )
    if placed.breach is not None or not placed.nodes:
        return placed.breach
    [node] = placed.nodes
    view = before[node]
    if view is not None and (why := reason(task, view)):
        return Breach("fits", f"{node}: {why}")
    return node


def _difference(one: list[Answer], other: list[Answer]) -> str:
    for number, (this, that) in enumerate(zip(one, other, strict=True)):
        if this != that:
            return f"task {number}: {_said(this)}, then {_said(that)}"
    return ""


def _said(answer: Answer) -> str:
    return answer.how if isinstance(answer, Breach) else answer or "no worker"


def _worker(name: str, cpus: int, devices: tuple[Device, ...] = ()) -> WorkerView:
    capacity = Capacity(cpus * 1000, cpus * GIB, cpus * GIB, devices)
    return WorkerView.idle(NodeId(name), capacity)


def _devices(count: int, model: str, gib: int) -> tuple[Device, ...]:
    return tuple(Device(str(n), "nvidia", model, gib * GIB) for n in range(count))


def _drawn_worker(name: str, rng: Random) -> WorkerView:
    model, gib = rng.choice([("A100", 80), ("RTX3090", 24), ("T4", 16)])
    devices = _devices(rng.choice([0, 0, 1, 2, 8]), model, gib)
    view = _worker(name, rng.choice([1, 4, 16]), devices)
    return msgspec.structs.replace(
        view,
        cpu_milli=rng.randint(0, view.cpu_milli),
        gpu_milli=tuple(rng.choice([0, 500, 1000, 1000]) for _ in devices),
        gpu_memory=tuple(rng.randint(0, d.memory_bytes) for d in devices),
        active=rng.randint(0, 3),
        draining=rng.random() < 0.1,
        path_cost_us=rng.choice([0, 300, 9_000]),
    )


def _drawn_task(rng: Random) -> TaskShape:
    count = rng.choice([0, 0, 1, 1, 2, 4])
    milli = rng.choice([250, 500, 1000]) if count == 1 else 1000
    gpu = GpuNeed(count, count, milli, rng.choice([0, 8, 24]) * GIB) if count else None
    return TaskShape(Profile(rng.choice([0, 500, 2000]), rng.choice([0, GIB]), gpu=gpu))
