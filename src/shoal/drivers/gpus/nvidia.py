"""NVIDIA's GPUs, by NVML."""

from __future__ import annotations

import contextlib
import importlib
import os
from typing import TYPE_CHECKING, Any, Final, final

from shoal.drivers.gpus import FoundGpus, GpuUse
from shoal.drivers.gpus.models import advertised_bytes, short_model
from shoal.drivers.gpus.visible import visible_gpus
from shoal.model.resources import Device
from shoal.model.text.bounds import DEVICES_MAX

if TYPE_CHECKING:
    from collections.abc import Iterator

NAME: Final = "nvidia"
SHARED: Final = (
    "/dev/nvidiactl",
    "/dev/nvidia-uvm",
    "/dev/nvidia-uvm-tools",
    "/dev/nvidia-modeset",
)


@final
class NvidiaGpus:
    """The GPUs that NVML knows, by index."""

    def __init__(self) -> None:
        self._nvml: Any = None  # The module has no types; None: no driver.
        nvml: Any = importlib.import_module("pynvml")
        with contextlib.suppress(nvml.NVMLError):
            nvml.nvmlInit()
            self._nvml = nvml
        self._sampled_us = 0  # up to when processes were asked for their use

    def close(self) -> None:
        """Let go of the driver."""
        nvml, self._nvml = self._nvml, None
        if nvml is not None:
            with contextlib.suppress(nvml.NVMLError):
                nvml.nvmlShutdown()

    def find(self) -> FoundGpus:
        """Return the visible GPUs by driver index; none without a driver."""
        nvml = self._nvml
        if nvml is None:
            return FoundGpus()
        try:
            visible = visible_gpus(self.uuids(), os.environ)
            found = [_read_gpu(nvml, int(index)) for index in visible]
        except nvml.NVMLError:
            return FoundGpus()
        return FoundGpus(
            tuple(device for device, _ in found),
            {device.id: (minor, *SHARED) for device, minor in found},
        )

    def uuids(self) -> dict[str, str]:
        """Return the UUID of each GPU."""
        nvml = self._nvml
        if nvml is None:
            return {}
        handle = nvml.nvmlDeviceGetHandleByIndex
        return {
            str(index): _text(nvml.nvmlDeviceGetUUID(handle(index)))
            for index in self._indices()
        }

    def uses(self) -> list[GpuUse]:
        """Return what uses them now."""
        return list(self._uses())

    def _uses(self) -> Iterator[GpuUse]:
        nvml = self._nvml
        if nvml is None:
            return
        with contextlib.suppress(nvml.NVMLError):
            for index in self._indices():
                handle = nvml.nvmlDeviceGetHandleByIndex(index)
                busy = int(nvml.nvmlDeviceGetUtilizationRates(handle).gpu)
                used = int(nvml.nvmlDeviceGetMemoryInfo(handle).used)
                memory_by = tuple(self._memory_by(handle))
                busy_by = tuple(self._busy_by(handle))
                yield GpuUse(str(index), 10 * busy, used, memory_by, busy_by)

    def _indices(self) -> range:
        return range(min(self._nvml.nvmlDeviceGetCount(), DEVICES_MAX))

    def _memory_by(self, handle: object) -> Iterator[tuple[int, int]]:
        nvml = self._nvml
        asked = (
            nvml.nvmlDeviceGetComputeRunningProcesses,
            nvml.nvmlDeviceGetGraphicsRunningProcesses,
        )
        found: dict[int, int] = {}
        for ask in asked:
            with contextlib.suppress(nvml.NVMLError):
                for each in ask(handle):
                    used = int(each.usedGpuMemory or 0)
                    found[int(each.pid)] = max(used, found.get(int(each.pid), 0))
        yield from found.items()

    def _busy_by(self, handle: object) -> Iterator[tuple[int, int]]:
        nvml, since_us = self._nvml, self._sampled_us
        with contextlib.suppress(nvml.NVMLError):  # No process, or not supported.
            for each in nvml.nvmlDeviceGetProcessUtilization(handle, since_us):
                self._sampled_us = max(self._sampled_us, int(each.timeStamp))
                yield int(each.pid), 10 * int(each.smUtil)


def _read_gpu(nvml: Any, index: int) -> tuple[Device, str]:  # noqa: ANN401 - As above.
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    name = _text(nvml.nvmlDeviceGetName(handle))
    total = int(nvml.nvmlDeviceGetMemoryInfo(handle).total)
    minor = int(nvml.nvmlDeviceGetMinorNumber(handle))
    device = Device(str(index), NAME, short_model(name), advertised_bytes(total))
    return device, f"/dev/nvidia{minor}"


def _text(name: bytes | str) -> str:
    return name.decode(errors="replace") if isinstance(name, bytes) else name
