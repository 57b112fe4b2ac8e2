# pyright: basic
# torch describes its types only in part.
"""Train a small network to read digits: the 1,797 pictures that scikit-learn brings.

Alone:     python -m shoal.train.programs.digits --rounds 10 --inner_steps 30
Together:  shoal run examples/diloco-digits.yaml
"""

from __future__ import annotations

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional

from shoal.train.arguments import program_params
from shoal.train.devices import choose_device
from shoal.train.join import join

# Settings; a job gives others as params.
params = program_params(seed=1, batch=32, width=64, lr=2e-3, threads=1)
torch.set_num_threads(params.threads)
device = choose_device()  # a GPU, if this task was lent one

# Data: every fifth picture is for validation.
pictures, digits = load_digits(return_X_y=True)
x = torch.tensor(pictures / 16.0, dtype=torch.float32, device=device)
y = torch.tensor(digits, device=device)
is_kept = torch.arange(len(y), device=device) % 5 == 0
x_train, y_train, x_kept, y_kept = x[~is_kept], y[~is_kept], x[is_kept], y[is_kept]


# Model.
class Reader(nn.Module):
    """A two-layer classifier; `forward` returns the loss."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(64, params.width), nn.ReLU(), nn.Linear(params.width, 10)
        )

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Return the mean loss."""
        return functional.cross_entropy(self.layers(x), y)


torch.manual_seed(params.seed)  # All workers begin with the same weights.
model = Reader().to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=params.lr)


@torch.no_grad()
def measure() -> dict[str, float]:
    """Return loss and accuracy on held-out images."""
    right = model.layers(x_kept).argmax(dim=1) == y_kept
    return {
        "loss": model(x_kept, y_kept).item(),
        "accuracy": right.float().mean().item(),
    }


# Loop. Each worker draws its own batches, and others if it starts again.
with join(model, params.all, validate=measure, keep=[optimizer]) as run:
    chance = torch.Generator().manual_seed(params.data_seed + run.round)
    while not run.finished:
        rows = torch.randint(len(y_train), (params.batch,), generator=chance).to(device)
        loss = run.model(x_train[rows], y_train[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        run.step(samples=params.batch, loss=loss.item())
