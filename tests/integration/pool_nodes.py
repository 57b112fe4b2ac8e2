"""Several real nodes in one process: TLS links, journals and processes are real."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

from shoal.core.leasing.owner_rules import OwnerRules
from shoal.drivers import Driver
from shoal.drivers.process import ProcessDriver, ProcessSettings
from shoal.drivers.python import PythonDriver
from shoal.model.derive import derive
from shoal.model.ids import JobId, NodeId, OwnerId
from shoal.model.job import Job
from shoal.model.resources import Capacity
from shoal.model.spec.submission import load_spec
from shoal.net import multiaddr
from shoal.net.direct.links import DirectLinks
from shoal.net.identity.identity import Identity
from shoal.protocol.messages import AnyMessage, Grant, PeerAddress, Role
from shoal.runtime.calls.lanes import Lanes
from shoal.runtime.home import Home
from shoal.runtime.host import Host
from shoal.runtime.membership.shoal_membership import ShoalMembership, issue
from shoal.runtime.node import Node, NodeSettings

TWO_CPUS = Capacity(cpu_milli=2_000, memory_bytes=4 << 30, disk_bytes=4 << 30)


class Plaza:
    """A finder for nodes of one process: everybody hears everything."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.links: dict[NodeId, DirectLinks] = {}

    def at(self, node: Node) -> "Corner":
        """Return the finder of one node."""
        return Corner(self, node)


class Corner:
    """One node's place in the plaza."""

    def __init__(self, plaza: Plaza, node: Node) -> None:
        self._plaza = plaza
        self._node = node

    def publish(self, message: AnyMessage) -> None:
        """Tell all others."""
        for other in self._plaza.nodes:
            if other is not self._node:
                other.listener.heard(self._node.id, message)

    def spread(self, message: AnyMessage) -> None:
        """Tell all others."""
        self.publish(message)

    def look_up(self, lookup: int, key: str, limit: int) -> None:
        """Name everybody."""
        found = [
            PeerAddress(node, links.addresses)
            for node, links in self._plaza.links.items()
            if node != self._node.id
        ]
        self._node.listener.looked_up(lookup, found[:limit])

    def provide(self, keys: Sequence[str]) -> None:
        """Everybody is named anyway."""

    async def close(self) -> None:
        """Go."""
        self._plaza.nodes.remove(self._node)


class Reef:
    """A shoal on loopback; `join` adds a node, and `leave` lets one vanish."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.plaza = Plaza()
        self.root = Identity.generate()
        self._ports: dict[str, int] = {}

    async def join(
        self,
        name: str,
        *roles: Role,
        cache_bytes: int = 1 << 30,
        owner: str = "lab",
        lane_driver: Callable[[Lanes], Driver] | None = None,
        capacity: Capacity = TWO_CPUS,
    ) -> Node:
        """Start a node, or start it again."""
        home = Home(self.folder / name)
        home.prepare()
        identity = Identity.load_or_create(home.key)
        grant = issue(
            self.root,
            Grant(
                node=identity.node,
                shoal="reef",
                roles=roles,
                owner=OwnerId(owner),
                top_priority=100,
                expires_wall_s=4e9,
            ),
        )
        belongs = ShoalMembership(shoal="reef", root=self.root.node, grant=grant)
        process = ProcessDriver(home.tasks, ProcessSettings(sandbox=False))
        host = Host()
        lanes = Lanes(host)
        runs: dict[str, Driver] = {
            "process": process,
            "python": PythonDriver(process, lanes)
            if lane_driver is None
            else lane_driver(lanes),
        }
        settings = NodeSettings(
            roles=roles,
            capacity=capacity,
            cache_bytes=cache_bytes,
            rules=OwnerRules(drivers=tuple(runs)),
        )
        parts = (home, identity, belongs, settings, runs)
        node = Node(*parts, host=host, lanes=lanes, say=print)
        links = DirectLinks(identity, grant, admit=node.admit, listener=node.listener)
        await links.listen("127.0.0.1", self._ports.get(name, 0))
        self._ports[name] = multiaddr.parse(links.addresses[0]).port
        self.plaza.nodes.append(node)
        self.plaza.links[node.id] = links
        await node.start(links, self.plaza.at(node))
        return node

    async def leave(self, node: Node) -> None:
        """Let a node vanish: its processes die with it, its sockets close."""
        await self.plaza.links.pop(node.id).close()
        await node.close()

    async def close(self) -> None:
        """End all nodes."""
        for node in list(self.plaza.nodes):
            await self.leave(node)


def job(name: str, spec: str) -> Job:
    """Return a job of a spec in YAML."""
    return derive(load_spec(spec, "yaml"), JobId(name), OwnerId("me"))


async def end(node: Node, name: str, within_s: float = 60.0) -> str | None:
    """Wait for the end of a job."""
    async with asyncio.timeout(within_s):
        return await node.end_of(JobId(name))


def written(node: Node, task: str) -> str:
    """Return what a task wrote to stdout, in all its attempts."""
    paths = sorted(node.home.outputs.glob(f"{task}/*.stdout"))
    return "".join(path.read_text() for path in paths)
