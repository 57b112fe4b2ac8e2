"""Jobs and nodes are found by what people type."""

import pytest

from shoal.api.node_names import nodes_called
from shoal.api.selectors import job_called
from shoal.core.records.records import JobRecord
from shoal.errors import NotFoundError, UsageError
from shoal.model.ids import GroupId, JobId, OwnerId, TaskId
from shoal.model.job import Group, Job, Task


def record(id_: str, name: str, wall_s: float) -> JobRecord:
    group = GroupId(f"{id_}.main")
    task = Task(id=TaskId(f"{group}.0"), job=JobId(id_), group=group)
    groups = (Group(id=group, tasks=(task,)),)
    job = Job(id=JobId(id_), owner=OwnerId("ann"), name=name, groups=groups)
    return JobRecord(job=job, submitted_at=0.0, wall_s=wall_s)


JOBS = [
    record("k7w2aa", "resnet50", 1.0),
    record("k9w2bb", "resnet50", 2.0),
    record("m3w2cc", "once", 3.0),
    record("once42", "other", 0.0),
]


@pytest.mark.parametrize(
    ("text", "id_"),
    [
        ("k7", "k7w2aa"),
        ("other", "once42"),
        ("last", "m3w2cc"),
        ("last:resnet50", "k9w2bb"),
        ("once42", "once42"),
    ],
)
def test_a_job_is_known_by_id_prefix_name_or_last(text: str, id_: str) -> None:
    assert job_called(text, JOBS).job.id == id_


def test_what_could_be_several_jobs_lists_them_newest_first() -> None:
    with pytest.raises(UsageError) as error:
        job_called("resnet50", JOBS)

    assert "k9w2bb (resnet50), k7w2aa (resnet50)" in error.value.because
    assert "last:resnet50" in error.value.hint


def test_a_name_does_not_hide_an_id_that_begins_so() -> None:
    with pytest.raises(UsageError, match="could be 2 jobs"):
        job_called("once", JOBS)


@pytest.mark.parametrize("text", ["", "nothing", "last:nothing"])
def test_what_is_no_job_is_not_found(text: str) -> None:
    with pytest.raises(NotFoundError):
        job_called(text, JOBS)


NODES = {
    "12D3KooWAAA1": "calm-heron-10",
    "12D3KooWAAA2": "calm-heron-100",
    "12D3KooWBBB3": "brave-otter-7",
}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("brave", ["12D3KooWBBB3"]),
        ("calm", ["12D3KooWAAA1", "12D3KooWAAA2"]),
        ("calm-heron-10", ["12D3KooWAAA1"]),
        ("12D3KooWB", ["12D3KooWBBB3"]),
        ("12D3KooWAAA2", ["12D3KooWAAA2"]),
        ("", []),
        ("wild", []),
    ],
)
def test_a_node_is_known_by_the_beginning_of_its_name(
    text: str, found: list[str]
) -> None:
    assert nodes_called(text, NODES) == found
