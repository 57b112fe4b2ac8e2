"""`shoal run` is in the foreground: whatever ends it ends its job as well."""

import fcntl
import os
import pty
import re
import signal
import subprocess
import termios
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.integration.cli_home import CliHome, homes, signals_of
from tests.integration.live_shoal import eventually

from shoal.api.client.client import TIMEOUT_S
from shoal.cli.jobs.run import AGAIN_S

pytestmark = pytest.mark.integration

CHATTER = "while echo going; do sleep 0.05; done"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CliHome]:
    with homes(tmp_path_factory.mktemp("stopping")) as make:
        home = make("one")
        home.up("--port", "0")
        yield home


@pytest.fixture(autouse=True)
def hang_up() -> Iterator[None]:
    """Let children hear of it: under nohup they would ignore it, as they should."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


def begun(home: CliHome, *args: str) -> "subprocess.Popen[str]":
    """Start `shoal run` and return when its job has written a line."""
    running = home.start("run", *args, "--", "sh", "-c", "echo up; exec sleep 100")
    assert running.stdout is not None
    assert running.stdout.readline() == "up\n"
    return running


def last_of(home: CliHome) -> dict[str, Any]:
    job: dict[str, Any] = home.json("show", "last")["job"]
    return job


@pytest.mark.parametrize(
    ("number", "reason"),
    [
        (signal.SIGINT, "Ctrl-C in shoal run"),
        (signal.SIGTERM, "SIGTERM to shoal run"),
        (signal.SIGHUP, "the terminal of shoal run was closed"),
    ],
)
def test_what_ends_run_cancels_its_job(home: CliHome, number: int, reason: str) -> None:
    running = begun(home)

    running.send_signal(number)
    _, err = running.communicate(timeout=120)

    job = last_of(home)
    assert running.returncode == 103
    assert f"cancelling job {job['id']}" in err
    assert "Traceback" not in err
    assert (job["state"], job["reason"]) == ("cancelled", reason)


def test_a_program_is_told_what_became_of_a_job_that_was_stopped(
    home: CliHome,
) -> None:
    running = home.start("run", "--json", "--", "sh", "-c", "echo up; sleep 100")
    assert running.stderr is not None
    assert running.stderr.readline() == "up\n"

    running.send_signal(signal.SIGTERM)
    out, _ = running.communicate(timeout=120)

    assert running.returncode == 103
    assert '"state": "cancelled"' in out


def test_signals_that_come_in_pairs_cancel_once(home: CliHome) -> None:
    for first, second in [
        (signal.SIGHUP, signal.SIGHUP),
        (signal.SIGTERM, signal.SIGHUP),
        (signal.SIGINT, signal.SIGHUP),
        (signal.SIGINT, signal.SIGTERM),
    ]:
        running = begun(home)

        running.send_signal(first)
        running.send_signal(second)
        running.communicate(timeout=120)

        assert running.returncode == 103, (first, second)
        assert last_of(home)["state"] == "cancelled"


def test_a_run_that_ignores_the_end_of_its_terminal_goes_on(home: CliHome) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # What `nohup` does.
    running = begun(home)

    assert signal.SIGHUP in signals_of(running.pid, "SigIgn")
    running.send_signal(signal.SIGHUP)
    job = last_of(home)
    running.send_signal(signal.SIGTERM)
    running.communicate(timeout=120)

    assert job["state"] == "running"
    assert running.returncode == 103


@pytest.mark.parametrize("script", ["echo up; exec sleep 100", CHATTER])
def test_a_job_ends_with_the_terminal_of_its_run(home: CliHome, script: str) -> None:
    ours, theirs = pty.openpty()
    running = subprocess.Popen(
        ["shoal", "run", "--", "sh", "-c", script],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=home.env,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509
    )
    os.close(theirs)
    seen = b""
    while b"up\r\n" not in seen and b"going\r\n" not in seen:
        seen += os.read(ours, 4_096)

    os.close(ours)
    code = running.wait(30)

    job = last_of(home)
    assert code == 103
    assert job["state"] == "cancelled"
    assert "shoal run" in job["reason"]


def test_a_job_ends_when_nobody_reads_what_its_run_prints(home: CliHome) -> None:
    reading, writing = os.pipe()
    running = subprocess.Popen(
        ["shoal", "run", "--", "sh", "-c", CHATTER],
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
        env=home.env,
    )
    os.close(writing)
    assert os.read(reading, 6) == b"going\n"

    os.close(reading)
    _, err = running.communicate(timeout=120)

    job = last_of(home)
    assert running.returncode == 103
    assert f"cancelling job {job['id']}" in err
    assert "Traceback" not in err
    assert "BrokenPipe" not in err
    assert job["reason"] == "the output of shoal run was closed"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_no_job_is_left_of_a_run_that_was_stopped_while_it_was_submitting(
    home: CliHome, number: int
) -> None:
    node = home.info["pid"]
    os.kill(node, signal.SIGSTOP)
    try:
        running = home.start("run", "--", "sleep", "100")
        eventually(lambda: signal.SIGTERM in signals_of(running.pid, "SigCgt"))
        running.send_signal(number)
        eventually(lambda: number not in signals_of(running.pid, "ShdPnd"))
    finally:
        os.kill(node, signal.SIGCONT)
    _, err = running.communicate(timeout=120)

    assert running.returncode in (103, 130), err
    assert "Traceback" not in err
    eventually(lambda: not home.json("ps", "--active")["jobs"])


def test_a_second_ctrl_c_waits_no_longer_for_a_node_that_hangs(home: CliHome) -> None:
    node = home.info["pid"]
    running = begun(home)
    os.kill(node, signal.SIGSTOP)
    try:
        running.send_signal(signal.SIGINT)
        assert running.stderr is not None
        assert any("cancelling job" in line for line in running.stderr)
        time.sleep(AGAIN_S)  # An earlier one would be the pair of the first.
        running.send_signal(signal.SIGINT)
        running.communicate(timeout=10)  # Sooner than a node may take to answer.
    finally:
        os.kill(node, signal.SIGCONT)

    assert running.returncode == 130
    assert TIMEOUT_S > 10
    home("cancel", "all")


def test_a_node_that_went_away_is_said_with_what_becomes_of_the_job(
    fresh: Callable[[str], CliHome],
) -> None:
    shoal = fresh("gone")
    shoal.up("--port", "0")
    running = begun(shoal)
    os.kill(shoal.info["pid"], signal.SIGSTOP)
    try:
        running.send_signal(signal.SIGTERM)
        assert running.stderr is not None
        assert any("cancelling job" in line for line in running.stderr)
    finally:
        shoal.kill()
    _, err = running.communicate(timeout=120)

    assert running.returncode == 105
    assert re.search(r"next:  job (\w+) may still run: `shoal cancel \1`", err), err
