"""Refuses jobs that name an unknown driver, recipe, policy or param of a recipe.

Such a job would wait forever for a worker, or fail on one. Instead the submitter learns
of the typo at once, with the closest known name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from shoal.errors import ShoalError, SpecError, did_you_mean
from shoal.model.kinds import RECIPE, foreign
from shoal.model.spec.recipes import DEFAULT_PROGRAMS
from shoal.policy.registry import BUILT_IN, Registry
from shoal.train import RECIPES
from shoal.train.param_checks import check_params

if TYPE_CHECKING:
    from collections.abc import Collection

    from shoal.model.job import Job

DRIVERS: Final = ("container", "process")
"""Drivers of commands. `python` runs functions, which are not commands."""


def check(job: Job) -> None:
    """Raise a usage error for the first unknown name."""
    if job.policy and job.policy not in BUILT_IN:
        Registry().get(job.policy)  # Raises if unknown.
    for group in job.groups:
        work = group.tasks[0].work  # Its tasks differ only in params.
        if foreign(group.tasks[0]) or work.driver != RECIPE:
            _check("driver", work.driver, DRIVERS)
        if work.recipe:
            _check("recipe", work.recipe, RECIPES)
        if default := DEFAULT_PROGRAMS.get(work.recipe):
            for task in group.models:
                check_params(work.recipe, task.params, default)


def _check(what: str, name: str, known: Collection[str]) -> None:
    if name in known:
        return
    names = sorted(known)
    raise SpecError(
        f"there is no {what} '{name}'",
        because=f"the {what}s are {', '.join(names)}",
        hint=did_you_mean(name, names) or f"write it like {what}: {names[-1]}",
    )


def refuse_to_repeat_input(job: Job) -> None:
    """Raise if a job read standard input, which nobody has kept."""
    if any(task.work.stdin != "none" for task in job.models()):
        raise ShoalError(
            f"job {job.id} read standard input",
            because="what it read was not kept",
            hint="`shoal run` it again, with the same input",
        )


def not_accepted(why: str) -> ShoalError:
    """Return the error for a job that the scheduler refused."""
    return ShoalError(
        f"the job was not accepted: {why}",
        hint="`shoal show last` shows the last job that was",
    )
