"""Poor tasks of a sweep are stopped at rungs, whenever they come there."""

import math

import pytest

from shoal.core.dispatch.early_stopping import EarlyStopping
from shoal.core.dispatch.run_states import TaskRun
from shoal.core.durability.journal import AttemptPlace, Submitted
from shoal.core.scheduling.job_book import JobBook
from shoal.model.derive import derive
from shoal.model.ids import Attempt, JobId, LeaseId, NodeId, OwnerId, TaskId
from shoal.model.spec.submission import load_spec
from shoal.protocol.messages import Progress


class Sweep:
    """Four tasks that run, and what they report."""

    def __init__(self, objective: str) -> None:
        spec = f"command: a\nsweep: {{x: [0, 1, 2, 3]}}\nobjective: {objective}\n"
        job = derive(load_spec(spec, "yaml"), JobId("j"), OwnerId("ann"))
        self.book = JobBook()
        self.book.submit(Submitted(job, 0.0), now=0.0)
        self.stopping = EarlyStopping(self.book)
        places = tuple(
            AttemptPlace(
                task=task.id,
                attempt=Attempt(NodeId("s"), 1, n),
                worker=NodeId("w"),
                lease=LeaseId(f"w/1/{n}"),
            )
            for n, task in enumerate(job.tasks())
        )
        self.book.assign(places, now=0.0)

    def run(self, number: int) -> TaskRun:
        [run] = self.book.tasks[TaskId(f"j.main.{number}")].live.values()
        return run

    def told(self, number: int, step: float, value: float) -> str:
        run = self.run(number)
        metrics = {"loss": value, "step": step}
        progress = Progress(attempt=run.attempt, seq=1, metrics=metrics)
        return self.stopping.on_progress(run, progress)


def test_the_best_of_every_two_go_on_at_each_rung() -> None:
    sweep = Sweep("{metric: loss, first_rung: 10, eta: 2}")

    assert sweep.told(0, 9, 9.0) == ""
    assert sweep.told(0, 10, 9.0) == ""  # The first has nobody to be compared with.
    assert sweep.told(1, 12, 5.0) == ""
    assert sweep.told(2, 10, 7.0) == ""
    assert sweep.told(3, 11, 8.0).startswith("stopped early at step 11: loss 8")
    assert sweep.told(0, 15, 9.0) == ""  # It was judged at this rung already.
    assert sweep.told(1, 20, 1.0) == ""
    assert "not in the best 1 of 2" in sweep.told(2, 25, 6.0)


@pytest.mark.parametrize(
    ("objective", "values", "stopped"),
    [
        ("{metric: loss, goal: max, first_rung: 1, eta: 2}", [1.0, 2.0], 0),
        ("{metric: loss, first_rung: 1, eta: 2}", [1.0, math.nan], 1),
        ("{metric: loss, first_rung: 1, eta: 2}", [1.0, 1.0], None),
        ("{metric: other, first_rung: 1, eta: 2}", [1.0, 2.0], None),
        ("{metric: loss}", [1.0, 2.0], None),
    ],
)
def test_which_is_worse_depends_on_the_objective(
    objective: str, values: list[float], stopped: int | None
) -> None:
    sweep = Sweep(objective)
    order = [1, 0] if stopped == 0 else [0, 1]

    reasons = [sweep.told(number, 1, values[number]) for number in order]

    assert [bool(reason) for reason in reasons] == [False, stopped is not None]


def test_groups_that_have_ended_are_forgotten() -> None:
    sweep = Sweep("{metric: loss, first_rung: 1, eta: 2}")
    sweep.told(0, 1, 1.0)
    assert len(sweep.stopping) == 1

    for number in range(4):
        sweep.book.finish(TaskId(f"j.main.{number}"), "done", now=1.0)
    sweep.stopping._forget_ended()

    assert len(sweep.stopping) == 0
