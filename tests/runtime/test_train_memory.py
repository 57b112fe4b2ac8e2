"""The memory that a job is assessed to need is what a real run takes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.unit.drivers.orders import order, run

from shoal.model.spec.footprint import gpu_tensor_bytes, ram_of

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


def test_what_is_assessed_for_a_gpu_is_what_torch_counts(tmp_path: Path) -> None:
    cases: list[dict[str, int | str]] = [
        {"width": 64, "layers": 2, "batch": 16, "context": 64},
        {"width": 128, "layers": 4, "batch": 64, "context": 128},
        {"width": 256, "layers": 8, "batch": 2, "context": 128},
        {"width": 512, "layers": 8, "batch": 1, "context": 16, "optimizer": "sgd"},
        {"width": 384, "layers": 6, "batch": 2, "context": 32, "optimizer": "momentum"},
    ]

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
