"""Refuses a job that names a driver, a recipe or a policy that there is not.

It would wait for a worker that never comes, or fail there. Whoever submits it hears of
the typo at once, and of the name that is nearest.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Final

from shoal.errors import SpecError
from shoal.model.kinds import RECIPE, foreign
from shoal.policy.registry import BUILT_IN, Registry
from shoal.train import RECIPES

if TYPE_CHECKING:
    from collections.abc import Collection

    from shoal.model.job import Job

DRIVERS: Final = ("container", "process")
"""What a command can be run by. `python` is for functions, which are no commands."""


def check(job: Job) -> None:
    """Raise `UsageError` at the first name that nobody knows."""
    if job.policy and job.policy not in BUILT_IN:
        Registry().get(job.policy)  # Raises by itself.
    for group in job.groups:
        work = group.tasks[0].work  # They differ in their params only.
        if foreign(group.tasks[0]) or work.driver != RECIPE:
            _check("driver", work.driver, DRIVERS)
        if work.recipe:
            _check("recipe", work.recipe, RECIPES)


def _check(what: str, name: str, known: Collection[str]) -> None:
    if name in known:
        return
    names = sorted(known)
    near = get_close_matches(name, names, n=1)
    raise SpecError(
        f"there is no {what} '{name}'",
        because=f"the {what}s are {', '.join(names)}",
        hint=f"did you mean {near[0]}?"
        if near
        else f"write it like {what}: {names[-1]}",
    )
