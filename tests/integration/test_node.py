"""A real node: real processes, a real journal, and no other node."""

import asyncio
import sys
from pathlib import Path

import pytest
from tests.integration.pool_nodes import end, job
from tests.runtime.alone import Alone

from shoal.drivers.process import ProcessDriver, ProcessSettings
from shoal.model.ids import JobId, TaskId
from shoal.model.resources import Capacity
from shoal.net.identity.identity import Identity
from shoal.runtime.calls.lanes import Lanes
from shoal.runtime.home import Home
from shoal.runtime.host import Host
from shoal.runtime.membership import shoal_membership
from shoal.runtime.node import Node, NodeSettings

pytestmark = pytest.mark.integration

ROOM = Capacity(cpu_milli=4_000, memory_bytes=8 << 30, disk_bytes=8 << 30)


async def _node(path: Path) -> tuple[Node, Alone]:
    home = Home(path)
    home.prepare()
    identity = Identity.load_or_create(home.key)
    belongs = shoal_membership.load(home) or shoal_membership.found(
        home, identity, "test"
    )
    drivers = {"process": ProcessDriver(home.tasks, ProcessSettings(sandbox=False))}
    settings = NodeSettings(capacity=ROOM)
    host = Host()
    parts = (home, identity, belongs, settings, drivers)
    node = Node(*parts, host=host, lanes=Lanes(host), say=print)
    alone = Alone()
    await node.start(alone, alone)
    return node, alone


def _output(node: Node, task: str) -> str:
    assert node.peer.scheduler is not None
    folder = next(node.home.outputs.glob(f"{task}"))
    return "".join(p.read_text() for p in sorted(folder.glob("*.stdout")))


def test_a_lone_node_runs_a_job_and_keeps_its_output(tmp_path: Path) -> None:
    async def story() -> None:
        node, alone = await _node(tmp_path)
        spec = f"command: [{sys.executable}, -c, 'print(6 * 7)']"
        answer = await node.clients.submit(job("j1", spec))
        assert not answer.refused
        assert await end(node, "j1", within_s=20.0) == "done"
        assert _output(node, "j1.main.0") == "42\n"
        assert alone.sent == []
        await node.close()

    asyncio.run(story())


def test_a_failing_command_fails_the_job_with_its_exit_code(tmp_path: Path) -> None:
    async def story() -> None:
        node, _ = await _node(tmp_path)
        await node.clients.submit(job("j1", "command: [sh, -c, 'exit 7']"))
        assert await end(node, "j1", within_s=20.0) == "failed"
        assert node.peer.scheduler is not None
        record = node.peer.scheduler.book.tasks[TaskId("j1.main.0")]
        assert record.outcome is not None
        assert record.outcome.exit_code == 7
        await node.close()

    asyncio.run(story())


def test_a_job_survives_the_end_of_its_node(tmp_path: Path) -> None:
    async def story() -> None:
        node, _ = await _node(tmp_path)
        await node.clients.submit(job("j1", "command: [sleep, '30']"))
        assert node.peer.scheduler is not None
        async with asyncio.timeout(20):
            while not node.peer.scheduler.book.runs:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        await node.close()

        node, _ = await _node(tmp_path)
        assert node.peer.scheduler is not None
        assert JobId("j1") in node.peer.scheduler.book.jobs
        answer = await node.clients.cancel(JobId("j1"), "enough")
        assert not answer.refused
        assert await end(node, "j1", within_s=20.0) == "cancelled"
        await node.close()

    asyncio.run(story())


def test_an_array_runs_on_all_cpus_and_leaves_nothing_behind(tmp_path: Path) -> None:
    async def story() -> None:
        node, _ = await _node(tmp_path)
        spec = "command: [sh, -c, 'echo {index}']\narray: 20"
        await node.clients.submit(job("j1", spec))
        assert await end(node, "j1", within_s=20.0) == "done"
        written = [_output(node, f"j1.main.{n}") for n in range(20)]
        assert written == [f"{n}\n" for n in range(20)]
        worker = node.peer.worker
        assert worker is not None
        async with asyncio.timeout(20):  # Leases linger for a next task, then go.
            while not worker.leases.ledger.idle:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        await node.close()

    asyncio.run(story())
