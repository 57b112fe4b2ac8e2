"""Hosts of different kinds in one fabric: devices, speed, and the link to the leaf."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from shoal.errors import SpecError
from shoal.lab.datacentre.scenario import CableSpec
from shoal.model.gpu import parse_gpu
from shoal.model.resources import Capacity, Device
from shoal.model.spec.canonical import at
from shoal.model.units import parse_cpu, parse_size
from shoal.topology.fabric import Fabric

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from shoal.lab.datacentre.scenario import HostKindSpec, HostSpec, Scenario

    CableOf = Callable[[str, CableSpec, int, int], tuple[int, int]]


class HostKind(msgspec.Struct, frozen=True):
    """What hosts of one kind have, and how fast they are."""

    name: str
    capacity: Capacity
    speed: float = 1.0

    @property
    def model(self) -> str:
        """The model of its devices; empty if it has none."""
        return self.capacity.devices[0].model if self.capacity.devices else ""

    @property
    def devices(self) -> int:
        """How many devices it has."""
        return len(self.capacity.devices)


class DealtHosts(msgspec.Struct, frozen=True):
    """Which kind each host of a fabric is of, by its place there."""

    kinds: tuple[HostKind, ...]
    of: tuple[int, ...]

    def __getitem__(self, place: int) -> HostKind:
        return self.kinds[self.of[place]]

    def __len__(self) -> int:
        return len(self.of)

    @property
    def devices_max(self) -> int:
        """The most devices of one host."""
        return max(self[place].devices for place in range(len(self)))

    def width(self, place: int) -> float:
        """Return the devices of a host, or its CPUs where no host has any."""
        kind = self[place]
        return kind.devices if self.devices_max else kind.capacity.cpu_milli / 1_000

    @property
    def widths(self) -> float:
        """Return the same of all hosts."""
        counts = [self.of.count(number) for number in range(len(self.kinds))]
        with_devices = any(kind.devices for kind in self.kinds)
        return sum(
            count * (kind.devices if with_devices else kind.capacity.cpu_milli / 1_000)
            for kind, count in zip(self.kinds, counts, strict=True)
        )

    @property
    def work(self) -> float:
        """Return what all can do together, by their speed."""
        return sum(self.width(place) * self[place].speed for place in range(len(self)))


def deal_hosts(scenario: Scenario, count: int) -> DealtHosts:
    """Deal the kinds to hosts in their order; the rest are as `host` says."""
    dealt: list[int] = []
    kinds: list[HostKind] = []
    for place, spec in enumerate(scenario.hosts):
        path = f"$.hosts[{place}]"
        kinds.append(HostKind(spec.name, _capacity(path, spec), spec.speed))
        dealt += [place] * spec.count
    if len(dealt) > count:
        raise SpecError(
            f"{len(dealt)} hosts are more than the fabric has",
            path="$.hosts",
            because=f"it has {count}",
            hint="give fewer, or more leaves and hosts",
        )
    if len(dealt) < count:
        kinds.append(HostKind("host", _capacity("$.host", scenario.host)))
        dealt += [len(kinds) - 1] * (count - len(dealt))
    return DealtHosts(tuple(kinds), tuple(dealt))


def relinked(
    fabric: Fabric, specs: Sequence[HostKindSpec], cable_of: CableOf
) -> Fabric:
    """Return the fabric with the links that hosts of some kinds have."""
    links = list(fabric.links)
    hosts = iter(fabric.hosts)
    for place, spec in enumerate(specs):
        for _, host in zip(range(spec.count), hosts, strict=False):
            if spec.link == CableSpec():
                continue
            for _, number in fabric.neighbours(host):
                link = links[number]
                latency_ns, bandwidth_bps = cable_of(
                    f"$.hosts[{place}].link",
                    spec.link,
                    link.latency_ns,
                    link.bandwidth_bps,
                )
                links[number] = msgspec.structs.replace(
                    link, latency_ns=latency_ns, bandwidth_bps=bandwidth_bps
                )
    return Fabric(fabric.name, fabric.nodes, links)


def _capacity(path: str, spec: HostSpec) -> Capacity:
    need = at(f"{path}.gpu", parse_gpu, spec.gpu)
    devices: tuple[Device, ...] = ()
    if need is not None:
        model = need.models[0] if need.models else "GPU"
        vendor = need.vendor or "nvidia"
        devices = tuple(
            Device(f"gpu{n}", vendor, model, need.memory_min_bytes)
            for n in range(need.count)
        )
    return Capacity(
        cpu_milli=at(f"{path}.cpu", parse_cpu, spec.cpu),
        memory_bytes=at(f"{path}.memory", parse_size, spec.memory),
        disk_bytes=1 << 40,
        devices=devices,
    )
