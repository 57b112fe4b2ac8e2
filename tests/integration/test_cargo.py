"""Code goes to where a job runs, and what it made comes back, between real nodes."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from tests.integration.cargo_nodes import Reef, end, pack, submit, unpacked, written

from shoal.model.ids import BlobId, JobId, TaskId
from shoal.runtime.node import Node

pytestmark = pytest.mark.integration

MB = 1_000_000


def play(tmp_path: Path, story: Callable[[Reef], Awaitable[None]]) -> None:
    async def whole() -> None:
        reef = Reef(tmp_path)
        try:
            async with asyncio.timeout(150):
                await story(reef)
        finally:
            await reef.close()

    asyncio.run(whole())


def folder(path: Path, **files: bytes) -> Path:
    for name, data in files.items():
        target = path / name.replace("__", "/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
    return path


def outputs(node: Node, task: str) -> BlobId:
    assert node.scheduler is not None
    record = node.scheduler.book.tasks[TaskId(task)]
    job = node.scheduler.book.jobs[JobId(task.partition(".")[0])]
    assert record.outcome is not None
    return node.cargo.outputs_of(job)[TaskId(task)]


def test_a_folder_travels_and_outputs_come_back(tmp_path: Path) -> None:
    data = os.urandom(3 * MB)
    work = folder(tmp_path / "work", data__a=data, run=b"#!/bin/sh\nexec cat data/a\n")
    (work / "run").chmod(0o755)
    (work / "link").symlink_to("data/a")

    async def story(reef: Reef) -> None:
        boss = await reef.join("boss", "scheduler")
        worker = await reef.join("worker", "worker")
        tree = pack(boss, work)
        await submit(
            boss,
            "j1",
            f"command: [sh, -c, 'mkdir out; ./run > out/copy; cmp link out/copy']\n"
            f"workdir: 'tree:{tree}'\noutputs: [out/]",
        )
        assert await end(boss, "j1") == "done"
        await reef.leave(worker)

        assert unpacked(boss, outputs(boss, "j1.main.0")) == {"out/copy": data}
        assert boss.cargo.blobs.serving.bytes_served > 3 * MB

    play(tmp_path, story)


def test_the_second_run_transfers_nothing(tmp_path: Path) -> None:
    work = folder(tmp_path / "work", big=os.urandom(2 * MB), code=b"v1")

    async def story(reef: Reef) -> None:
        boss = await reef.join("boss", "scheduler")
        await reef.join("worker", "worker")
        for n, version in enumerate((b"v1", b"v1", b"v2")):
            (work / "code").write_bytes(version)
            before = boss.cargo.blobs.serving.bytes_served
            spec = f"command: cat code\nworkdir: 'tree:{pack(boss, work)}'"
            await submit(boss, f"j{n}", spec)
            assert await end(boss, f"j{n}") == "done"
            assert written(boss, f"j{n}.main.0") == version.decode()
            sent = boss.cargo.blobs.serving.bytes_served - before
            assert (sent > 2 * MB) if n == 0 else (sent < 10_000), (n, sent)
            if n == 1:
                assert sent == 0

    play(tmp_path, story)
