# pyright: basic
# torch describes its types only in part.
"""A network of 87,370 parameters learns what another one does, for benchmarks.

Labels are drawn from the teacher's chances, so that no student is ever right for sure
and losses stay apart from zero. With `bad` the last worker errs, in one of four ways.
With `step_s` a step takes at least so long, as if a device computed it: many workers
share few cores then, and none gets faster because another is gone.
"""

from __future__ import annotations

import time
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

from shoal.train import tensors
from shoal.train.arguments import program_params
from shoal.train.join import join

params = program_params(
    seed=1, batch=64, lr=2e-3, width=260, samples=40_000, bad="", threads=1, step_s=0.0
)
torch.set_num_threads(params.threads)

# Data: the same everywhere; each worker draws its own batches from it.
chance = torch.Generator().manual_seed(0)
teacher = [
    torch.randn(64, 48, generator=chance) / 8,
    torch.randn(48, 10, generator=chance) / 2,
]
x = torch.randn(params.samples + 4_096, 64, generator=chance)
chances = functional.softmax(torch.tanh(x @ teacher[0]) @ teacher[1] * 2, dim=1)
y = torch.multinomial(chances, 1, generator=chance).squeeze(1)
x_kept, y_kept = x[params.samples :], y[params.samples :]

torch.manual_seed(params.seed)  # All workers begin with the same weights.
model = nn.Sequential(
    nn.Linear(64, params.width),
    nn.ReLU(),
    nn.Linear(params.width, params.width),
    nn.ReLU(),
    nn.Linear(params.width, 10),
)
optimizer = torch.optim.AdamW(model.parameters(), lr=params.lr, weight_decay=0.1)
steps = int(params.all.get("rounds", 40)) * int(params.all.get("inner_steps", 50))
schedule = torch.optim.lr_scheduler.LambdaLR(
    optimizer, lambda step: 1.0 - 0.9 * min(1.0, step / steps)
)


@torch.no_grad()
def measure() -> dict[str, float]:
    """Return the loss on samples that nobody trains with."""
    return {"loss": functional.cross_entropy(model(x_kept), y_kept).item()}


def garbage(path: Path, *_: object) -> None:
    """Write a file that is no fragment of a model."""
    path.write_bytes(b"garbage" * 1_000)


with join(model, params.all, validate=measure, keep=[optimizer, schedule]) as run:
    errs = params.bad if run.rank == run.world - 1 > 0 else ""
    if errs == "garbage":
        tensors.save_fragment = garbage  # type: ignore[assignment]  # On purpose.
    draw = torch.Generator().manual_seed(params.data_seed + run.round)
    began = time.monotonic()
    while not run.finished:
        rows = torch.randint(params.samples, (params.batch,), generator=draw)
        loss = functional.cross_entropy(run.model(x[rows]), y[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        with torch.no_grad():
            if errs == "nan":
                next(model.parameters())[0, 0] = float("nan")
            if errs == "huge":
                for weight in model.parameters():
                    weight.mul_(1e4).clamp_(-1e9, 1e9)
        time.sleep(max(0.0, began + params.step_s - time.monotonic()))
        samples = 1 << 50 if errs == "samples" else params.batch
        run.step(samples=samples, loss=loss.item())
        began = time.monotonic()
