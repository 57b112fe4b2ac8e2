"""Train digits in one process, with the batches of all ranks for each step.

This is what several ranks of `shoal.train.programs.digits` must come to, in as few
lines as it takes. It leaves the weights in `expected.safetensors`.
"""

import json
import os

import torch
from safetensors.torch import save_file
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional

params = json.loads(os.environ["SHOAL_PARAMS"])
ranks = params["workers"]
pictures, digits = load_digits(return_X_y=True)
x = torch.tensor(pictures / 16.0, dtype=torch.float32)
y = torch.tensor(digits)
is_kept = torch.arange(len(y)) % 5 == 0
x, y = x[~is_kept], y[~is_kept]
torch.manual_seed(1)
model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
optimizer = torch.optim.AdamW(model.parameters(), lr=params["lr"])
chances = [
    torch.Generator().manual_seed(1_000_003 + rank * 7_919) for rank in range(ranks)
]
for _ in range(params["inner_steps"]):
    optimizer.zero_grad()
    for chance in chances:
        rows = torch.randint(len(y), (params["batch"],), generator=chance)
        loss = functional.cross_entropy(model(x[rows]), y[rows]) / ranks
        torch.autograd.backward(loss)
    optimizer.step()
save_file(
    {f"layers.{name}": weight for name, weight in model.state_dict().items()},
    "expected.safetensors",
)
