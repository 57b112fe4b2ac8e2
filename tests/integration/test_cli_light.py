"""Commands are light: what they load, and the socket that lets them do without gRPC."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.cli_home import CliHome, homes, is_connected
from tests.integration.live_shoal import eventually

from shoal.api import shoal_pb2 as pb
from shoal.api.call_frames import END, ERROR
from shoal.api.client.client import client_of, connect
from shoal.api.client.socket_client import SocketCalls, plain_socket
from shoal.api.node_file import required
from shoal.errors import NotFoundError, UnreachableError, UsageError
from shoal.runtime.home import Home

pytestmark = pytest.mark.integration

SLOW = ("grpc", "asyncio", "ssl", "msgspec", "yaml", "rich", "cryptography", "numpy")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CliHome]:
    with homes(tmp_path_factory.mktemp("light")) as make:
        home = make("one")
        home.up("--port", "0", "--no-sandbox")
        home.ok("run", "-q", "--", "echo", "hello")
        yield home


@pytest.mark.parametrize(
    "line",
    [
        *("ps", "ps --json", "nodes", "show last", "logs last", "events", "wait last"),
        *("cancel last", "explain last", "set", "secret list"),
    ],
)
def test_a_command_that_asks_the_node_here_loads_nothing_slow(
    home: CliHome, line: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "shoal.cli", *line.split()],
        capture_output=True,
        text=True,
        env=home.env,
        check=True,
    )

    loaded = {each.rpartition("|")[2].strip() for each in done.stderr.splitlines()}
    assert "shoal.cli" in loaded
    assert not loaded.intersection(SLOW)


def found(home: CliHome) -> SocketCalls:
    where = required(Home(home.path))
    return SocketCalls(plain_socket(where.socket), where.petname)


def test_a_node_without_that_socket_is_asked_by_grpc(home: CliHome) -> None:
    where = required(Home(home.path))
    path = plain_socket(where.socket)
    hidden = path.with_suffix(".hidden")
    path.rename(hidden)
    try:
        with client_of(where) as client:
            pid = client.info().pid
    finally:
        hidden.rename(path)

    assert pid == home.info["pid"]


def test_nobody_else_can_open_it(home: CliHome) -> None:
    path = plain_socket(required(Home(home.path)).socket)

    assert path.stat().st_mode & 0o777 == 0o600


def test_an_error_arrives_as_the_node_said_it(home: CliHome) -> None:
    with (
        connect(home=Home(home.path)) as client,
        pytest.raises(NotFoundError, match="no job 'nope'"),
    ):
        client.get("nope")


def test_a_call_that_there_is_not_is_refused(home: CliHome) -> None:
    with pytest.raises(UsageError, match="there is no call 'Swim'"):
        found(home).ask("Swim", pb.InfoRequest(), pb.NodeInfo, 5.0)


def test_a_stream_ends_with_the_time_that_one_gives_it(home: CliHome) -> None:
    job = home.ok("submit", "-q", "--", "sleep", "600").strip()

    seen: list[int] = []
    with pytest.raises(UnreachableError, match=r"no answer within 0\.5 s"):
        seen.extend(
            view.state
            for view in found(home).follow(
                "Watch", pb.WatchRequest(job=job), pb.Job, 0.5
            )
        )

    home.ok("cancel", "-q", job)


def test_a_stream_goes_on_until_the_job_has_ended(home: CliHome) -> None:
    job = home.ok("submit", "-q", "--", "sleep", "0.3").strip()

    states = [
        view.state
        for view in found(home).follow("Watch", pb.WatchRequest(job=job), pb.Job, 30.0)
    ]

    assert states[-1] == pb.STATE_DONE


def test_large_answers_and_many_callers_do_not_mix(home: CliHome) -> None:
    text = "x" * 1_000_000
    script = f"print('{'x' * 1000}' * 1000)"
    job = home.ok("submit", "-q", "--", sys.executable, "-c", script).strip()
    home.ok("wait", "-q", job)
    read: list[bytes] = []

    def look() -> None:
        with connect(home=Home(home.path)) as client:
            pieces = client.logs(pb.LogsRequest(job=job))
            read.append(b"".join(piece.data for piece in pieces))

    threads = [threading.Thread(target=look) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert read == [text.encode() + b"\n"] * 8


def test_who_writes_nonsense_gets_an_error_and_hurts_nobody(home: CliHome) -> None:
    import socket  # noqa: PLC0415 - Only here.

    path = str(plain_socket(required(Home(home.path)).socket))
    answers: list[int] = []
    for data in (b"", b"\1", b"\xff\xff\xff\xff\0", b"\5\0\0\0\0Get\0\xff"):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
            line.settimeout(5.0)
            line.connect(path)
            line.sendall(data)
            line.shutdown(socket.SHUT_WR)
            answer = line.recv(4096)
            answers.append(answer[4] if answer else END)

    assert answers[:3] == [END] * 3
    assert answers[3] in (ERROR, END)
    home.ok("ps")


def test_a_node_that_dies_while_one_follows_is_told(tmp_path: Path) -> None:
    with homes(tmp_path) as make:
        home = make("dying")
        home.up("--port", "0", "--no-sandbox")
        with home.start("events", "-f", "-n", "0") as following:
            eventually(lambda: is_connected(following.pid))
            home.kill()
            assert following.stderr is not None
            said = following.stderr.read()

    assert following.returncode == 105
    assert "does not answer" in said


def test_curves_are_there_for_who_looks_late(home: CliHome) -> None:
    told = "import shoal; [shoal.log({'loss': 1 / n}, step=n) for n in range(1, 6)]"
    script = f"import time; {told}; time.sleep(0.5)"
    job = home.ok("submit", "-q", "--", sys.executable, "-c", script).strip()
    home.ok("wait", "-q", job)

    with connect(home=Home(home.path)) as client:
        [curve] = client.curves(job).curves
        later = client.curves(job, since_s=curve.at_s[-1]).curves

    assert (curve.task, curve.name) == (f"{job}.main.0", "loss")
    assert curve.values[-1] == pytest.approx(0.2)
    assert curve.steps[-1] == 5
    assert len(curve.values) == len(curve.at_s) == len(curve.steps)
    assert not later
