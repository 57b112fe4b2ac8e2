"""The command `shoal` as a user types it, in a home of its own."""

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from tests.integration import forked_shoal
from tests.integration.live_shoal import eventually, is_of

from shoal.runtime.home import Home

TIMEOUT_S = 120
"""Only reached when something hangs, however busy the machine is."""


class Done(NamedTuple):
    """What a command left behind."""

    code: int
    out: str
    err: str


class CliHome:
    """One home, and commands in it; `close` ends whatever node is left."""

    def __init__(self, path: Path, prefix: tuple[str, ...] = ()) -> None:
        """Make one; `prefix` runs its commands elsewhere, as in a namespace."""
        self.path = path
        self.prefix = prefix
        self.env = {
            "HOME": os.environ["HOME"],
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "SHOAL_HOME": str(path),
            "XDG_CONFIG_HOME": str(path / "config"),  # What the user set.
        }

    def __call__(self, *args: str, typed: str = "") -> Done:
        """Run a command to its end."""
        if forked_shoal.can_fork(args, self.env, self.prefix):
            return Done(
                *forked_shoal.run(args, self.env, typed, TIMEOUT_S, self.prefix)
            )
        done = subprocess.run(
            [*self.prefix, "shoal", *args],
            input=typed,
            capture_output=True,
            text=True,
            env=self.env,
            timeout=TIMEOUT_S,
            check=False,
        )
        return Done(done.returncode, done.stdout, done.stderr)

    def ok(self, *args: str) -> str:
        """Run a command that succeeds; return its output."""
        done = self(*args)
        assert done.code == 0, done
        return done.out

    def written_to(self, out: int, *args: str) -> tuple[int, str]:
        """Run a command that prints there; return its exit code and its complaints."""
        with tempfile.TemporaryFile() as told, Path(os.devnull).open("rb") as nothing:
            files = (nothing, out, told)
            process = forked_shoal.start(forked_shoal.COMMANDS, args, self.env, files)
            code = process.wait(TIMEOUT_S)
            told.seek(0)
            return code, told.read().decode()

    def json(self, *args: str) -> dict[str, Any]:
        """Run a command with `--json`; return what it printed."""
        document: dict[str, Any] = json.loads(self.ok(*args, "--json"))
        assert document["version"] == 1
        return document

    def start(self, *args: str) -> subprocess.Popen[str]:
        """Start a command and return at once."""
        return subprocess.Popen(
            [*self.prefix, "shoal", *args],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self.env,
            preexec_fn=_heed_interrupts,  # noqa: PLW1509 - No thread holds a lock of it.
        )

    def up(self, *args: str) -> None:
        """Start a node, with all that belongs to one, and wait until it answers.

        Where the node is not what is tested: it takes a third of the CPU seconds of
        `up --background`.
        """
        if not forked_shoal.can_fork(args, self.env, self.prefix):
            self.ok("up", "--background", *args)
            return
        home = Home(self.path)
        home.prepare()
        up = ("up", *args)
        node = forked_shoal.start_node(up, self.env, home.log, self.prefix)
        eventually(lambda: node.poll() is not None or is_of(home, node.pid), TIMEOUT_S)
        assert node.poll() is None, home.log.read_text()

    @property
    def info(self) -> dict[str, Any]:
        """What the running node wrote down."""
        found: dict[str, Any] = json.loads((self.path / "node.json").read_text())
        return found

    def kill(self) -> None:
        """End the node as a power cut would."""
        pid = self.info["pid"]
        os.kill(pid, signal.SIGKILL)
        self.wait_for_end(pid)

    def wait_for_end(self, pid: int) -> None:
        """Wait until a process that is not our child has gone."""
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            return
        ready, _, _ = select.select([descriptor], [], [], TIMEOUT_S)
        os.close(descriptor)
        assert ready, f"process {pid} did not end"

    def close(self) -> None:
        """End the node, if one runs."""
        if (self.path / "node.json").exists():
            self("down", "-q")


def signals_of(pid: int, kind: str) -> set[int]:
    """Return signals as the kernel tells: `SigCgt` are caught, `ShdPnd` pending."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    [mask] = [int(line.split()[1], 16) for line in lines if line.startswith(kind)]
    return {number for number in range(1, 65) if mask >> (number - 1) & 1}


def is_connected(pid: int) -> bool:
    """Whether a process that was started without sockets has one now."""
    for path in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # It was closed just now.
            if str(path.readlink()).startswith("socket:"):
                return True
    return False


def _heed_interrupts() -> None:
    """Undo what a shell does to programs in the background: ignore Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@contextmanager
def homes(folder: Path) -> Iterator[Callable[[str], CliHome]]:
    """Give out homes by name, and end their nodes at the end."""
    made: list[CliHome] = []

    def home(name: str) -> CliHome:
        made.append(CliHome(folder / name))
        return made[-1]

    try:
        yield home
    finally:
        for each in made:
            each.close()
