"""Several real nodes in one process: TLS links, journals and processes are real."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from shoal.drivers.process import ProcessDriver, Settings
from shoal.model.derive import derive
from shoal.model.ids import JobId, NodeId, OwnerId, TaskId
from shoal.model.job import Job
from shoal.model.resources import Capacity
from shoal.model.submission import load_spec
from shoal.net.direct import DirectLinks
from shoal.net.identity import Identity
from shoal.protocol.messages import AnyMessage, Grant, PeerAddress, Role
from shoal.runtime.home import Home
from shoal.runtime.membership import Membership, issue
from shoal.runtime.node import Node, NodeSettings

pytestmark = pytest.mark.integration

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


async def _join(
    plaza: Plaza, root: Identity, path: Path, roles: tuple[Role, ...]
) -> Node:
    home = Home(path)
    home.prepare()
    identity = Identity.load_or_create(home.key)
    grant = issue(
        root,
        Grant(
            node=identity.node,
            shoal="pool",
            roles=roles,
            owner=OwnerId("lab"),
            top_priority=100,
            expires_wall_s=4e9,
        ),
    )
    belongs = Membership(shoal="pool", root=root.node, grant=grant)
    drivers = {"process": ProcessDriver(home.tasks, Settings(sandbox=False))}
    settings = NodeSettings(roles=roles, capacity=TWO_CPUS)
    node = Node(home, identity, belongs, settings, drivers)
    links = DirectLinks(identity, grant, admit=node.admit, listener=node.listener)
    await links.listen("127.0.0.1")
    plaza.nodes.append(node)
    plaza.links[node.id] = links
    await node.start(links, plaza.at(node))
    return node


def _job(name: str, spec: str) -> Job:
    return derive(load_spec(spec, "yaml"), JobId(name), OwnerId("me"))


async def _end(node: Node, job: str, within_s: float = 30.0) -> str | None:
    async with asyncio.timeout(within_s):
        return await node.end_of(JobId(job))


async def _crash(plaza: Plaza, node: Node) -> None:
    """Let a node vanish: its processes die with it, its sockets close."""
    await plaza.links.pop(node.id).close()
    await node.close()


def test_a_job_runs_on_workers_that_were_found_and_linked(tmp_path: Path) -> None:
    async def story() -> None:
        plaza, root = Plaza(), Identity.generate()
        boss = await _join(plaza, root, tmp_path / "boss", ("scheduler",))
        workers = [
            await _join(plaza, root, tmp_path / f"w{n}", ("worker",)) for n in range(2)
        ]
        spec = "command: [sh, -c, 'sleep 0.3; echo {index}']\narray: 8"
        await boss.clients.submit(_job("j1", spec))
        assert await _end(boss, "j1") == "done"
        for n in range(8):
            [path] = boss.home.outputs.glob(f"j1.main.{n}/*.stdout")
            assert path.read_text() == f"{n}\n"
        for node in (boss, *workers):
            await node.close()

    asyncio.run(story())


def test_a_gang_starts_on_two_nodes_at_once(tmp_path: Path) -> None:
    async def story() -> None:
        plaza, root = Plaza(), Identity.generate()
        boss = await _join(plaza, root, tmp_path / "boss", ("scheduler",))
        workers = [
            await _join(plaza, root, tmp_path / f"w{n}", ("worker",)) for n in range(2)
        ]
        spec = "command: [sh, -c, 'echo $RANK of $WORLD_SIZE']\nnodes: 4"
        await boss.clients.submit(_job("j1", spec))
        assert await _end(boss, "j1") == "done"
        told = sorted(
            next(boss.home.outputs.glob(f"j1.main.{n}/*.stdout")).read_text()
            for n in range(4)
        )
        assert told == [f"{n} of 4\n" for n in range(4)]
        for node in (boss, *workers):
            await node.close()

    asyncio.run(story())


def test_the_task_of_a_worker_that_vanishes_runs_elsewhere(tmp_path: Path) -> None:
    async def story() -> None:
        plaza, root = Plaza(), Identity.generate()
        boss = await _join(plaza, root, tmp_path / "boss", ("scheduler",))
        nodes = [
            await _join(plaza, root, tmp_path / f"w{n}", ("worker",)) for n in range(2)
        ]
        workers = {node.id: node for node in nodes}
        await boss.clients.submit(_job("j1", "command: [sleep, '2']"))
        assert boss.peer.scheduler is not None
        record = boss.peer.scheduler.book.tasks[TaskId("j1.main.0")]
        async with asyncio.timeout(10):
            await boss.news.until(lambda: bool(record.live))
        [run] = record.live.values()
        await _crash(plaza, workers.pop(run.worker))
        assert await _end(boss, "j1") == "done"
        assert record.attempts == 2
        for node in (boss, *workers.values()):
            await node.close()

    asyncio.run(story())
