"""Apple's GPUs, by `system_profiler`.

They share the memory of the machine; three quarters of it can be theirs.
"""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING, Final, final

import msgspec

from shoal.drivers.gpus import FoundGpus
from shoal.drivers.gpus.models import short_model
from shoal.model.resources import Device

if TYPE_CHECKING:
    from shoal.drivers.gpus import GpuUse

NAME: Final = "apple"
COMMAND: Final = (
    "system_profiler",
    "SPDisplaysDataType",
    "SPHardwareDataType",
    "-json",
)
TIMEOUT_S: Final = 20.0


class _Display(msgspec.Struct):
    sppci_model: str = ""
    spdisplays_vendor: str = ""


class _Hardware(msgspec.Struct):
    physical_memory: str = ""  # `16 GB`


class _Profile(msgspec.Struct):
    displays: list[_Display] = msgspec.field(
        default_factory=list[_Display], name="SPDisplaysDataType"
    )
    hardware: list[_Hardware] = msgspec.field(
        default_factory=list[_Hardware], name="SPHardwareDataType"
    )


@final
class AppleGpus:
    """The GPU of a Mac with a chip of Apple's."""

    def __init__(self, told: bytes | None = None) -> None:
        """Ask the system, unless it was asked before."""
        self._told = _ask() if told is None else told

    def find(self) -> FoundGpus:
        """Return the GPU; none on other machines."""
        try:
            profile = msgspec.json.decode(self._told, type=_Profile)
        except msgspec.DecodeError:
            return FoundGpus()
        memory = next((each.physical_memory for each in profile.hardware), "")
        size, _, unit = memory.partition(" ")
        gib = int(size) if size.isdecimal() and unit == "GB" else 0
        own = [
            each
            for each in profile.displays
            if "apple" in each.spdisplays_vendor.lower()
        ]
        return FoundGpus(
            tuple(
                Device(
                    f"apple{index}",
                    NAME,
                    short_model(each.sppci_model),
                    (gib << 30) * 3 // 4,
                )
                for index, each in enumerate(own)
            )
        )

    def uses(self) -> list[GpuUse]:
        """Return nothing: the system tells it to root only."""
        return []

    def close(self) -> None:
        """Nothing is open."""


def _ask() -> bytes:
    program = shutil.which(COMMAND[0])
    if program is None:
        return b""
    try:
        done = subprocess.run(
            [program, *COMMAND[1:]], capture_output=True, timeout=TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return b""
    return done.stdout
