"""Measure one large array on a live node: submit, memory, restart, cost of a task.

For each number of tasks a node of its own gets one array:

- `waiting`: no worker may run it. How long the submit takes; how much memory the node
  has more than before, by /proc, for each task; and how long after kill -9 it takes
  until the node answers again and knows all tasks.
- `running`: this machine runs it, for `RUN_S`. How many tasks end a second, and how
  much processor time of the node each takes, however many others wait.

Run: PYTHONPATH=. python benchmarks/arrays.py [TASKS ...] >> benchmarks/results.jsonl
     PYTHONPATH=. python benchmarks/arrays.py picture benchmarks/results.jsonl docs/img
Compare ratios of lines from one run: machines differ, and other work disturbs.
`load` is how many processes wanted a processor meanwhile.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from benchmarks.live import NOWHERE, TRUE, LiveNode, cpu_s, memory_mb, pool, request
from benchmarks.report.line_chart import Curve, drawn

from shoal.errors import ShoalError

SIZES: Final = (1_000, 10_000, 100_000, 1_000_000)
SETTLED_S: Final = 3.0
RUN_S: Final = 10.0
KNOWN_WITHIN_S: Final = 120.0


def waiting(tasks: int) -> None:
    """Measure an array of which nothing can run."""
    with pool(1, "--no-sandbox") as [node]:
        with node.client() as client:
            client.submit(request(TRUE, placement=NOWHERE))
            time.sleep(SETTLED_S)
            pid = node.info["pid"]
            before_mb = memory_mb(pid)
            job = request(TRUE, array=tasks, placement=NOWHERE)
            start = time.perf_counter()
            client.submit(job)
            submit_s = time.perf_counter() - start
            time.sleep(SETTLED_S)
            grown_mb = memory_mb(pid) - before_mb
        os.kill(pid, signal.SIGKILL)
        gone(pid)
        start = time.perf_counter()
        node.up()
        up_s = time.perf_counter() - start
        known_s = until_known(node, job.job_id, tasks) - start
    emit(
        "waiting",
        tasks,
        submit_ms=round(1e3 * submit_s, 1),
        grown_mb=round(grown_mb, 2),
        bytes_per_task=round(grown_mb * 2**20 / tasks, 1),
        restart_s=round(up_s, 2),
        restart_until_known_s=round(known_s, 2),
    )


def running(tasks: int) -> None:
    """Measure an array that runs here, for a while."""
    with pool(1, "--no-sandbox") as [node], node.client() as client:
        job = request(TRUE, array=tasks)
        client.submit(job)
        wait_for_some(node, job.job_id)
        pid = node.info["pid"]
        before, cpu_before, start = (
            ended(node, job.job_id),
            cpu_s(pid),
            time.monotonic(),
        )
        while time.monotonic() < start + RUN_S and ended(node, job.job_id) < tasks:
            time.sleep(0.2)
        took_s = time.monotonic() - start
        count, used_s = ended(node, job.job_id) - before, cpu_s(pid) - cpu_before
        client.cancel(job.job_id)
    emit(
        "running",
        tasks,
        ended=count,
        tasks_per_s=round(count / took_s),
        node_cpu_ms_per_task=round(1e3 * used_s / max(1, count), 2),
    )


def ended(node: LiveNode, job: str) -> int:
    """Return how many tasks of a job are done."""
    with node.client() as client:
        return client.get(job, tasks_max=1).counts.done


def wait_for_some(node: LiveNode, job: str) -> None:
    """Wait until the first tasks have ended, so that the machine is warm."""
    until = time.monotonic() + KNOWN_WITHIN_S
    while ended(node, job) < 50 and time.monotonic() < until:
        time.sleep(0.05)


def until_known(node: LiveNode, job: str, tasks: int) -> float:
    """Return when the node, which was killed, knows that all tasks wait."""
    until = time.perf_counter() + KNOWN_WITHIN_S
    while time.perf_counter() < until:
        with suppress(ShoalError, OSError), node.client() as client:
            counts = client.get(job, tasks_max=1).counts
            if counts.waiting + counts.blocked == tasks:
                return time.perf_counter()
        time.sleep(0.02)
    raise TimeoutError(f"{tasks} tasks were not known {KNOWN_WITHIN_S:.0f} s later")


def gone(pid: int) -> None:
    """Wait until a process is gone."""
    while Path(f"/proc/{pid}").exists():
        state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2]
        if state.split()[0] == "Z":
            return
        time.sleep(0.01)


def emit(case: str, tasks: int, **figures: float) -> None:
    """Print one line."""
    load = round(os.getloadavg()[0], 1)
    line = {
        "benchmark": "arrays",
        "case": case,
        "tasks": tasks,
        **figures,
        "load": load,
    }
    print(json.dumps(line), flush=True)


def draw(lines: Path, folder: Path) -> None:
    """Draw what a task costs the node, by how many tasks its array has."""
    rows = [json.loads(line) for line in lines.read_text("utf-8").splitlines()]
    points = sorted(
        (row["tasks"], row["node_cpu_ms_per_task"])
        for row in rows
        if row["benchmark"] == "arrays" and row["case"] == "running"
    )
    zero = [(tasks, 0.0) for tasks, _ in points]
    curves = [Curve("one task of an array", points), Curve("zero", zero)]
    words = "ms of the node's CPU"
    drawing = drawn(curves, "tasks of the array", words, powers=True)
    (folder / "arrays.svg").write_text(drawing, encoding="utf-8")


def main(names: Sequence[str]) -> None:
    """Measure arrays of these sizes, or of all; or draw what was measured."""
    if names and names[0] == "picture":
        draw(Path(names[1]), Path(names[2]))
        return
    for tasks in map(int, names) if names else SIZES:
        print(f"an array of {tasks:,} tasks", file=sys.stderr, flush=True)
        waiting(tasks)
        running(tasks)


if __name__ == "__main__":
    main(sys.argv[1:])
