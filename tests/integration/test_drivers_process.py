"""Real tasks under real supervisors: they start, write, stop, and leave nothing."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable
from itertools import pairwise
from pathlib import Path

import psutil
import pytest
from tests.unit.drivers.orders import Watched, order, run, shell, with_driver

from shoal.drivers import Stream
from shoal.drivers.process import ProcessDriver, ProcessSettings
from shoal.drivers.supervisor import supervisors
from shoal.drivers.supervisor.leftovers import marked, worker_mark
from shoal.drivers.supervisor.process_tree import descendants
from shoal.drivers.supervisor.supervisor import FILE_BYTES_MAX, PIECE_BYTES_MAX
from shoal.model.resources import Allocation, DeviceShare

pytestmark = pytest.mark.integration

SWARM = 16  # More than began: some begin while others are being killed.

DAEMON = """
import os, sys, time
if os.fork(): os._exit(0) if len(sys.argv) > 1 else time.sleep(0.2) or os._exit(0)
os.setsid()
if os.fork(): os._exit(0)
os.closerange(0, 100)
open("daemon.pid", "w").write(str(os.getpid()))
os.execve("/bin/sleep", ["sleep", "1000"], {})
"""


def alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def written_pid(path: Path) -> int:
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        if path.exists() and (text := path.read_text(encoding="ascii")):
            return int(text)
        time.sleep(0.01)
    raise AssertionError(f"no pid in {path}")


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - It is about other processes.
            await asyncio.sleep(0.01)


# Starting.


def test_a_task_ends_with_its_exit_code_and_all_it_wrote(tmp_path: Path) -> None:
    outcome, watched = run(tmp_path, shell("echo out; echo err >&2; exit 3"))

    assert (outcome.kind, outcome.exit_code) == ("exited", 3)
    assert watched.text("stdout") == "out\n"
    assert watched.text("stderr") == "err\n"


def test_what_a_task_writes_is_kept_in_files_too(tmp_path: Path) -> None:
    run(tmp_path, shell("echo out; echo err >&2"))

    [stdout] = tmp_path.glob("*.stdout")
    assert stdout.read_text(encoding="ascii") == "out\n"
    assert stdout.with_suffix(".stderr").read_text(encoding="ascii") == "err\n"


def test_a_task_sees_nothing_of_the_environment_of_the_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NODE_SECRET", "s3cret")
    one = order("/usr/bin/env", env={"LR": "0.1"}, secrets=("K",), given={"K": "v"})

    _, watched = run(tmp_path, one)

    names = {line.partition("=")[0] for line in watched.text().splitlines()}
    assert "NODE_SECRET" not in names
    assert {"LR", "K", "SHOAL_JOB_ID", "RANK", "CUDA_VISIBLE_DEVICES"} <= names


def test_a_task_gets_no_file_of_the_node(tmp_path: Path) -> None:
    with (tmp_path / "open").open("w") as file:
        os.set_inheritable(file.fileno(), True)

        # Only what the shell has built in: `$(seq)` would open a pipe of its own.
        numbers = " ".join(str(n) for n in {*range(64), file.fileno()})
        look = (
            f"for n in {numbers}; do [ -e /proc/$$/fd/$n ] && echo $n; done; echo end"
        )
        _, watched = run(tmp_path, shell(look))

    assert watched.text() == "0\n1\n2\nend\n"


def test_a_task_leads_a_session_of_its_own(tmp_path: Path) -> None:
    _, watched = run(tmp_path, shell("ps -o pid=,pgid=,sid= -p $$"))

    pid, group, session = watched.text().split()
    assert pid == group == session


def test_arguments_reach_a_program_as_they_are(tmp_path: Path) -> None:
    words = ("$HOME", "a b", "", "'", "*", "é\n", "x" * 60_000)

    _, watched = run(tmp_path, order("/usr/bin/printf", "%s|", *words))

    assert watched.text() == "".join(f"{word}|" for word in words)


@pytest.mark.parametrize(
    ("argv", "reason"),
    [
        (("no-such-program",), "no such program in PATH: 'no-such-program'"),
        (("/no/such",), "no such program: '/no/such'"),
        (("/etc/passwd",), "not executable: '/etc/passwd'"),
        (("/usr",), "not executable: '/usr'"),
        (("/bin/echo", *["x" * 60_000] * 60), "are too long together"),
        (("./script",), "no such program: './script'"),
        ((), "there is no program to run"),
        (("a\0b",), "contains a NUL byte"),
    ],
)
def test_a_start_that_fails_says_why(
    tmp_path: Path, argv: tuple[str, ...], reason: str
) -> None:
    outcome, _ = run(tmp_path, order(*argv))

    assert outcome.kind == "not-started"
    assert reason in outcome.reason


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "#!/no/such/interpreter\n",
            "the interpreter that './it' names does not exist",
        ),
        ("no program", "not a program of this machine"),
    ],
)
def test_a_file_that_is_no_program_says_why(
    tmp_path: Path, text: str, reason: str
) -> None:
    directory = tmp_path / "given"
    directory.mkdir()
    (directory / "it").write_text(text, encoding="ascii")
    (directory / "it").chmod(0o755)

    outcome, _ = run(tmp_path / "root", order("./it", directory=directory))

    assert outcome.kind == "not-started"
    assert reason in outcome.reason


def test_a_supervisor_goes_on_after_a_start_that_failed(tmp_path: Path) -> None:
    async def act(driver: ProcessDriver) -> list[str]:
        orders = [order("/no/such"), order("/bin/true"), order("/no/such")]
        return [(await driver.run(each, Watched())).kind for each in orders]

    assert with_driver(tmp_path, act) == ["not-started", "exited", "not-started"]


def test_a_task_runs_only_on_cpus_that_were_lent(tmp_path: Path) -> None:
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        pytest.skip("this machine has one CPU")
    one = order("/usr/bin/nproc", allocation=Allocation(cpu_milli=1_000))

    _, watched = run(tmp_path, one, ProcessSettings(sandbox=False, cpus=tuple(cpus)))

    assert watched.text() == "1\n"


def test_a_task_writes_no_core_and_opens_files_within_a_limit(tmp_path: Path) -> None:
    _, watched = run(tmp_path, shell("ulimit -c; ulimit -Hc; ulimit -n"))

    core, core_hard, files = watched.text().split()
    assert (core, core_hard) == ("0", "0")
    assert int(files) <= 65_536


def test_a_setup_runs_before_the_program_in_the_same_directory(tmp_path: Path) -> None:
    setup = ("/bin/sh", "-c", "echo made > made; echo setup")

    outcome, watched = run(tmp_path, order("/bin/cat", "made", setup=setup))

    assert outcome.exit_code == 0
    assert watched.text() == "setup\nmade\n"


def test_a_setup_that_fails_is_the_end(tmp_path: Path) -> None:
    one = order("/bin/touch", "ran", setup=("/bin/sh", "-c", "exit 9"))

    outcome, _ = run(tmp_path, one)

    assert (outcome.exit_code, outcome.reason) == (9, "its setup exited with 9")
    assert not list(tmp_path.glob("*.work/ran"))


# Output.


def test_offsets_count_the_bytes_of_each_stream(tmp_path: Path) -> None:
    script = "head -c 100000 /dev/zero; head -c 70000 /dev/zero >&2"

    _, watched = run(tmp_path, shell(script))

    for stream, size in (("stdout", 100_000), ("stderr", 70_000)):
        at = 0
        for name, offset, data in watched.pieces:
            if name == stream:
                assert offset == at
                assert len(data) <= PIECE_BYTES_MAX
                at += len(data)
        assert at == size


class Slow(Watched):
    """Takes one piece, and no other until it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.let = asyncio.Event()

    async def wrote(self, stream: Stream, offset: int, data: bytes) -> None:
        await super().wrote(stream, offset, data)
        await self.let.wait()


def test_a_task_that_floods_is_slowed_and_nobody_gathers_it(tmp_path: Path) -> None:
    script = "head -c 50000000 /dev/zero; touch done"

    async def act(driver: ProcessDriver) -> tuple[int, bool]:
        watched = Slow()
        one = shell(script)
        running = asyncio.create_task(driver.run(one, watched))
        await watched.spoke.wait()
        for _ in range(30):
            await asyncio.sleep(0.01)
        work = driver.prepare(one.attempt)
        held = driver.kept(one.attempt, "stdout").stat().st_size
        finished = (work / "done").exists()
        watched.let.set()
        assert (await running).exit_code == 0
        assert len(watched.text()) == 50_000_000
        return held, finished

    held, finished = with_driver(tmp_path, act)

    assert not finished
    assert held < 2_000_000


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2]
    return sum(map(int, fields.split()[11:13])) / os.sysconf("SC_CLK_TCK")


def writes_in_vain(pids: Iterable[int]) -> bool:
    """Whether one of these processes waits for somebody to read a pipe."""
    return any("pipe" in Path(f"/proc/{pid}/wchan").read_text() for pid in pids)


def test_a_supervisor_sleeps_while_nobody_reads_though_a_stream_has_closed(
    tmp_path: Path,
) -> None:
    script = "echo $PPID; exec 1>&-; cat /dev/zero >&2"

    async def act(driver: ProcessDriver) -> float:
        watched = Slow()
        one = shell(script)
        running = asyncio.create_task(driver.run(one, watched))
        await watched.spoke.wait()
        pid = int(watched.text())
        await until(lambda: writes_in_vain(descendants(pid)))
        before = cpu_s(pid)
        await asyncio.sleep(0.5)
        spent = cpu_s(pid) - before
        driver.stop(one.attempt, 0.0)
        watched.let.set()
        await running
        return spent

    assert with_driver(tmp_path, act) < 0.1


def test_a_task_is_stopped_though_nobody_reads_what_it_writes(tmp_path: Path) -> None:
    async def act(driver: ProcessDriver) -> str:
        watched = Slow()
        one = order("/bin/cat", "/dev/zero")
        running = asyncio.create_task(driver.run(one, watched))
        await watched.spoke.wait()
        driver.stop(one.attempt, 0.0)
        async with asyncio.timeout(10):
            while marked(driver.mark, str(one.attempt)):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        watched.let.set()
        return (await running).kind

    assert with_driver(tmp_path, act) == "cancelled"


def test_of_a_long_output_the_end_is_kept(tmp_path: Path) -> None:
    size = FILE_BYTES_MAX + 1_000_000

    run(tmp_path, shell(f"head -c {size} /dev/zero; echo end"))

    [kept] = tmp_path.glob("*.stdout")
    before = kept.with_suffix(".stdout.1")
    assert kept.read_bytes().endswith(b"end\n")
    assert kept.stat().st_size + before.stat().st_size == size + 4


# Stopping.


def test_a_stop_gives_notice_and_time(tmp_path: Path) -> None:
    script = "trap 'echo saved; exit 5' TERM; echo go; while :; do sleep 0.01; done"

    async def act(driver: ProcessDriver) -> None:
        watched, one = Watched(), shell(script)
        running = asyncio.create_task(driver.run(one, watched))
        await watched.spoke.wait()
        driver.stop(one.attempt, 20.0)
        outcome = await running
        assert (outcome.kind, outcome.exit_code) == ("cancelled", 5)
        assert watched.text() == "go\nsaved\n"

    with_driver(tmp_path, act)


def test_a_second_stop_shortens_the_grace_and_never_lengthens_it(
    tmp_path: Path,
) -> None:
    script = "trap '' TERM; echo go; while :; do sleep 0.01; done"

    async def act(driver: ProcessDriver) -> float:
        watched, one = Watched(), shell(script)
        running = asyncio.create_task(driver.run(one, watched))
        await watched.spoke.wait()
        began = time.monotonic()
        for grace_s in (20.0, 0.1, 20.0):
            driver.stop(one.attempt, grace_s)
        outcome = await running
        assert outcome.exit_code == 128 + signal.SIGKILL
        assert outcome.reason == "killed: it did not end within its grace"
        return time.monotonic() - began

    assert 0.1 <= with_driver(tmp_path, act) < 20.0


def test_a_stop_before_the_start_means_that_nothing_starts(tmp_path: Path) -> None:
    async def act(driver: ProcessDriver) -> str:
        first, second = order("/bin/sleep", "5"), order("/bin/touch", "ran")
        busy = asyncio.create_task(driver.run(first, Watched()))
        await until(lambda: bool(marked(driver.mark, str(first.attempt))))
        waiting = asyncio.create_task(driver.run(second, Watched()))
        await asyncio.sleep(0)  # It waits for a supervisor to start.
        driver.stop(second.attempt, 10.0)
        outcome = await waiting
        driver.stop(first.attempt, 0.0)
        await busy
        return outcome.kind

    assert with_driver(tmp_path, act) == "not-started"
    assert not list(tmp_path.glob("*.work/ran"))


def test_cancelling_a_run_leaves_no_process(tmp_path: Path) -> None:
    async def act(driver: ProcessDriver) -> str:
        watched, one = Watched(), shell("trap '' TERM; echo go; sleep 1000 & wait")
        running = asyncio.create_task(driver.run(one, watched))
        await watched.spoke.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        return str(one.attempt)

    attempt = with_driver(tmp_path, act)

    assert marked(worker_mark(tmp_path), attempt) == []


def test_a_watcher_that_fails_leaves_no_process(tmp_path: Path) -> None:
    class Broken(Watched):
        async def wrote(self, stream: Stream, offset: int, data: bytes) -> None:
            raise ValueError("broken")

    async def act(driver: ProcessDriver) -> str:
        one = shell("echo go; sleep 1000")
        with pytest.raises(ValueError, match="broken"):
            await driver.run(one, Broken())
        assert marked(driver.mark, str(one.attempt)) == []
        return (await driver.run(order("/bin/true"), Watched())).kind

    assert with_driver(tmp_path, act) == "exited"


# Leaving nothing.


def test_a_daemon_that_forked_twice_and_forgot_its_environment_is_killed(
    tmp_path: Path,
) -> None:
    outcome, _ = run(tmp_path, order(sys.executable, "-c", DAEMON))

    assert outcome.exit_code == 0
    [path] = tmp_path.glob("*.work/daemon.pid")
    assert not alive(written_pid(path))


def test_a_daemon_is_killed_before_the_end_is_told(tmp_path: Path) -> None:
    async def act(driver: ProcessDriver) -> bool:
        one = order(sys.executable, "-c", DAEMON)
        running = asyncio.create_task(driver.run(one, Watched()))
        path = driver.prepare(one.attempt) / "daemon.pid"
        pid = await asyncio.to_thread(written_pid, path)
        assert alive(pid)
        await running
        return alive(pid)

    assert not with_driver(tmp_path, act)


def test_background_children_end_with_the_task(tmp_path: Path) -> None:
    outcome, watched = run(tmp_path, shell("sleep 1000 & echo $!; exit 0"))

    assert outcome.exit_code == 0
    assert not alive(int(watched.text()))


def test_a_swarm_that_keeps_forking_is_killed(tmp_path: Path) -> None:
    # It goes on for ever, and is about 300 at a time: the machine has other users.
    script = """
f() { sleep 0.05; setsid sh -c 'sleep 0.02 & sleep 0.03' & f & exit; }
echo go; for n in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16; do f & done; wait
"""

    async def act(driver: ProcessDriver) -> str:
        watched, one = Watched(), shell(script)
        running = asyncio.create_task(driver.run(one, watched))
        await watched.spoke.wait()
        await until(lambda: len(marked(driver.mark, str(one.attempt))) > SWARM)
        driver.stop(one.attempt, 0.0)
        await running
        return str(one.attempt)

    attempt = with_driver(tmp_path, act)

    assert marked(worker_mark(tmp_path), attempt) == []


def test_a_task_whose_supervisor_is_killed_is_lost_and_dead(tmp_path: Path) -> None:
    async def act(driver: ProcessDriver) -> tuple[str, str, str]:
        watched, one = Watched(), shell("echo $PPID; sleep 1000")
        running = asyncio.create_task(driver.run(one, watched))
        await watched.spoke.wait()
        os.kill(int(watched.text()), signal.SIGKILL)
        outcome = await running
        assert marked(driver.mark, str(one.attempt)) == []
        after = await driver.run(order("/bin/true"), Watched())
        return outcome.kind, outcome.reason, after.kind

    assert with_driver(tmp_path, act) == ("lost", "its supervisor was killed", "exited")


def test_an_idle_supervisor_that_was_killed_is_replaced(tmp_path: Path) -> None:
    async def act(driver: ProcessDriver) -> str:
        watched = Watched()
        await driver.run(shell("echo $PPID"), watched)
        before = len(own_files())
        os.kill(int(watched.text()), signal.SIGKILL)
        await until(lambda: len(own_files()) < before)  # The driver has noticed.
        return (await driver.run(order("/bin/true"), Watched())).kind

    assert with_driver(tmp_path, act) == "exited"


def test_a_driver_that_closes_leaves_no_child(tmp_path: Path) -> None:
    # Not all descendants: one child forks nodes for tests that run at the same time.
    before = psutil.Process().children()

    run(tmp_path, order("/bin/true"))

    assert psutil.Process().children() == before


# Limits.


def test_a_task_over_its_memory_is_killed_with_the_numbers(tmp_path: Path) -> None:
    program = "x = bytearray(300 << 20)\nimport time; time.sleep(1000)"
    limit = Allocation(memory_bytes=100 << 20)

    outcome, _ = run(tmp_path, order(sys.executable, "-c", program, allocation=limit))

    assert outcome.exit_code == 128 + signal.SIGKILL
    assert outcome.reason.endswith("its limit is 100 MiB")


def test_address_space_that_is_only_reserved_costs_nothing(tmp_path: Path) -> None:
    flags = "mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000"  # MAP_NORESERVE
    program = f"import mmap, time; m = mmap.mmap(-1, 1 << 38, {flags}); time.sleep(0.7)"
    limit = Allocation(memory_bytes=200 << 20)

    outcome, _ = run(tmp_path, order(sys.executable, "-c", program, allocation=limit))

    assert outcome.exit_code == 0


def test_a_task_is_told_its_devices_and_no_others(tmp_path: Path) -> None:
    shares = (DeviceShare("1", 1_000, 0), DeviceShare("3", 1_000, 0))
    one = shell("echo $CUDA_VISIBLE_DEVICES", allocation=Allocation(shares=shares))

    _, watched = run(tmp_path, one)

    assert watched.text() == "1,3\n"


def test_many_tasks_run_at_a_time_and_all_end(tmp_path: Path) -> None:
    async def act(driver: ProcessDriver) -> set[int | None]:
        orders = [shell(f"echo {n}; exit {n % 3}") for n in range(60)]
        runs = [driver.run(each, Watched()) for each in orders[:12]]
        first = await asyncio.gather(*runs)
        rest = [await driver.run(each, Watched()) for each in orders[12:]]
        return {outcome.exit_code for outcome in [*first, *rest]}

    assert with_driver(tmp_path, act) == {0, 1, 2}


def own_files() -> list[Path]:
    return list(Path("/proc/self/fd").iterdir())


def test_neither_node_nor_supervisor_keeps_a_file_open_after_a_task(
    tmp_path: Path,
) -> None:
    async def act(driver: ProcessDriver) -> list[int]:
        counts: list[int] = []
        for _ in range(20):
            watched = Watched()
            await driver.run(order("/no/such"), Watched())
            await driver.run(shell("ls /proc/$PPID/fd | wc -l >&2"), watched)
            counts.append(len(own_files()) + int(watched.text("stderr")))
        return counts

    counts = with_driver(tmp_path, act)

    # While a task starts its supervisor has a few more open for a moment.
    assert max(counts) - min(counts) < 5


def test_nothing_of_an_attempt_is_on_disk_after_it_was_discarded(
    tmp_path: Path,
) -> None:
    async def act(driver: ProcessDriver) -> None:
        one = shell("mkdir -p a/b; ln -s / a/out; echo x > a/b/c; echo y")
        await driver.run(one, Watched())
        await driver.discard(one.attempt)

    with_driver(tmp_path, act)

    assert [path.name for path in tmp_path.iterdir()] == ["sockets"]
    assert Path("/usr").exists()


def test_an_empty_work_directory_serves_the_next_task(tmp_path: Path) -> None:
    async def act(driver: ProcessDriver) -> list[bool]:
        inodes: list[int] = []
        for script in ("true", "true", "touch x", "true"):
            one, watched = shell(f"stat -c %i . && {script}"), Watched()
            outcome = await driver.run(one, watched)
            assert outcome.exit_code == 0
            inodes.append(int(watched.text()))
        return [before == after for before, after in pairwise(inodes)]

    assert with_driver(tmp_path, act) == [True, True, False]


def test_a_work_directory_that_a_task_changed_is_nobody_elses(tmp_path: Path) -> None:
    async def act(driver: ProcessDriver) -> str:
        await driver.run(shell("chmod 755 ."), Watched())
        watched = Watched()
        await driver.run(shell("stat -c %a ."), watched)
        return watched.text()

    assert with_driver(tmp_path, act) == "700\n"


# The supervisors themselves.


def test_supervisors_of_a_burst_end_after_a_rest_but_for_a_few(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisors, "REST_S", 0.3)
    before = set(descendants(os.getpid()))

    async def burst(driver: ProcessDriver) -> tuple[int, int]:
        orders = [shell("sleep 0.5") for _ in range(5)]
        runs = [asyncio.ensure_future(driver.run(each, Watched())) for each in orders]
        await until(lambda: len(started()) >= 10)  # With a task each.
        busy = len(started())
        await asyncio.gather(*runs)
        await until(lambda: len(started()) <= supervisors.KEPT_MIN)
        again = await driver.run(shell("exit 3"), Watched())
        assert again.exit_code == 3
        return busy, len(started())

    def started() -> set[int]:
        return set(descendants(os.getpid())) - before

    busy, left = with_driver(tmp_path, burst)

    assert busy >= 10
    assert left == supervisors.KEPT_MIN
