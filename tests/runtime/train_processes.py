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

from tests.integration.forked_shoal import ForkedShoal
from tests.runtime import torch_forks
from tests.runtime.torch_forks import Program

RECIPE = "shoal.train.diloco.recipe"
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

    def __init__(
        self,
        folder: Path,
        program: str,
        params: Mapping[str, Any],
        *,
        is_forked: bool = False,
    ) -> None:
        """Make one; its tasks may be forks of a process that has loaded torch."""
        self.tasks: dict[str, subprocess.Popen[bytes] | ForkedShoal] = {}
        self._is_forked = is_forked
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
        written = self._folder / f"{name}.jsonl"
        if self._is_forked:
            errors = self._folder / f"{name}.log"
            program = Program(RECIPE, work, around, written, errors)
            self.tasks[name] = torch_forks.start(program)
            return
        with written.open("ab") as out:
            self.tasks[name] = subprocess.Popen(
                [sys.executable, "-m", RECIPE],
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
def job(
    folder: Path, program: str, params: Mapping[str, Any], *, is_forked: bool = False
) -> Iterator[Job]:
    """Start all tasks of a job, and leave none behind."""
    workers = int(params.get("workers", 1))
    folder.mkdir()
    asked = {"quorum": workers, **params}
    run = Job(folder, program, asked, is_forked=is_forked)
    try:
        names = [f"train.{n}" for n in range(workers)]
        if params.get("inner.over") == "machines":
            names = [f"train-{n}.{rank}" for n in range(workers) for rank in (0, 1)]
        for name in ("aggregate.0", *names):
            run.start(name)
        yield run
    finally:
        for task in run.tasks.values():
            task.terminate()
            task.wait(LONG_S)
