"""The `objective` section of a spec: its meaning, and what it rules out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.errors import SpecError
from shoal.model.job import Objective

if TYPE_CHECKING:
    from shoal.model.spec.spec import JobSpec


def check_objective(spec: JobSpec, path: str, nodes: int) -> None:
    """Refuse to stop what cannot be stopped early; `nodes` run each point."""
    objective = spec.objective
    if objective is None or objective.first_rung is None:
        return
    if nodes > 1 or spec.verify is not None:
        what = "a verified task" if spec.verify is not None else "the tasks of a gang"
        raise SpecError(
            f"{what} cannot be stopped early",
            path=f"{path}.objective.first_rung",
            because="several of them are needed for one result",
            hint="leave out first_rung; the objective still says which is best",
        )


def objective_of(spec: JobSpec) -> Objective | None:
    """Return what a spec compares its tasks by, if anything."""
    said = spec.objective
    if said is None:
        return None
    return Objective(said.metric, said.goal, said.first_rung or 0, said.eta)
