"""The command `shoal` as a user types it, in a home of its own."""

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

TIMEOUT_S = 40


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
    names = [str(path.readlink()) for path in Path(f"/proc/{pid}/fd").iterdir()]
    return any(name.startswith("socket:") for name in names)


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
