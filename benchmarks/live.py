"""Measure real nodes: start-up, rest, submits, short processes, gangs.

All nodes are processes of this machine with homes of their own, and the clients talk to
them as any client does. A task starts when its program says so: `date` reads the clock.

Run: python benchmarks/live.py [CASE ...] >> benchmarks/results.jsonl
Cases: startup rest submits one-node four-nodes commits. `commits` starts 20 nodes.
Compare ratios of lines from one run: machines differ, and other work disturbs. It
disturbs `cpu_ms_per_task` least: the time that nodes themselves compute for a task.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import grpc

from shoal.api import shoal_pb2 as pb
from shoal.api.client.client import Client, client_of
from shoal.api.node_file import required
from shoal.runtime.home import Home

STARTS: Final = 5
REST_S: Final = 10.0
CLIENTS: Final = 64
SUBMITS: Final = 6_400
SHORT_TASKS: Final = 1_000
SINGLES: Final = 100
NODES: Final = 20
COMPETITORS: Final = 8
GANGS: Final = 24
GANG_SIZE: Final = 8
READY_S: Final = 120.0
END_S: Final = 300.0

TRUE: Final = ["/bin/true"]
CLOCK: Final = ["/bin/date", "+%s%N"]
NOWHERE: Final = {"labels": {"place": "nowhere"}}


class LiveNode:
    """A node in a home of its own, from its start to its end."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self._env = {**os.environ, "SHOAL_HOME": str(home)}

    def shoal(self, *args: str) -> str:
        """Run a command in this home; return what it printed."""
        done = subprocess.run(
            [sys.executable, "-m", "shoal.cli", *args],
            env=self._env,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        return done.stdout

    def up(self, *args: str) -> None:
        """Start the node; returns when it is ready."""
        self.shoal("up", "--background", "-q", *args)

    def join(self, invitation: str, *args: str) -> None:
        """Join a shoal and start the node."""
        self.shoal("join", invitation, "--no-up", "-q")
        self.up("--listen", "127.0.0.1:0", *args)

    @property
    def info(self) -> dict[str, Any]:
        """What the node wrote down of itself."""
        found: dict[str, Any] = json.loads((self.home / "node.json").read_text())
        return found

    @property
    def target(self) -> str:
        """Where gRPC finds it."""
        return f"unix:{self.info['socket']}"

    def client(self) -> Client:
        """Return a client of it, as the commands of shoal use it on its machine."""
        return client_of(required(Home(self.home)))


@contextmanager
def pool(count: int, *args: str) -> Iterator[list[LiveNode]]:
    """Start so many nodes that know each other; end them at last."""
    with tempfile.TemporaryDirectory(prefix="shoal-live-") as folder:
        nodes = [LiveNode(Path(folder) / f"n{n}") for n in range(count)]
        try:
            nodes[0].shoal("init", "bench", "-q")
            nodes[0].up("--listen", "127.0.0.1:0", *args)
            if count > 1:
                uses = str(count - 1)
                invitation = nodes[0].shoal("invite", "-q", "--uses", uses).strip()
                for node in nodes[1:]:
                    node.join(invitation, *args)
            wait_for(lambda: all(known(node) == count for node in nodes))
            yield nodes
        finally:
            for node in nodes:
                if (node.home / "node.json").exists():
                    node.shoal("down", "-q")


def known(node: LiveNode) -> int:
    """Return how many nodes it knows."""
    with node.client() as client:
        return sum(not node.away for node in client.nodes().nodes)


def wait_for(condition: Callable[[], bool]) -> None:
    """Look until something is so."""
    until = time.monotonic() + READY_S
    while not condition():
        if time.monotonic() > until:
            raise TimeoutError("the nodes did not find each other")
        time.sleep(0.1)


def request(argv: Sequence[str], **more: object) -> pb.SubmitRequest:
    """Return a new job."""
    spec = json.dumps({"command": list(argv), **more})
    return pb.SubmitRequest(job_id=secrets.token_hex(8), json=spec)


def run(client: Client, job: pb.SubmitRequest) -> float:
    """Submit a job and wait for its end; return the seconds both took."""
    start = time.perf_counter()
    client.submit(job)
    *_, last = client.watch(job.job_id, END_S)
    assert last.state == pb.STATE_DONE, last
    return time.perf_counter() - start


def started_after(client: Client, job: pb.SubmitRequest) -> list[float]:
    """Run a job of clocks; return when each task started, after the submit began."""
    submitted = time.time()
    run(client, job)
    pieces = client.logs(pb.LogsRequest(job=job.job_id))
    told = [line for piece in pieces for line in piece.data.split()]
    return sorted(int(line) / 1e9 - submitted for line in told)


def cpu_s(pid: int) -> float:
    """Return the processor time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2]
    user, system = fields.split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def cpu_of(nodes: Sequence[LiveNode]) -> float:
    """Return the processor time of nodes, without that of their tasks."""
    return sum(cpu_s(node.info["pid"]) for node in nodes)


def memory_mb(pid: int) -> float:
    """Return the memory that is this process's own, shared parts by their share."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
    kilobytes = next(line.split()[1] for line in text.splitlines() if "Pss:" in line)
    return int(kilobytes) / 1024


def emit(case: str, **figures: object) -> None:
    """Print one line."""
    print(json.dumps({"benchmark": "live", "case": case, **figures}), flush=True)


def spread_ms(seconds: Sequence[float]) -> dict[str, float]:
    """Return the middle and the end of what was measured."""
    cuts = statistics.quantiles(seconds, n=100, method="inclusive")
    return {"p50_ms": round(cuts[49] * 1e3, 2), "p99_ms": round(cuts[98] * 1e3, 2)}


def startup() -> None:
    """From `shoal up` to a node that answers, and once more with a known home."""
    first: list[float] = []
    again: list[float] = []
    for _ in range(STARTS):
        with tempfile.TemporaryDirectory(prefix="shoal-live-") as folder:
            node = LiveNode(Path(folder) / "home")
            for spent in (first, again):
                start = time.perf_counter()
                node.up()
                spent.append(time.perf_counter() - start)
                node.shoal("down", "-q")
    emit("startup", home="new", **spread_ms(first))
    emit("startup", home="known", **spread_ms(again))


def rest() -> None:
    """Say what nodes cost while nothing happens: alone, and one of four."""
    for count in (1, 4):
        with pool(count) as nodes:
            pids = [node.info["pid"] for node in nodes]
            time.sleep(REST_S)  # Let them settle.
            before = [cpu_s(pid) for pid in pids]
            time.sleep(REST_S)
            used = [cpu_s(pid) - was for pid, was in zip(pids, before, strict=True)]
            emit(
                "rest",
                nodes=count,
                cpu_percent=round(100 * statistics.mean(used) / REST_S, 2),
                memory_mb=round(statistics.mean(map(memory_mb, pids)), 1),
            )


def submits() -> None:
    """Durable submits of many clients at once; the jobs wait for a label for ever."""
    with pool(1, "--no-sandbox") as [node]:
        spent: list[float] = []
        start = time.perf_counter()
        asyncio.run(_submit_all(node.target, spent))
        rate = len(spent) / (time.perf_counter() - start)
    emit("submits", clients=CLIENTS, per_s=round(rate), **spread_ms(spent))


async def _submit_all(target: str, spent: list[float]) -> None:
    async def one() -> None:
        async with grpc.aio.insecure_channel(
            target, options=(("grpc.use_local_subchannel_pool", 1),)
        ) as channel:
            call = channel.unary_unary(
                "/shoal.v1.Shoal/Submit",
                request_serializer=pb.SubmitRequest.SerializeToString,
                response_deserializer=pb.SubmitReply.FromString,
            )
            for _ in range(SUBMITS // CLIENTS):
                start = time.perf_counter()
                await call(request(TRUE, placement=NOWHERE))
                spent.append(time.perf_counter() - start)

    await asyncio.gather(*(one() for _ in range(CLIENTS)))


def short_tasks(case: str, count: int) -> None:
    """Arrays of short processes, and single ones, with and without the sandbox."""
    for flag in ("--no-sandbox", "--sandbox"):
        with pool(count, flag) as nodes, nodes[0].client() as client:
            run(client, request(TRUE, array=50))  # Warm up.
            before = cpu_of(nodes)
            took = run(client, request(TRUE, array=SHORT_TASKS))
            cpu_ms = (cpu_of(nodes) - before) * 1e3 / SHORT_TASKS
            ends = [run(client, request(TRUE)) for _ in range(SINGLES)]
            clock = [started_after(client, request(CLOCK))[0] for _ in range(SINGLES)]
        sandboxed = flag == "--sandbox"
        shared = {"nodes": count, "sandbox": sandboxed}
        rate = round(SHORT_TASKS / took)
        emit(case, **shared, tasks_per_s=rate, cpu_ms_per_task=round(cpu_ms, 2))
        emit(f"{case}: submit to exit", **shared, **spread_ms(ends))
        emit(f"{case}: submit to start", **shared, **spread_ms(clock))


def commits() -> None:
    """From the submit to the start of the last task, with rivals and without."""
    with pool(NODES, "--no-sandbox") as nodes:
        for rivals in (1, COMPETITORS):
            for size in (1, GANG_SIZE):
                spent = _compete(nodes[:rivals], size)
                figures = spread_ms(spent)
                emit("commits", nodes=NODES, schedulers=rivals, gang=size, **figures)


def _compete(schedulers: Sequence[LiveNode], size: int) -> list[float]:
    rounds = GANGS // len(schedulers)

    def submit_some(node: LiveNode) -> list[float]:
        with node.client() as client:
            return [
                started_after(client, request(CLOCK, nodes=size))[-1]
                for _ in range(rounds)
            ]

    with ThreadPoolExecutor(len(schedulers)) as threads:
        return [each for some in threads.map(submit_some, schedulers) for each in some]


CASES: Final[dict[str, Callable[[], None]]] = {
    "startup": startup,
    "rest": rest,
    "submits": submits,
    "one-node": lambda: short_tasks("one-node", 1),
    "four-nodes": lambda: short_tasks("four-nodes", 4),
    "commits": commits,
}


def main(names: Sequence[str]) -> int:
    """Measure the named cases, or all of them."""
    if unknown := set(names) - set(CASES):
        print(f"no such case: {', '.join(sorted(unknown))}", file=sys.stderr)
        print(f"there are: {', '.join(CASES)}", file=sys.stderr)
        return 2
    for name in names or CASES:
        CASES[name]()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
