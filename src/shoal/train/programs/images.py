# pyright: basic, reportMissingImports=false
# torch and torchvision describe their types only in part.
"""Train an image classifier of torchvision, by name, on a dataset, by name.

Alone:  python -m shoal.train.programs.images --network resnet18 --dataset synthetic
As a task of the first training scheduler:  shoal submit --config task.json
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import torch
from torch.nn import functional
from torch.utils.data import DataLoader
from torchvision import models

from shoal.errors import UsageError, did_you_mean
from shoal.train.arguments import program_params
from shoal.train.devices import choose_device
from shoal.train.join import join
from shoal.train.programs.image_data import load_images

if TYPE_CHECKING:
    from collections.abc import Iterator

# Settings; a job gives others as params.
params = program_params(
    seed=1,
    network="",
    dataset="",
    batch=64,  # of all processes of this task
    lr=0.1,
    optimizer="sgd",
    momentum=0.9,
    weight_decay=0.0,
    epochs=0,  # 0: as many rounds of inner steps as the job says
    schedule="constant",
    size=0,  # pixels of an edge; 0: as the dataset has them
    samples=5_000,  # of a generated dataset
    loaders=-1,  # processes that read images; -1: by the CPUs of this task
    threads=0,  # 0: by the CPUs of this task
)
ranks = int(os.environ.get("WORLD_SIZE", "1"))
cpus = len(os.sched_getaffinity(0))
torch.set_num_threads(params.threads or max(1, cpus // ranks))
device = choose_device()  # a GPU, if this task was lent one

# Data.
torch.manual_seed(params.seed)
images = load_images(params.dataset, params.size, params.samples, params.seed)
share = max(1, params.batch // ranks)
steps = max(1, len(images.train) // (share * ranks))
is_read = params.dataset.partition("-")[0] != "synthetic"
readers = min(8, cpus - 1) if params.loaders < 0 and is_read else max(0, params.loaders)

# Model: all processes begin with the same weights.
if params.network not in models.list_models(module=models):
    known = models.list_models(module=models)
    raise UsageError(
        f"torchvision has no model '{params.network}'",
        because=f"there are {len(known)}, such as resnet18, resnet50 and vit_b_16",
        hint=did_you_mean(params.network, known) or "`torchvision.models.list_models`",
    )
model = models.get_model(params.network, num_classes=images.classes).to(device)
kinds: dict[str, type[torch.optim.Optimizer]] = {
    "sgd": torch.optim.SGD,
    "rmsprop": torch.optim.RMSprop,
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
}
rates = {"lr": params.lr, "weight_decay": params.weight_decay}
if params.optimizer in ("sgd", "rmsprop"):
    rates["momentum"] = params.momentum
optimizer = kinds[params.optimizer](model.parameters(), **rates)
own = dict(params.all)
if params.epochs:
    own |= {"rounds": params.epochs, "inner_steps": steps}
all_steps = int(own.get("rounds", 40)) * int(own.get("inner_steps", 50))
decay = torch.optim.lr_scheduler.LambdaLR(
    optimizer,
    lambda step: (
        1.0
        if params.schedule == "constant"
        else 0.5 * (1 + torch.cos(torch.tensor(torch.pi * step / all_steps)).item())
    ),
)


@torch.no_grad()
def measure() -> dict[str, float]:
    """Return loss and accuracy on held-out images."""
    model.eval()
    loss, right, count = 0.0, 0, 0
    for pictures, labels in DataLoader(images.kept, params.batch, num_workers=readers):
        found = model(pictures.to(device))
        loss += functional.cross_entropy(
            found, labels.to(device), reduction="sum"
        ).item()
        right += int((found.argmax(dim=1).cpu() == labels).sum())
        count += len(labels)
    model.train()
    return {"loss": loss / count, "accuracy": right / count}


# Loop. Each process has its own part of the images, in another order in each epoch.
with join(model, own, validate=measure, keep=[optimizer, decay]) as run:
    model.train()
    batches = DataLoader(
        run.shard(images.train),
        share,
        shuffle=True,
        num_workers=readers,
        drop_last=len(images.train) >= share * ranks,
        pin_memory=device.type == "cuda",
    )

    def drawn() -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Return batches, epoch after epoch."""
        while True:
            yield from batches

    stream = drawn()
    while not run.finished:
        pictures, labels = next(stream)
        found = run.model(pictures.to(device, non_blocking=True))
        if not isinstance(found, torch.Tensor):  # googlenet, inception: with helpers
            found = found[0]
        loss = functional.cross_entropy(found, labels.to(device, non_blocking=True))
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        decay.step()
        run.step(samples=len(labels), loss=loss.item())
