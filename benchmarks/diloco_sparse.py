# pyright: basic
# torch describes its types only in part.
"""Ask whether sparse deltas of two bits learn more than int8 from the same bytes.

Run: PYTHONPATH=. OMP_NUM_THREADS=1 python benchmarks/diloco_sparse.py >> results.jsonl
It draws docs/img/diloco-sparse.svg.

As in SparseLoCo (arXiv 2508.15706), of each chunk of 4,096 values only the largest are
sent, with two bits each: a sign, and whether it is one of the larger half. The rest is
kept and added to the next delta (error feedback), and fades a little. int8 is shoal's
own. Bytes are those of the encoded deltas of all workers and of the outcomes that all
of them fetch, encoded in the same way. "Gathered" is SparseLoCo as published: each
worker fetches the deltas of all others and takes their mean, without outer momentum.

All workers are in one process, as in `diloco_defaults.py`, whose GPT it is. All runs
take as many inner steps; who sends less can send more often.
"""

from __future__ import annotations

import json
import statistics
import zlib
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from benchmarks.diloco_defaults import (
    Replicas,
    Task,
    first_weights,
    gpt,
)
from benchmarks.report.line_chart import Curve, drawn
from numpy.typing import NDArray
from torch.nn.attention import SDPBackend, sdpa_kernel

from shoal.train.diloco import compression, outer
from shoal.train.diloco.compression import Array

WORKERS: Final = 4
STEPS: Final = 1_440
SEEDS: Final = (1, 2)

CHUNK: Final = 4_096
FADES: Final = 0.95
"""What is left of a residual, after each round: as in SparseLoCo."""

GAP_MAX: Final = 255
PICTURE: Final = Path(__file__).parents[1] / "docs" / "img" / "diloco-sparse.svg"


class Way(NamedTuple):
    """How deltas are sent: a share of the values, or all of them as int8."""

    name: str
    share: float  # of values that are sent; 1 is int8
    inner_steps: tuple[int, ...]
    gathered: bool = False  # all deltas go to all, who take the plain mean

    @property
    def rule(self) -> outer.Outer:
        """The outer step."""
        return PLAIN if self.gathered else outer.Outer()


PLAIN: Final = outer.Outer(kind="sgd", rate=1.0)
WAYS: Final = (
    Way("int8", 1.0, (12, 24, 48, 96, 180, 360, 720)),
    Way("1/16, 2 bits", 1 / 16, (12, 24, 48, 96)),
    Way("1/64, 2 bits", 1 / 64, (12, 24, 48)),
    Way("1/16, 2 bits, gathered", 1 / 16, (12, 24, 48, 96), gathered=True),
    Way("1/64, 2 bits, gathered", 1 / 64, (12, 24, 48), gathered=True),
)


class Sender:
    """Encodes one delta after another, and keeps what was not sent."""

    def __init__(self, size: int, share: float) -> None:
        self._lost = np.zeros(size, dtype=np.float32)
        self._share = share

    def send(self, values: Array) -> tuple[Array, int]:
        """Return what the receiver decodes, and how many bytes that took."""
        if self._share == 1:
            data, read, lost = compression.with_feedback(
                values, self._lost.astype(np.float16), "int8"
            )
            self._lost = lost.astype(np.float32)
            return read, len(data)
        wanted: Array = values + np.multiply(self._lost, np.float32(FADES))
        read, size = sparse(wanted, self._share)
        self._lost = wanted - read
        return read, size


def sparse(values: Array, share: float) -> tuple[Array, int]:
    """Keep the largest values of each chunk, at two bits; count their bytes."""
    read = np.zeros_like(values)
    gaps: list[NDArray[np.int64]] = []
    size = 0
    for start in range(0, values.size, CHUNK):
        chunk = values[start : start + CHUNK]
        count = max(1, round(share * chunk.size))
        places = np.sort(np.argpartition(-np.abs(chunk), count - 1)[:count])
        sizes = np.abs(chunk[places])
        large = sizes >= np.median(sizes)
        high = np.float32(sizes[large].mean())
        low = np.float32(sizes[~large].mean() if (~large).any() else 0)
        known = np.where(large, high, low)
        read[start + places] = np.sign(chunk[places]) * known
        gaps.append(np.diff(places, prepend=-1))
        size += 4 + -(-count // 4)  # two levels of 16 bits, and two bits a value
    return read, size + coded_bytes(np.concatenate(gaps))


def coded_bytes(gaps: NDArray[np.int64]) -> int:
    """Return the bytes of the places of values, as Huffman codes of their gaps."""
    rest = gaps % GAP_MAX
    times = gaps // GAP_MAX
    text = b"".join(
        b"\xff" * int(n) + bytes([int(r)]) for n, r in zip(times, rest, strict=True)
    )
    squeezer = zlib.compressobj(9, zlib.DEFLATED, -15, 9, zlib.Z_HUFFMAN_ONLY)
    return len(squeezer.compress(text) + squeezer.flush())


class Run:
    """All workers of one seed: what they share, and what each has yet to send."""

    def __init__(self, way: Way, first: Array) -> None:
        self.shared = first
        self.sent = 0
        self._way = way
        self._senders = [Sender(first.size, way.share) for _ in range(WORKERS)]
        self._centre = Sender(first.size, way.share)
        self._momentum = np.zeros_like(first)

    def sync(self, own: Array, rounds_done: int) -> None:
        """Send all deltas to the centre, and the outcome to all."""
        parts: list[tuple[Array, int]] = []
        for mine, sender in zip(own, self._senders, strict=True):
            values, size = sender.send(self.shared - mine)
            parts.append((values, 1))
            self.sent += (WORKERS - 1 if self._way.gathered else 1) * size
        add, self._momentum = outer.step(
            self._way.rule,
            outer.weighted_mean(parts),
            self._momentum,
            rounds_done=rounds_done,
            workers=WORKERS,
        )
        if not self._way.gathered:
            add, size = self._centre.send(add)
            self.sent += WORKERS * size
        self.shared = self.shared + add


def measured(task: Task, way: Way, inner_steps: int) -> dict[str, Any]:
    """Train with each seed, with deltas sent in a way; return a line of results."""
    replicas = Replicas(task, first_weights(task, SEEDS, WORKERS))
    first = replicas.flat()[::WORKERS].numpy()
    runs = [Run(way, row.copy()) for row in first]
    chances = [
        torch.Generator().manual_seed(1_000 * seed + worker + 1)
        for seed in SEEDS
        for worker in range(WORKERS)
    ]
    for step in range(STEPS):
        batches = [task.draw(task.batch, chance) for chance in chances]
        x, y = (torch.stack(part) for part in zip(*batches, strict=True))
        replicas.step(x, y, task.rate(step, STEPS))
        if (step + 1) % inner_steps:
            continue
        own = replicas.flat().unflatten(0, (len(SEEDS), WORKERS)).numpy()
        for run, mine in zip(runs, own, strict=True):
            run.sync(mine, step // inner_steps)
        shared = torch.from_numpy(np.stack([run.shared for run in runs]))
        replicas.assign(shared.repeat_interleave(WORKERS, dim=0))
    losses = replicas.held_out_losses(task, every=WORKERS)
    return {
        "benchmark": "diloco_sparse",
        "way": way.name,
        "inner_steps": inner_steps,
        "losses": [round(loss, 4) for loss in losses],
        "bytes_sent": round(statistics.fmean(run.sent for run in runs)),
    }


def draw(lines: list[dict[str, Any]]) -> None:
    """Draw the mean loss of each way by the bytes that it took."""
    curves = [
        Curve(
            way.name,
            sorted(
                (line["bytes_sent"] / 1e6, statistics.fmean(line["losses"]))
                for line in lines
                if line["way"] == way.name
            ),
        )
        for way in WAYS
    ]
    words = "MB that are sent, in all"
    PICTURE.write_text(drawn(curves, words, "final loss", powers=True))


def main() -> None:
    """Compare all ways, and draw them."""
    task = gpt(decay=True)
    lines: list[dict[str, Any]] = []
    for way in WAYS:
        for inner_steps in way.inner_steps:
            with sdpa_kernel(SDPBackend.MATH):  # Others cannot be stacked.
                lines.append(measured(task, way, inner_steps))
            print(json.dumps(lines[-1]), flush=True)
    draw(lines)


if __name__ == "__main__":
    main()
