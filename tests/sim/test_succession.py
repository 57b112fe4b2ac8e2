"""Jobs outlive their scheduler in simulated shoals, and planted bugs are found."""

import pytest
from tests.sim.planted_forwarding import FORWARD_BUGS, FORWARD_FOUND_BY
from tests.sim.planted_succession import FOUND_BY, KEPT_BUGS

from shoal.sim.faults.schedule import Crash
from shoal.sim.succession.forward_trial import draw_forward_script
from shoal.sim.succession.script import FIRST
from shoal.sim.succession.trial import KeptTrial

SEEDS = 25


def test_kept_jobs_keep_their_promises_and_many_are_taken_up() -> None:
    takeovers = handed = 0

    for seed in range(SEEDS):
        trial = KeptTrial(seed)
        assert trial.run() == (), f"seed {seed}\n{trial.violations.traceback}"
        assert trial.promises.refused == []
        takeovers += trial.promises.takeovers
        handed += trial.promises.handovers.handed

    assert takeovers > SEEDS // 4
    assert handed > 0


@pytest.mark.soak
def test_kept_jobs_keep_their_promises_for_long() -> None:
    for seed in range(SEEDS, 2_000):
        trial = KeptTrial(seed)
        assert trial.run() == (), f"seed {seed}\n{trial.violations.traceback}"


def test_what_runs_goes_on_when_only_its_scheduler_dies() -> None:
    """Only a result is made again whose files nobody had but the dead scheduler."""
    seen = tasks = 0
    for seed in range(SEEDS):
        trial = KeptTrial(seed)
        [*faults] = trial.script.faults
        is_worker = trial.script.nodes[0].capacity is not None
        only_dies = len(faults) == 1 and faults[0][2] == Crash((FIRST,))
        if not only_dies or faults[0][1] is not None or is_worker:
            continue

        assert trial.run() == ()

        seen += trial.promises.takeovers > 0
        jobs = trial.script.jobs
        plain = [t.id for job in jobs for t in job.tasks() if not t.work.outputs]
        begun = {task: trial.promises.begun.get(task, 0) for task in plain}
        assert all(times <= 1 for times in begun.values()), f"seed {seed}: {begun}"
        tasks += sum(begun.values())
    assert seen > 0
    assert tasks > 0


def test_forwarded_jobs_end_once_and_at_one_node() -> None:
    forwarded = 0

    for seed in range(SEEDS):
        trial = KeptTrial(seed, draw_forward_script(seed))
        assert trial.run() == (), f"seed {seed}\n{trial.violations.traceback}"
        assert trial.promises.refused == []
        forwarded += trial.promises.forwarded

    assert forwarded > SEEDS // 3


@pytest.mark.soak
def test_forwarded_jobs_end_once_for_long() -> None:
    for seed in range(SEEDS, 3_000):
        trial = KeptTrial(seed, draw_forward_script(seed))
        assert trial.run() == (), f"seed {seed}\n{trial.violations.traceback}"


@pytest.mark.parametrize("bug", KEPT_BUGS, ids=lambda bug: bug[0])
def test_a_planted_bug_is_found_by_a_seed_that_is_clean_without_it(
    bug: tuple[str, type, str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    name, where, what, instead = bug
    seed = FOUND_BY[name]
    assert KeptTrial(seed).run() == ()

    monkeypatch.setattr(where, what, instead)

    [found] = KeptTrial(seed).run()[:1]
    assert found.id != "RAISED"


@pytest.mark.parametrize("bug", FORWARD_BUGS, ids=lambda bug: bug[0])
def test_a_planted_bug_of_forwarding_is_found(
    bug: tuple[str, type, str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    name, where, what, instead = bug
    seed = FORWARD_FOUND_BY[name]
    assert KeptTrial(seed, draw_forward_script(seed)).run() == ()

    monkeypatch.setattr(where, what, instead)

    [found] = KeptTrial(seed, draw_forward_script(seed)).run()[:1]
    assert found.id != "RAISED"
