from shoal.model.derive import again, derive
from shoal.model.ids import JobId, OwnerId, TaskId
from shoal.model.job import Job
from shoal.model.spec.submission import load_spec


def job_of(spec: str) -> Job:
    return derive(load_spec(spec, "yaml"), JobId("old"), OwnerId("ann"))


STEPS = """
steps:
  make: {command: [make, '{index}'], array: 3}
  train: {command: [train], nodes: 2, needs: [make]}
"""


def test_a_job_run_again_is_the_same_work_under_another_id() -> None:
    old = job_of(STEPS)

    new = again(old, JobId("new"))

    assert [task.id for task in new.tasks()] == [
        task.id.replace("old.", "new.") for task in old.tasks()
    ]
    assert [task.work for task in new.tasks()] == [task.work for task in old.tasks()]
    assert {task.job for task in new.tasks()} == {"new"}
    assert all(task.group == group.id for group in new.groups for task in group.tasks)
    assert new.groups[1].needs == (new.groups[0].id,)
    assert new.owner == "ann"


def test_what_is_done_is_left_out_and_indices_stay() -> None:
    old = job_of(STEPS)
    done = {TaskId("old.make.0"), TaskId("old.make.2")}

    new = again(old, JobId("new"), done)

    assert [task.id for task in new.groups[0].tasks] == ["new.make.1"]
    assert new.groups[0].tasks[0].index == 1
    assert new.groups[0].tasks[0].work.argv == ("make", "1")


def test_a_gang_runs_whole_the_second_time_too() -> None:
    old = job_of(STEPS)
    done = {TaskId(f"old.make.{n}") for n in range(3)} | {TaskId("old.train.0")}

    new = again(old, JobId("new"), done)

    [gang] = new.groups
    assert len(gang.tasks) == 2
    assert gang.needs == ()
