"""What is in a trace of requests: how many, how fast, how long, and what comes again.

Requests are taken in one at a time, and what is kept is bounded: lengths are counted by
size classes, arrivals by minutes, and blocks in caches that forget.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from math import floor, inf, log2
from typing import TYPE_CHECKING, Final, final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shoal.lab.traces.values import TraceRequest

CACHE_BLOCKS: Final = (1_000, 4_000, 16_000, 64_000, 256_000, 1_024_000)
"""Sizes of the caches that reuse is measured with, in blocks."""

MINUTES_MAX: Final = 1 << 20
CLASSES_PER_DOUBLING: Final = 64
"""Lengths within 1.1 % of each other are counted as one."""


class LengthSummary(msgspec.Struct, frozen=True):
    """Lengths in tokens."""

    mean: float
    median: float
    p99: float
    longest: int


class CacheReuse(msgspec.Struct, frozen=True):
    """How many blocks a cache of this size had when they were asked for."""

    cache_blocks: int
    found_pct: float


class RequestSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What is in a trace of requests."""

    requests: int
    span_s: float
    per_s: float
    busiest_minute_per_s: float
    input: LengthSummary
    output: LengthSummary
    blocks: int
    reuse: tuple[CacheReuse, ...]  # empty if the trace does not tell blocks


@final
class Lengths:
    """Counts lengths by class, of which there are few, whatever comes."""

    def __init__(self) -> None:
        self._classes: Counter[int] = Counter()
        self._count = self._sum = self._longest = 0

    def add(self, tokens: int) -> None:
        """Count one length."""
        self._classes[floor(CLASSES_PER_DOUBLING * log2(tokens + 1))] += 1
        self._count += 1
        self._sum += tokens
        self._longest = max(self._longest, tokens)

    def summary(self) -> LengthSummary:
        """Return the figures; quantiles are those of the classes."""
        mean = self._sum / self._count if self._count else 0.0
        return LengthSummary(
            mean, self._quantile(0.5), self._quantile(0.99), self._longest
        )

    def _quantile(self, share: float) -> float:
        passed = 0
        for class_, count in sorted(self._classes.items()):
            passed += count
            if passed > share * self._count:
                middle = 2 ** ((class_ + 0.5) / CLASSES_PER_DOUBLING) - 1
                return min(middle, float(self._longest))
        return float(self._longest)


@final
class BlockCache:
    """Keeps the blocks that were used last, and finds what contexts begin with.

    Of the blocks of one request the last is forgotten first: without the ones before
    it, it is worth nothing.
    """

    def __init__(self, blocks_max: int) -> None:
        self.blocks_max = blocks_max
        self._kept: OrderedDict[int, None] = OrderedDict()

    def use(self, blocks: tuple[int, ...]) -> int:
        """Return how many blocks were found, from the first on, and keep all."""
        kept = self._kept
        found = next(
            (place for place, block in enumerate(blocks) if block not in kept),
            len(blocks),
        )
        for block in reversed(blocks):
            kept[block] = None
            kept.move_to_end(block)
        while len(kept) > self.blocks_max:
            kept.popitem(last=False)
        return found


def summary_of(
    requests: Iterable[TraceRequest], cache_blocks: tuple[int, ...] = CACHE_BLOCKS
) -> RequestSummary:
    """Go through requests once, in any order of time; reuse goes by the order given."""
    inputs, outputs = Lengths(), Lengths()
    minutes: Counter[int] = Counter()
    caches = [BlockCache(size) for size in cache_blocks]
    found = [0] * len(caches)
    count = blocks = 0
    first_s, last_s = inf, -inf
    for request in requests:
        count += 1
        inputs.add(request.context_tokens)
        outputs.add(request.generated_tokens)
        first_s, last_s = (
            min(first_s, request.arrived_s),
            max(last_s, request.arrived_s),
        )
        minutes[int(request.arrived_s // 60) % MINUTES_MAX] += 1
        blocks += len(request.blocks)
        if request.blocks:
            for place, cache in enumerate(caches):
                found[place] += cache.use(request.blocks)
    span_s = max(0.0, last_s - first_s) if count else 0.0
    return RequestSummary(
        requests=count,
        span_s=span_s,
        per_s=count / span_s if span_s else 0.0,
        busiest_minute_per_s=max(minutes.values(), default=0) / 60,
        input=inputs.summary(),
        output=outputs.summary(),
        blocks=blocks,
        reuse=tuple(
            CacheReuse(cache.blocks_max, 100 * hits / blocks)
            for cache, hits in zip(caches, found, strict=True)
        )
        if blocks
        else (),
    )
