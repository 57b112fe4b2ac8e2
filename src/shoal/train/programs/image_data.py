# pyright: basic, reportMissingImports=false
# torch and torchvision describe their types only in part.
"""Images to learn from: folders that a worker shares, or generated ones.

A folder is read by what lies in it, as torchvision's data sets are unpacked:

    cifar-10-batches-py/      CIFAR-10
    cifar-100-python/         CIFAR-100
    MNIST/raw/                MNIST
    train/CLASS/*.jpg         a folder of images per class, as ImageNet's, with `val/`
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch
from torch.utils.data import TensorDataset
from torchvision import datasets, transforms

from shoal.errors import UsageError
from shoal.task_words import SYNTHETIC, share_of

if TYPE_CHECKING:
    from collections.abc import Callable

CIFAR_EDGE: Final = 32
MNIST_EDGE: Final = 28
LARGE_EDGE: Final = 224
SHOWN: Final = 6
"""How many names of a folder an error tells."""

_MEAN, _SPREAD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class ImageData(NamedTuple):
    """Images with their classes, to train on and to measure with."""

    train: Any  # a Dataset with a length, as all that are read here
    kept: Any
    classes: int


def load_images(dataset: str, size: int, samples: int, seed: int) -> ImageData:
    """Return a data set by the name that a job gave.

    `size` is the edge in pixels, 0 for the usual one; `samples` counts what is
    generated, if the data set is.
    """
    if dataset in SYNTHETIC:
        classes, edge = SYNTHETIC[dataset]
        return generated(classes, size or edge, samples, seed)
    share = share_of({"dataset": dataset})
    variable = "SHOAL_MOUNT_" + share.upper().replace("-", "_").replace(".", "_")
    folder = os.environ.get(variable)
    if folder is None:
        raise UsageError(
            f"the dataset '{dataset}' is not here",
            because=f"no shared folder '{share}' is mounted",
            hint=f"`shoal up --share {share}=FOLDER` where it lies, and "
            f"`mounts: [{share}]`; or `dataset: synthetic`",
        )
    return in_folder(Path(folder), size)


def in_folder(folder: Path, size: int) -> ImageData:
    """Return the data set that lies in a folder."""
    if (folder / "cifar-10-batches-py").is_dir():
        return _known(datasets.CIFAR10, folder, size or CIFAR_EDGE, 10)
    if (folder / "cifar-100-python").is_dir():
        return _known(datasets.CIFAR100, folder, size or CIFAR_EDGE, 100)
    if (folder / "MNIST" / "raw").is_dir():
        return _known(datasets.MNIST, folder, size or MNIST_EDGE, 10)
    kept = next((folder / n for n in ("val", "test") if (folder / n).is_dir()), None)
    if not (folder / "train").is_dir() or kept is None:
        names = sorted(each.name for each in folder.iterdir())
        raise UsageError(
            "no data set is recognised in the shared folder",
            because=f"there is {', '.join(names[:SHOWN]) or 'nothing'}"
            + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""),
            hint="there must be cifar-10-batches-py, cifar-100-python, MNIST/raw, or "
            "train and val with a folder of images per class",
        )
    edge = size or LARGE_EDGE
    try:
        train = datasets.ImageFolder(folder / "train", _varied(edge, large=True))
        held = datasets.ImageFolder(kept, _plain(edge, large=True))
    except FileNotFoundError as error:
        raise UsageError(
            "the shared folder has a class without images",
            because=str(error).splitlines()[0],
            hint="each folder below train and val holds the images of one class",
        ) from error
    if train.classes != held.classes:
        odd = sorted({*train.classes} ^ {*held.classes})
        raise UsageError(
            f"train and {kept.name} have different classes",
            because=f"only one of them has {', '.join(odd[:SHOWN])}",
            hint="give both the same folders",
        )
    return ImageData(train, held, len(train.classes))


def generated(classes: int, edge: int, samples: int, seed: int) -> ImageData:
    """Return images of random patterns, one per class, under noise."""
    chance = torch.Generator().manual_seed(seed)
    coarse = torch.randn(classes, 3, 8, 8, generator=chance)
    patterns = torch.nn.functional.interpolate(coarse, size=edge, mode="nearest")

    def drawn(count: int) -> TensorDataset:
        labels = torch.randint(classes, (count,), generator=chance)
        noise = torch.randn(count, 3, edge, edge, generator=chance)
        return TensorDataset(patterns[labels] + noise, labels)

    return ImageData(drawn(samples), drawn(max(1, samples // 5)), classes)


def _known(
    kind: Callable[..., Any], folder: Path, edge: int, classes: int
) -> ImageData:
    try:
        return ImageData(
            kind(folder, train=True, transform=_varied(edge)),
            kind(folder, train=False, transform=_plain(edge)),
            classes,
        )
    except (RuntimeError, OSError, ValueError) as error:
        raise UsageError(
            "the data set in the shared folder cannot be read",
            because=str(error).splitlines()[0],
            hint="unpack the published archive there again",
        ) from error


def _varied(edge: int, *, large: bool = False) -> Any:  # noqa: ANN401
    """Return a transform for images to train on: cut and mirrored at random."""
    if large:
        cut = transforms.RandomResizedCrop(edge)
    else:
        cut = transforms.RandomCrop(edge, padding=4, pad_if_needed=True)
    return transforms.Compose([cut, transforms.RandomHorizontalFlip(), *_tensors()])


def _plain(edge: int, *, large: bool = False) -> Any:  # noqa: ANN401
    wider = [transforms.Resize(edge * 8 // 7)] if large else [transforms.Resize(edge)]
    return transforms.Compose([*wider, transforms.CenterCrop(edge), *_tensors()])


def _tensors() -> list[Any]:
    return [
        _in_colour,
        transforms.ToTensor(),
        transforms.Normalize(_MEAN, _SPREAD),
    ]


def _in_colour(image: Any) -> Any:  # noqa: ANN401 - of the images' own library
    return image.convert("RGB")
