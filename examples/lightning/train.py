# pyright: basic
"""A Trainer of Lightning, trained together: two lines are added, one changed.

A small network learns a wavy surface from points that it draws itself:

    python train.py                     alone
    shoal run diloco.yaml --watch       together
"""

import torch
from lightning.pytorch import LightningModule, Trainer
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from shoal.train.integrations.lightning import ShoalCallback, worker_seed  # 1


def points(count: int, seed: int) -> TensorDataset:
    """Draw points of the surface."""
    x = torch.rand(count, 2, generator=torch.Generator().manual_seed(seed)) * 4 - 2
    return TensorDataset(x, torch.sin(2 * x[:, :1]) * x[:, 1:])


class Surface(LightningModule):
    """A small network."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 1))

    def training_step(self, batch: list[torch.Tensor], _index: int) -> torch.Tensor:
        """Return how far off a batch is."""
        return nn.functional.mse_loss(self.layers(batch[0]), batch[1])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return what takes the steps."""
        return torch.optim.AdamW(self.parameters(), lr=0.01)


torch.manual_seed(1)  # All workers begin with the same weights.
module = Surface()
kept_x, kept_y = points(256, seed=0).tensors


@torch.no_grad()
def measure() -> dict[str, float]:
    """Return how far off the network is, at points that are the same for everybody."""
    return {"loss": nn.functional.mse_loss(module.layers(kept_x), kept_y).item()}


trainer = Trainer(
    max_steps=200,
    accelerator="auto",
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
    callbacks=[ShoalCallback(measure)],  # 2
)
data = points(4_096, seed=worker_seed(1))  # changed: other points for each worker
loader = DataLoader(data, batch_size=64, shuffle=True)
trainer.fit(module, loader)
print({"event": "evaluated", "loss": measure()["loss"]})
