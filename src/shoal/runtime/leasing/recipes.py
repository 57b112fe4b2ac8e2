"""Resolve `recipe: NAME` to a program that comes with shoal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from shoal.errors import ShoalError
from shoal.train import RECIPES

if TYPE_CHECKING:
    from shoal.model.job import Task

PYTHON: Final = "python"
"""That of the node, where tasks can see it."""


def resolved(task: Task) -> Task:
    """Return a task with its recipe's program; raise if the recipe is unknown."""
    recipe = task.work.recipe
    if not recipe:
        return task
    module = RECIPES.get(recipe)
    if module is None:
        raise ShoalError(
            f"this worker has no recipe '{recipe}'",
            because=f"it knows {', '.join(sorted(RECIPES)) or 'none'}",
            hint="its shoal may be older than that of the submitter",
        )
    work = msgspec.structs.replace(task.work, argv=(PYTHON, "-m", module))
    return msgspec.structs.replace(task, work=work)
