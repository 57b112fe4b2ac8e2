"""Scripts that were not written for shoal but for `join`: two nodes train them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file
from tests.integration.train_shoal import TrainShoal, train_shoal

pytestmark = [pytest.mark.integration, pytest.mark.soak]  # Six jobs that load torch.

SCRIPT = """
import torch
from torch import nn
from torch.nn import functional
from shoal.train.arguments import program_params
from shoal.train.join import join

params = program_params(kind="", lr=0.02)
torch.set_num_threads(1)
torch.manual_seed(0)


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(32, 16)
        self.mix = nn.GRU(16, 16, batch_first=True)
        self.out = nn.Linear(16, 32, bias=False)
        self.out.weight = self.embed.weight

    def forward(self, x):
        return self.out(self.mix(self.embed(x))[0]).flatten(0, 1)


class Adapted(nn.Module):
    def __init__(self):
        super().__init__()
        self.base = nn.Linear(16, 16)
        self.base.requires_grad_(False)
        self.down, self.up = nn.Linear(16, 2, bias=False), nn.Linear(2, 16, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x):
        return self.base(x) + self.up(self.down(x))


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(16, 16)
        self.register_buffer("order", torch.randperm(16))
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))
        self.register_buffer("mask", torch.ones(16, dtype=torch.bool))

    def forward(self, x):
        self.seen += len(x)
        return self.net(x[:, self.order]) * self.mask


def picture_net():
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(),
        nn.Flatten(), nn.Linear(16, 16),
    )


kinds = {
    "batchnorm": picture_net,
    "tied": Tied,
    "lora": Adapted,
    "integers": Counting,
    "lbfgs": lambda: nn.Linear(16, 16),
    "amp": lambda: nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16)),
}
model = kinds[params.kind]()
trained = [each for each in model.parameters() if each.requires_grad]
truth = torch.randn(16, 16)
is_text = params.kind == "tied"


def batch():
    if is_text:
        x = torch.arange(8)[None] + torch.randint(24, (16, 1))
        return x, ((x + 1) % 32).flatten()
    x = torch.randn(32, 16)
    y = x @ truth
    return (x.reshape(32, 1, 4, 4) if params.kind == "batchnorm" else x), y


def distance(out, y):
    return functional.cross_entropy(out, y) if is_text else functional.mse_loss(out, y)


if params.kind == "lbfgs":
    optimizer = torch.optim.LBFGS(trained, lr=0.3, max_iter=4, history_size=4)
else:
    optimizer = torch.optim.AdamW(trained, lr=params.lr)
scaler = torch.amp.GradScaler("cpu", enabled=params.kind == "amp", init_scale=128.0)
keep = [optimizer, scaler] if params.kind == "amp" else [optimizer]

with join(model, params.all, keep=keep) as run:
    while not run.finished:
        x, y = batch()

        def closure():
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16, enabled=params.kind == "amp"):
                loss = distance(run.model(x), y)
            scaler.scale(loss).backward()
            return loss

        if params.kind == "lbfgs":
            loss = optimizer.step(closure)
        else:
            loss = closure()
            scaler.step(optimizer)
            scaler.update()
        run.step(samples=len(x), loss=loss.item())
"""
KINDS = {
    "batchnorm": 4 * 9 + 4 + 2 * 4 + 16 * 16 + 16,
    "tied": 32 * 16 + 2 * (3 * 16 * 16 + 3 * 16),
    "lora": 2 * 2 * 16,
    "integers": 16 * 17,
    "lbfgs": 16 * 17,
    "amp": 16 * 32 + 32 + 32 * 16 + 16,
}
"""Programs, and how many values each trains."""


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Any:  # noqa: ANN401
    """Two nodes."""
    with train_shoal(tmp_path_factory.mktemp("pair"), "a", "b") as shoal:
        yield shoal


@pytest.mark.parametrize("kind", KINDS)
def test_two_nodes_train_what_a_stranger_wrote(
    kind: str, pair: TrainShoal, tmp_path: Path
) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "train.py").write_text(SCRIPT)

    job = pair.submit(
        tmp_path,
        f"recipe: diloco\nnodes: 2\nworkdir: {tmp_path / 'work'}\n"
        f"params: {{program: train.py, kind: {kind}, rounds: 8, inner_steps: 10}}\n"
        "resources: {cpu: 1, ram: 700MB}\n",
    )

    assert pair.wait(job) == 0, pair.first("logs", job)
    rounds = pair.lines(job, "round")
    assert [line["round"] for line in rounds] == list(range(1, 9))
    assert all(len(line["by_worker"]) == 2 for line in rounds)
    assert not any(line["refused"] for line in rounds)
    assert rounds[-1]["loss"] < 0.9 * rounds[0]["loss"]
    pair.first.ok("pull", job, "--to", str(tmp_path / "pulled"))
    [path] = tmp_path.glob("pulled/**/model.safetensors")
    found = load_file(path)
    buffers = [name for name in found if "running" in name]
    assert sum(v.size for n, v in found.items() if n not in buffers) == KINDS[kind]
    assert all(np.isfinite(values).all() for values in found.values())
    assert all((found[n] > 0).all() for n in buffers if "var" in n)
