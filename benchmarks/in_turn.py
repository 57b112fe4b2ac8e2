"""Compare two versions of shoal in turn: the CPU of a submit, a call and a process.

Each version is a Python in whose environment it is installed. Round by round, each
starts a node and does the same work on it. CPU is what a busy machine disturbs least:
that of the node, of its helpers and their tasks, and of the client. Rates and latencies
are told as well; compare them only if the load was low. Every round is printed, then
the medians of all rounds.

Run: python benchmarks/in_turn.py BEFORE/bin/python AFTER/bin/python [--rounds 3]
     [--cases submits,batches,calls,tasks,boxed,singles]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import secrets
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import grpc

import shoal
from shoal.api import shoal_pb2 as pb

CLIENTS: Final = 64
SUBMITS: Final = 6_400
CALLS: Final = 20_000
SINGLE_CALLS: Final = 6_000
TASKS: Final = 2_000
SINGLES: Final = 100
TRUE: Final = ["/bin/true"]
TICKS: Final = os.sysconf("SC_CLK_TCK")


# What is measured, in a process of the version itself.


def submits(home: Path) -> tuple[int, list[float]]:
    """Submit jobs from many clients; they wait for a label for ever."""
    target = f"unix:{json.loads((home / 'node.json').read_text())['socket']}"
    spent: list[float] = []
    asyncio.run(_submit_all(target, spent))
    return SUBMITS, spent


async def _submit_all(target: str, spent: list[float]) -> None:
    spec = json.dumps({"command": TRUE, "placement": {"labels": {"place": "nowhere"}}})

    async def one() -> None:
        options = (("grpc.use_local_subchannel_pool", 1),)
        async with grpc.aio.insecure_channel(target, options=options) as channel:
            call = channel.unary_unary(
                "/shoal.v1.Shoal/Submit",
                request_serializer=pb.SubmitRequest.SerializeToString,
                response_deserializer=pb.SubmitReply.FromString,
            )
            for _ in range(SUBMITS // CLIENTS):
                start = time.perf_counter()
                await call(pb.SubmitRequest(job_id=secrets.token_hex(8), json=spec))
                spent.append(time.perf_counter() - start)

    await asyncio.gather(*(one() for _ in range(CLIENTS)))


def batches(_home: Path) -> tuple[int, list[float]]:
    """Call a function many times at once."""
    with shoal.Client(start=False, lanes=2, cpu=0.5) as client:
        _warm(client)
        begin()
        futures = [client.submit(abs, n) for n in range(CALLS)]
        assert [each.result() for each in futures] == list(range(CALLS))
        return CALLS, []


def calls(_home: Path) -> tuple[int, list[float]]:
    """Call a function many times, one call after the other."""
    with shoal.Client(start=False, lanes=2, cpu=0.5) as client:
        _warm(client)
        begin()
        return SINGLE_CALLS, [
            _timed(lambda: client.submit(abs, 1).result()) for _ in range(SINGLE_CALLS)
        ]


def _warm(client: shoal.Client) -> None:
    until = time.monotonic() + 30
    while client.lanes < 2 and time.monotonic() < until:
        list(client.map(abs, range(100), chunksize=1))


def tasks(_home: Path) -> tuple[int, list[float]]:
    """Run an array of processes that end at once."""
    with shoal.Client(start=False) as client:
        client.submit({"command": TRUE, "array": 50}).result()
        begin()
        client.submit({"command": TRUE, "array": TASKS}).result()
        return TASKS, []


def singles(_home: Path) -> tuple[int, list[float]]:
    """Run processes that end at once, each a job, one after the other."""
    with shoal.Client(start=False) as client:
        client.submit({"command": TRUE, "array": 50}).result()
        begin()
        return SINGLES, [
            _timed(lambda: client.submit({"command": TRUE}).result())
            for _ in range(SINGLES)
        ]


def _timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def begin() -> None:
    """Say that all is warm; go on when what follows is measured."""
    print("begin", flush=True)
    sys.stdin.readline()


CASES: Final[dict[str, Callable[[Path], tuple[int, list[float]]]]] = {
    "submits": submits,
    "batches": batches,
    "calls": calls,
    "tasks": tasks,
    "boxed": tasks,
    "singles": singles,
}


def measure(case: str, home: Path) -> None:
    """Do the work of a case, as one version of shoal; print what it took."""
    if case == "submits":
        begin()
    count, spent = CASES[case](home)
    print(json.dumps([count, time.monotonic(), spent]), flush=True)
    sys.stdin.readline()  # We are still to be looked at.


# Who measures.


def stat_of(pid: int) -> list[str]:
    """Return what the system knows of a process, from its state on."""
    text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii")
    return text.rpartition(")")[2].split()


def below(top: int) -> list[int]:
    """Return the processes below one."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int(stat_of(int(entry.name))[1])
            except OSError:
                continue  # It has just ended.
    found = [top]
    for pid in found:
        found += [each for each, parent in parents.items() if parent == pid]
    return found[1:]


def cpu_s(pid: int, *, reaped: bool = False) -> float:
    """Return the CPU time of a process, and of its reaped children if asked."""
    try:
        fields = stat_of(pid)[11 : 15 if reaped else 13]
    except OSError:
        return 0.0  # A task that has just ended: its supervisor counts it.
    return sum(map(int, fields)) / TICKS


class Cpu:
    """The CPU time of a node, of what it started, and of a client, so far."""

    def __init__(self, node: int, client: int) -> None:
        self.node = cpu_s(node)
        helpers = below(node)
        self.others = sum(cpu_s(pid, reaped=True) for pid in helpers)
        self.client = cpu_s(client)


def command(python: Path, home: Path, *args: str) -> None:
    """Run a command of a version."""
    env = {**os.environ, "SHOAL_HOME": str(home)}
    subprocess.run([python, "-m", "shoal.cli", *args], env=env, check=True)


@contextmanager
def node(python: Path, *, sandbox: bool) -> Iterator[Path]:
    """Run a node of a version; yield its home."""
    with tempfile.TemporaryDirectory(prefix="shoal-turn-") as folder:
        home = Path(folder) / "home"
        command(python, home, "init", "bench", "-q")
        box = "--sandbox" if sandbox else "--no-sandbox"
        up = ("up", "--background", "-q", "--listen", "127.0.0.1:0", box)
        command(python, home, *up)
        try:
            yield home
        finally:
            command(python, home, "down", "-q")


def one_round(python: Path, case: str) -> dict[str, float]:
    """Measure a case on one version; return its figures by name."""
    with node(python, sandbox=case == "boxed") as home:
        pid = json.loads((home / "node.json").read_text())["pid"]
        worker = [str(python), __file__, "--measure", case, str(home)]
        env = {**os.environ, "SHOAL_HOME": str(home)}
        with subprocess.Popen(
            worker,
            env=env,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as client:
            assert client.stdin is not None
            assert client.stdout is not None
            if client.stdout.readline() != "begin\n":
                raise RuntimeError(f"{case} did not begin")
            before, start = Cpu(pid, client.pid), time.monotonic()
            print(file=client.stdin, flush=True)
            count, end, spent = json.loads(client.stdout.readline())
            after = Cpu(pid, client.pid)
            print(file=client.stdin, flush=True)
    per_ms = 1e3 / count
    figures = {
        "node_cpu_ms": (after.node - before.node) * per_ms,
        "others_cpu_ms": (after.others - before.others) * per_ms,
        "client_cpu_ms": (after.client - before.client) * per_ms,
        "per_s": count / (end - start),
    }
    if spent:
        figures["p50_ms"] = statistics.median(spent) * 1e3
    return figures


def main() -> None:
    """Compare versions, or be the client of one."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("pythons", nargs="*", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        measure(args.measure[0], Path(args.measure[1]))
        return
    for case in args.cases.split(","):
        found: dict[Path, list[dict[str, float]]] = {each: [] for each in args.pythons}
        for number in range(args.rounds):
            for python in args.pythons:
                load = round(os.getloadavg()[0], 1)
                figures = one_round(python, case)
                found[python].append(figures)
                emit(case, python, figures, round=number + 1, load=load)
        for python, rounds in found.items():
            medians = {
                key: statistics.median(each[key] for each in rounds)
                for key in rounds[0]
            }
            emit(case, python, medians, median_of=len(rounds))


def emit(case: str, python: Path, figures: dict[str, float], **more: float) -> None:
    """Print one line."""
    shown = {key: round(value, 3) for key, value in figures.items()}
    line = {"benchmark": "in_turn", "case": case, "python": str(python), **more}
    print(json.dumps({**line, **shown}), flush=True)


if __name__ == "__main__":
    main()
