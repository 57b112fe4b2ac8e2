"""The peak of a job is what its groups can need at once, no more and no less."""

from itertools import combinations
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from shoal.model.derive import derive
from shoal.model.ids import JobId, OwnerId
from shoal.model.job import Job
from shoal.model.spec.canonical import spec_of
from shoal.model.totals import totals

NAMES = "abcdef"


@st.composite
def jobs(draw: st.DrawFn) -> Job:
    steps: dict[str, Any] = {}
    for name in NAMES[: draw(st.integers(1, len(NAMES)))]:
        needs = draw(st.sets(st.sampled_from(sorted(steps)))) if steps else set[str]()
        cpu = draw(st.integers(0, 5))
        steps[name] = {"command": "x", "needs": list(needs), "resources": {"cpu": cpu}}
    return derive(spec_of({"steps": steps}), JobId("j"), OwnerId("o"))


def heaviest_by_trial(job: Job) -> int:
    before: dict[str, set[str]] = {}
    for group in job.groups:
        before[group.id] = set(group.needs).union(*(before[n] for n in group.needs))
    weight = {g.id: g.tasks[0].profiles[0].cpu_milli for g in job.groups}
    return max(
        sum(weight[name] for name in chosen)
        for size in range(len(weight) + 1)
        for chosen in combinations(weight, size)
        if not any(one in before[other] for one in chosen for other in chosen)
    )


@given(jobs())
def test_the_peak_is_that_of_the_best_choice_of_groups_by_trial(job: Job) -> None:
    assert totals(job).peak.cpu_milli == heaviest_by_trial(job)
