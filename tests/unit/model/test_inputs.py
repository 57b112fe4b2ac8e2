import pytest

from shoal.errors import SpecError
from shoal.model.derive import again, derive
from shoal.model.ids import BlobId, GroupId, JobId, OwnerId, TaskId
from shoal.model.inputs import inputs_from
from shoal.model.job import Input, Job
from shoal.model.job_notes import notes
from shoal.model.spec.submission import load_spec

SPEC = """
steps:
  prep: {command: a, outputs: [data/]}
  train: {command: b, outputs: [out/], sweep: {lr: [1, 2]}, needs: [prep]}
  gang: {command: c, outputs: [out/], nodes: 2}
  pick: {command: d, needs: [train, gang, prep]}
  last: {command: e, needs: [big-gang]}
  big-gang: {command: f, outputs: [out/], nodes: 2, sweep: {lr: [1]}}
"""


def job_of(spec: str, id_: str = "j") -> Job:
    return derive(load_spec(spec, "yaml"), JobId(id_), OwnerId("ann"))


def outputs_of(job: Job) -> dict[TaskId, BlobId]:
    return {
        task.id: BlobId(f"of-{task.id}") for task in job.tasks() if task.work.outputs
    }


def handed(job: Job, step: str) -> list[Input]:
    groups = {group.id: group for group in job.groups}
    needed = (groups[each] for each in groups[GroupId(f"{job.id}.{step}")].needs)
    return list(inputs_from(needed, outputs_of(job)))


def test_a_step_is_handed_outputs_in_the_order_of_its_needs() -> None:
    job = job_of(SPEC)

    assert handed(job, "train") == [Input(BlobId("of-j.prep.0"))]
    assert handed(job, "pick") == [
        Input(BlobId("of-j.train.0"), "train/lr=1"),
        Input(BlobId("of-j.train.1"), "train/lr=2"),
        # Of a gang the first rank is laid down last: what it wrote stays.
        Input(BlobId("of-j.gang.1")),
        Input(BlobId("of-j.gang.0")),
        Input(BlobId("of-j.prep.0")),
    ]
    assert handed(job, "last") == [
        Input(BlobId("of-j.big-gang-0.1"), "big-gang/lr=1"),
        Input(BlobId("of-j.big-gang-0.0"), "big-gang/lr=1"),
    ]


def test_what_runs_again_is_handed_what_does_not() -> None:
    old = job_of(SPEC)
    done = {TaskId(f"j.{name}") for name in ("prep.0", "train.0", "gang.0", "gang.1")}
    outputs = {task: tree for task, tree in outputs_of(old).items() if task in done}

    new = again(old, JobId("k"), done, outputs)

    train, pick = (g for g in new.groups if g.id in ("k.train", "k.pick"))
    assert (train.id, train.needs) == ("k.train", ())
    assert [task.id for task in train.tasks] == ["k.train.1"]
    assert train.inputs == (Input(BlobId("of-j.prep.0")),)
    assert pick.needs == ("k.train",)
    assert pick.inputs == (
        Input(BlobId("of-j.train.0"), "train/lr=1"),
        Input(BlobId("of-j.gang.1")),
        Input(BlobId("of-j.gang.0")),
        Input(BlobId("of-j.prep.0")),
    )


def test_what_runs_again_whole_is_handed_nothing_of_the_first_time() -> None:
    old = job_of(SPEC)

    assert all(not group.inputs for group in again(old, JobId("k")).groups)


def test_more_outputs_than_a_message_can_name_are_refused_unless_left_out() -> None:
    many = "{command: a, outputs: [out/], array: 1025}"
    with pytest.raises(SpecError) as caught:
        job_of(f"steps: {{many: {many}, last: {{command: b, needs: [many]}}}}")
    last = "{command: b, needs: [many], inputs: false}"
    job = job_of(f"steps: {{many: {many}, last: {last}}}")

    assert "outputs of 1025 tasks" in str(caught.value)
    assert caught.value.hint.startswith("`inputs: false`")
    assert not job.groups[1].takes_outputs


def test_outputs_of_one_name_are_noted() -> None:
    spec = """
    steps:
      a: {command: x, outputs: [out/]}
      b: {command: x, outputs: [out/]}
      c: {command: x, needs: [b, a]}
    """

    [note] = notes(job_of(spec))

    assert note.startswith("the steps 'b' and 'a' both leave out/")
    assert note.endswith("'c' gets that of 'a', which it lists last")
