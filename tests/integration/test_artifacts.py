"""Code goes to where a job runs, and what it made comes back, between real nodes."""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import pytest
from tests.integration.artifacts_nodes import pack, submit, unpacked, until
from tests.integration.pool_nodes import TWO_CPUS, Reef, end, job, written

from shoal.blobs.trees import Tree
from shoal.core.artifacts.blob_transfers import BlobTransfers
from shoal.model.ids import BlobId, JobId, NodeId, TaskId
from shoal.model.resources import Capacity
from shoal.policy.table.domains import OVERSUBSCRIPTION
from shoal.policy.table.worker_table import WorkerTable, WorkerView
from shoal.protocol.blobs import BlobPiece
from shoal.protocol.messages import AnyMessage
from shoal.runtime.clients import Submitter
from shoal.runtime.node import Node

pytestmark = pytest.mark.integration

MB = 1_000_000
STEP_3 = {"ckpt/step": b"3"}


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


def is_held(boss: Node, tree: BlobId) -> bool:
    """Whether somebody told that it has a tree, and can be reached."""
    return bool(transfers(boss).holders.besides(boss.id, tree))


def transfers(node: Node) -> BlobTransfers:
    """Return the machine that fetches and serves blobs."""
    found = node.peer.find(BlobTransfers)
    assert found is not None
    return found


def outputs(node: Node, task: str) -> BlobId:
    assert node.scheduler is not None
    record = node.scheduler.book.tasks[TaskId(task)]
    job = node.scheduler.book.jobs[JobId(task.partition(".")[0])]
    assert record.outcome is not None
    return node.artifacts.outputs_of(job)[TaskId(task)]


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
        assert transfers(boss).serving.bytes_served > 3 * MB

    play(tmp_path, story)


def test_a_job_goes_where_its_code_is_also_after_a_restart(tmp_path: Path) -> None:
    one = folder(tmp_path / "one", big=os.urandom(MB))
    other = folder(tmp_path / "other", big=os.urandom(MB))

    async def story(reef: Reef) -> None:
        boss = await reef.join("boss", "scheduler")
        assert boss.scheduler is not None
        table = boss.scheduler.views.table
        specs = {
            name: f"command: pwd\nworkdir: 'tree:{pack(boss, work)}'"
            for name, work in (("a", one), ("b", other))
        }
        for name, spec in specs.items():  # Each alone, so that each has its own code.
            worker = await reef.join(name, "worker")
            await submit(boss, f"first{name}", spec)
            assert await end(boss, f"first{name}") == "done"
            await reef.leave(worker)
        workers = [await reef.join(name, "worker") for name in specs]
        # It fits only on both: a scheduler that knows enough workers asks no others.
        both = "command: 'true'\nnodes: 2\nresources: {cpu: 1.5}"
        await submit(boss, "wake", both)
        assert await end(boss, "wake") == "done"  # Before, its leases may yet come.
        await until(lambda: sum(bool(seen_at(table, w).warm) for w in workers) == 2)

        for name, spec in specs.items():
            await until(lambda: all(is_idle(table, worker) for worker in workers))
            before = transfers(boss).serving.bytes_served
            await submit(boss, f"second{name}", spec)
            assert await end(boss, f"second{name}") == "done"
            where = written(boss, f"second{name}.main.0")
            assert where.startswith(f"{tmp_path}/{name}/"), (name, where)
            assert transfers(boss).serving.bytes_served == before

    play(tmp_path, story)


def seen_at(table: WorkerTable, worker: Node) -> WorkerView:
    """Return what a scheduler knows of a worker; nothing is warm if it knows none."""
    return table.view(worker.id) or WorkerView(node=worker.id)


def is_idle(table: WorkerTable, worker: Node) -> bool:
    """Whether a worker has no leases, and the scheduler has heard of that."""
    assert worker.peer.worker is not None
    seen = seen_at(table, worker)
    has_leases = bool(list(worker.peer.worker.leases))
    return not has_leases and seen.cpu_milli == seen.capacity.cpu_milli > 0


def test_the_second_run_transfers_nothing(tmp_path: Path) -> None:
    work = folder(tmp_path / "work", big=os.urandom(2 * MB), code=b"v1")

    async def story(reef: Reef) -> None:
        boss = await reef.join("boss", "scheduler")
        await reef.join("worker", "worker")
        for n, version in enumerate((b"v1", b"v1", b"v2")):
            (work / "code").write_bytes(version)
            before = transfers(boss).serving.bytes_served
            spec = f"command: cat code\nworkdir: 'tree:{pack(boss, work)}'"
            await submit(boss, f"j{n}", spec)
            assert await end(boss, f"j{n}") == "done"
            assert written(boss, f"j{n}.main.0") == version.decode()
            sent = transfers(boss).serving.bytes_served - before
            assert (sent > 2 * MB) if n == 0 else (sent < 10_000), (n, sent)
            if n == 1:
                assert sent == 0

    play(tmp_path, story)


def test_a_third_node_is_served_by_the_second(tmp_path: Path) -> None:
    work = folder(tmp_path / "work", big=os.urandom(20 * MB))

    async def story(reef: Reef) -> None:
        boss = await reef.join("boss", "scheduler")
        first = await reef.join("first", "worker")
        tree = pack(boss, work)
        spec = f"command: [sh, -c, 'sleep {{s}}']\nworkdir: 'tree:{tree}'\n"
        hog = spec + "resources: {cpu: 2}\nparams: {s: 60}"
        await submit(boss, "j1", hog)
        await until(lambda: is_held(boss, tree))
        second = await reef.join("second", "worker")
        await submit(boss, "j2", spec + "params: {s: 0}")
        assert await end(boss, "j2") == "done"

        assert transfers(second).fetching.bytes_fetched > 20 * MB
        # How much of it follows from how far each holder seems to be.
        assert transfers(first).serving.bytes_served > 0

    play(tmp_path, story)


def test_a_worker_that_lies_is_found_out_and_the_rest_comes_from_others(
    tmp_path: Path,
) -> None:
    work = folder(tmp_path / "work", big=os.urandom(10 * MB))

    async def story(reef: Reef) -> None:
        boss = await reef.join("boss", "scheduler")
        liar = await reef.join("liar", "worker")
        tree = pack(boss, work)
        spec = (
            f"command: [sh, -c, 'cksum < big; sleep {{s}}']\nworkdir: 'tree:{tree}'\n"
        )
        hog = spec + "resources: {cpu: 2}\nparams: {s: 60}"
        await submit(boss, "j1", hog)
        await until(lambda: is_held(boss, tree))
        await until(lambda: written(boss, "j1.main.0") != "")
        links = liar._links
        assert links is not None
        send = links.send

        def lie(peer: NodeId, message: AnyMessage) -> None:
            if isinstance(message, BlobPiece):
                data = bytes([message.data[0] ^ 1]) + message.data[1:]
                message = msgspec.structs.replace(message, data=data)
            send(peer, message)

        links.send = lie  # type: ignore[method-assign]
        second = await reef.join("second", "worker")
        await submit(boss, "j2", spec + "params: {s: 0}")
        assert await end(boss, "j2") == "done"

        assert written(boss, "j2.main.0") == written(boss, "j1.main.0")
        assert transfers(second).fetching.counts["wrong"] >= 1
        assert transfers(second).fetching.sources.get(liar.id).wrong >= 1

    play(tmp_path, story)


def test_tasks_give_each_other_files_by_name(tmp_path: Path) -> None:
    program = b"""
import os, pathlib, sys, time
import shoal
sys.stdout.reconfigure(line_buffering=True)
if sys.argv[1] == "put":
    pathlib.Path("tensor").write_bytes(os.urandom(3_000_000))
    print(shoal.put("tensor"))
    time.sleep(60)
else:
    shoal.get(sys.argv[2], "sub/copy", nodes=[sys.argv[3]])
    print(os.path.getsize("sub/copy"))
    try:
        shoal.get("0" * 64 + "-5", "x", nodes=[sys.argv[3]])
    except shoal.errors.ShoalError as error:
        print(error)
    try:
        shoal.put("/etc/passwd")
    except shoal.errors.ShoalError as error:
        print("refused")
"""
    work = folder(tmp_path / "work", prog=b"import shoal.errors\n" + program)

    async def story(reef: Reef) -> None:
        boss = await reef.join("boss", "scheduler")
        first = await reef.join("first", "worker")
        tree = pack(boss, work)
        command = f"command: [{sys.executable}, prog, put]"
        hog = f"{command}\nworkdir: 'tree:{tree}'\nresources: {{cpu: 2}}\n"
        await submit(boss, "j1", hog)
        await until(lambda: written(boss, "j1.main.0").endswith("\n"))
        blob = written(boss, "j1.main.0").strip()
        await reef.join("second", "worker")
        args = f"command: [{sys.executable}, prog, get, {blob}, {first.id}]"
        await submit(boss, "j2", f"{args}\nworkdir: 'tree:{tree}'")
        assert await end(boss, "j2") == "done"

        lines = written(boss, "j2.main.0").splitlines()
        assert lines[0] == "3000000"
        assert "it is not held here" in lines[1]
        assert lines[2] == "refused"

    play(tmp_path, story)


def test_a_checkpoint_travels_to_where_the_task_goes_on(tmp_path: Path) -> None:
    program = b"""
import os, pathlib, sys, time
import shoal
sys.stdout.reconfigure(line_buffering=True)
saved = os.environ.get("SHOAL_CHECKPOINT")
step = int(pathlib.Path(saved, "step").read_text()) if saved else 0
print("from", step)
if saved:
    sys.exit(0)
pathlib.Path("ckpt").mkdir()
for step in range(1, 4):
    pathlib.Path("ckpt/step").write_text(str(step))
    shoal.checkpoint("ckpt")
print("saved")
time.sleep(60)
"""
    work = folder(tmp_path / "work", prog=program)

    async def story(reef: Reef) -> None:
        boss = await reef.join("boss", "scheduler")
        first = await reef.join("first", "worker")
        tree = pack(boss, work)
        spec = f"command: [{sys.executable}, prog]\nworkdir: 'tree:{tree}'"
        await submit(boss, "j1", spec)
        await until(lambda: "saved" in written(boss, "j1.main.0"))
        kept = boss.home.path / "checkpoints.json"
        await until(lambda: kept.exists() and len(kept.read_bytes()) > 10)
        last = boss.artifacts.checkpoints._kept
        await until(lambda: unpacked(boss, next(iter(last.values())).tree) == STEP_3)
        await reef.leave(first)
        await reef.join("second", "worker")
        assert await end(boss, "j1") == "done"

        assert written(boss, "j1.main.0").splitlines()[-1] == "from 3"

    play(tmp_path, story)


def under(leaf: str, cpus: int) -> Capacity:
    """Return the capacity of a worker under a leaf with narrow uplinks."""
    labels = (("leaf", leaf), (OVERSUBSCRIPTION, "16"))
    return msgspec.structs.replace(TWO_CPUS, cpu_milli=1_000 * cpus, labels=labels)


def test_a_gang_moves_to_where_all_of_it_fits_and_goes_on_there(
    tmp_path: Path,
) -> None:
    program = b"""
import os, pathlib, sys, time
import shoal
saved = os.environ.get("SHOAL_CHECKPOINT")
if saved:
    print("from", pathlib.Path(saved, "step").read_text())
    sys.exit(0)
pathlib.Path("ckpt").mkdir()
for step in range(1, 1_000):
    pathlib.Path("ckpt/step").write_text(str(step))
    shoal.checkpoint("ckpt")
    shoal.log(progress=step / 10_000)  # It will go on for long.
    time.sleep(0.2)
"""
    work = folder(tmp_path / "work", prog=program)

    async def story(reef: Reef) -> None:
        boss = await reef.join("boss", "scheduler")
        for leaf in ("a", "b"):
            await reef.join(leaf, "worker", capacity=under(leaf, cpus=1))
        tree = pack(boss, work)
        command = f"command: [{sys.executable}, prog]\nworkdir: 'tree:{tree}'"
        await submit(boss, "j1", f"{command}\nnodes: 2\nresources: {{cpu: 1}}")
        assert boss.scheduler is not None
        tasks = [boss.scheduler.book.tasks[TaskId(f"j1.main.{n}")] for n in (0, 1)]
        await until(lambda: all(record.live for record in tasks))
        before = {record.worker for record in tasks}
        await until(lambda: len(boss.artifacts.checkpoints._kept) == len(tasks))
        await reef.join("c", "worker", capacity=under("c", cpus=2))
        # A scheduler knows whom it needed: only there is room for this one.
        await submit(boss, "j2", "command: ['true']\nresources: {cpu: 2}")
        assert await end(boss, "j2") == "done"
        assert await end(boss, "j1") == "done"

        assert len(before) == 2
        assert {record.worker for record in tasks}.isdisjoint(before)
        assert [(record.moves, record.attempts) for record in tasks] == [(1, 2), (1, 2)]
        explained = boss.scheduler.explain(TaskId("j1.main.0"))
        assert explained is not None
        assert explained.why[1].startswith("moved from 2 nodes to ")
        for number in (0, 1):
            assert "from " in written(boss, f"j1.main.{number}")

    play(tmp_path, story)


def test_a_scheduler_that_starts_again_goes_on_fetching_outputs(
    tmp_path: Path,
) -> None:
    async def story(reef: Reef) -> None:
        boss = await reef.join("boss", "scheduler")
        worker = await reef.join("worker", "worker")
        command = "command: [sh, -c, 'head -c 30000000 /dev/urandom > big']"
        await submit(boss, "j1", f"{command}\noutputs: [big]")
        fetched = transfers(boss).fetching
        await until(lambda: fetched.bytes_fetched > 1 * MB, pause_s=0.001)
        await reef.leave(boss)
        before = fetched.bytes_fetched
        boss = await reef.join("boss", "scheduler")
        assert await end(boss, "j1") == "done"

        assert worker.artifacts.store.used_bytes > 30 * MB
        [data] = unpacked(boss, outputs(boss, "j1.main.0")).values()
        assert len(data) == 30 * MB
        assert before + transfers(boss).fetching.bytes_fetched < 33 * MB
        assert boss.scheduler is not None
        assert boss.scheduler.book.tasks[TaskId("j1.main.0")].attempts == 1

    play(tmp_path, story)


def test_a_job_whose_code_cannot_be_had_fails_and_says_why(tmp_path: Path) -> None:
    work = folder(tmp_path / "work", code=b"x")

    async def story(reef: Reef) -> None:
        boss = await reef.join("boss", "scheduler")
        await reef.join("worker", "worker")
        tree = pack(boss, work)
        await submit(boss, "j1", f"command: cat code\nworkdir: 'tree:{tree}'")
        found = boss.artifacts.blobs.shelf.tree(tree)
        assert isinstance(found, Tree)
        boss.artifacts.store.drop(found.files()[0])
        assert await end(boss, "j1") == "failed"

        assert boss.scheduler is not None
        reason = boss.scheduler.book.tasks[TaskId("j1.main.0")].reason
        assert "its workdir cannot be had" in reason
        assert "it is not held here" in reason

    play(tmp_path, story)


def test_how_much_has_come_is_shown_while_it_comes(tmp_path: Path) -> None:
    work = folder(tmp_path / "work", big=os.urandom(20 * MB))

    async def story(reef: Reef) -> None:
        boss = await reef.join("boss", "scheduler")
        await reef.join("worker", "worker")
        serving, task = transfers(boss).serving, TaskId("j1.main.0")
        links = boss._links
        assert links is not None
        send, stuck = links.send, True

        def send_some(peer: NodeId, message: AnyMessage) -> None:
            lost = stuck and serving.bytes_served > 6 * MB
            if not (lost and isinstance(message, BlobPiece)):
                send(peer, message)

        links.send = send_some  # type: ignore[method-assign]
        await submit(
            boss, "j1", f"command: wc -c big\nworkdir: 'tree:{pack(boss, work)}'"
        )
        await until(lambda: boss.outputs.moving(task).endswith("of 20 MB"))
        await until(lambda: boss.outputs.moving(task) > "fetching 4")
        stuck = False
        assert await end(boss, "j1") == "done"

        assert boss.outputs.moving(task) == ""
        assert written(boss, "j1.main.0").split()[0] == str(20 * MB)

    play(tmp_path, story)


def test_a_secret_reaches_its_task_and_nobody_else(tmp_path: Path) -> None:
    async def story(reef: Reef) -> None:
        boss = await reef.join("boss", "scheduler")
        await reef.join("worker", "worker")
        boss.artifacts.secrets.set("TOKEN", "hunter2hunter2")
        spec = "command: [sh, -c, 'echo $TOKEN; test ${#TOKEN} = 14']"
        await submit(boss, "j1", f"{spec}\nsecrets: [TOKEN]")
        assert await end(boss, "j1") == "done"

        assert written(boss, "j1.main.0") == "*" * 14 + "\n"

    play(tmp_path, story)
    for path in tmp_path.rglob("*"):
        if path.is_file() and not path.name.endswith(".stdout"):
            assert b"hunter2hunter2" not in path.read_bytes(), path


def test_work_of_another_owner_gets_no_secret_however_it_came(tmp_path: Path) -> None:
    async def story(reef: Reef) -> None:
        boss = await reef.join("boss", "scheduler", "worker")
        member = await reef.join("member", "scheduler", "worker", owner="mallory")
        boss.artifacts.secrets.set("TOKEN", "hunter2hunter2")
        spec = "command: [sh, -c, 'echo $TOKEN | rev']\nsecrets: [TOKEN]"

        grant = member.membership.grant
        by = Submitter(grant=grant)
        answer = await boss.clients.submit(job("j1", spec), by)
        assert not answer.refused
        assert await end(boss, "j1") == "failed"

        assert boss.scheduler is not None
        outcome = boss.scheduler.book.tasks[TaskId("j1.main.0")].outcome
        assert outcome is not None
        assert "not given secret 'TOKEN'" in outcome.reason
        assert written(boss, "j1.main.0") == ""

    play(tmp_path, story)
