"""The memory that a job is assessed to need is what a real run takes."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.unit.drivers.orders import order, run

from shoal.model.footprint.image_models import (
    BLOCKS,
    WIDENED,
    image_tensor_bytes,
    resnet,
)
from shoal.model.footprint.text_models import gpu_tensor_bytes, ram_of

# The most that getrusage tells would include what the test itself has.
RUN = """
import runpy, sys
sys.argv[0] = "gpt"
runpy.run_module("shoal.train.programs.gpt", run_name="__main__")
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print("peak", int(peak.split()[1]) * 1024)
"""

# Between the two of every run: mostly activations, and mostly weights.
MORE_SIZES: tuple[dict[str, int | str], ...] = (
    {"width": 64, "layers": 2, "batch": 16, "context": 64},
    {"width": 256, "layers": 8, "batch": 2, "context": 128},
    {"width": 512, "layers": 8, "batch": 1, "context": 16, "optimizer": "sgd"},
    {"width": 384, "layers": 6, "batch": 2, "context": 32, "optimizer": "momentum"},
)


@pytest.mark.parametrize(
    "sizes",
    [
        {"width": 128, "layers": 4, "batch": 64, "context": 128},
        {"width": 512, "layers": 8, "batch": 1, "context": 16},
        *(pytest.param(sizes, marks=pytest.mark.soak) for sizes in MORE_SIZES),
    ],
    ids=str,
)
def test_a_real_run_takes_what_was_assessed(
    tmp_path: Path, sizes: dict[str, int | str]
) -> None:
    few = {"rounds": 1, "inner_steps": 2, "corpus_bytes": 400_000}
    flags = [word for k, v in {**sizes, **few}.items() for word in (f"--{k}", str(v))]

    done = subprocess.run(
        [sys.executable, "-c", RUN, *flags, "--validation_batches", "1"],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=900,
        check=True,
    )

    peak = int(done.stdout.rsplit("peak", 1)[1])
    assessed = ram_of("train", sizes, 1)
    assert assessed is not None
    assert abs(assessed - peak) / peak < 0.2, f"{assessed >> 20} and {peak >> 20} MiB"


# What a GPU takes: steps of an optimizer are made with all tensors at once there.
TRACKED = """
import json, sys
from functools import partial
import torch
from torch.distributed._tools.mem_tracker import MemTracker
from shoal.train.programs.layers import gpt_layers, loss_of

torch.set_num_threads(1)
adamw, sgd = torch.optim.AdamW, torch.optim.SGD
kinds = {"adamw": adamw, "momentum": partial(sgd, momentum=0.9), "sgd": sgd}
for each in json.loads(sys.argv[1]):
    width, context, rows = each["width"], each["context"], each["batch"]
    model = torch.nn.Sequential(*gpt_layers(context, width, 4, each["layers"]))
    make = kinds[each.get("optimizer", "adamw")]
    optimizer = make(model.parameters(), lr=1e-3, weight_decay=0.1, foreach=True)
    tracker = MemTracker()
    tracker.track_external(model, optimizer)
    with tracker:
        for _ in range(2):
            tracker.reset_mod_stats()
            x, y = torch.randint(256, (2, rows, context))
            loss = loss_of(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    (peak,) = tracker.get_tracker_snapshot("peak").values()
    print(peak["Total"], flush=True)
"""


GPT_SIZES: tuple[dict[str, int | str], ...] = (
    *MORE_SIZES,
    {"width": 128, "layers": 4, "batch": 64, "context": 128},
)


@pytest.mark.parametrize(
    "cases",
    [MORE_SIZES[0:3:2], pytest.param(GPT_SIZES, marks=pytest.mark.soak)],
    ids=["few", "all"],
)
def test_what_is_assessed_for_a_gpu_is_what_torch_counts(
    tmp_path: Path, cases: Sequence[dict[str, int | str]]
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", TRACKED, json.dumps(cases)],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=900,
        check=True,
    )

    for case, line in zip(cases, done.stdout.split(), strict=True):
        assessed = gpu_tensor_bytes("train", case, 1)
        assert assessed is not None
        assert assessed == pytest.approx(int(line), rel=0.25), case


RESNETS = """
import json, sys
import torch
from torch import nn
from torch.distributed._tools.mem_tracker import MemTracker

torch.set_num_threads(1)


def unit(came, gone, area, stride=1):
    conv = nn.Conv2d(came, gone, area, stride, area // 2, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(gone))


class Block(nn.Module):
    def __init__(self, came, width, wider, stride):
        super().__init__()
        relu, out = nn.ReLU(inplace=True), width * wider
        if wider == 1:
            units = [unit(came, width, 3, stride), relu, unit(width, width, 3)]
        else:
            units = [unit(came, width, 1), relu, unit(width, width, 3, stride), relu]
            units.append(unit(width, out, 1))
        self.main, self.relu = nn.Sequential(*units), relu
        resized = stride != 1 or came != out
        self.shortcut = unit(came, out, 1, stride) if resized else None

    def forward(self, x):
        y = self.main(x)
        y += x if self.shortcut is None else self.shortcut(x)
        return self.relu(y)


def resnet(blocks, wider, classes):
    first = unit(3, 64, 7, 2)
    layers, came = [first, nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)], 64
    for stage, count in enumerate(blocks):
        for n in range(count):
            stride = 2 if stage and not n else 1
            layers.append(Block(came, 64 << stage, wider, stride))
            came = (64 << stage) * wider
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(came, classes)]
    return nn.Sequential(*layers, *head)


for each in json.loads(sys.argv[1]):
    model = resnet(each["blocks"], each["wider"], each["classes"])
    rates = {"lr": 0.1, "weight_decay": each["decay"], "foreach": True}
    if each["optimizer"] == "sgd":
        optimizer = torch.optim.SGD(model.parameters(), momentum=0.9, **rates)
    else:
        optimizer = torch.optim.AdamW(model.parameters(), **rates)
    tracker = MemTracker()
    tracker.track_external(model, optimizer)
    with tracker:
        for _ in range(2):
            tracker.reset_mod_stats()
            x = torch.randn(each["images"], 3, each["edge"], each["edge"])
            y = torch.randint(each["classes"], (each["images"],))
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    (peak,) = tracker.get_tracker_snapshot("peak").values()
    print(sum(p.numel() for p in model.parameters()), peak["Total"], flush=True)
"""


RESNET_CASES = (
    ("resnet18", "synthetic", 8, 1, 0, "sgd", 0.0),  # mostly weights
    ("resnet18", "cifar10", 2, 1, 0, "sgd", 1e-4),
    ("resnet18", "synthetic", 64, 2, 0, "adamw", 0.0),
    ("resnet50", "synthetic-imagenet", 8, 2, 96, "sgd", 1e-4),  # and activations
)


@pytest.mark.parametrize(
    "cases",
    [RESNET_CASES[0:3:2], pytest.param(RESNET_CASES, marks=pytest.mark.soak)],
    ids=["few", "all"],
)
def test_what_is_assessed_for_a_resnet_is_what_torch_counts(
    tmp_path: Path, cases: Sequence[tuple[str, str, int, int, int, str, float]]
) -> None:
    told = [
        {
            "blocks": BLOCKS[network],
            "wider": WIDENED.get(network, 4),
            "classes": 1_000 if "imagenet" in dataset else 10,
            "edge": size or 32,
            "images": batch // gpus,
            "optimizer": optimizer,
            "decay": decay,
        }
        for network, dataset, batch, gpus, size, optimizer, decay in cases
    ]

    done = subprocess.run(
        [sys.executable, "-c", RESNETS, json.dumps(told)],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=900,
        check=True,
    )

    for case, line in zip(cases, done.stdout.splitlines(), strict=True):
        network, dataset, batch, gpus, size, optimizer, decay = case
        parameters, peak = map(int, line.split())
        params: dict[str, int | float | str] = {
            "network": network,
            "dataset": dataset,
            "batch": batch,
            "size": size,
            "optimizer": optimizer,
            "weight_decay": decay,
        }
        classes = 1_000 if "imagenet" in dataset else 10
        assert resnet(network, size or 32, classes).parameters == parameters
        assessed = image_tensor_bytes(params, gpus)
        assert assessed == pytest.approx(peak, rel=0.25), case


OWN = """
import time, torch
from torch.distributed._tools.mem_tracker import MemTracker

def resident(field):
    found = next(line for line in open("/proc/self/status") if line.startswith(field))
    return int(found.split()[1]) * 1024

torch.set_num_threads(1)
x = torch.randn(64, 64) @ torch.randn(64, 64)
before = resident("VmRSS")
model = torch.nn.Sequential(*(torch.nn.Linear(2048, 2048) for _ in range(8)))
optimizer = torch.optim.Adam(model.parameters())
tracker = MemTracker()
tracker.track_external(model, optimizer)
with tracker:
    model(torch.randn(8, 2048)).sum().backward()
    optimizer.step()
(peak,) = tracker.get_tracker_snapshot("peak").values()
print(before + peak["Total"])
time.sleep(5)
"""


def test_what_is_seen_of_an_own_program_is_what_torch_counts(tmp_path: Path) -> None:
    outcome, watched = run(tmp_path, order(sys.executable, "-c", OWN))

    counted = int(watched.text())
    assert outcome.memory_bytes == pytest.approx(counted, rel=0.25)
