"""The weights of a training loop, as ranges of one flat array.

A range is copied out and in, and nothing else: the whole model is never copied. What a
framework has to offer for that is an implementation of `Weights`.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Protocol, final

import numpy as np

from shoal.train import tensors

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from shoal.train.diloco.compression import Array
    from shoal.train.tensors import Layout


class Weights(Protocol):
    """What a loop shares with the others: trained weights, then buffers."""

    layout: Layout

    def read(self, part: slice) -> Array:
        """Return a copy of a range."""
        ...

    def write(self, part: slice, values: Array) -> None:
        """Set a range."""
        ...


@final
class Ranges:
    """Finds the tensors that a range of the flat array goes through."""

    def __init__(self, layout: Layout) -> None:
        places = layout.places()
        self._names = list(places)
        self._starts = [start for start, _ in places.values()]
        self._ends = [*self._starts[1:], layout.size]

    def within(self, part: slice) -> Iterator[tuple[str, slice, slice]]:
        """Yield each tensor's name, its own range, and where that is in `part`."""
        place = max(0, bisect_right(self._starts, part.start) - 1)
        while place < len(self._names) and self._starts[place] < part.stop:
            start = max(part.start, self._starts[place])
            stop = min(part.stop, self._ends[place])
            if start < stop:
                own = self._starts[place]
                yield (
                    self._names[place],
                    slice(start - own, stop - own),
                    slice(start - part.start, stop - part.start),
                )
            place += 1


@final
class ArrayWeights:
    """Weights that are numpy arrays, set in place."""

    def __init__(
        self, trained: Mapping[str, Array], buffers: Mapping[str, Array] | None = None
    ) -> None:
        kept = buffers or {}
        self.layout = tensors.layout_of(trained, kept)
        self._flat = {n: a.reshape(-1) for n, a in {**trained, **kept}.items()}
        self._ranges = Ranges(self.layout)

    def read(self, part: slice) -> Array:
        """Return a copy of a range."""
        values = np.empty(part.stop - part.start, dtype=np.float32)
        for name, own, there in self._ranges.within(part):
            values[there] = self._flat[name][own]
        return values

    def write(self, part: slice, values: Array) -> None:
        """Set a range."""
        for name, own, there in self._ranges.within(part):
            self._flat[name][own] = values[there]
