"""Functions and jobs by the Python API, on a node of their own."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.integration.calling import (
    WAIT_S,
    active_jobs,
    client,
    eventually,
    lane_pids,
    node,
)
from tests.integration.cli_home import CliHome

import shoal
from shoal.client.jobs import JobFailedError
from shoal.errors import (
    CallLostError,
    CallRefusedError,
    CallStoppedError,
    RemoteError,
    SpecError,
    UsageError,
)
from shoal.protocol import payloads

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CliHome]:
    with node(tmp_path_factory.mktemp("home")) as made:
        yield made


@pytest.fixture(scope="module")
def caller(home: CliHome) -> Iterator[shoal.Client]:
    with client(lanes=2, cpu=0.2, idle_s=600) as made:
        yield made


def sleep(seconds: float) -> str:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        time.sleep(0.01)
    return "slept"


class Point:
    def __init__(self, x: int) -> None:
        self.x = x

    def moved(self, by: int) -> "Point":
        return Point(self.x + by)


class UnpicklableError(Exception):
    def __init__(self) -> None:
        super().__init__("cannot travel")
        self.lock = threading.Lock()


class PickyError(Exception):
    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)


def raise_(kind: str) -> None:
    if kind == "unpicklable":
        raise UnpicklableError
    if kind == "picky":
        raise PickyError(3, "too few arguments come back")
    raise SystemExit(7)


def test_functions_of_scripts_closures_and_classes_travel(caller: shoal.Client) -> None:
    factor = 3

    def times(x: int) -> int:
        return factor * x

    assert caller.submit(times, 14).result(WAIT_S) == 42
    assert caller.submit(lambda x: x + factor, 1).result(WAIT_S) == 4
    assert caller.submit(Point(1).moved, 2).result(WAIT_S).x == 3
    assert caller.submit(len, "four").result(WAIT_S) == 4


def test_functions_run_elsewhere_and_where_they_may_do_no_harm(
    caller: shoal.Client,
) -> None:
    def look() -> tuple[int, str, dict[str, str]]:
        return os.getpid(), str(Path.cwd()), dict(os.environ)

    pid, place, env = caller.submit(look).result(WAIT_S)

    assert place != str(Path.cwd())
    assert env["SHOAL_JOB_ID"].startswith("calls-")
    assert "SHOAL_HOME" not in env
    assert pid != os.getpid() or place == "/work"


def test_large_values_travel_both_ways_and_arrays_can_be_written(
    caller: shoal.Client,
) -> None:
    text = "x" * 70_000_000  # More than one message may hold.

    assert caller.submit(len, text).result(WAIT_S) == 70_000_000
    assert (
        caller.submit(lambda n: b"y" * n, 5_000_000).result(WAIT_S) == b"y" * 5_000_000
    )
    back = caller.submit(lambda data: data[::-1], bytearray(b"ab" * 500_000))
    assert back.result(WAIT_S) == bytearray(b"ba" * 500_000)


def test_more_than_fits_at_once_is_sent_bit_by_bit(caller: shoal.Client) -> None:
    data = b"x" * 3_000_000

    futures = [caller.submit(len, data) for _ in range(30)]

    assert [future.result(WAIT_S) for future in futures] == [3_000_000] * 30


def test_buffers_travel_beside_the_pickle_and_are_writable() -> None:
    array = np.arange(100_000, dtype=np.int64)

    pieces = payloads.dumps({"array": array})
    back = payloads.loads(bytearray(b"".join(pieces)))["array"]

    assert len(pieces) == 2
    assert (back == array).all()
    back[0] = 7


@pytest.mark.parametrize(
    ("kind", "error"),
    [("unpicklable", RemoteError), ("picky", RemoteError), ("exit", SystemExit)],
)
def test_every_exception_comes_back_in_some_form(
    caller: shoal.Client, kind: str, error: type[BaseException]
) -> None:
    found = caller.submit(raise_, kind).exception(WAIT_S)

    assert isinstance(found, error)
    assert "raise_" in str(found.__cause__)


def test_what_cannot_be_pickled_is_said_where_it_is_submitted(
    caller: shoal.Client,
) -> None:
    with pytest.raises(TypeError, match="lock"):
        caller.submit(print, threading.Lock())
    error = caller.submit(threading.Lock).exception(WAIT_S)
    assert isinstance(error, TypeError)
    assert caller.submit(len, "on").result(WAIT_S) == 2


def test_a_call_that_runs_can_be_stopped_and_its_interpreter_lives_on(
    caller: shoal.Client,
) -> None:
    before = caller.submit(os.getpid).result(WAIT_S)
    with caller.executor(lanes=1, cpu=0.1) as executor:
        pid = executor.submit(os.getpid).result(WAIT_S)
        future = executor.submit(sleep, 600)
        eventually(future.running)

        assert future.stop()

        with pytest.raises(CallStoppedError):
            future.result(WAIT_S)
        assert executor.submit(os.getpid).result(WAIT_S) == pid
    assert before


def test_a_slow_call_keeps_neither_results_nor_other_calls_back(
    caller: shoal.Client,
) -> None:
    with caller.executor(lanes=2, cpu=0.1) as executor:
        list(executor.map(abs, range(2_000)))  # Now calls are sent far ahead.

        slow = executor.submit(sleep, 20)
        quick = [executor.submit(abs, n) for n in range(2_000)]

        assert [future.result(WAIT_S) for future in quick] == list(range(2_000))
        assert not slow.done()
        slow.stop()


def test_what_a_function_forks_and_ends_does_not_end_its_interpreter(
    caller: shoal.Client,
) -> None:
    def fork_and_end() -> tuple[int, int]:
        child = os.fork()
        if not child:
            time.sleep(60)
            os._exit(0)
        os.kill(child, signal.SIGTERM)
        return os.getpid(), os.WTERMSIG(os.waitpid(child, 0)[1])

    with caller.executor(lanes=1, cpu=0.1) as executor:
        pid, ended_by = executor.submit(fork_and_end).result(WAIT_S)

        assert ended_by == signal.SIGTERM
        assert executor.submit(os.getpid).result(WAIT_S) == pid


def test_a_function_that_kills_its_interpreter_takes_nobody_along(
    caller: shoal.Client,
) -> None:
    bad = caller.submit(os._exit, 3, retries=1)
    good = [caller.submit(abs, n) for n in range(300)]

    assert [future.result(WAIT_S) for future in good] == list(range(300))
    with pytest.raises(CallLostError, match="2 times"):
        bad.result(WAIT_S)


def test_without_retries_a_call_is_never_run_twice(
    caller: shoal.Client, tmp_path: Path
) -> None:
    with pytest.raises(CallLostError, match="once"):
        caller.submit(os._exit, 3, retries=0).result(WAIT_S)


def test_no_interpreter_at_all_is_said_with_the_reason(home: CliHome) -> None:
    with (
        client(python="python9.9") as odd,
        pytest.raises(CallRefusedError, match=r"python9\.9"),
    ):
        odd.submit(abs, 1).result(WAIT_S)


def test_wrong_options_are_said_at_once(caller: shoal.Client) -> None:
    with pytest.raises(SpecError, match="gpu"):
        caller.submit(abs, 1, gpu="A100:H100")
    with pytest.raises(UsageError, match="retries"):
        caller.executor(retries=-1)
    with pytest.raises(UsageError, match="no option 'gpus'"):
        caller.executor(gpus=1)  # type: ignore[call-arg]


def test_what_tasks_log_and_print_belongs_to_their_job(
    caller: shoal.Client, home: CliHome
) -> None:
    def report() -> str:
        import shoal as inside  # noqa: PLC0415 - That of the interpreter.

        inside.log({"loss": 0.25}, step=3)
        print("printed", flush=True)  # noqa: T201
        return os.environ["SHOAL_JOB_ID"]

    job = caller.submit(report).result(WAIT_S)

    eventually(lambda: "printed" in home.ok("logs", job))
    eventually(lambda: "0.25" in str(home.json("show", job)))
    cells = caller.job(job)._repr_html_()
    assert "<th>state</th><th>loss</th><th>step</th><th>node</th>" in cells
    assert "<td>0.25</td><td>3</td>" in cells


def test_a_decorated_function_is_called_here_or_there(home: CliHome) -> None:
    @shoal.task(cpu=0.1, lanes=1)
    def add(a: int, b: int = 1) -> int:
        return a + b

    with client() as other:
        there = add.on(other)

        assert add(1) == 2
        assert there.submit(2).result(WAIT_S) == 3
        assert there.remote(2, b=5).result(WAIT_S) == 7
        assert list(there.map([1, 2, 3])) == [2, 3, 4]
        assert there.with_options(retries=0).submit(1).result(WAIT_S) == 2


def test_the_async_client_blocks_nothing(home: CliHome) -> None:
    async def program() -> tuple[int, list[int]]:
        async with shoal.AsyncClient(cpu=0.1, lanes=1) as here:
            one = await here.submit(pow, 2, 10)
            return one, [each async for each in here.map(int, ["3", "4"])]

    assert asyncio.run(program()) == (1024, [3, 4])


def test_jobs_can_be_handed_in_watched_and_cancelled(
    caller: shoal.Client, tmp_path: Path
) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("command: echo from a file\nresources: {cpu: 0.1}\n")

    done = caller.submit({"command": "echo hello", "resources": {"cpu": 0.1}})
    from_file = caller.submit(file)
    failed = caller.submit({"command": ["false"], "resources": {"cpu": 0.1}})
    long = caller.submit({"command": "sleep 600", "resources": {"cpu": 0.1}})

    assert done.result(WAIT_S) == 0
    assert b"".join(done.logs()) == b"hello\n"
    assert from_file.wait(WAIT_S) == "done"
    with pytest.raises(JobFailedError) as caught:
        failed.result(WAIT_S)
    assert caught.value.exit_code == 1
    assert long.cancel("enough")
    assert long.wait(WAIT_S) == "cancelled"
    assert caller.job(done.id).exit_code == 0
    assert done.id in [job.id for job in caller.jobs()]


def test_a_job_takes_its_folder_along_and_leaves_its_outputs(
    caller: shoal.Client, tmp_path: Path
) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "data.txt").write_text("here\n")

    job = caller.submit(
        {
            "command": ["sh", "-c", "mkdir out; cp data.txt out"],
            "workdir": str(tmp_path / "work"),
            "outputs": ["out/"],
            "resources": {"cpu": 0.1},
        }
    )

    assert job.result(WAIT_S) == 0
    assert job.pull(tmp_path / "taken") == [tmp_path / "taken"]
    assert (tmp_path / "taken" / "data.txt").read_text() == "here\n"
    assert not job.id[0].isdecimal()  # A number would be the place in `shoal ps`.


def test_the_stream_over_grpc_does_the_same(
    home: CliHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOAL_TOKEN", (home.path / "api.token").read_text().strip())
    with client(node=home.info["api"], cpu=0.1, lanes=1) as other:
        futures = [other.submit(abs, -n) for n in range(500)]

        assert [future.result(WAIT_S) for future in futures] == list(range(500))
        assert other.submit(len, b"x" * 1_000_000).result(WAIT_S) == 1_000_000


def test_when_a_client_dies_its_interpreters_are_freed(home: CliHome) -> None:
    program = """
import shoal, sys, time
client = shoal.Client(start=False, cpu=0.1, lanes=1)
client.submit(abs, 1).result()
print("ready", flush=True)
client.submit(time.sleep, 600)
time.sleep(600)
"""
    before = {job["id"] for job in active_jobs(home)}
    lanes = set(lane_pids(home.path))
    child = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    assert {job["id"] for job in active_jobs(home)} - before

    child.kill()
    child.wait()

    eventually(lambda: {job["id"] for job in active_jobs(home)} <= before)
    eventually(lambda: set(lane_pids(home.path)) <= lanes)
    child.stdout.close()


def test_a_client_that_closes_leaves_nothing_behind(home: CliHome) -> None:
    before = set(lane_pids(home.path))
    with client(cpu=0.1, lanes=2) as other:
        assert other.submit(abs, -1).result(WAIT_S) == 1
        assert set(lane_pids(home.path)) > before

    eventually(lambda: set(lane_pids(home.path)) <= before)
