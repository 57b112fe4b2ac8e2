"""What the points of a sweep or array are called: `lr=0.003`, or the index.

A label is what people read and type, and the name of a folder. So it has only
characters that need no quotes, and no two points of one job or step share one.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from shoal.model.spec.documents import text_of
from shoal.model.text.bounds import NAME_LENGTH_MAX

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from shoal.model.job import Scalar

INDEX: Final = "index"
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
