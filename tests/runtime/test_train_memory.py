"""The memory that a job is assessed to need is what a real run takes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from shoal.model.spec.footprint import ram_of

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
