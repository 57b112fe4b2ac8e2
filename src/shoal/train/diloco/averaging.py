"""From the workers' deltas to the outcome of a sync, one chunk of values at a time.

Trained weights take the outer step, and its update is compressed; what rounding takes
away is part of the next. Buffers are averaged as they are. No delta is ever in memory
as a whole.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Protocol

import msgspec
import numpy as np

from shoal.errors import ProtocolError
from shoal.train import tensors
from shoal.train.diloco import compression, outer
from shoal.train.diloco.outer import combine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from shoal.train.diloco.compression import Array, Encoding
    from shoal.train.diloco.outer import Combination
    from shoal.train.tensors import Fragment, State


class Counted(Protocol):
    """What a contribution counts."""

    @property
    def samples(self) -> int:
        """The samples behind it, as far as they are believed."""
        ...

    @property
    def scale(self) -> float:
        """By what it is scaled down."""
        ...


class Delta(msgspec.Struct, frozen=True):
    """What a worker contributes: chunks of its delta, and its buffers."""

    chunks: Iterator[Array]
    buffers: Array
    samples: int
    scale: float = 1.0


def average(
    state: State,
    part: Fragment,
    deltas: Sequence[Delta],
    rule: outer.Outer,
    *,
    rounds_done: int,
    by: Combination = "mean",
    encoding: Encoding,
) -> list[bytes]:
    """Take the outer step in `state`; return the update's chunks, compressed."""
    chunks: list[bytes] = []
    step = partial(
        outer.step,
        rule,
        rounds_done=rounds_done,
        workers=outer.equal_workers([delta.samples for delta in deltas]),
    )
    for each in part.chunks:
        add = _stepped(state.momentum[each], deltas, by, step)
        data, read, lost = compression.with_feedback(add, state.lost[each], encoding)
        state.lost[each] = lost
        state.weights[each] += read
        chunks.append(data)
    if part.buffers.stop > part.buffers.start:
        buffers = [(delta.buffers, delta.samples) for delta in deltas]
        state.weights[part.buffers] = combine(buffers, by)
    return chunks


def _stepped(
    momentum: Array,
    deltas: Sequence[Delta],
    by: Combination,
    step: Callable[[Array, Array], tuple[Array, Array]],
) -> Array:
    """Return the update of a chunk, and set its momentum.

    Values do not depend on each other. What is worked on at a time stays in the cache.
    """
    parts = [(_scaled(next(d.chunks), d.scale), d.samples) for d in deltas]
    add = np.empty_like(momentum)
    for start in range(0, add.size, compression.BLOCK):
        block = slice(start, start + compression.BLOCK)
        mean = combine([(values[block], samples) for values, samples in parts], by)
        add[block], momentum[block] = step(mean, momentum[block])
    return add


def norm_of(chunks: Iterable[Array], buffers: Array) -> float:
    """Return the norm of a delta; not finite if a value or a buffer is not."""
    squares = 0.0
    for chunk in chunks:
        for start in range(0, chunk.size, compression.BLOCK):
            wide = chunk[start : start + compression.BLOCK].astype(np.float64)
            with np.errstate(over="ignore", invalid="ignore"):
                squares += float(wide @ wide)
    return math.sqrt(squares) if np.isfinite(buffers).all() else math.nan


def measured(path: Path, part: Fragment) -> tuple[float, str]:
    """Return the norm of the delta in a file, and what is wrong with it, if so."""
    try:
        buffers = tensors.fragment_buffers(path, part)
        return norm_of(tensors.fragment_chunks(path, part), buffers), ""
    except ProtocolError as error:
        return 0.0, f"its file cannot be read: {error}"


def deltas_in(
    paths: Sequence[Path], part: Fragment, counted: Sequence[Counted]
) -> list[Delta]:
    """Return the deltas in files, each with what it counts."""
    return [
        Delta(
            tensors.fragment_chunks(path, part),
            tensors.fragment_buffers(path, part),
            each.samples,
            each.scale,
        )
        for path, each in zip(paths, counted, strict=True)
    ]


def _scaled(values: Array, scale: float) -> Array:
    return values if scale == 1 else values * np.float32(scale)
