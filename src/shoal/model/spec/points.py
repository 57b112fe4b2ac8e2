"""A job's points: one per array index or sweep value."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Final, final, overload

from shoal.errors import UsageError
from shoal.model.job import INDEX
from shoal.model.spec.limits import TASKS_LISTED_MAX, TASKS_MAX
from shoal.model.spec.spec import JobSpec, SpanSpec

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from shoal.model.job import Scalar

_PIECE: Final = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9})(?::([0-9]{1,9}))?)?")


def parse_array(array: int | str) -> Sequence[int]:
    """Return the indexes of `100`, `0-99:5` or `1,3,10-12`, in order.

    They are a range if they were written as one.
    """
    pieces = [f"0-{array - 1}"] if isinstance(array, int) else array.split(",")
    ranges = [_piece(piece.strip(), str(array)) for piece in pieces]
    refuse_too_many(sum(len(piece) for piece in ranges))
    if len(ranges) == 1:
        return ranges[0]
    indexes = sorted(itertools.chain.from_iterable(ranges))
    for one, other in itertools.pairwise(indexes):
        if one == other:
            raise UsageError(
                f"array '{array}' has index {one} twice",
                because="each index is one task",
                hint="remove one of them",
            )
    return tuple(indexes)


def format_array(indexes: Sequence[int]) -> int | str:
    """Write indexes in their one canonical form, the shortest of its kind."""
    first, last, count = indexes[0], indexes[-1], len(indexes)
    if first == 0 and last == count - 1:
        return count
    if count > 2 and _steps_alike(indexes):
        step = indexes[1] - first
        return f"{first}-{last}" if step == 1 else f"{first}-{last}:{step}"
    return ",".join(str(index) for index in indexes)


def _steps_alike(indexes: Sequence[int]) -> bool:
    if isinstance(indexes, range):
        return True
    return len({b - a for a, b in itertools.pairwise(indexes)}) == 1


def span_values(span: SpanSpec) -> tuple[Scalar, ...]:
    """Return the values of a span, exactly: 0.1 to 0.3 by 0.1 ends in 0.3."""
    start, stop, step = (Decimal(str(n)) for n in (span.start, span.stop, span.step))
    if step == 0 or (stop - start) / step < 0:
        raise UsageError(
            f"a span from {span.start} to {span.stop} by {span.step} has no end",
            because="its step does not lead from the one to the other",
            hint="turn the sign of the step, or swap the ends",
        )
    count = int((stop - start) / step) + 1
    refuse_too_many(count, listed=True)
    values = [start + place * step for place in range(count)]
    if all(isinstance(n, int) for n in (span.start, span.stop, span.step)):
        return tuple(int(value) for value in values)
    return tuple(float(value) for value in values)


@final
class _ArrayPoints(Sequence[dict[str, "Scalar"]]):
    """The points of an array, each made when it is needed."""

    def __init__(self, indexes: Sequence[int]) -> None:
        self._indexes = indexes

    def __len__(self) -> int:
        return len(self._indexes)

    @overload
    def __getitem__(self, place: int) -> dict[str, Scalar]: ...

    @overload
    def __getitem__(self, place: slice) -> _ArrayPoints: ...

    def __getitem__(self, place: int | slice) -> dict[str, Scalar] | _ArrayPoints:
        if isinstance(place, slice):
            return _ArrayPoints(self._indexes[place])
        return {INDEX: self._indexes[place]}


def points(spec: JobSpec) -> Sequence[dict[str, Scalar]]:
    """Return the params that are each point's own; a job of one point has none.

    A sweep of several params goes through them sorted by name, the last one fastest.
    """
    if spec.array is not None:
        return _ArrayPoints(parse_array(spec.array))
    if isinstance(spec.sweep, tuple):
        refuse_too_many(len(spec.sweep), listed=True)
        return tuple(dict(point) for point in spec.sweep)
    if spec.sweep is not None:
        return _product({name: values_of(v) for name, v in spec.sweep.items()})
    return ({},)


def values_of(values: tuple[Scalar, ...] | SpanSpec) -> tuple[Scalar, ...]:
    """Return the values that one param of a sweep takes."""
    return span_values(values) if isinstance(values, SpanSpec) else values


def refuse_too_many(tasks: int, *, listed: bool = False) -> None:
    """Raise when a job would have more tasks than any may have.

    Fewer may be `listed`: those that more than an index tells apart.
    """
    if tasks > TASKS_MAX or (listed and tasks > TASKS_LISTED_MAX):
        most, kind = TASKS_MAX, ""
        if listed:
            most, kind = TASKS_LISTED_MAX, " of sweeps, gangs, verified or kept arrays"
        raise UsageError(
            f"{tasks:,} tasks are too many",
            because=f"one job may have {most:,}{kind}",
            hint=f"a plain array may have {TASKS_MAX:,}"
            if tasks <= TASKS_MAX
            else "let each task do more, or submit several jobs",
        )


def _piece(piece: str, array: str) -> range:
    found = _PIECE.fullmatch(piece)
    if found is None:
        raise UsageError(
            f"'{array}' is not an array",
            because=f"'{piece}' is neither an index nor a range of them",
            hint="write it like 100, 0-99, 0-99:5 or 1,3,10-12",
        )
    first, last, step = (int(n) if n else None for n in found.groups())
    assert first is not None
    end = first if last is None else last
    if end < first or step == 0:
        raise UsageError(
            f"range {piece} of an array is empty",
            because="it must run upwards, in steps of at least 1",
            hint="write it like 0-99:5",
        )
    return range(first, end + 1, step or 1)


def _product(axes: Mapping[str, Iterable[Scalar]]) -> tuple[dict[str, Scalar], ...]:
    names = sorted(axes)
    columns = [tuple(axes[name]) for name in names]
    refuse_too_many(math.prod(len(column) for column in columns), listed=True)
    return tuple(
        dict(zip(names, row, strict=True)) for row in itertools.product(*columns)
    )
