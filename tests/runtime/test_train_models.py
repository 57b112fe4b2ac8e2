# pyright: basic
# torch describes its types only in part.
"""Torch models in DiLoCo: what travels, what stays, and what late joiners get."""

import json
import threading
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.numpy import load_file
from torch import nn

from shoal.errors import ProtocolError
from shoal.train.checkpoints import InnerParts
from shoal.train.diloco.aggregator import Aggregator
from shoal.train.diloco.curves import RunCurves
from shoal.train.exchange import FolderExchange
from shoal.train.join import DilocoRun, load_weights
from shoal.train.settings import settings_of
from shoal.train.sharding import own_seed, shard_of
from shoal.train.task_context import TaskContext
from shoal.train.torch_weights import TorchWeights

Work = Callable[[DilocoRun], None]


class Adapted(nn.Module):
    """A frozen layer with a small adapter beside it, as LoRA has."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.base = nn.Linear(256, 256)
        self.base.requires_grad_(False)
        self.down = nn.Linear(256, 1, bias=False)
        self.up = nn.Linear(1, 256, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        adapted: torch.Tensor = self.base(x) + self.up(self.down(x))
        return adapted


class Normed(nn.Module):
    """A model with statistics of its data, and with one weight in two places."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.norm = nn.BatchNorm1d(4)
        self.first = nn.Linear(4, 4)
        self.second = nn.Linear(4, 4)
        self.second.weight = self.first.weight
        self.register_buffer("table", torch.ones(3), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.second(self.first(self.norm(x)))
        return out


def train(
    folder: Path, models: list[nn.Module], work: Work, **params: object
) -> list[dict[str, Any]]:
    """Run a job with a worker for each model; return what the aggregator printed."""
    settings = settings_of(
        {"workers": len(models), "quorum": len(models), "balance": False, **params}
    )
    out = StringIO()
    aggregator = Aggregator(
        FolderExchange(folder, "aggregate.0"),
        settings,
        1,
        folder,
        RunCurves(settings, out),
    )
    errors: list[BaseException] = []

    def run(act: Callable[[], None]) -> None:
        try:
            act()
        except BaseException as error:  # noqa: BLE001 - The test shows it.
            errors.append(error)

    def join(number: int) -> None:
        around = TaskContext(
            recipe="diloco", name=f"train.{number}", index=number, folder=str(folder)
        )
        with DilocoRun(models[number], settings, around, (), None) as joined:
            work(joined)

    acts = [aggregator.run, *(lambda n=n: join(n) for n in range(len(models)))]
    threads = [threading.Thread(target=run, args=(act,)) for act in acts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert errors == []
    return [json.loads(line) for line in out.getvalue().splitlines()]


def learn(run: DilocoRun) -> None:
    chance = torch.Generator().manual_seed(run.rank)
    trained = [each for each in run.model.parameters() if each.requires_grad]
    optimizer = torch.optim.SGD(trained, lr=0.05)
    while not run.finished:
        x = torch.randn(16, trained[0].shape[-1], generator=chance) * 1e-3
        loss = (run.model(x) - x.flip(0)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        run.step(samples=16, loss=loss.item())


def test_of_a_model_with_an_adapter_only_the_adapter_travels(tmp_path: Path) -> None:
    models = [Adapted(), Adapted()]

    lines = train(
        tmp_path, list(models), learn, rounds=2, inner_steps=2, compress="float32"
    )

    [loaded] = [line for line in lines if line["event"] == "loaded"]
    assert loaded["parameters"] == 512
    [sent] = [line["bytes_sent_by_kind"] for line in lines if line["event"] == "sent"]
    assert 4 * 4 * 512 <= sent["contributions"] <= 4 * (4 * 512 + 300)
    left = load_file(tmp_path / "out" / "model.safetensors")
    assert sorted(left) == ["down.weight", "up.weight"]
    fresh = Adapted()
    load_weights(fresh, str(tmp_path / "out" / "model.safetensors"))
    torch.testing.assert_close(fresh.up.weight, torch.from_numpy(left["up.weight"]))


def test_workers_whose_frozen_weights_differ_have_different_models() -> None:
    one, same, other = (TorchWeights.of(Adapted(seed)).layout for seed in (1, 1, 2))

    assert one == same
    assert one != other
    assert one.trained == other.trained


@pytest.mark.parametrize("compress", ["float32", "int8"])
def test_variances_stay_positive_and_tied_weights_travel_once(
    tmp_path: Path, compress: str
) -> None:
    models = [Normed(), Normed()]
    layout = TorchWeights.of(models[0]).layout
    assert layout.trained_size == 16 + 4 + 4 + 8  # One matrix, biases and the norm's.
    assert list(layout.buffers) == ["norm.running_mean", "norm.running_var"]

    train(tmp_path, list(models), learn, rounds=8, inner_steps=20, compress=compress)

    left = load_file(tmp_path / "out" / "model.safetensors")
    assert (left["norm.running_var"] > 0).all()
    # The data's variance is a millionth; it is averaged and not extrapolated.
    assert (left["norm.running_var"] < 1e-3).all()
    for model in models:
        assert model.norm.running_var is not None
        assert bool((model.norm.running_var > 0).all())
    assert "table" not in left


def test_weights_are_read_and_written_by_ranges() -> None:
    model = Normed()
    weights = TorchWeights.of(model)
    size = weights.layout.size
    whole = weights.read(slice(0, size))

    for start in range(0, size, 5):
        part = slice(start, min(size, start + 5))
        torch.testing.assert_close(weights.read(part), whole[part])
        weights.write(part, whole[part] * 2)

    torch.testing.assert_close(weights.read(slice(0, size)), whole * 2)
    assert model.first.weight is model.second.weight


def test_the_same_seed_shuffles_differently_for_each_worker() -> None:
    drawn = []
    for rank in (0, 1, 2, 1):
        torch.manual_seed(7)
        own_seed(rank, step=0)
        drawn.append(torch.randperm(1_000).tolist())

    assert drawn[1] == drawn[3]
    assert drawn[0] != drawn[1] != drawn[2]


def test_shards_have_nothing_in_common_and_are_the_whole() -> None:
    data = list(range(10, 33))

    shards = [shard_of(data, rank, 3) for rank in range(3)]

    drawn = [shard[place] for shard in shards for place in range(len(shard))]
    assert sorted(drawn) == data
    assert {len(shard) for shard in shards} == {7, 8}


def test_an_optimizer_and_a_schedule_are_taken_over(tmp_path: Path) -> None:
    def made() -> tuple[nn.Linear, torch.optim.AdamW, Any]:
        torch.manual_seed(0)
        model = nn.Linear(3, 1)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
        return model, optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)

    model, optimizer, schedule = made()
    for _ in range(5):
        optimizer.zero_grad()
        model(torch.ones(1, 3)).sum().backward()
        optimizer.step()
        schedule.step()
    InnerParts([optimizer, schedule]).save(tmp_path / "inner")
    _, late, late_schedule = made()

    InnerParts([late, late_schedule]).load(tmp_path / "inner")

    assert late.param_groups[0]["lr"] == optimizer.param_groups[0]["lr"] == 0.025
    assert late_schedule.last_epoch == 5
    moments = late.state[late.param_groups[0]["params"][0]]["exp_avg"]
    assert moments.abs().sum() > 0
    (tmp_path / "garbage").write_bytes(b"garbage")
    with pytest.raises(ProtocolError):
        InnerParts([late]).load(tmp_path / "garbage")
