"""Results of machines that one does not trust, from real nodes, some of which lie."""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import pytest
from tests.integration.artifacts_nodes import pack, submit, unpacked
from tests.integration.cli_home import CliHome
from tests.integration.live_shoal import LiveShoal, live_shoal
from tests.integration.pool_nodes import Reef, end

from shoal.core.records.records import JobRecord
from shoal.core.verification.answer_history import answers_of
from shoal.model.ids import JobId, NodeId, TaskId
from shoal.net.identity.petname import petname
from shoal.protocol.messages import Outcome
from shoal.runtime.node import Node

pytestmark = pytest.mark.integration

HOSTILE = Path(__file__).with_name("hostile_worker.py")
TASKS = 4
SPEC = f"""
command: [sh, -c, 'echo {{index}} > out.txt']
array: {TASKS}
outputs: [out.txt]
verify: {{copies: 2, compare: outputs}}
"""


def play(tmp_path: Path, story: Callable[[Reef], Awaitable[None]]) -> None:
    async def whole() -> None:
        reef = Reef(tmp_path)
        try:
            async with asyncio.timeout(60):
                await story(reef)
        finally:
            await reef.close()

    asyncio.run(whole())


async def three(reef: Reef) -> tuple[Node, Node]:
    """Start a scheduler and workers of three owners; return it, and one of these."""
    boss = await reef.join("boss", "scheduler", owner="ann")
    await reef.join("w1", "worker", owner="bob")
    await reef.join("w2", "worker", owner="cem")
    return boss, await reef.join("w3", "worker", owner="eve")


def said(node: Node, task: str) -> dict[NodeId, str]:
    assert node.scheduler is not None
    return dict(answers_of(node.scheduler.book.tasks[TaskId(task)]))


def outcome(node: Node, task: str) -> Outcome:
    assert node.scheduler is not None
    found = node.scheduler.book.tasks[TaskId(task)].outcome
    assert found is not None
    return found


def of_eve(script: str) -> str:
    """Return a command that does something else on the machine of eve."""
    return f"command: [sh, -c, 'case $PWD in */w3/*) eve=1;; *) eve=;; esac; {script}']"


def test_the_right_result_wins_and_everybody_can_see_who_lied(tmp_path: Path) -> None:
    net = "127." + ".".join(str(byte % 254 + 1) for byte in os.urandom(2))
    liar = (sys.executable, str(HOSTILE))
    shoal = LiveShoal(
        tmp_path,
        workers=3,
        owners=("bob", "cem", "eve"),
        place=lambda n: (f"{net}.{n + 1}", liar if n == 3 else ()),
    )
    spec = tmp_path / "job.yaml"
    spec.write_text(SPEC)

    with live_shoal(shoal):
        command = CliHome(shoal.boss.home.path)
        command.ok("run", str(spec))
        command.ok("pull", "last", "--to", str(tmp_path / "got"))
        with shoal.boss.client() as client:
            nodes = {node.name.id: node for node in client.nodes().nodes}
        table, events = command.ok("nodes"), command.ok("events")
        shown = command.ok("show")

    results = [path.read_text() for path in (tmp_path / "got").rglob("out.txt")]
    assert sorted(results) == [f"{n}\n" for n in range(TASKS)]
    eve = petname(NodeId(shoal.workers[2].id))
    standing = nodes[shoal.workers[2].id].standing
    assert standing.trust == "shunned"
    assert standing.disagreed >= 1
    assert f"{standing.disagreed} disagreed of {standing.judged}" in table
    assert f"{eve} disagreed with others about" in events
    assert f"{eve} disagreed" in shown


def test_no_worker_gets_a_digest_believed_that_it_only_claims(tmp_path: Path) -> None:
    async def story(reef: Reef) -> None:
        boss, eve = await three(reef)
        unload = eve.artifacts.unload

        async def claims(*args: object) -> Outcome:
            ended = await unload(*args)  # type: ignore[arg-type]
            right = "1" * 64
            return msgspec.structs.replace(ended, outputs={}, digest=right)

        eve.artifacts.unload = claims  # type: ignore[method-assign, assignment]
        await submit(boss, "j1", SPEC)

        assert await end(boss, "j1") == "done"
        for n in range(TASKS):
            tree = boss.artifacts.outputs_of(_job(boss, "j1"))[TaskId(f"j1.main.{n}")]
            assert unpacked(boss, tree) == {"out.txt": f"{n}\n".encode()}
            answers = said(boss, f"j1.main.{n}")
            assert answers.get(eve.id, "disagreed").startswith("disagreed")

    play(tmp_path, story)


def test_all_of_stdout_is_compared_and_shown_as_it_was(tmp_path: Path) -> None:
    async def story(reef: Reef) -> None:
        boss, eve = await three(reef)
        script = "seq 20000; [ -z $eve ] || echo a lie; seq 20000"
        spec = f"{of_eve(script)}\narray: 3\nverify: {{compare: stdout}}"
        await submit(boss, "j1", spec)

        assert await end(boss, "j1") == "done"
        lied = [n for n in range(3) if eve.id in said(boss, f"j1.main.{n}")]
        assert lied
        for n in range(3):
            assert boss.scheduler is not None
            record = boss.scheduler.book.tasks[TaskId(f"j1.main.{n}")]
            accepted = next(
                a.attempt for a in record.answers if a.outcome == record.outcome
            )
            path = boss.outputs.path(record.task.id, accepted, "stdout")
            numbers = "".join(f"{n}\n" for n in range(1, 20001))
            assert path.read_text() == 2 * numbers

    play(tmp_path, story)


def test_one_file_is_compared_whatever_the_others_are(tmp_path: Path) -> None:
    async def story(reef: Reef) -> None:
        boss, _ = await three(reef)
        script = "mkdir out; pwd > out/log; echo 7 > out/loss"
        spec = f"{of_eve(script)}\noutputs: [out/]\nverify: {{compare: out/loss}}"
        await submit(boss, "j1", spec)

        assert await end(boss, "j1") == "done"
        assert list(said(boss, "j1.main.0").values()) == ["agreed", "agreed"]

    play(tmp_path, story)


def test_a_command_says_which_outputs_are_close_enough(tmp_path: Path) -> None:
    close = "import sys\na, b = (float(open(f'{x}/x').read()) for x in sys.argv[1:])\n"
    work = tmp_path / "work"
    work.mkdir()
    (work / "close.py").write_text(f"{close}sys.exit(abs(a - b) > 0.1)\n")

    async def story(reef: Reef) -> None:
        boss, eve = await three(reef)
        script = "[ -z $eve ] && echo 1.0$$ > x || echo 2 > x"
        await submit(
            boss,
            "j1",
            f"{of_eve(script)}\nworkdir: 'tree:{pack(boss, work)}'\noutputs: [x]\n"
            f"array: 2\nverify: {{compare: [{sys.executable}, workdir/close.py]}}",
        )

        assert await end(boss, "j1") == "done"
        for n in range(2):
            answers = said(boss, f"j1.main.{n}")
            assert answers.pop(eve.id, "disagreed") == "disagreed"
            assert list(answers.values()) == ["agreed", "agreed"]

    play(tmp_path, story)


def _job(node: Node, name: str) -> JobRecord:
    assert node.scheduler is not None
    return node.scheduler.book.jobs[JobId(name)]
