"""Figures from inside a task, by `shoal.log` and by whoever writes lines himself."""

import asyncio
import contextlib
import json
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from tests.unit.drivers.orders import Watched, order, run, with_driver

import shoal
from shoal.drivers import task_socket
from shoal.drivers.process import ProcessDriver
from shoal.drivers.task_socket import TaskSocket

pytestmark = pytest.mark.integration

SOURCE = str(Path(shoal.__file__).parents[1])
Figures = list[tuple[float | None, dict[str, float]]]


def test_a_task_tells_figures_by_shoal_log(tmp_path: Path) -> None:
    script = (
        "import shoal\n"
        "assert shoal.log({'loss': 0.5, 'lr': 1}, step=3, progress=0.25)\n"
        "assert shoal.log({'loss': float('nan')}, progress=7)\n"
    )
    one = order(sys.executable, "-S", "-c", script, env={"PYTHONPATH": SOURCE})

    outcome, watched = run(tmp_path, one)

    assert outcome.exit_code == 0, watched.text("stderr")
    [(fraction, metrics)] = watched.figures
    assert fraction == 1.0
    assert {**metrics, "loss": 0} == {"loss": 0, "lr": 1.0, "step": 3.0}
    assert metrics["loss"] != metrics["loss"]


def test_what_is_no_number_is_left_out_and_said_and_the_rest_is_kept(
    tmp_path: Path,
) -> None:
    script = (
        "import shoal\n"
        "class Large:\n"
        "    def __float__(self): raise TypeError('only one element')\n"
        "class Scalar:\n"
        "    def __float__(self): return 0.5\n"
        "for _ in range(2):\n"
        "    assert shoal.log({'loss': Scalar(), 'name': 'adam', 'x': Large(),\n"
        "                      'none': None, 'done': True}, step=Scalar())\n"
        "assert shoal.log({f'm{n}': n for n in range(300)}, step=7)\n"
    )
    one = order(sys.executable, "-S", "-c", script, env={"PYTHONPATH": SOURCE})

    outcome, watched = run(tmp_path, one)

    assert outcome.exit_code == 0
    told: dict[str, float] = {}
    for _, figures in watched.figures:
        told |= figures
    assert (told["loss"], told["done"], told["step"]) == (0.5, 1.0, 7.0)
    said = watched.text("stderr")
    for name, kind in (("name", "str"), ("x", "Large"), ("none", "NoneType")):
        assert said.count(f"left out '{name}': it is a {kind}, and metrics are") == 1
    assert "left out 'm255': a report has at most 255 metrics" in said
    assert "'m254'" not in said


def test_a_forked_child_tells_on_a_line_of_its_own(tmp_path: Path) -> None:
    script = (
        "import os, shoal\n"
        "shoal.log({'parent': 1})\n"
        "if os.fork() == 0:\n"
        "    shoal.log({'child': 2})\n"
        "    os._exit(0)\n"
        "os.wait()\n"
        "shoal.log({'after': 3})\n"
    )
    one = order(sys.executable, "-S", "-c", script, env={"PYTHONPATH": SOURCE})

    _, watched = run(tmp_path, one)

    told: dict[str, float] = {}
    for _, figures in watched.figures:
        told.update(figures)
    assert told == {"parent": 1, "child": 2, "after": 3}


def test_the_next_attempt_is_not_told_the_figures_of_the_one_before(
    tmp_path: Path,
) -> None:
    script = (
        "import os, socket\n"
        "for n in range(3):\n"
        "    s = socket.socket(socket.AF_UNIX); s.connect(os.environ['SHOAL_SOCKET'])\n"
        '    s.sendall(b\'{"metrics": {"old": 1}}\\n{"metrics"\'); s.detach()\n'
    )

    async def act(driver: ProcessDriver) -> tuple[Figures, Figures]:
        first, second = Watched(), Watched()
        await driver.run(order(sys.executable, "-S", "-c", script), first)
        await driver.run(order("/bin/true"), second)
        return first.figures, second.figures

    first, second = with_driver(tmp_path, act)

    assert first == [(None, {"old": 1.0})]
    assert second == []


# The socket by itself.


async def talk(
    path: Path, act: Callable[[TaskSocket, Watched], Awaitable[None]]
) -> tuple[TaskSocket, Watched]:
    """Open a socket for one attempt, act, and end the attempt."""
    watched = Watched()
    opened = TaskSocket(path)
    opened.open()
    opened.begin(watched.progressed)
    try:
        async with asyncio.timeout(10):
            await act(opened, watched)
        opened.end()
    finally:
        opened.close()
    return opened, watched


def test_what_was_told_just_before_the_end_counts_and_never_later(
    tmp_path: Path,
) -> None:
    path = tmp_path / "s"
    later = Watched()

    async def act(opened: TaskSocket, watched: Watched) -> None:
        # The loop has no turn between this and the end, as if the task died at once.
        with socket.socket(socket.AF_UNIX) as line:
            line.connect(str(path))
            line.sendall(b'{"progress": 0.9}\n')
        opened.end()
        opened.begin(later.progressed)
        await asyncio.sleep(2 * task_socket.MOMENT_S)

    _, watched = asyncio.run(talk(path, act))

    assert watched.figures == [(0.9, {})]
    assert later.figures == []


def test_nonsense_is_answered_and_counted_and_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "s"
    nonsense = [
        b"no json",
        b"[]",
        b'{"metrics": 3}',
        b'{"metrics": {"a": "b"}}',
        b'{"progress": "half"}',
        b"[" * 50_000,
        b"\xff\xfe",
        b"9" * 5_000,
    ]

    async def act(opened: TaskSocket, watched: Watched) -> None:
        reader, writer = await asyncio.open_unix_connection(str(path))
        for line in nonsense:
            writer.write(line + b"\n")
            assert "error" in json.loads(await reader.readline())
        writer.write(b'\n \n{"metrics": {"fine": 1}}\n')
        writer.close()
        await writer.wait_closed()

    opened, watched = asyncio.run(talk(path, act))

    assert opened.counts["nonsense"] == len(nonsense)
    assert watched.figures == [(None, {"fine": 1.0})]


def test_a_line_that_is_too_long_is_skipped_and_the_next_is_read(
    tmp_path: Path,
) -> None:
    path = tmp_path / "s"

    async def act(opened: TaskSocket, watched: Watched) -> None:
        _, writer = await asyncio.open_unix_connection(str(path))
        writer.write(b"x" * (3 * task_socket.LINE_BYTES_MAX) + b"\n")
        writer.write(b'{"metrics": {"fine": 1}}\n')
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    opened, watched = asyncio.run(talk(path, act))

    assert opened.counts["nonsense"] == 1
    assert watched.figures == [(None, {"fine": 1.0})]


def test_a_flood_of_reports_is_slowed_and_the_latest_passed_on(tmp_path: Path) -> None:
    path = tmp_path / "s"
    lines = [b'{"metrics": {"n": %d}}\n' % n for n in range(60_000)]
    flood = b"".join(lines)

    async def act(opened: TaskSocket, watched: Watched) -> None:
        line = socket.socket(socket.AF_UNIX)
        line.connect(str(path))
        line.setblocking(False)
        loop = asyncio.get_running_loop()
        until = loop.time() + 4 * task_socket.MOMENT_S
        sent = 0
        while loop.time() < until and sent < len(flood):
            with contextlib.suppress(BlockingIOError):
                sent += line.send(flood[sent : sent + 65_536])
            await asyncio.sleep(0.001)
        line.close()

    began = time.monotonic()
    opened, watched = asyncio.run(talk(path, act))
    moments = (time.monotonic() - began) / task_socket.MOMENT_S + 2

    assert 0 < len(watched.figures) <= moments
    # What one read brings is taken in as a whole.
    over = task_socket.LINE_BYTES_MAX // len(lines[0])
    most = moments * (task_socket.LINES_PER_MOMENT_MAX + over)
    assert opened.counts["reports"] < min(most, len(lines))
    assert opened.counts["moments too busy"] > 0


def test_so_many_connections_and_no_more(tmp_path: Path) -> None:
    path = tmp_path / "s"

    async def act(opened: TaskSocket, watched: Watched) -> None:
        count = task_socket.CONNECTIONS_MAX + 3
        lines = [await asyncio.open_unix_connection(str(path)) for _ in range(count)]
        assert await lines[-1][0].read() == b""
        for _, writer in lines:
            writer.close()

    opened, _ = asyncio.run(talk(path, act))

    assert opened.counts["connections refused"] == 3


def test_figures_never_hold_more_than_a_message_may(tmp_path: Path) -> None:
    path = tmp_path / "s"

    async def act(opened: TaskSocket, watched: Watched) -> None:
        _, writer = await asyncio.open_unix_connection(str(path))
        for start in range(0, 1_000, 100):
            metrics = {f"m{n}": n for n in range(start, start + 100)}
            writer.write(json.dumps({"metrics": metrics}).encode() + b"\n")
        writer.close()
        await writer.wait_closed()

    _, watched = asyncio.run(talk(path, act))

    [(_, metrics)] = watched.figures
    assert len(metrics) == 256


# Outside a task.


def test_outside_a_task_there_is_one_warning_and_no_effect(tmp_path: Path) -> None:
    script = (
        "import warnings, shoal\n"
        "with warnings.catch_warnings(record=True) as seen:\n"
        "    warnings.simplefilter('always')\n"
        "    told = [shoal.log({'a': 1}) for _ in range(3)]\n"
        "print(told, len(seen), seen[0].filename)\n"
    )
    environment = {"PYTHONPATH": SOURCE, "SHOAL_SOCKET": ""}

    done = subprocess.run(
        [sys.executable, "-S", "-c", script],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout == "[False, False, False] 1 <string>\n"


def test_importing_shoal_loads_nothing_until_it_is_used() -> None:
    script = (
        "import sys; before = set(sys.modules); import shoal\n"
        "print(sorted(set(sys.modules) - before)); shoal.log\n"
        "print('shoal.task_metrics' in sys.modules)\n"
    )

    done = subprocess.run(
        [sys.executable, "-S", "-c", script],
        env={"PYTHONPATH": SOURCE},
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout == "['shoal']\nTrue\n"
