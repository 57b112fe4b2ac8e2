# pyright: basic
# torch describes its types only in part.
"""A model of your own, trained together: three lines differ from a plain loop.

In this folder, which travels with the job:

    python train.py --rounds 5 --inner_steps 50     alone
    shoal run diloco.yaml --watch                   together
    shoal pull --to . && shoal run eval.yaml        measured
"""

import torch
from torch import nn

from shoal.train.arguments import program_params
from shoal.train.devices import choose_device
from shoal.train.join import join

# Each can be set by the job, under `params`, or by a flag.
params = program_params(width=32, lr=0.01, batch=64, seed=1)
device = choose_device()

torch.manual_seed(params.seed)  # All workers begin with the same weights.
model = nn.Sequential(nn.Linear(2, params.width), nn.Tanh(), nn.Linear(params.width, 1))
model.to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=params.lr)


def draw(chance: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw points of a wavy surface."""
    x = torch.rand(params.batch, 2, generator=chance).to(device) * 4 - 2
    return x, (torch.sin(2 * x[:, :1]) * x[:, 1:]).detach()


@torch.no_grad()
def measure() -> dict[str, float]:
    """Return how far off the model is, at points that are the same for everybody."""
    x, y = draw(torch.Generator().manual_seed(0))
    return {"loss": nn.functional.mse_loss(model(x), y).item()}


with join(model, params.all, validate=measure, keep=[optimizer]) as run:
    chance = torch.Generator().manual_seed(params.data_seed + run.round)
    while not run.finished:
        x, y = draw(chance)
        loss = nn.functional.mse_loss(run.model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        run.step(samples=params.batch, loss=loss.item())
