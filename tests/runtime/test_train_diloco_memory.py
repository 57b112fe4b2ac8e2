"""What DiLoCo takes for each value of a model, as the kernel counts it.

The same as `benchmarks/diloco.py size`, with a smaller model and without torch.
"""

import time
from contextlib import suppress
from pathlib import Path

from tests.runtime.train_processes import job

VALUES = 6_000_000
PROGRAM = """
import json, os
import numpy as np
from shoal.train.arguments import program_params
from shoal.train.diloco.session import DilocoSession
from shoal.train.settings import settings_of
from shoal.train.task_context import TaskContext
from shoal.train.weights import ArrayWeights

params = program_params(values=1)
around = TaskContext.of(os.environ)
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(json.dumps({"event": "began", "bytes": int(peak.split()[1]) * 1024}), flush=True)
weights = np.zeros(params.values, dtype=np.float32)
layers = {f"w{n:02}": each for n, each in enumerate(np.split(weights, 24))}
with DilocoSession(
    around.exchange(),
    settings_of(params.all),
    life=around.life,
    weights=ArrayWeights(layers),
) as run:
    while not run.finished:
        weights -= np.float32(0.01) * (around.index + 1)
        run.step(samples=4, loss=0.5)
"""
PARAMS = {
    "workers": 2,
    "values": VALUES,
    "rounds": 3,
    "inner_steps": 1,
    "checkpoint_every": 2,
    "compress": "float16",
    "gather": 120.0,
}
OF_A_VALUE = 12
"""Bytes: ten are the loop's own weights, those that are shared, and what compression
owes; or the aggregator's weights, momentum, and what it owes. A copy of the model is
four."""

BESIDES = {"aggregate.0": 78_000_000, "train.0": 36_000_000, "train.1": 36_000_000}
"""The million values that a thread works on, and files on their way. The aggregator has
several threads; it was 108 when they worked on all of them at a time."""


def test_memory_grows_by_few_bytes_for_each_value(tmp_path: Path) -> None:
    with job(tmp_path / "job", PROGRAM, PARAMS) as run:
        peaks = dict.fromkeys(run.tasks, 0)
        while any(task.poll() is None for task in run.tasks.values()):
            for name, task in run.tasks.items():
                peaks[name] = max(peaks[name], resident_bytes(task.pid))
            time.sleep(0.01)
        [began] = run.lines("began", "train.0")
        assert len(run.lines("round")) == 3

    took = {name: peak - began["bytes"] for name, peak in peaks.items()}
    for name, besides in BESIDES.items():
        assert took[name] <= OF_A_VALUE * VALUES + besides, took


def resident_bytes(pid: int) -> int:
    """Return the most memory that a process had resident, as the kernel counts it."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM"):
                return int(line.split()[1]) * 1024
    return 0
