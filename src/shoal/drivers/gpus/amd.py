"""AMD's GPUs, by the files of the kernel's driver.

`/sys/class/kfd` lists the GPUs that can compute, in the order in which ROCm counts
them, and the memory that each process uses. `/sys/class/drm` has their use.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, final

from shoal.drivers.gpus import FoundGpus, GpuUse
from shoal.drivers.gpus.models import advertised_bytes, short_model
from shoal.drivers.gpus.visible import ROCM, visible_gpus
from shoal.model.resources import Device
from shoal.model.text.bounds import DEVICES_MAX

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

NAME: Final = "amd"
SYS: Final = Path("/sys/class")
SHARED: Final = ("/dev/kfd",)


class _Card(NamedTuple):
    """One GPU, its folder in `drm` and its numbers."""

    id: str
    folder: Path
    render: str
    kfd: str  # the number by which processes are counted
    uuid: str  # as ROCm writes it


@final
class AmdGpus:
    """The GPUs of the driver amdgpu, in the order of ROCm."""

    def __init__(self, sys: Path = SYS, env: Mapping[str, str] | None = None) -> None:
        self._sys = sys
        cards = tuple(self._list())[:DEVICES_MAX]
        uuids = {str(index): card.uuid for index, card in enumerate(cards)}
        visible = visible_gpus(uuids, os.environ if env is None else env, ROCM)
        self._cards = tuple(cards[int(index)] for index in visible)

    def find(self) -> FoundGpus:
        """Return the GPUs; none without a driver."""
        devices: list[Device] = []
        for card in self._cards:
            total = _number(card.folder / "mem_info_vram_total")
            model = short_model(_text(card.folder / "product_name"))
            devices.append(Device(card.id, NAME, model, advertised_bytes(total)))
        files: dict[str, tuple[str, ...]] = {
            card.id: (f"/dev/dri/{card.render}", *SHARED)
            for card in self._cards
            if card.render
        }
        return FoundGpus(tuple(devices), files)

    def uses(self) -> list[GpuUse]:
        """Return what uses them now; the driver does not tell who keeps one busy."""
        return [
            GpuUse(
                card.id,
                10 * _number(card.folder / "gpu_busy_percent"),
                _number(card.folder / "mem_info_vram_used"),
                tuple(self._memory_by(card)),
            )
            for card in self._cards
        ]

    def close(self) -> None:
        """Nothing is open."""

    def _list(self) -> Iterator[_Card]:
        nodes = self._sys / "kfd/kfd/topology/nodes"
        found = nodes.iterdir() if nodes.is_dir() else ()
        index = 0
        for node in sorted(found, key=lambda each: (len(each.name), each.name)):
            rows = [line.split() for line in _text(node / "properties").splitlines()]
            properties = {row[0]: row[1] for row in rows if len(row) == 2}
            if properties.get("simd_count", "0") == "0":
                continue  # A CPU.
            render = f"renderD{properties.get('drm_render_minor', '')}"
            folder = self._sys / "drm" / render / "device"
            unique = properties.get("unique_id", "0")
            uuid = f"GPU-{int(unique):016x}" if unique.isdecimal() else ""
            yield _Card(f"amd{index}", folder, render, _text(node / "gpu_id"), uuid)
            index += 1

    def _memory_by(self, card: _Card) -> Iterator[tuple[int, int]]:
        processes = self._sys / "kfd/kfd/proc"
        for process in sorted(processes.iterdir()) if processes.is_dir() else ():
            if process.name.isdecimal():
                yield int(process.name), _number(process / f"vram_{card.kfd}")


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def _number(path: Path) -> int:
    text = _text(path)
    return int(text) if text.isascii() and text.isdecimal() else 0
