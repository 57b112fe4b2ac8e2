"""The params of a training task that names no program, in the words of our own.

The first training scheduler gave a task `model`, `dataset`, `batch_size`,
`learning_rate`, `epochs`, `optimizer`, `momentum` and `weight_decay`. A task that names
one of the words in `ABOUT_IMAGES` trains what they say, by the program `images`. One
that names none of them trains the example `digits`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

IMAGES: Final = "images"
EXAMPLE: Final = "digits"

ABOUT_IMAGES: Final = ("model", "dataset", "optimizer", "momentum", "weight_decay")

SYNTHETIC: Final = {
    "synthetic": (10, 32),
    "synthetic-cifar10": (10, 32),
    "synthetic-imagenet": (1_000, 224),
}
"""Generated stand-ins of a dataset: classes, and pixels of an edge."""

STEPS_PER_EPOCH: Final = 45
"""Batches of 32 in the digits that are trained on."""

_OURS: Final = {"batch_size": "batch", "learning_rate": "lr", "model": "network"}


def translated(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return params with our words and the program that they mean."""
    ours = our_words(params)
    given = {ours.get(name, name): value for name, value in params.items()}
    if "program" in params:
        return given
    if _is_about_images(params):
        return {"program": IMAGES, **given}
    return {"program": EXAMPLE, "inner_steps": STEPS_PER_EPOCH, **given}


def our_words(params: Mapping[str, Any]) -> Mapping[str, str]:
    """Return what each foreign word in these params is called by our program."""
    if "program" in params:
        return {}
    return _OURS if _is_about_images(params) else {**_OURS, "epochs": "rounds"}


def _is_about_images(params: Mapping[str, Any]) -> bool:
    return any(name in params for name in ABOUT_IMAGES)


def share_of(params: Mapping[str, Any]) -> str:
    """Return the name of the shared folder that a task reads; none if it needs none.

    A folder is shared as `cifar10`; people also write CIFAR-10.
    """
    dataset = str(translated(params).get("dataset", ""))
    plain = re.sub(r"[^a-z0-9]", "", dataset.lower())
    if not dataset or dataset in SYNTHETIC:
        return ""
    return plain if plain in ("cifar10", "cifar100", "imagenet", "mnist") else dataset
