"""Which contributions count, and how much: no single worker may ruin a run.

A delta must be finite. One that is far larger than usual is refused, one that is
somewhat larger is scaled down, and nobody's samples outweigh everybody else's. Usual is
the median, together with what was usual in the sync before: so that two workers, of
whom one errs, have a third to ask.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from shoal.train.diloco.messages import Contribution

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

CLIP: Final = 3.0
"""Larger deltas are scaled down to this multiple of the usual norm."""

ABSURD: Final = 100.0
"""Still larger ones are a fault and no direction to go, however short the step."""

SAMPLES_CAP: Final = 4
"""Nobody counts as more than this many workers, by the median of samples."""


class Received(msgspec.Struct, frozen=True):
    """A contribution that is here, and the norm of its delta."""

    contribution: Contribution
    norm: float = 0.0


class CountedPart(msgspec.Struct, frozen=True):
    """What a worker's contribution counts in an average."""

    worker: str
    contribution: Contribution
    samples: int
    scale: float = 1.0  # below one if its delta was too large


class Screening(msgspec.Struct, frozen=True):
    """The contributions of one sync that count, and why others do not."""

    parts: tuple[CountedPart, ...]
    refused: Mapping[str, str]
    usual: float  # norm, of what counts

    @property
    def clipped(self) -> tuple[tuple[str, str], ...]:
        """Workers whose deltas are scaled down, and by how much."""
        return tuple(
            (part.worker, f"its delta is too large and counts {part.scale:.0%}")
            for part in self.parts
            if part.scale < 1
        )


def fault_of(contribution: Contribution, norm: float) -> str:
    """Say why a contribution can never count; nothing if it may."""
    if not math.isfinite(norm):
        return "its delta is not finite"
    if contribution.samples == 0:
        return "it has no samples"
    return ""


def screened(received: Mapping[str, Received], before: float | None) -> Screening:
    """Weigh the contributions of a sync; `before` is the usual norm until now."""
    norms = [each.norm for each in received.values() if each.norm > 0]
    usual = _middle([*norms, before] if before else norms)
    middle = _middle([float(r.contribution.samples) for r in received.values()])
    parts: list[CountedPart] = []
    refused: dict[str, str] = {}
    for worker in sorted(received):
        contribution, norm = received[worker].contribution, received[worker].norm
        if norm > ABSURD * usual:
            refused[worker] = f"its delta is {norm / usual:.0f} times as large as usual"
            continue
        scale = min(1.0, CLIP * usual / norm) if norm > 0 else 1.0
        samples = min(contribution.samples, int(SAMPLES_CAP * middle))
        parts.append(CountedPart(worker, contribution, samples, scale))
    counted = [received[p.worker].norm * p.scale for p in parts]
    return Screening(tuple(parts), refused, _middle(counted) or usual)


def presumed(contributed: Mapping[str, Contribution]) -> tuple[CountedPart, ...]:
    """Return what will count, and how much, if no norm is out of the ordinary."""
    plain = {w: Received(c) for w, c in contributed.items() if not fault_of(c, 0.0)}
    return screened(plain, None).parts


def alike(received: Mapping[str, Received]) -> tuple[tuple[str, str], ...]:
    """Return pairs of workers who contributed the very same: they share their data."""
    first: dict[str, str] = {}
    pairs: list[tuple[str, str]] = []
    for worker in sorted(received):
        each = received[worker]
        content = each.contribution.file.partition("@")[0]
        if each.norm == 0:
            continue  # Who has learnt nothing has learnt the same.
        if content in first:
            pairs.append((first[content], worker))
        first.setdefault(content, worker)
    return tuple(pairs)


def _middle(values: Sequence[float]) -> float:
    """Return the lower median; 0 of nothing."""
    return sorted(values)[(len(values) - 1) // 2] if values else 0.0


def remarks(
    ready: Mapping[str, Received],
    found: Screening,
    known: dict[tuple[str, str], None],
) -> list[tuple[Literal["clipped", "alike"], str, str]]:
    """Say who was clipped, and who sends the very same as another, once each."""
    said: list[tuple[Literal["clipped", "alike"], str, str]] = [
        ("clipped", worker, reason) for worker, reason in found.clipped
    ]
    for one, other in alike(ready):
        if (one, other) not in known:
            known[one, other] = None
            reason = f"it contributed the very same as {one}: same data, same order"
            said.append(("alike", other, reason))
    return said
