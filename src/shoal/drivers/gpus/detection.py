"""Find the GPUs of this machine, whoever made them."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from shoal.drivers.gpus import FoundGpus, GpuMaker, GpuUse
from shoal.drivers.gpus.amd import AmdGpus
from shoal.drivers.gpus.apple import AppleGpus
from shoal.drivers.gpus.nvidia import NvidiaGpus

if TYPE_CHECKING:
    from collections.abc import Sequence


@final
class Gpus:
    """All GPUs of this machine. Blocks."""

    def __init__(self, makers: Sequence[GpuMaker] | None = None) -> None:
        """Open the drivers."""
        own = (NvidiaGpus(), AmdGpus(), AppleGpus())
        self._makers: tuple[GpuMaker, ...] = own if makers is None else tuple(makers)

    def find(self) -> FoundGpus:
        """Return the GPUs that this process may use."""
        found = [maker.find() for maker in self._makers]
        return FoundGpus(
            tuple(device for each in found for device in each.devices),
            {id_: files for each in found for id_, files in each.files.items()},
        )

    def uses(self) -> list[GpuUse]:
        """Return what uses them now."""
        return [use for maker in self._makers for use in maker.uses()]

    def close(self) -> None:
        """Let go of the drivers."""
        for maker in self._makers:
            maker.close()


def detect_gpus() -> FoundGpus:
    """Return the GPUs that tasks here may use; none without a driver."""
    gpus = Gpus()
    try:
        return gpus.find()
    finally:
        gpus.close()
