"""DiLoCo jobs as real processes that are joined by a folder, and can be killed."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

LONG_S = 120
LOOK_S = 0.1


def eventually(condition: Callable[[], bool]) -> None:
    """Wait for a fact, long enough for a busy machine."""
    until = time.monotonic() + LONG_S
    while not condition():
        assert time.monotonic() < until
        time.sleep(LOOK_S)


class Job:
    """An aggregator and its workers, which run a program."""

    def __init__(self, folder: Path, program: str, params: Mapping[str, Any]) -> None:
        self.tasks: dict[str, subprocess.Popen[bytes]] = {}
        self._folder = folder
        self._program = program
        self._params = {**params, "program": "train.py"}

    def start(self, name: str) -> None:
        """Start a task, under its name in the job."""
        work = self._folder / "work" / name
        work.mkdir(parents=True, exist_ok=True)
        (work / "train.py").write_text(self._program)
        around = {
            "SHOAL_RECIPE": "diloco",
            "SHOAL_EXCHANGE": str(self._folder),
            "SHOAL_JOB_ID": "j",
            "SHOAL_TASK_ID": f"j.{name}",
            "SHOAL_TASK_INDEX": name.rpartition(".")[2],
            "SHOAL_PARAMS": json.dumps(self._params),
            "OMP_NUM_THREADS": "1",
        }
        with (self._folder / f"{name}.jsonl").open("ab") as out:
            self.tasks[name] = subprocess.Popen(
                [sys.executable, "-m", "shoal.train.diloco.recipe"],
                cwd=work,
                env={**os.environ, **around},
                stdout=out,
            )

    def kill(self, name: str) -> None:
        """Kill a task without notice."""
        task = self.tasks.pop(name)
        task.send_signal(signal.SIGKILL)
        task.wait()

    def lines(self, event: str, name: str = "aggregate.0") -> list[dict[str, Any]]:
        """Return what a task has printed of one kind, in whole lines."""
        text = (self._folder / f"{name}.jsonl").read_text()
        whole = [line for line in text.splitlines(keepends=True) if line[-1] == "\n"]
        found: list[dict[str, Any]] = [json.loads(line) for line in whole]
        return [line for line in found if line["event"] == event]


@contextmanager
def job(folder: Path, program: str, params: Mapping[str, Any]) -> Iterator[Job]:
    """Start all tasks of a job, and leave none behind."""
    workers = int(params.get("workers", 1))
    folder.mkdir()
    run = Job(folder, program, {"quorum": workers, **params})
    try:
        for name in ("aggregate.0", *(f"train.{n}" for n in range(workers))):
            run.start(name)
        yield run
    finally:
        for task in run.tasks.values():
            task.terminate()
            task.wait(LONG_S)
