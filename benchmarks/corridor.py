"""Count the functions that a job, a function call and its result pass in a live node.

The node runs under `sys.setprofile`. A walk begins when a request arrives at a socket
of the node and ends when the node writes the order to a supervisor, the call to an
interpreter, or the result to the client. Each walk is repeated; only functions that
every repetition passed are counted, so that timers and gossip in between do not count.
Lambdas and comprehensions do not count either. The first job, which wins its lease, and
the first calls, which hire interpreters, only warm the node up.

Run: python benchmarks/corridor.py [--list] >> benchmarks/results.jsonl
`--list` also names the functions, in the order in which they were first called.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import shoal

if TYPE_CHECKING:
    from types import CodeType, FrameType

SOURCE: Final = str(Path(shoal.__file__).parent)
JOBS: Final = 4
CALLS: Final = 12
CALLS_SETTLE: Final = 4
READY_S: Final = 60.0

WALKS: Final = {
    "job": ("SocketServer._line", "SupervisorProcess._write"),
    "call": ("CallConnection.data_received", "LaneLine.write"),
    "result": ("LaneLine.data_received", "CallConnection._write"),
}
"""Where each walk begins and ends, by the qualified names of functions."""


class Tracer:
    """Records the functions of shoal that are called between two named ones."""

    def __init__(self, path: Path) -> None:
        """Write each walk to `path`, as a line of JSON, when it ends."""
        self._out = path.open("a", encoding="utf-8")
        self._begins = {begin: walk for walk, (begin, _) in WALKS.items()}
        self._walk = ""
        self._end = ""
        self._passed: dict[CodeType, None] = {}
        self._ours: dict[CodeType, bool] = {}

    def __call__(self, frame: FrameType, event: str, arg: object) -> None:
        """Note a call, as `sys.setprofile` reports it."""
        if event != "call":
            return
        code = frame.f_code
        ours = self._ours.get(code)
        if ours is None:
            named = not code.co_name.startswith("<")  # 3.12 inlines comprehensions.
            ours = named and code.co_filename.startswith(SOURCE)
            self._ours[code] = ours
        if not ours:
            return
        name = code.co_qualname
        if name in self._begins:
            self._walk = self._begins[name]
            self._end = WALKS[self._walk][1]
            self._passed = {}
        if self._walk:
            self._passed[code] = None
            if name == self._end:
                self._write()

    def _write(self) -> None:
        passed = [
            f"{code.co_filename.removeprefix(SOURCE + '/')}:{code.co_qualname}"
            for code in self._passed
        ]
        self._out.write(json.dumps({"walk": self._walk, "passed": passed}) + "\n")
        self._out.flush()
        self._walk = ""


def node(path: str, *args: str) -> None:
    """Be a traced node."""
    from shoal.cli import main  # noqa: PLC0415 - The tracer is set before.

    tracer = Tracer(Path(path))
    threading.setprofile(tracer)
    sys.setprofile(tracer)
    sys.argv = ["shoal", *args]
    main()


def walks(home: Path) -> list[dict[str, Any]]:
    """Run jobs and calls on a traced node; return its walks."""
    env = {**os.environ, "SHOAL_HOME": str(home)}
    traced = home.with_name("walks.jsonl")
    up = (sys.executable, __file__, "node", str(traced), "up", "-q", "--no-web")
    with subprocess.Popen(up, env=env) as running:
        try:
            _wait_for(home / "node.json")
            for _ in range(JOBS):
                command = (sys.executable, "-m", "shoal.cli", "run", "-q", "--", "true")
                subprocess.run(command, env=env, check=True)
            os.environ["SHOAL_HOME"] = str(home)
            with shoal.Client() as client:
                for number in range(CALLS):
                    assert client.submit(abs, -number).result() == number
        finally:
            running.terminate()
    lines = traced.read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def _wait_for(path: Path) -> None:
    until = time.monotonic() + READY_S
    while not path.exists():
        if time.monotonic() > until:
            raise TimeoutError("the node did not come up")
        time.sleep(0.1)


def main() -> None:
    """Print how many functions in how many modules each walk passes."""
    with tempfile.TemporaryDirectory(prefix="shoal-corridor-") as folder:
        found = walks(Path(folder) / "home")
    for walk in WALKS:
        passed = [each["passed"] for each in found if each["walk"] == walk]
        last = passed[1:] if walk == "job" else passed[CALLS_SETTLE:]
        always = set.intersection(*map(set, last))
        names = [name for name in last[-1] if name in always]
        modules = {name.partition(":")[0] for name in names}
        figures = {"functions": len(names), "modules": len(modules)}
        line = {"benchmark": "corridor", "walk": walk, "walks": len(last), **figures}
        if "--list" in sys.argv:
            line["passed"] = names
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["node"]:
        node(*sys.argv[2:])
    else:
        main()
