"""Several real nodes in one process, and folders that travel between them."""

import asyncio
from collections.abc import Callable
from pathlib import Path

from tests.integration.test_pool import Plaza

from shoal.blobs import packing, trees
from shoal.drivers.process import ProcessDriver, Settings
from shoal.model.derive import derive
from shoal.model.ids import BlobId, JobId, OwnerId
from shoal.model.job import Job
from shoal.model.resources import Capacity
from shoal.model.submission import load_spec
from shoal.net import multiaddr
from shoal.net.direct import DirectLinks
from shoal.net.identity import Identity
from shoal.protocol.messages import Grant, Role
from shoal.runtime.home import Home
from shoal.runtime.membership import Membership, issue
from shoal.runtime.node import Node, NodeSettings

TWO_CPUS = Capacity(cpu_milli=2_000, memory_bytes=4 << 30, disk_bytes=4 << 30)


class Reef:
    """A shoal on loopback; `join` adds a node, and `leave` lets one vanish."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.plaza = Plaza()
        self.root = Identity.generate()
        self._ports: dict[str, int] = {}

    async def join(self, name: str, *roles: Role, cache_bytes: int = 1 << 30) -> Node:
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
                owner=OwnerId("lab"),
                top_priority=100,
                expires_wall_s=4e9,
            ),
        )
        belongs = Membership(shoal="reef", root=self.root.node, grant=grant)
        drivers = {"process": ProcessDriver(home.tasks, Settings(sandbox=False))}
        settings = NodeSettings(roles=roles, capacity=TWO_CPUS, cache_bytes=cache_bytes)
        node = Node(home, identity, belongs, settings, drivers)
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


def pack(node: Node, folder: Path) -> BlobId:
    """Put a folder into the store of a node, as submitting does."""
    store = node.cargo.store
    packed = packing.pack_workdir(folder, lambda file: store.put_file(file, "test"))
    tree = store.put(trees.encode(trees.make(node.cargo.salt, packed.entries)))
    store.hold("test", (tree,))
    return tree


def unpacked(node: Node, tree: BlobId) -> dict[str, bytes]:
    """Return the files of a tree that a node has."""
    found = node.cargo.blobs.shelf.tree(tree)
    assert isinstance(found, trees.Tree), found
    files = [e for e in found.entries if e.kind in ("file", "program")]
    return {e.path: node.cargo.store.read(BlobId(e.to)) or b"?" for e in files}


def job(name: str, spec: str) -> Job:
    """Return a job of a spec in YAML."""
    return derive(load_spec(spec, "yaml"), JobId(name), OwnerId("me"))


async def submit(node: Node, name: str, spec: str) -> None:
    """Hand a job in."""
    made = job(name, spec)
    await asyncio.to_thread(node.cargo.check, made)
    answer = await node.clients.submit(made)
    assert not answer.refused, answer


async def end(node: Node, name: str, within_s: float = 60.0) -> str | None:
    """Wait for the end of a job."""
    async with asyncio.timeout(within_s):
        return await node.end_of(JobId(name))


async def until(
    condition: Callable[[], bool], within_s: float = 60.0, pause_s: float = 0.02
) -> None:
    """Wait until something is true."""
    async with asyncio.timeout(within_s):
        while not condition():  # noqa: ASYNC110 - Nobody tells.
            await asyncio.sleep(pause_s)


def written(node: Node, task: str) -> str:
    """Return what a task wrote to stdout, in all its attempts."""
    paths = sorted(node.home.outputs.glob(f"{task}/*.stdout"))
    return "".join(path.read_text() for path in paths)
