# pyright: basic
"""A loop with Accelerate, trained together: three lines are added, two changed.

python train.py                     alone
shoal run diloco.yaml --watch       together
"""

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from shoal.train.integrations.joined_loop import join_loop, worker_seed  # 1

accelerator = Accelerator(cpu=not torch.cuda.is_available())


def points(count: int, seed: int) -> TensorDataset:
    """Draw points of a wavy surface."""
    x = torch.rand(count, 2, generator=torch.Generator().manual_seed(seed)) * 4 - 2
    return TensorDataset(x, torch.sin(2 * x[:, :1]) * x[:, 1:])


torch.manual_seed(1)  # All workers begin with the same weights.
model = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
data = points(4_096, seed=worker_seed(1))  # changed: other points for each worker
loader = DataLoader(data, batch_size=64, shuffle=True)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
kept_x, kept_y = (each.to(accelerator.device) for each in points(256, seed=0).tensors)


@torch.no_grad()
def measure() -> dict[str, float]:
    """Return how far off the model is, at points that are the same for everybody."""
    return {"loss": nn.functional.mse_loss(model(kept_x), kept_y).item()}


plain = accelerator.unwrap_model(model)
loop = join_loop(plain, keep=[optimizer], validate=measure)  # 2
for _ in range(4):
    for x, y in loop.batches(loader):  # changed
        loss = nn.functional.mse_loss(model(x), y)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        loop.step(samples=len(x), loss=loss.item())  # 3
print({"event": "evaluated", "loss": measure()["loss"]})
