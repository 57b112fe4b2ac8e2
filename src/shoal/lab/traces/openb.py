"""Read the host and pod lists of Alibaba's GPU clusters (CSV)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from shoal.lab.traces.trace_files import rows
from shoal.lab.traces.values import Pod, TraceHost

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HOST_COLUMNS: Final = ("sn", "cpu_milli", "memory_mib", "gpu")
POD_COLUMNS: Final = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli")
WHOLE_GPU_MILLI: Final = 1_000


def hosts(path: Path) -> Iterator[TraceHost]:
    """Read the hosts, also those without GPUs."""
    for row in rows(path, HOST_COLUMNS):
        yield TraceHost(
            name=row.text("sn"),
            cpu_milli=row.whole("cpu_milli", least=0),
            memory_mib=row.whole("memory_mib", least=0),
            gpus=row.whole("gpu", 0, least=0),
            model=row.text("model").upper(),
        )


def pods(path: Path) -> Iterator[Pod]:
    """Read the pods. A pod with several GPUs wants all of each."""
    for row in rows(path, POD_COLUMNS):
        gpus = row.whole("num_gpu", 0, least=0)
        gpu_milli = row.whole("gpu_milli", 0, least=0)
        if gpus == 1 and not 1 <= gpu_milli <= WHOLE_GPU_MILLI:
            raise row.wrong("gpu_milli", "a share of 1 to 1000 of one GPU")
        models = (m.strip().upper() for m in row.text("gpu_spec").split("|"))
        yield Pod(
            name=row.text("name"),
            cpu_milli=row.whole("cpu_milli", least=0),
            memory_mib=row.whole("memory_mib", 0, least=0),
            gpus=gpus,
            gpu_milli=0 if gpus == 0 else gpu_milli if gpus == 1 else WHOLE_GPU_MILLI,
            models=tuple(model for model in models if model) if gpus else (),
            created_s=row.number("creation_time", 0.0),
            deleted_s=row.number("deletion_time", 0.0),
        )
