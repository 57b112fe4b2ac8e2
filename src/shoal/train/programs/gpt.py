# pyright: basic
# torch describes its types only in part.
"""Train a byte-level GPT on the source text of Python's standard library.

Alone:     python -m shoal.train.programs.gpt --rounds 10 --inner_steps 50
Together:  shoal run examples/diloco-gpt.yaml

It prints one line of JSON a second, and leaves out/model.safetensors.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import nn

from shoal.errors import UsageError
from shoal.train.arguments import program_params
from shoal.train.devices import choose_device, precision_of
from shoal.train.join import join
from shoal.train.programs.corpus import draw, library_text
from shoal.train.programs.layers import gpt_layers, loss_of

# Settings; a job gives others as params.
params = program_params(
    seed=1,
    batch=16,  # sequences a step
    context=64,  # bytes that the model sees
    width=64,
    heads=4,
    layers=2,
    lr=3e-3,
    weight_decay=0.1,
    optimizer="adamw",  # or momentum, or sgd
    precision="float32",  # or bfloat16: of computing on a GPU, not of weights
    warmup=50,  # steps
    decay=0,  # steps in which the rate falls to a tenth; 0: it stays
    corpus_bytes=6_000_000,
    validation_batches=8,
    threads=1,
)

torch.set_num_threads(params.threads)
device = choose_device()  # a GPU, if this task was lent one

# Data: what the model learns from, and what it is measured by.
training, validation = (each.to(device) for each in library_text(params.corpus_bytes))


# Model: layers one after another; `forward` returns the loss.
class GPT(nn.Module):
    """A byte-level GPT; `forward` returns the loss."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *gpt_layers(params.context, params.width, params.heads, params.layers)
        )

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Return the mean loss in nats a byte."""
        with precision_of(device, params.precision):
            return loss_of(self.layers(x), y)


torch.manual_seed(params.seed)  # All workers begin with the same weights.
model = GPT().to(device)
kinds: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "adamw": torch.optim.AdamW,
    "momentum": partial(torch.optim.SGD, momentum=0.9),
    "sgd": torch.optim.SGD,
}
if params.optimizer not in kinds:
    raise UsageError(
        f"there is no optimizer '{params.optimizer}'",
        because=f"take {', '.join(kinds)}",
    )
optimizer = kinds[params.optimizer](
    model.parameters(), lr=params.lr, weight_decay=params.weight_decay
)
schedule = torch.optim.lr_scheduler.LambdaLR(
    optimizer,
    lambda step: (
        min(1.0, (step + 1) / params.warmup)
        * (1.0 - 0.9 * min(1.0, step / params.decay) if params.decay else 1.0)
    ),
)


@torch.no_grad()
def measure() -> dict[str, float]:
    """Return the loss on validation batches that all workers share."""
    chance = torch.Generator().manual_seed(0)
    losses = [
        model(*draw(validation, 64, params.context, chance)).item()
        for _ in range(params.validation_batches)
    ]
    return {"loss": sum(losses) / len(losses)}


# Loop. Each worker draws its own batches, and others if it starts again.
with join(model, params.all, validate=measure, keep=[optimizer, schedule]) as run:
    chance = torch.Generator().manual_seed(params.data_seed + run.round)
    while not run.finished:
        loss = run.model(*draw(training, params.batch, params.context, chance))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        tokens = params.batch * params.context
        run.step(samples=params.batch, loss=loss.item(), tokens=tokens)
