"""A shoal of live nodes for training jobs, and ways to hurt its tasks."""

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.integration.cli_home import CliHome, homes

from shoal.api import shoal_pb2 as pb
from shoal.api.client.client import Client, connect
from shoal.runtime.home import Home

LONG_S = 300.0
LOOK_S = 0.5
ENDS = (pb.STATE_DONE, pb.STATE_FAILED, pb.STATE_CANCELLED, pb.STATE_UNKNOWN)
MEET = ("set", "task-network", "all")  # Ranks of other owners meet over the network.
UP = ("--port", "0", "--without", "p2p")

ARRAYS = """
import os, time
import numpy as np
from shoal.train.arguments import program_params
from shoal.train.diloco.session import DilocoSession
from shoal.train.settings import settings_of
from shoal.train.task_context import TaskContext
from shoal.train.weights import ArrayWeights

params = program_params(seed=1, size=64, step_s=0.03, bad=-1)
around = TaskContext.of(os.environ)
truth = np.linspace(-1.0, 1.0, params.size, dtype=np.float32)
weights = np.zeros_like(truth)
chance = np.random.default_rng(params.data_seed)

def measure():
    return {"loss": float(np.square(weights - truth).mean())}

with DilocoSession(
    around.exchange(),
    settings_of(params.all),
    life=around.life,
    weights=ArrayWeights({"truth": weights}),
    aggregator=around.aggregator,
    validate=measure,
) as run:
    while not run.finished:
        seen = truth + np.float32(0.1) * chance.standard_normal(
            params.size, dtype=np.float32
        )
        weights += np.float32(0.02) * (seen - weights)
        time.sleep(params.step_s)
        run.step(samples=32, loss=measure()["loss"])
"""
"""A loop that learns an array, in its own time.

To load torch and its data takes each process five seconds of CPU. This is for what
does not depend on them: who dies, and what is sent.
"""


def eventually(
    condition: Callable[[], bool], what: Callable[[], object] = lambda: ""
) -> None:
    """Wait for a condition, long enough for a busy machine."""
    until = time.monotonic() + LONG_S
    while not condition():
        assert time.monotonic() < until, f"not within {LONG_S} s: {what()}"
        time.sleep(LOOK_S)


class TrainShoal:
    """Nodes by name; the first takes the jobs.

    What is asked again and again is asked by the API: a command each time would take
    from training half of a core.
    """

    def __init__(self, make: Callable[[str], CliHome]) -> None:
        self._make = make
        self.homes: dict[str, CliHome] = {}

    @property
    def first(self) -> CliHome:
        """The node that takes the jobs."""
        return next(iter(self.homes.values()))

    def add(self, name: str, programs: Path | None = None) -> CliHome:
        """Start one more node, as a member; `programs` has the `shoal` that it runs."""
        home = self._make(name)
        if programs is not None:
            home.env["PATH"] = f"{programs}:{home.env['PATH']}"
        home.ok(*MEET)
        if self.homes:
            before = self._nodes()
            [text] = self.first.ok("invite", "-q").split()[-1:]
            home.ok("join", text, "--no-up")
            home.up(*UP)
            eventually(lambda: self._nodes() > before)
        else:
            home.up(*UP)
        self.homes[name] = home
        return home

    def submit(self, folder: Path, spec: str) -> str:
        """Submit a job; return its id."""
        path = folder / "job.yaml"
        path.write_text(spec)
        return self.first.ok("submit", "-q", str(path)).strip()

    def task(self, job: str, name: str) -> pb.Task:
        """Return what is known of a task."""
        [found] = [task for task in self.job(job).tasks if task.id == f"{job}.{name}"]
        return found

    def attempts(self, job: str) -> dict[str, int]:
        """Return how often each task that runs now was started."""
        tasks = self.job(job).tasks
        return {t.id: t.attempts for t in tasks if t.state == pb.STATE_RUNNING}

    def lines(
        self, job: str, event: str, task: str = "aggregate.0"
    ) -> list[dict[str, Any]]:
        """Return what a task of a job has printed, all lives of it."""
        return self._printed(job, event, task)

    def said(self, job: str, event: str) -> list[dict[str, Any]]:
        """Return what any task of a job has printed, in the order of tasks."""
        return self._printed(job, event, "")

    def _printed(self, job: str, event: str, task: str) -> list[dict[str, Any]]:
        texts: dict[tuple[str, int], bytes] = {}
        request = pb.LogsRequest(
            job=job, task=task, stream=pb.STREAM_STDOUT, all_attempts=True
        )
        with self._client() as client:
            for piece in client.logs(request):
                life = (piece.task, piece.attempt)
                texts[life] = texts.get(life, b"") + piece.data
        # The last line of a life may have been cut off.
        lines = [
            line for life in sorted(texts) for line in texts[life].split(b"\n")[:-1]
        ]
        found = [json.loads(line) for line in lines if line.startswith(b"{")]
        return [line for line in found if line["event"] == event]

    def wait_for(
        self, job: str, event: str, condition: Callable[[dict[str, Any]], bool]
    ) -> None:
        """Wait until some task has printed such a line."""
        eventually(
            lambda: any(condition(line) for line in self.said(job, event)),
            lambda: self.first("logs", job).out[-3_000:],
        )

    def wait_for_resumed(self, job: str, times: int) -> None:
        """Wait until a gang has gone on from a checkpoint so many times."""
        eventually(
            lambda: len(self.said(job, "resumed")) >= times,
            lambda: self.first("logs", job).out[-3_000:],
        )

    def rounds(self, job: str) -> list[float]:
        """Return the rounds that were closed, in order."""
        return [line["round"] for line in self.lines(job, "round")]

    def wait(self, job: str) -> int:
        """Wait for the end of a job; return its exit code."""
        eventually(
            lambda: self.job(job).state in ENDS,
            lambda: self.first("show", job).out,
        )
        return self.first("wait", job).code

    def job(self, job: str) -> pb.Job:
        """Return what is known of a job."""
        with self._client() as client:
            return client.get(job)

    def _nodes(self) -> int:
        with self._client() as client:
            return sum(not node.away for node in client.nodes().nodes)

    def _client(self) -> Client:
        return connect(home=Home(self.first.path))

    def wait_for_round(self, job: str, number: float) -> None:
        """Wait until a round is closed."""
        eventually(
            lambda: max(self.rounds(job), default=0) >= number,
            lambda: self.first("show", job).out,
        )


def processes_of(job: str, name: str) -> list[int]:
    """Return the processes of a task that run Python, whatever node they are on."""
    wanted = f"SHOAL_TASK_ID={job}.{name}".encode()
    found: list[int] = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if wanted in (folder / "environ").read_bytes().split(b"\0") and (
                b"shoal.train" in (folder / "cmdline").read_bytes()
            ):
                found.append(int(folder.name))
        except OSError:
            continue
    return found


def kill(job: str, name: str) -> None:
    """Kill all processes of a task without notice."""
    found = processes_of(job, name)
    assert found, f"{name} does not run"
    for pid in found:
        with suppress(ProcessLookupError):  # It ended with the one before.
            os.kill(pid, signal.SIGKILL)


def with_arrays(folder: Path) -> Path:
    """Make a work directory with a `train.py` that needs no torch."""
    folder.mkdir()
    (folder / "train.py").write_text(ARRAYS)
    return folder


@contextmanager
def train_shoal(folder: Path, *names: str) -> Iterator[TrainShoal]:
    """Start nodes, and end them all at the end."""
    with homes(folder) as make:
        shoal = TrainShoal(make)
        for name in names:
            shoal.add(name)
        yield shoal
