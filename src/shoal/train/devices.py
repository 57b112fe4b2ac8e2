# pyright: basic
# torch describes its types only in part.
"""What a process computes on: the GPU that it was given, or the CPU.

A task sees only the GPUs that were lent to it (CUDA_VISIBLE_DEVICES), and numbers them
from 0. If it has several, it runs one process for each, told apart by LOCAL_RANK.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

import psutil
import torch

from shoal.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping


def device_name(environment: Mapping[str, str], visible: int) -> str:
    """Return the device of a process that sees `visible` GPUs."""
    if visible == 0:
        return "cpu"
    local = int(environment.get("LOCAL_RANK", "0"))
    if local >= visible:
        raise UsageError(
            f"there is no GPU for process {local} of this task",
            because=f"it was lent {visible}, and runs one process for each",
            hint="ask for as many GPUs as `--nproc-per-node` says",
        )
    return f"cuda:{local}"


def choose_device() -> torch.device:
    """Return this process's device; a GPU becomes CUDA's current one."""
    device = torch.device(device_name(os.environ, torch.cuda.device_count()))
    if device.type == "cuda":
        torch.cuda.set_device(device)
    return device


def backend_of(device: torch.device) -> str:
    """Return torch's process group backend for a device; objects go by the CPU."""
    return "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"


def precision_of(
    device: torch.device, precision: str
) -> contextlib.AbstractContextManager[object]:
    """Return an autocast context; weights and gradients stay in float32.

    A CPU computes in float32 in any case: few gain by less, and some crash.
    """
    if precision == "bfloat16" and device.type == "cuda":
        return torch.autocast("cuda", dtype=torch.bfloat16)
    if precision in ("float32", "bfloat16"):
        return contextlib.nullcontext()
    raise UsageError(
        f"nothing here computes in '{precision}'",
        because="float16 needs scaled losses, and others are not known",
        hint="write `precision: bfloat16` or `float32`",
    )


def free_bytes(device: torch.device) -> int:
    """Return the free memory of a process's device."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return int(psutil.virtual_memory().available)


def peak_figures(device: torch.device) -> dict[str, float]:
    """Return peak GPU memory, to be logged with losses."""
    if device.type != "cuda":
        return {}
    return {"gpu_memory_bytes": float(torch.cuda.max_memory_allocated(device))}


def finish_work(device: torch.device) -> None:
    """Wait for queued GPU work to finish, before reading a clock."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
