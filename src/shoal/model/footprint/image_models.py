"""Estimate the GPU memory of training torchvision's ResNets from their shapes.

Each convolution keeps its output for the normalisation after it, and that one's for
what comes next, which activates it in place. Where a shortcut is resized, only the
first is kept. The rest is counted by the parameter, as for other programs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from shoal.task_words import SYNTHETIC, share_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shoal.model.job import Scalar

WIDTHS: Final = (64, 128, 256, 512)
BLOCKS: Final = {
    "resnet18": (2, 2, 2, 2),
    "resnet34": (3, 4, 6, 3),
    "resnet50": (3, 4, 6, 3),
    "resnet101": (3, 4, 23, 3),
    "resnet152": (3, 8, 36, 3),
}
WIDENED: Final = {"resnet18": 1, "resnet34": 1}
"""By how much the last convolution of a block is wider; by four in the others."""

MOMENTS: Final = {"sgd": 1, "rmsprop": 1, "adam": 2, "adamw": 2}
KNOWN: Final = {"cifar10": (10, 32), "cifar100": (100, 32), "imagenet": (1_000, 224)}
"""Classes, and pixels of an edge, as the program `images` reads them."""

BATCH: Final = 64
INDEX_NUMBERS: Final = 2
"""An index of the first pooling takes as much as two numbers."""


class Shape(NamedTuple):
    """Parameters, and numbers that one image keeps until the way back."""

    parameters: int
    kept: int
    widest: int  # the largest output of a convolution
    late: int  # parameters of the last stage: their gradients are there first


def image_tensor_bytes(params: Mapping[str, Scalar], gpus: int) -> int | None:
    """Return what torch allocates on each GPU; None if the network is another.

    `params` are in the words of the program `images`.
    """
    network = str(params.get("network", ""))
    found = _data_of(params)
    if network not in BLOCKS or found is None:
        return None
    classes, edge = found
    batch = _whole(params, "batch", BATCH)
    images = max(1, batch // max(1, gpus))
    shape = resnet(network, _whole(params, "size", 0) or edge, classes)
    optimizer = str(params.get("optimizer", "sgd"))
    numbers = 1 + MOMENTS.get(optimizer, 1)
    copies = optimizer != "sgd" or bool(params.get("weight_decay"))
    # Most is still kept when the way back has passed the last stage, which has most of
    # the parameters. Before the next one, gradients are dropped.
    there_and_back = numbers * shape.parameters + shape.late
    there_and_back += images * (shape.kept + shape.widest)
    in_step = (numbers + 1 + copies) * shape.parameters
    return 4 * max(there_and_back, in_step)


def resnet(name: str, edge: int, classes: int) -> Shape:
    """Return the shape of one of torchvision's ResNets."""
    wider = WIDENED.get(name, 4)
    edge = -(-edge // 2)
    first = WIDTHS[0] * edge * edge
    parameters = 3 * 49 * WIDTHS[0] + 2 * WIDTHS[0]
    kept, widest = 3 * (2 * edge) ** 2 + 2 * first, first
    edge = -(-edge // 2)
    kept += (1 + INDEX_NUMBERS) * WIDTHS[0] * edge * edge
    channels, before = WIDTHS[0], 0
    for stage, (width, blocks) in enumerate(zip(WIDTHS, BLOCKS[name], strict=True)):
        before = parameters
        for block in range(blocks):
            halves = stage > 0 and block == 0
            after = -(-edge // 2) if halves else edge
            out = width * wider
            if wider == 1:
                layers = [(channels, width, 9, after), (width, width, 9, after)]
            else:
                layers = [
                    (channels, width, 1, edge),
                    (width, width, 9, after),
                    (width, out, 1, after),
                ]
            for came, gone, area, size in layers:
                parameters += came * gone * area + 2 * gone
                kept += 2 * gone * size * size
                widest = max(widest, gone * size * size)
            if halves or channels != out:  # The shortcut is resized.
                parameters += channels * out + 2 * out
                kept += out * after * after
            channels, edge = out, after
    parameters += (channels + 1) * classes
    return Shape(parameters, kept, widest, parameters - before)


def _data_of(params: Mapping[str, Scalar]) -> tuple[int, int] | None:
    dataset = str(params.get("dataset", ""))
    return SYNTHETIC.get(dataset) or KNOWN.get(share_of({"dataset": dataset}))


def _whole(params: Mapping[str, Scalar], name: str, default: int) -> int:
    value = params.get(name, default)
    return value if isinstance(value, int) and value > 0 else default
