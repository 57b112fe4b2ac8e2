"""Commands, ports and terminals that reach into running tasks, from any own node."""

import fcntl
import hashlib
import os
import pty
import re
import select
import signal
import socket
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.integration.cli_home import CliHome, homes
from tests.integration.live_shoal import eventually

pytestmark = pytest.mark.integration

UP = ("--port", "0", "--no-web", "-q")
PATIENCE_S = 40.0
SERVER = """
import hashlib, os, socket, threading
def answer(line):
    digest, size = hashlib.sha256(), 0
    while data := line.recv(65536):
        digest.update(data)
        size += len(data)
    line.sendall(b"%d %s" % (size, digest.hexdigest().encode()))
    line.close()
server = socket.create_server(("127.0.0.1", 7171))
print("listening", *os.environ, flush=True)
while True:
    threading.Thread(target=answer, args=(server.accept()[0],)).start()
"""


class Two(NamedTuple):
    """A laptop and a desktop of one person; a task runs on the desktop."""

    laptop: CliHome
    desktop: CliHome
    job: str

    @property
    def there(self) -> tuple[str, str]:
        """What has a command ask the desktop."""
        return "--node", self.desktop.info["petname"]


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Two]:
    folder = tmp_path_factory.mktemp("interactive")
    with homes(folder) as make:
        desktop, laptop = make("desktop"), make("laptop")
        desktop.up(*UP)
        laptop.ok("join", desktop.json("invite", "--mine")["invitation"], "--no-up")
        laptop.up(*UP, "--no-worker")
        job = desktop.ok("submit", "-q", "--", "python3", "-c", SERVER).strip()
        eventually(lambda: "listening" in desktop("logs", job).out, PATIENCE_S)
        yield Two(laptop, desktop, job)


def test_a_command_runs_inside_the_task_with_its_own_streams_and_code(two: Two) -> None:
    inside = "pwd; echo $SHOAL_JOB_ID; echo oops >&2; touch seen; exit 7"

    done = two.desktop("exec", two.job, "--", "sh", "-c", inside)
    again = two.laptop("exec", two.job, *two.there, "--", "ls")

    assert (done.code, done.out, done.err) == (7, f"/job\n{two.job}\n", "oops\n")
    assert again.out == "seen\n"


def test_a_command_gets_nothing_that_the_task_has_not(two: Two) -> None:
    look = "grep -E 'NoNewPrivs|Seccomp:|CapBnd|CapEff' /proc/self/status; id -u"
    files = "for f in /proc/$$/fd/*; do readlink $f; done; env | cut -d= -f1 | sort"

    found = two.desktop("exec", two.job, "--", "sh", "-c", look).out.split()
    seen = two.desktop("exec", two.job, "--", "sh", "-c", files).out.split()
    own = two.desktop("logs", two.job).out.split()

    assert found[1::2][:4] == ["0" * 16, "0" * 16, "1", "2"]
    assert found[-1] == "1000"
    pipes = [each for each in seen if each.startswith(("pipe:", "/"))]
    assert len(pipes) == 3
    assert set(seen) - set(pipes) - set(own) <= {"PWD", "OLDPWD", "_", "SHLVL"}


def test_input_and_output_flow_through_a_command_whole(two: Two) -> None:
    data = os.urandom(1_500_000)

    done = subprocess.run(
        ["shoal", "exec", two.job, *two.there, "--", "cat"],
        input=data,
        capture_output=True,
        env=two.laptop.env,
        timeout=PATIENCE_S,
        check=True,
    )

    assert hashlib.sha256(done.stdout).digest() == hashlib.sha256(data).digest()


def test_what_cannot_be_run_or_reached_is_explained(two: Two) -> None:
    missing = two.desktop("exec", two.job, "--", "nosuch")
    no_job = two.desktop("exec", "zzz", "--", "ls")
    port = two.desktop("forward", two.job, "0")

    assert missing.code == 1
    assert "'nosuch' cannot be started in the task" in missing.err
    assert no_job.code == 102
    assert port.code == 2


@contextmanager
def forwarded(home: CliHome, *args: str) -> Iterator[int]:
    """Run `shoal forward` meanwhile; return the port of this machine."""
    with subprocess.Popen(
        ["shoal", "forward", *args],
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=home.env,
    ) as process:
        try:
            assert process.stderr is not None
            said = process.stderr.readline()
            found = re.search(r"http://127\.0\.0\.1:(\d+) leads", said)
            assert found is not None, said
            yield int(found[1])
        finally:
            process.kill()


def test_connections_to_a_port_of_a_task_are_whole_and_many_at_once(two: Two) -> None:
    data = os.urandom(3_000_000)
    expected = f"{len(data)} {hashlib.sha256(data).hexdigest()}"

    with forwarded(two.laptop, two.job, "0:7171", *two.there) as port:
        lines = [socket.create_connection(("127.0.0.1", port)) for _ in range(4)]
        for line in lines[1:]:
            line.sendall(b"ab")
        lines[0].sendall(data)
        answers: list[str] = []
        for line in lines:
            line.shutdown(socket.SHUT_WR)
            line.settimeout(PATIENCE_S)
            answers.append(line.makefile().read())
            line.close()

    small = f"2 {hashlib.sha256(b'ab').hexdigest()}"
    assert answers == [expected, small, small, small]


def test_a_port_of_the_machine_is_not_a_port_of_the_task(two: Two) -> None:
    with socket.create_server(("127.0.0.1", 0)) as own:
        port = own.getsockname()[1]
        shared = two.desktop.ok(
            "submit", "-q", "--network", "--", "sh", "-c", "echo up; exec sleep 60"
        ).strip()
        eventually(lambda: "up" in two.desktop("logs", shared).out, PATIENCE_S)
        for job in (two.job, shared):
            with subprocess.Popen(
                ["shoal", "forward", job, f"0:{port}"],
                stdin=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                env=two.desktop.env,
            ) as process:
                assert process.stderr is not None
                said = [process.stderr.readline() for _ in range(2)]
                process.kill()
            assert "nothing of the task listens" in said[1]
        own.settimeout(0.0)
        with pytest.raises(BlockingIOError):
            own.accept()
    two.desktop.ok("cancel", shared)


class Terminal:
    """A terminal in which a command runs, and somebody types."""

    def __init__(self, home: CliHome, *args: str) -> None:
        self.pid, self._fd = pty.fork()
        if self.pid == 0:
            for number in (signal.SIGINT, signal.SIGHUP):
                signal.signal(number, signal.SIG_DFL)  # A shell may have ignored it.
            path = f"{Path(sys.executable).parent}/shoal"
            os.execve(path, ["shoal", *args], {**home.env, "TERM": "xterm"})
        self.seen = ""
        self.resize(30, 100)

    def resize(self, rows: int, columns: int) -> None:
        size = struct.pack("HHHH", rows, columns, 0, 0)
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, size)

    def type(self, text: str) -> None:
        os.write(self._fd, text.encode())

    def expect(self, text: str) -> None:
        """Wait until a text appears after all that was expected before."""
        until = time.monotonic() + PATIENCE_S
        while text not in self.seen:
            assert time.monotonic() < until, self.seen
            if select.select([self._fd], [], [], 1.0)[0]:
                try:
                    self.seen += os.read(self._fd, 4096).decode(errors="replace")
                except OSError:
                    assert text in self.seen, self.seen
        self.seen = self.seen.partition(text)[2]

    @property
    def is_raw(self) -> bool:
        return not termios.tcgetattr(self._fd)[3] & termios.ICANON

    def end(self) -> int:
        """Wait for the command; return its exit code."""
        while True:
            try:
                if not os.read(self._fd, 4096):
                    break
            except OSError:
                break
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def test_a_terminal_has_its_size_and_keys_and_is_restored(two: Two) -> None:
    screen = Terminal(two.laptop, "exec", "-it", two.job, *two.there, "--", "bash")
    screen.expect("$ ")
    screen.type("PS1='> '; stty size; tty\r")
    screen.expect("30 100\r\n")
    screen.expect("/dev/pts/")
    assert screen.is_raw
    screen.resize(40, 120)
    screen.type("sh -c 'echo up; exec cat'\r")
    screen.expect("up\r\n")
    screen.type("\x03")
    screen.expect("^C")
    screen.expect("> ")  # ^C discards what is typed before the prompt.
    screen.type("echo code $?; stty size\r")
    screen.expect("code 130\r\n40 120\r\n")
    screen.type("exit 5\r")

    assert screen.end() == 5


def test_a_command_whose_user_goes_is_ended_and_the_terminal_restored(two: Two) -> None:
    screen = Terminal(two.desktop, "exec", "-it", two.job, "--", "sh")
    screen.expect("$ ")
    screen.type("exec sleep 1001\r")
    eventually(lambda: "1001" in _processes(two), PATIENCE_S)

    os.kill(screen.pid, signal.SIGTERM)
    eventually(lambda: not screen.is_raw, PATIENCE_S)
    screen.end()

    eventually(lambda: "sleep 1001" not in _processes(two), PATIENCE_S)


def _processes(two: Two) -> str:
    show = "cat /proc/[0-9]*/cmdline | tr '\\0' ' '"
    return two.desktop("exec", two.job, "--", "sh", "-c", show).out


def test_a_command_ends_when_its_task_does(two: Two) -> None:
    job = two.desktop.ok("submit", "-q", "--", "sleep", "1000").strip()
    eventually(lambda: two.desktop("exec", job, "--", "true").code == 0, PATIENCE_S)
    with subprocess.Popen(
        ["shoal", "exec", job, "--", "sh", "-c", "echo up; exec sleep 1000"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        env=two.desktop.env,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"

        two.desktop.ok("cancel", job)

        assert process.wait(PATIENCE_S) in (137, 143)  # Killed, or told to end.


def run_with(home: CliHome, data: bytes, *args: str) -> tuple[int, str, str]:
    """Run a job whose task gets this input; return code, output and talk."""
    done = subprocess.run(
        ["shoal", "run", *args],
        input=data,
        capture_output=True,
        env=home.env,
        timeout=PATIENCE_S,
        check=False,
    )
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def test_a_task_elsewhere_reads_the_whole_input_of_run(two: Two) -> None:
    data = os.urandom(20_000_000)
    count = "import sys, hashlib; d = sys.stdin.buffer.read(); "
    count += "print(len(d), hashlib.sha256(d).hexdigest()); sys.exit(4)"

    slow = run_with(
        two.laptop, data, "--setup", "sleep 0.2", "--", "python3", "-c", count
    )
    unread = run_with(two.desktop, data, "--", "true")

    assert slow[:2] == (4, f"{len(data)} {hashlib.sha256(data).hexdigest()}\n"), slow
    assert unread[0] == 0


def test_a_task_whose_user_goes_never_takes_half_of_its_input_for_all(two: Two) -> None:
    script = "cat > /dev/null; echo whole"
    with subprocess.Popen(
        ["shoal", "run", "-q", "--name", "halved", "--", "sh", "-c", script],
        stdin=subprocess.PIPE,
        env=two.laptop.env,
    ) as process:
        assert process.stdin is not None
        process.stdin.write(b"half")
        process.stdin.flush()
        eventually(lambda: "running" in two.laptop("ps").out, PATIENCE_S)
        job = two.laptop.json("ps", "--name", "halved")["jobs"][-1]["id"]
        submitted = two.laptop("submit", "-q", "--", "true")
        process.kill()

    done = two.laptop("wait", job)
    assert submitted.code == 0
    assert done.code == 103, done
    assert two.laptop("logs", job).out == ""
    assert "what it read was not kept" in two.laptop("retry", job).err
    assert "the sender of its standard input has gone" in two.laptop("show", job).out


def test_a_task_has_the_terminal_of_run_until_it_ends(two: Two) -> None:
    screen = Terminal(two.laptop, "run", "-it", "--", "bash", "--norc")
    screen.expect("placed on")
    screen.expect("$ ")
    screen.type("PS1='> '; stty size; tty; echo $TERM\r")
    screen.expect("30 100\r\n")
    screen.expect("/dev/pts/")
    screen.expect("xterm\r\n")
    screen.resize(40, 120)
    screen.type("sh -c 'echo up; exec cat'\r")
    screen.expect("up\r\n")
    screen.type("\x03")
    screen.expect("^C")
    screen.expect("> ")  # ^C discards what is typed before the prompt.
    screen.type("echo code $?; stty size\r")
    screen.expect("code 130\r\n40 120\r\n")
    assert screen.is_raw
    screen.type("exit 5\r")
    screen.expect("(exit 5)")

    assert screen.end() == 5


def test_a_terminal_that_is_closed_ends_its_task(two: Two) -> None:
    screen = Terminal(two.desktop, "run", "-it", "--name", "shut", "--", "bash")
    screen.expect("$ ")
    os.kill(screen.pid, signal.SIGHUP)
    screen.expect("cancelling job")
    screen.end()

    job = two.desktop.json("ps", "--name", "shut")["jobs"][-1]
    assert job["state"] == "cancelled"
    assert "closed" in two.desktop("show", job["id"]).out


def test_what_has_no_terminal_or_input_says_so(two: Two) -> None:
    no_tty = two.desktop("run", "-it", "--", "bash")
    many = two.desktop("run", "-i", "--array", "3", "--", "cat")
    in_vain = run_with(two.desktop, b"x", "--array", "2", "--", "true")

    assert no_tty.code == 2
    assert "there is no terminal here" in no_tty.err
    assert many.code == 2
    assert "the job has several tasks, and input goes to one" in many.err
    assert "standard input is not sent" in in_vain[2]
