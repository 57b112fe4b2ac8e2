"""A fabric: hosts, switches and cables, and which of them work."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, Literal, final

import msgspec

from shoal.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Kind = Literal["host", "switch"]

NODES_MAX: Final = 1_000_000
NAMES_SHOWN: Final = 8


class FabricNode(msgspec.Struct, frozen=True):
    """A host or a switch. `tier` is 0 for hosts and grows towards the core."""

    name: str
    kind: Kind = "host"
    tier: int = 0


class FabricLink(msgspec.Struct, frozen=True):
    """A cable, by its ends' names; it carries its bandwidth in each direction."""

    a: str
    b: str
    latency_ns: int
    bandwidth_bps: int  # bits per second

    @property
    def name(self) -> str:
        """What people call it."""
        return f"{self.a}-{self.b}"


@final
class Fabric:
    """Nodes and links by their numbers, which never change; parts fail and are mended.

    Anything derived from what works must be rebuilt when `version` changes.
    """

    def __init__(
        self, name: str, nodes: Iterable[FabricNode], links: Iterable[FabricLink]
    ) -> None:
        """Take over nodes and links; raise `UsageError` if they make no fabric."""
        self.name = name
        self.nodes = tuple(nodes)
        self.links = tuple(links)
        self.version = 0
        self.index = {node.name: number for number, node in enumerate(self.nodes)}
        self._require_sound()
        self.ends = [(self.index[link.a], self.index[link.b]) for link in self.links]
        self.hosts = [i for i, node in enumerate(self.nodes) if node.kind == "host"]
        self._link_numbers: dict[str, int] = {}
        self._touching: list[list[int]] = [[] for _ in self.nodes]
        for number, (a, b) in enumerate(self.ends):
            self._link_numbers.setdefault(f"{self.links[number].name}", number)
            far, near = self.links[number].b, self.links[number].a
            self._link_numbers.setdefault(f"{far}-{near}", number)
            self._touching[a].append(number)
            self._touching[b].append(number)
        self._down_nodes: Counter[int] = Counter()  # how often each has failed
        self._down_links: Counter[int] = Counter()

    def _require_sound(self) -> None:
        if not any(node.kind == "host" for node in self.nodes):
            raise UsageError(
                f"fabric {self.name} has no hosts",
                because="jobs run on hosts, and it has only switches",
                hint="mark at least one node as a host",
            )
        if len(self.index) < len(self.nodes):
            counts = Counter(node.name for node in self.nodes)
            twice = next(name for name, count in counts.items() if count > 1)
            raise UsageError(
                f"fabric {self.name} has two nodes named {twice}",
                because="nodes are known by their names",
                hint="give each node a name of its own",
            )
        for link in self.links:
            self._require_sound_link(link)

    def _require_sound_link(self, link: FabricLink) -> None:
        for end in (link.a, link.b):
            if end not in self.index:
                raise UsageError(
                    f"link {link.name} leads to {end}, which is no node",
                    because=f"the nodes are {_some(self.index)}",
                    hint="add the node, or mend the name",
                )
        if link.a == link.b:
            raise UsageError(
                f"link {link.name} leads back to where it begins",
                because="a cable joins two nodes",
                hint="leave it out",
            )
        if link.bandwidth_bps <= 0 or link.latency_ns < 0:
            raise UsageError(
                f"link {link.name} carries nothing",
                because=f"its bandwidth is {link.bandwidth_bps} bit/s and its latency "
                f"{link.latency_ns} ns",
                hint="give it a bandwidth above 0 and a latency of 0 or more",
            )

    # What works.

    def works(self, node: int) -> bool:
        """Whether a node has not failed."""
        return node not in self._down_nodes

    def carries(self, link: int) -> bool:
        """Whether a link and both its ends have not failed."""
        a, b = self.ends[link]
        return link not in self._down_links and self.works(a) and self.works(b)

    def neighbours(self, node: int) -> Iterator[tuple[int, int]]:
        """Go through the working links of a node: the far end, and the link."""
        for link in self._touching[node]:
            if self.carries(link):
                a, b = self.ends[link]
                yield (b if a == node else a), link

    def fail(self, name: str) -> None:
        """Let a node or a link fail; what fails twice must be mended twice."""
        self._counter_of(name)[self._number_of(name)] += 1
        self.version += 1

    def mend(self, name: str) -> None:
        """Undo one `fail` of the same name."""
        failed, number = self._counter_of(name), self._number_of(name)
        assert failed[number] > 0
        failed[number] -= 1
        if failed[number] == 0:
            del failed[number]
        self.version += 1

    def require(self, name: str) -> None:
        """Raise `UsageError` unless a node or a link has this name."""
        if name not in self.index and name not in self._link_numbers:
            raise UsageError(
                f"no node or link '{name}' in fabric {self.name}",
                because=f"there are {_some(self.index)}, and links such as "
                f"{_some(link.name for link in self.links[:2])}",
                hint="name a node, or a link by its two ends, like leaf0-spine1",
            )

    def _counter_of(self, name: str) -> Counter[int]:
        self.require(name)
        return self._down_nodes if name in self.index else self._down_links

    def _number_of(self, name: str) -> int:
        found = self.index.get(name)
        return self._link_numbers[name] if found is None else found


def _some(names: Iterable[str]) -> str:
    every = list(names)
    shown = ", ".join(every[:NAMES_SHOWN])
    more = len(every) - NAMES_SHOWN
    return f"{shown} and {more} more" if more > 0 else shown
