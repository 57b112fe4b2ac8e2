"""Measure how fast code and data travel: to a node, between nodes, the second time.

Two nodes are processes of this machine with homes of their own. `upload` is from a
client to its node; `hash` is the same bytes only read and hashed, which bounds it.
`stage` is from the acknowledged submit to the first line of the task, on the other
node: fetching, verifying, unpacking and starting. `pull` is from the end of a job that
made the bytes to the last byte in the user's folder.

Run: python benchmarks/blobs.py >> benchmarks/results.jsonl
Compare ratios of lines from one run: machines differ, and other work disturbs.
"""

from __future__ import annotations

import functools
import json
import os
import secrets
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from shoal.api import shoal_pb2 as pb
from shoal.api.client import shipping
from shoal.api.client.client import Client
from shoal.blobs.packing import Naming

if TYPE_CHECKING:
    from collections.abc import Callable

ROUNDS: Final = 3
BIG_BYTES: Final = 256 << 20
SMALL_FILES: Final = 2_000
SMALL_BYTES: Final = 4_000
MB: Final = 1e6
READY_S: Final = 60.0


class Home:
    """A node in a home of its own."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._env = {**os.environ, "SHOAL_HOME": str(path)}

    def shoal(self, *args: str) -> str:
        """Run a command in this home; return what it printed."""
        command = [sys.executable, "-m", "shoal.cli", *args]
        done = subprocess.run(
            command, env=self._env, stdout=subprocess.PIPE, text=True, check=True
        )
        return done.stdout

    def client(self) -> Client:
        """Return a client of the node."""
        info = json.loads((self.path / "node.json").read_text())
        return Client(f"unix:{info['socket']}", name=self.path.name)

    def cached_bytes(self) -> int:
        """Return how much the node has in its cache."""
        files = (self.path / "cache").rglob("*")
        return sum(path.stat().st_size for path in files if path.is_file())


def report(what: str, size: int, times_s: list[float], **more: Any) -> None:  # noqa: ANN401
    """Print one line."""
    median_s = statistics.median(times_s)
    line = {"benchmark": "blobs", "what": what, "bytes": size, **more}
    line |= {"s": round(median_s, 3), "mb_s": round(size / median_s / MB, 1)}
    print(json.dumps(line), flush=True)


def timed(act: Callable[[], object]) -> float:
    """Return how long something takes."""
    start = time.perf_counter()
    act()
    return time.perf_counter() - start


def fill_big(folder: Path) -> int:
    """Write one large file."""
    folder.mkdir(exist_ok=True)
    (folder / "big").write_bytes(os.urandom(BIG_BYTES))
    return BIG_BYTES


def fill_small(folder: Path) -> int:
    """Write many small files."""
    for n in range(SMALL_FILES):
        path = folder / f"d{n % 50}" / f"f{n}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.urandom(SMALL_BYTES))
    return SMALL_FILES * SMALL_BYTES


def hashed(folder: Path) -> None:
    """Do what a client must do at least."""
    for path in folder.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            Naming().name(descriptor)
            os.close(descriptor)


def run_job(client: Client, spec: dict[str, Any]) -> tuple[str, float, float]:
    """Run a job; return its id, and when it was acknowledged and began to write."""
    job = secrets.token_hex(8)
    client.submit(pb.SubmitRequest(job_id=job, json=json.dumps(spec)))
    submitted_s = time.time()
    *_, last = client.watch(job, 300.0)
    assert last.exit_code == 0, last
    text = b"".join(p.data for p in client.logs(pb.LogsRequest(job=job)))
    return job, submitted_s, int(text) / 1e9


def measure(boss: Home, worker: Home, folder: Path) -> None:
    """Measure uploads and stagings of both kinds, and pulling."""
    clock = ["date", "+%s%N"]
    with boss.client() as client:
        for kind, fill in (("one file", fill_big), ("small files", fill_small)):
            hashes: list[float] = []
            uploads: list[float] = []
            stages: list[float] = []
            again: list[float] = []
            size = came_again = sent_again = 0
            for n in range(ROUNDS):
                work = folder / f"{kind}{n}"
                size = fill(work)
                hashes.append(timed(functools.partial(hashed, work)))
                start = time.perf_counter()
                shipped = shipping.ship(client, work)
                uploads.append(time.perf_counter() - start)
                spec = {"command": clock, "workdir": shipped.tree}
                _, submitted_s, began_s = run_job(client, spec)
                stages.append(began_s - submitted_s)
                before = worker.cached_bytes()
                sent_again += shipping.ship(client, work).sent_bytes
                _, submitted_s, began_s = run_job(client, spec)
                again.append(began_s - submitted_s)
                came_again += worker.cached_bytes() - before
            report("hash", size, hashes, of=kind)
            report("upload", size, uploads, of=kind)
            report("stage", size, stages, of=kind)
            report(
                "stage again", size, again, of=kind, sent=sent_again, came=came_again
            )
        pulls: list[float] = []
        for n in range(ROUNDS):
            make = f"date +%s%N; head -c {BIG_BYTES} /dev/urandom > made"
            spec = {"command": ["sh", "-c", make], "outputs": ["made"]}
            job, _, _ = run_job(client, spec)
            reply = client.outputs(job)
            to = folder / f"pulled{n}"
            pulls.append(
                timed(lambda: shipping.take_outputs(reply, client, to))  # noqa: B023
            )
        report("pull", BIG_BYTES, pulls, of="one file")


def main() -> None:
    """Start two nodes, measure, and end them."""
    with tempfile.TemporaryDirectory(prefix="shoal-blobs-") as text:
        folder = Path(text)
        boss, worker = Home(folder / "boss"), Home(folder / "worker")
        try:
            boss.shoal("init", "bench", "-q")
            boss.shoal("up", "--background", "-q", "--no-worker")
            invitation = boss.shoal("invite", "-q").strip()
            worker.shoal("join", invitation, "--no-up", "-q")
            worker.shoal("up", "--background", "-q", "--listen", "127.0.0.1:0")
            until = time.monotonic() + READY_S
            with boss.client() as client:
                while len(client.nodes().nodes) < 2 and time.monotonic() < until:
                    time.sleep(0.1)
            measure(boss, worker, folder)
        finally:
            for home in (worker, boss):
                if (home.path / "node.json").exists():
                    home.shoal("down", "-q")


if __name__ == "__main__":
    main()
