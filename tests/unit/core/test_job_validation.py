"""A job is refused, with the reason, before a scheduler answers for it."""

import msgspec
import pytest
from tests.unit.core.builders import job

from shoal.core.scheduling.job_validation import flaw
from shoal.model.ids import GroupId
from shoal.model.job import Job
from shoal.model.resources import Profile

replace = msgspec.structs.replace
SOUND = job(groups={"a": (2, ()), "b": (1, ("a",))})


def _with_first_group(**fields: object) -> Job:
    first, *rest = SOUND.groups
    return replace(SOUND, groups=(replace(first, **fields), *rest))


def test_a_sound_job_has_no_flaw() -> None:
    assert flaw(SOUND) is None


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (replace(SOUND, groups=()), "it has no tasks"),
        (_with_first_group(tasks=()), "j.a: it has no tasks"),
        (_with_first_group(gang_min=3), "j.a: a gang of 2 cannot need 3"),
        (
            _with_first_group(needs=(GroupId("j.b"),)),
            "j.a: it needs j.b, which does not come before it",
        ),
        (replace(SOUND, groups=SOUND.groups[:1] * 2), "j.a: it is there twice"),
        (
            _with_first_group(tasks=(SOUND.groups[0].tasks[0],) * 2),
            "j.a.0 is there twice",
        ),
        (replace(SOUND, id="k"), "j.a: j.a.0 says it is of j.a in j"),
    ],
)
def test_an_unsound_job_is_told_what_is_wrong(bad: Job, reason: str) -> None:
    assert flaw(bad) == reason


def test_tasks_of_a_group_need_the_same_resources() -> None:
    first, second = SOUND.groups[0].tasks
    other = replace(second, profiles=(Profile(cpu_milli=7),))

    assert flaw(_with_first_group(tasks=(first, other))) == (
        "j.a: j.a.1 needs other resources than j.a.0"
    )


def test_a_task_says_what_it_needs() -> None:
    tasks = tuple(replace(task, profiles=()) for task in SOUND.groups[0].tasks)

    assert flaw(_with_first_group(tasks=tasks)) == (
        "j.a: j.a.0 does not say what it needs"
    )
