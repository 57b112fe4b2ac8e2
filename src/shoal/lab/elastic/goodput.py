"""How fast training jobs learn on GPUs of some kind: throughput times efficiency.

Times of a step on one GPU are those published with Sia (SOSP '23), by kind of GPU and
samples a GPU; between them they are interpolated. The rest is a model of our own:

- Ranks exchange gradients once a step, along a ring: at the speed of the links inside
  a node, or of the network if there are several nodes.
- A batch of m samples teaches as much as m (noise + m0) / (noise + m) samples do in
  batches of the usual size m0 (Pollux, OSDI '21). The noise scale is not published; it
  is taken to be the geometric mean of the range of batches.
"""

from __future__ import annotations

from bisect import bisect_left
from functools import cache
from itertools import pairwise
from math import sqrt
from typing import Final, NamedTuple

Points = tuple[tuple[int, float], ...]

STEP_S: Final[dict[str, dict[str, Points]]] = {
    "imagenet": {
        "a100": (
            (20, 0.152),
            (28, 0.151),
            (40, 0.157),
            (57, 0.166),
            (81, 0.18),
            (115, 0.201),
            (163, 0.244),
            (231, 0.298),
            (327, 0.369),
            (462, 0.49),
            (653, 0.642),
            (800, 0.774),
        ),
        "rtx2080ti": (
            (20, 0.214),
            (28, 0.225),
            (40, 0.23),
            (57, 0.214),
            (81, 0.321),
            (115, 0.33),
            (163, 0.506),
            (200, 0.463),
        ),
        "t4": (
            (20, 0.147),
            (28, 0.208),
            (40, 0.253),
            (57, 0.324),
            (81, 0.421),
            (115, 0.56),
            (163, 0.762),
            (200, 0.924),
        ),
    },
    "cifar10": {
        "a100": (
            (32, 0.035),
            (64, 0.035),
            (129, 0.039),
            (257, 0.049),
            (513, 0.072),
            (1025, 0.119),
            (2051, 0.217),
            (4096, 0.407),
        ),
        "rtx2080ti": (
            (32, 0.043),
            (64, 0.06),
            (129, 0.075),
            (257, 0.106),
            (513, 0.169),
            (1024, 0.31),
        ),
        "t4": (
            (32, 0.043),
            (64, 0.06),
            (129, 0.104),
            (257, 0.187),
            (513, 0.355),
            (1024, 0.702),
        ),
    },
    "bert": {
        "a100": (
            (4, 0.149),
            (8, 0.156),
            (11, 0.163),
            (16, 0.186),
            (23, 0.22),
            (33, 0.269),
            (48, 0.342),
        ),
        "rtx2080ti": ((4, 0.252), (6, 0.326), (8, 0.368), (11, 0.413), (12, 0.447)),
        "t4": ((4, 0.455), (6, 0.569), (8, 0.703), (11, 0.855), (12, 0.922)),
    },
    "deepspeech2": {
        "a100": (
            (10, 0.424),
            (20, 0.571),
            (40, 0.86),
            (81, 1.52),
            (163, 2.567),
            (320, 4.129),
        ),
        "rtx2080ti": (
            (10, 0.299),
            (14, 0.346),
            (20, 0.394),
            (28, 0.53),
            (40, 0.662),
            (57, 1.075),
        ),
        "t4": (
            (10, 0.466),
            (14, 0.558),
            (20, 0.681),
            (28, 0.851),
            (40, 1.122),
            (57, 1.664),
            (80, 2.541),
        ),
    },
    "yolov3": {
        "a100": ((4, 0.247), (8, 0.302), (16, 0.34), (32, 0.393)),
        "rtx2080ti": ((4, 0.429), (8, 0.591)),
        "t4": ((4, 0.267), (8, 0.326), (16, 0.573)),
    },
}
"""Samples on a GPU, and seconds of a step, of each program on each kind of GPU."""


class Program(NamedTuple):
    """What is trained, and how."""

    gradient_bytes: float
    batch: int  # the usual one
    batch_max: int
    samples: float  # to learn from, in batches of the usual size
    restart_s: float

    @property
    def noise(self) -> float:
        """The noise scale of its gradients, in samples."""
        return sqrt(self.batch * self.batch_max)


PROGRAMS: Final = {
    "cifar10": Program(45e6, 128, 4_096, 100 * 50_000, 30),  # ResNet-18
    "imagenet": Program(102e6, 200, 12_800, 90 * 1_281_167, 250),  # ResNet-50
    "bert": Program(440e6, 12, 384, 2 * 88_524, 120),  # SQuAD
    "deepspeech2": Program(200e6, 20, 640, 400_000, 25),  # of medium size, as published
    "yolov3": Program(248e6, 8, 512, 50 * 16_551, 45),  # VOC
}


class GpuKind(NamedTuple):
    """GPUs of one kind, and the nodes that they are in."""

    name: str
    nodes: int
    per_node: int

    @property
    def gpus(self) -> int:
        """All of them."""
        return self.nodes * self.per_node

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many a job may get: powers of two in a node, or whole nodes."""
        inside = [1]
        while inside[-1] * 2 <= self.per_node:
            inside.append(inside[-1] * 2)
        whole = [self.per_node * n for n in range(2, self.nodes + 1)]
        return (*inside, *whole)


INSIDE_BYTES_S: Final = {"t4": 6e9, "rtx2080ti": 6e9, "a100": 150e9}
BETWEEN_BYTES_S: Final = {"t4": 6.25e9, "rtx2080ti": 6.25e9, "a100": 200e9}
"""PCIe or NVLink inside a node; 50 Gbit/s, or 1.6 Tbit/s, between nodes."""

SIA_CLUSTER: Final = (
    GpuKind("t4", 6, 4),
    GpuKind("rtx2080ti", 3, 8),
    GpuKind("a100", 2, 8),
)
"""The 64 GPUs of Sia's simulations."""

ACCUMULATED_MAX: Final = 64


def step_s(program: str, gpu: str, samples: int) -> float:
    """Return how long one GPU computes on so many samples at once."""
    points = STEP_S[program][gpu]
    place = bisect_left(points, (samples, 0.0))
    if place == 0:
        return points[0][1]
    (low, low_s), (high, high_s) = list(pairwise(points))[
        min(place, len(points) - 1) - 1
    ]
    return low_s + (high_s - low_s) * (samples - low) / (high - low)


def samples_s(program: str, kind: GpuKind, gpus: int, batch: int) -> float:
    """Return the samples a second with batches of a size; 0 if that is too small."""
    points = STEP_S[program][kind.name]
    each = batch / gpus
    if each < 1:
        return 0.0
    passes = max(1, -(-int(each) // points[-1][0]))  # gradients are accumulated
    computing_s = passes * step_s(program, kind.name, max(1, round(each / passes)))
    return batch / (computing_s + exchange_s(program, kind, gpus))


def exchange_s(program: str, kind: GpuKind, gpus: int) -> float:
    """Return how long the gradients of one step take along the ring."""
    if gpus == 1:
        return 0.0
    is_inside = gpus <= kind.per_node
    speed = (INSIDE_BYTES_S if is_inside else BETWEEN_BYTES_S)[kind.name]
    return 2 * (gpus - 1) / gpus * PROGRAMS[program].gradient_bytes / speed


def goodput(program: str, kind: GpuKind, gpus: int, batch: int) -> float:
    """Return the samples a second, by what they teach."""
    about = PROGRAMS[program]
    efficiency = (about.noise + about.batch) / (about.noise + max(batch, about.batch))
    return samples_s(program, kind, gpus, batch) * efficiency


@cache
def best_goodput(program: str, kind: GpuKind, gpus: int) -> float:
    """Return the goodput with the batch that suits these GPUs best."""
    about = PROGRAMS[program]
    batch, found = about.batch, 0.0
    while batch <= about.batch_max:
        found = max(found, goodput(program, kind, gpus, batch))
        batch = max(batch + 1, round(batch * 1.1))
    return found
