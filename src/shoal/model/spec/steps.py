"""A job's steps: what each inherits from the job, and their order."""

from __future__ import annotations

import graphlib
from typing import TYPE_CHECKING, Any

import msgspec

from shoal.errors import SpecError, did_you_mean
from shoal.model.spec.spec import ResourcesSpec

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shoal.model.spec.spec import JobSpec, StepSpec

_REPLACED = (
    "workdir",
    "setup",
    "secrets",
    "python",
    "mounts",
    "cache",
    "image",
    "outputs",
    "time_limit",
    "grace",
    "network",
    "driver",
    "verify",
    "objective",
)


def step_job(spec: JobSpec, name: str) -> JobSpec:
    """Return step `name` as a job of its own, with what it takes from `spec`."""
    step = spec.steps[name]
    own: dict[str, Any] = {
        field: getattr(step, field)
        for field in _REPLACED
        if getattr(step, field) is not None
    }
    if step.resources is not None or step.any_of is not None:
        own["resources"] = step.resources or ResourcesSpec()
        own["any_of"] = step.any_of or ()
    texts = {k: text for k, text in spec.params_text.items() if k not in step.params}
    return msgspec.structs.replace(
        spec,
        steps={},
        command=step.command,
        recipe=step.recipe,
        nodes=step.nodes,
        array=step.array,
        sweep=step.sweep,
        params={**spec.params, **step.params},
        params_text=texts,
        env={**spec.env, **step.env},
        **own,
    )


def step_order(spec: JobSpec) -> tuple[str, ...]:
    """Return step names in order: needs first, otherwise by name."""
    for name, step in spec.steps.items():
        _refuse_unknown_needs(name, step, spec.steps)
    graph = {name: sorted(spec.steps[name].needs) for name in sorted(spec.steps)}
    try:
        return tuple(graphlib.TopologicalSorter(graph).static_order())
    except graphlib.CycleError as error:
        circle = [str(name) for name in reversed(error.args[1])]
        raise SpecError(
            "steps need each other in a circle",
            path=f"$.steps.{circle[0]}.needs",
            because=" needs ".join(circle),
            hint="remove one of these needs",
        ) from None


def _refuse_unknown_needs(name: str, step: StepSpec, known: Iterable[str]) -> None:
    for place, needed in enumerate(step.needs):
        if needed not in known:
            raise SpecError(
                f"no step '{needed}'",
                path=f"$.steps.{name}.needs[{place}]",
                because=f"the steps are {', '.join(sorted(known))}",
                hint=did_you_mean(needed, known),
            )
