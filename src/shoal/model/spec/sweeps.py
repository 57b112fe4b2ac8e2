"""The tasks of a sweep or array: what they are called, and what compares them.

A label, such as `lr=0.003` or the index, is what people read and type, and the name of
a folder. So it has only characters that need no quotes, and no two points of one job or
step share one.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from shoal.errors import SpecError
from shoal.model.job import INDEX, Objective
from shoal.model.spec.documents import text_of
from shoal.model.text.bounds import NAME_LENGTH_MAX

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from shoal.model.job import Scalar
    from shoal.model.spec.spec import JobSpec

VALUE_LENGTH_MAX: Final = 40
LABEL_LENGTH_MAX: Final = 100
"""In bytes, as file systems count; some are left for a number."""

_PLAIN: Final = frozenset("._=,+-")

assert LABEL_LENGTH_MAX < NAME_LENGTH_MAX


def labels_of(points: Sequence[Mapping[str, Scalar]]) -> list[str]:
    """Return a name for each point, by the params in which the points differ."""
    names = _telling(points)
    seen: Counter[str] = Counter()
    labels: list[str] = []
    for point in points:
        label = _label({name: point[name] for name in names if name in point})
        folded = label.casefold()  # Some file systems do not tell case apart.
        seen[folded] += 1
        labels.append(label if seen[folded] == 1 else f"{label}#{seen[folded]}")
    return labels


def _telling(points: Sequence[Mapping[str, Scalar]]) -> list[str]:
    """Return the params whose values differ, or all if none does."""
    names = list(dict.fromkeys(name for point in points for name in point))
    first = points[0]
    differing = [
        name
        for name in names
        if any(point.get(name) != first.get(name) for point in points)
    ]
    return differing or names


def _label(point: Mapping[str, Scalar]) -> str:
    if list(point) == [INDEX]:
        return text_of(point[INDEX])
    parts = [f"{k}={text_of(v)[:VALUE_LENGTH_MAX]}" for k, v in point.items()]
    plain = "".join(c if c.isalnum() or c in _PLAIN else "_" for c in ",".join(parts))
    short = plain.encode()[:LABEL_LENGTH_MAX].decode("utf-8", "ignore")
    return short or "point"


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
