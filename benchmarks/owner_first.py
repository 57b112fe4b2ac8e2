"""Measure what tasks of others cost the owner of a machine.

A node lends by the rule `away`, and its owner is away from the keyboard while a program
of the owner computes on every CPU. Tasks of a guest compute there, too. Told are the
share of the CPU time that the owner's programs got of what they and the tasks got
together; the CPU time they got beside the tasks over what they got without them; how
long tasks stayed when the owner came back; and how long after the owner had left they
ran again.

Run: python benchmarks/owner_first.py [LOANS] >> benchmarks/results.jsonl
The share counts CPU time only of these programs, so other work on the machine disturbs
it least. Speed is compared in turn, with and without the tasks. What tasks cost beyond
CPU time, such as room in caches, is in the work done per CPU second.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, NamedTuple

LOANS: Final = 2
ROUNDS: Final = 6
WINDOW_S: Final = 3.0
LOAN_S: Final = 125.0
"""After shorter loans a node waits longer before the next one."""

READY_S: Final = 120.0
TICKS_S: Final = os.sysconf("SC_CLK_TCK")
BURN: Final = "echo $$ >> {}; while :; do :; done"
# Tells when it begins, and when it is stopped what it computed since then.
OWN: Final = """
import signal, sys, time
done = 0
def stop(*_):
    print(done, time.process_time() - began, flush=True)
    sys.exit()
signal.signal(signal.SIGTERM, stop)
began = time.process_time()
print("begun", flush=True)
while True:
    done += 1
"""


class CliNode:
    """A node in a home of its own, talked to by the command line."""

    def __init__(self, home: Path) -> None:
        home.mkdir()
        self._env = {**os.environ, "SHOAL_HOME": str(home)}
        self._program = Path(sys.executable).with_name("shoal")

    def ok(self, *args: str) -> str:
        """Run a command that succeeds; return what it prints."""
        done = subprocess.run(
            [self._program, *args],
            env=self._env,
            capture_output=True,
            text=True,
            timeout=READY_S,
            check=False,
        )
        if done.returncode:
            raise SystemExit(f"shoal {' '.join(args)}: {done.stderr}")
        return done.stdout.strip()

    def json(self, *args: str) -> Any:  # noqa: ANN401 - any JSON
        """Return what a command prints as JSON."""
        return json.loads(self.ok(*args, "--json"))


def main() -> None:
    """Print a line for each loan, and one with medians."""
    loans = int(sys.argv[1]) if len(sys.argv) > 1 else LOANS
    # Nodes end before their folders go.
    with tempfile.TemporaryDirectory(prefix="owner-") as folder, ExitStack() as end:
        touched, pids = Path(folder, "touched"), Path(folder, "pids")
        touched.touch()
        lender, guest = CliNode(Path(folder, "lender")), CliNode(Path(folder, "guest"))
        # Tasks without a sandbox tell their pids, as everybody sees them.
        bare = ("--no-sandbox", "--strangers", "any", "--listen", "127.0.0.1:0")
        rule = ("--lend", "away", "--owner-input", str(touched))
        lender.ok("up", "--background", "--port", "0", *bare, *rule)
        end.callback(lender.ok, "down")
        invitation = lender.ok("invite", "-q", "--owner", "guest")
        guest.ok("join", invitation, "--no-up", "--wait", "20s")
        guest.ok("up", "--background", "--port", "0", "--no-worker")
        end.callback(guest.ok, "down")
        until(lambda: len(guest.json("nodes")["nodes"]) == 2)
        count = len(os.sched_getaffinity(0))
        guest.ok(
            *("submit", "-q", "--array", f"0-{count - 1}", "--cpu", "1", "--"),
            *("sh", "-c", BURN.format(pids)),
        )
        lines = [_loan(touched, pids, count) for _ in range(loans)]
    for line in lines:
        print(json.dumps({"benchmark": "owner-first", **line}))
    medians = {
        f"median_{name}": round(statistics.median(line[name] for line in lines), 4)
        for name in lines[0]
    }
    worst = {"worst_share": min(line["worst_share"] for line in lines)}
    print(json.dumps({"benchmark": "owner-first", "loans": loans, **medians, **worst}))


def _loan(touched: Path, pids: Path, count: int) -> dict[str, float]:
    """Let the owner leave, run programs beside the tasks, and come back."""
    before, left_at = len(_known(pids)), time.time()
    touched.touch()
    until(lambda: len(_known(pids)) >= before + count)
    began_at = time.time()
    tasks = _known(pids)[-count:]
    rounds = [_round(tasks, count) for _ in range(ROUNDS)]
    time.sleep(max(0.0, began_at + LOAN_S - time.time()))
    came_at = time.time()
    touched.touch()
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in tasks))
    gone_s = time.time() - came_at
    share, speed, work = zip(*rounds, strict=True)
    return {
        "share": round(statistics.median(share), 4),
        "worst_share": round(min(share), 4),
        "speed": round(statistics.median(speed), 4),
        "work_per_cpu_s": round(statistics.median(work), 4),
        "gone_s": round(gone_s, 2),
        "back_s": round(began_at - left_at, 1),
        "load": round(os.getloadavg()[0], 1),
    }


class Window(NamedTuple):
    """What the owner's programs and the tasks got while both wanted all CPUs."""

    owners_s: float
    tasks_s: float
    work_per_s: float


def _round(tasks: list[int], count: int) -> tuple[float, float, float]:
    """Run the owner's programs beside the tasks, and while they are frozen."""
    beside = _window(tasks, count)
    for pid in tasks:
        os.kill(pid, signal.SIGSTOP)
    try:
        alone = _window([], count)
    finally:
        for pid in tasks:
            os.kill(pid, signal.SIGCONT)
    share = beside.owners_s / (beside.owners_s + beside.tasks_s)
    speed = beside.owners_s / alone.owners_s
    return share, speed, beside.work_per_s / alone.work_per_s


def _window(tasks: list[int], count: int) -> Window:
    """Run a program of the owner on every CPU, and look from when all have begun."""
    owners = [
        subprocess.Popen(
            [sys.executable, "-c", OWN],
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        for _ in range(count)
    ]
    for each in owners:
        assert each.stdout is not None
        each.stdout.readline()
    pids = [each.pid for each in owners]
    before = sum(map(_cpu_s, pids)), sum(map(_cpu_s, tasks))
    time.sleep(WINDOW_S)
    after = sum(map(_cpu_s, pids)), sum(map(_cpu_s, tasks))
    for each in owners:
        each.terminate()
    told = [each.communicate()[0].split() for each in owners]
    work = sum(int(done) for done, _ in told) / sum(float(spent) for _, spent in told)
    return Window(after[0] - before[0], after[1] - before[1], work)


def _known(pids: Path) -> list[int]:
    return [int(line) for line in pids.read_text().split()] if pids.exists() else []


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_S


def until(condition: Any) -> None:  # noqa: ANN401 - a callable
    """Look until something is so."""
    late = time.monotonic() + READY_S
    while not condition():
        if time.monotonic() > late:
            raise SystemExit("it never became so")
        time.sleep(0.05)


if __name__ == "__main__":
    main()
