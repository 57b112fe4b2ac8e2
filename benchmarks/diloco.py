"""Compare DiLoCo with synchronous training: what it learns, and what it sends.

Run: PYTHONPATH=. python benchmarks/diloco.py [QUESTION ...] >> results.jsonl
What it draws goes to the terminal. Compare lines of one run: other work disturbs.
`wire:int8-4-shared` asks for one row of a table, and `centre:shared` for one of its.
`picture:results.jsonl` draws the rows of `wire` in a file, and prints their table.

`wire` needs root. It runs four nodes in network namespaces whose links carry 8 Mbit/s,
and reads the bytes from their interfaces; an MLP of 87,370 parameters that is none of
shoal's (`mlp.py`) is trained in step and by DiLoCo, with and without a centre; a step
takes a fixed time, so that what is measured is the exchange and not the cores. `centre`
does so with two million parameters and next to no computing, and compares what each
node sends, and how long a round takes, with what an even exchange would take. `robust`
trains with one worker of four that errs. `size` trains 25 million parameters with two
workers.

The others train the byte-level GPT on the standard library's source text, by processes
that are joined by a folder, so what is measured is learning, not a network. `compare`
trains four workers with H=50 next to one process that does what synchronous
data-parallel training does with the same tokens; `speeds` joins two workers of which
one computes three times as slowly; `faults` kills a worker in mid-round, adds another,
and kills the aggregator. `composed` joins workers that are groups of two processes,
next to workers with twice the batch and to twice the workers; `spanned`, which needs
root, joins workers that are pipelines, ddp or FSDP groups over two machines each.
`curves` trains the GPT in step and by DiLoCo, and draws losses by round, in docs/img.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.report.line_chart import Curve, drawn
from benchmarks.report.wire_table import (
    COUNTED,
    curves_of,
    latest_rows,
    surplus,
    table_of,
)
from tests.integration.found_shoal import Found, finished, shoal
from tests.integration.live_shoal import LiveNode, eventually
from tests.integration.namespaces import internet

from shoal.api import shoal_pb2 as pb
from shoal.cli.display.training_curves import plot

WORKERS = 4
ROUNDS = 40
INNER_STEPS = 50
BATCH = 16
SIZES: dict[str, Any] = {
    "context": 32,
    "width": 32,
    "layers": 1,
    "heads": 4,
    "lr": 4e-3,
    "decay": ROUNDS * INNER_STEPS,
    "corpus_bytes": 3_000_000,
    "validation_batches": 16,
    "validate_every": 4,
    "seed": 1,
}
OUTER: dict[str, Any] = {"outer_lr": 0.7, "outer_momentum": 0.8}
COMPARED = (("float32", 1), ("float16", 1), ("int8", 1), ("int8", 4))
"""How deltas are sent, and in how many fragments."""

WIRED = (
    *((compress, fragments, "central") for compress, fragments in COMPARED),
    ("float32", 1, "shared"),
    ("float16", 1, "shared"),
    ("int8", 1, "shared"),
    ("int8", 4, "shared"),
)
"""The same, and where deltas are averaged."""

MLP = Path(__file__).with_name("mlp.py")
RATE = "8mbit"
RATE_BYTES_PER_S = 1_000_000
WIRE: dict[str, Any] = {
    "program": MLP.name,
    "rounds": 30,
    "inner_steps": 48,
    "batch": 96,
    "step_s": 0.04,  # as if a device computed it: four workers share two cores
    "samples": 300_000,
    "validate_every": 30,
    "balance": False,
}
CENTRE: dict[str, Any] = {
    "program": MLP.name,
    "rounds": 7,
    "inner_steps": 2,
    "batch": 32,
    "samples": 20_000,
    "width": 1_400,
    "validate_every": 7,
    "checkpoint_every": 100,
    "compress": "float32",
    "balance": False,
}
WAYS = (
    ("nan", "mean"),
    ("huge", "mean"),
    ("garbage", "mean"),
    ("samples", "mean"),
    ("samples", "trimmed"),
    ("samples", "median"),
)
"""How a worker errs, and how deltas become one."""

COMPOSED: dict[str, Any] = {
    "program": MLP.name,
    "rounds": 30,
    "inner_steps": 48,
    "samples": 40_000,
    "balance": False,
}
SPANNED: dict[str, Any] = {
    "rounds": 10,
    "inner_steps": 20,
    "batch": 8,
    "context": 16,
    "width": 32,
    "layers": 2,
    "corpus_bytes": 1_000_000,
    "balance": False,
}
GROUPS = {"pipeline": "pipeline_gpt", "ddp": "gpt", "fsdp": "gpt"}
"""How a worker is a group, and of which program."""

CURVES: dict[str, Any] = {
    "rounds": ROUNDS,
    "inner_steps": INNER_STEPS,
    "batch": BATCH,
    "validate_every": 2,
    "balance": False,
}
PICTURES = Path(__file__).parents[1] / "docs" / "img"

SETTLE_S = 40.0
IDLE_S = 20.0
SIZE_ROUNDS = 5
SPEED_ROUNDS = 10
SLICE_S = 0.03
GATHER_S = 300.0
TIMEOUT_S = 1_800.0


class Job:
    """An aggregator and its workers, as processes joined by a folder."""

    def __init__(self, folder: Path, params: Mapping[str, Any]) -> None:
        self.folder = folder
        own = {} if "program" in params else SIZES
        self.params = {"program": "gpt", "gather": GATHER_S, **own, **params}
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, **env: str) -> None:
        """Start a task, under its name in the job."""
        work = self.folder / "work" / name
        work.mkdir(parents=True, exist_ok=True)
        shutil.copy(MLP, work)
        around = {
            **os.environ,
            "SHOAL_RECIPE": "diloco",
            "SHOAL_EXCHANGE": str(self.folder),
            "SHOAL_JOB_ID": "j",
            "SHOAL_TASK_ID": f"j.{name}",
            "SHOAL_TASK_INDEX": name.rpartition(".")[2],
            "SHOAL_PARAMS": json.dumps(self.params),
            "OMP_NUM_THREADS": "1",
            **env,
        }
        with (self.folder / f"{name}.jsonl").open("ab") as out:
            self.processes[name] = subprocess.Popen(
                [sys.executable, "-m", "shoal.train.diloco.recipe"],
                cwd=work,
                env=around,
                stdout=out,
            )

    def start_all(self, workers: int = WORKERS) -> None:
        """Start the aggregator and all workers."""
        self.start("aggregate.0")
        for number in range(workers):
            self.start(f"train.{number}")

    def kill(self, name: str) -> None:
        """Kill a task without notice."""
        process = self.processes.pop(name)
        process.send_signal(signal.SIGKILL)
        process.wait()

    def lines(self, name: str = "aggregate.0") -> list[dict[str, Any]]:
        """Return what a task has printed so far."""
        text = (self.folder / f"{name}.jsonl").read_text()
        return [json.loads(line) for line in text.splitlines(keepends=True)]

    def events(self, kind: str) -> list[dict[str, Any]]:
        """Return what the aggregator has printed of one kind."""
        return [line for line in self.lines() if line["event"] == kind]

    def wait_for_round(self, number: int) -> None:
        """Wait until a round is closed."""
        until = time.monotonic() + TIMEOUT_S
        while not any(each["round"] >= number for each in self.events("round")):
            assert time.monotonic() < until, f"round {number} is not closed"
            time.sleep(0.05)

    def wait(self) -> float:
        """Wait for the end of all; return the last validation loss."""
        for name, process in self.processes.items():
            code = process.wait(TIMEOUT_S)
            assert code == 0, f"{name} ended with {code}"
        last = max(self.events("validation"), key=lambda each: each["round"])
        return float(last["validation_loss"])


@contextlib.contextmanager
def job(**params: object) -> Iterator[Job]:
    """Make a job in a folder of its own, and leave nothing behind."""
    with tempfile.TemporaryDirectory() as name:
        made = Job(Path(name), params)
        try:
            yield made
        finally:
            for process in made.processes.values():
                process.kill()
                process.wait()


def alone(
    batch: int,
    steps: int,
    rounds: int = ROUNDS,
    program: Path | None = None,
    **params: object,
) -> list[dict[str, Any]]:
    """Train in one process; return its validation lines."""
    with tempfile.TemporaryDirectory() as folder:
        own = SIZES if program is None else {}
        words = {**own, "batch": batch, "rounds": rounds, **params}
        words["inner_steps"] = steps // rounds
        flags = [word for k, v in words.items() for word in (f"--{k}", str(v))]
        run = ["-m", "shoal.train.programs.gpt"] if program is None else [str(program)]
        done = subprocess.run(
            [sys.executable, *run, *flags],
            cwd=folder,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            check=True,
        )
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return [line for line in lines if line["event"] == "validation"]


def tell(question: str, **figures: object) -> None:
    """Print a line of results."""
    print(
        json.dumps({"benchmark": "diloco", "question": question, **figures}), flush=True
    )


def synchronous_bytes(parameters: int, workers: int, steps: int) -> int:
    """Return what a ring all-reduce of single-precision gradients sends, in all."""
    return 2 * (workers - 1) * 4 * parameters * steps


def compare(_only: str = "") -> None:
    """Compare losses and bytes at the same number of tokens."""
    steps = ROUNDS * INNER_STEPS
    curve = alone(batch=BATCH * WORKERS, steps=steps)
    reference = curve[-1]["validation_loss"]
    tell("compare", how="synchronous", loss=reference, curve=losses(curve))
    drawn = [points(curve)]
    for compress, fragments in COMPARED:
        with job(
            rounds=ROUNDS,
            inner_steps=INNER_STEPS,
            batch=BATCH,
            workers=WORKERS,
            quorum=WORKERS,
            balance=False,
            compress=compress,
            fragments=fragments,
            **OUTER,
        ) as run:
            run.start_all()
            loss = run.wait()
            [loaded] = run.events("loaded")
            sent = run.events("sent")[-1]["bytes_sent_total"]
            parameters = loaded["parameters"]
            would = synchronous_bytes(parameters, WORKERS, steps)
            tell(
                "compare",
                how="diloco",
                compress=compress,
                fragments=fragments,
                parameters=parameters,
                loss=loss,
                worse_by=loss / reference - 1,
                bytes_sent=sent,
                synchronous_bytes=would,
                fewer_bytes=would / sent,
                curve=losses(run.events("validation")),
            )
            drawn.append(points(run.events("validation")))
    print("\n".join(plot(drawn, width=72, height=12)), file=sys.stderr)


def losses(lines: list[dict[str, Any]]) -> list[float]:
    """Return a curve, rounded for reading."""
    return [round(line["validation_loss"], 4) for line in lines]


def points(lines: list[dict[str, Any]]) -> list[tuple[float, float]]:
    """Return a curve for drawing."""
    return [(line["round"], line["validation_loss"]) for line in lines]


def speeds(_only: str = "") -> None:
    """Join two workers, one of them held back to a third of its speed."""
    with job(
        rounds=SPEED_ROUNDS, inner_steps=300, batch=BATCH, workers=2, quorum=2
    ) as run:
        run.start_all(workers=2)
        slow = run.processes["train.1"]
        until = time.monotonic() + TIMEOUT_S
        while run.processes["aggregate.0"].poll() is None:
            assert time.monotonic() < until
            if slow.poll() is not None:
                break
            if not run.events("round"):
                time.sleep(0.05)
                continue
            slow.send_signal(signal.SIGSTOP)
            time.sleep(2 * SLICE_S)
            slow.send_signal(signal.SIGCONT)
            time.sleep(SLICE_S)
        run.wait()
        settled = run.events("round")[3:]
        steps = {
            name: [line["by_worker"][name]["steps"] for line in settled]
            for name in ("train.0", "train.1")
        }
        busy = {
            name: statistics.median(line["by_worker"][name]["busy"] for line in settled)
            for name in steps
        }
        tell("speeds", steps=steps, busy=busy)


def faults(_only: str = "") -> None:
    """Kill a worker in mid-round, add another, kill the aggregator; compare losses."""
    params = {
        "rounds": ROUNDS,
        "inner_steps": INNER_STEPS,
        "batch": BATCH,
        "workers": WORKERS,
        "quorum": 2,
        "balance": False,
        "silence": 30.0,
        **OUTER,
    }
    with job(**params) as run:
        run.start_all()
        undisturbed = run.wait()
    with job(**{**params, "gather": 15.0}) as run:
        run.start_all()
        run.wait_for_round(ROUNDS // 4)
        run.kill("train.1")
        run.start("train.4")
        run.wait_for_round(ROUNDS // 2)
        run.kill("aggregate.0")
        run.start("aggregate.0")
        disturbed = run.wait()
        closed = [line["round"] for line in run.events("round")]
        tell(
            "faults",
            undisturbed=undisturbed,
            disturbed=disturbed,
            worse_by=disturbed / undisturbed - 1,
            rounds_lost=ROUNDS - len(set(closed)),
            rounds_closed_again=len(closed) - len(set(closed)),
            loaded=[line["kind"] for line in run.events("loaded")],
        )


def composed(_only: str = "") -> None:
    """Join workers that are groups; compare losses at the same samples."""
    ways = (
        ("2 workers of 2 processes", 2, {"batch": 32, "inner.ddp": 2}),
        ("2 workers", 2, {"batch": 64}),
        ("4 workers", 4, {"batch": 32}),
    )
    for how, workers, params in ways:
        named = {**COMPOSED, **params, "workers": workers, "quorum": workers}
        with job(**named, validate_every=COMPOSED["rounds"]) as run:
            run.start_all(workers=workers)
            loss = run.wait()
            counted = [line["by_worker"].values() for line in run.events("round")]
        samples = sum(part["samples"] for parts in counted for part in parts)
        tell("composed", how=how, loss=loss, samples=samples)


def curves(only: str = "") -> None:
    """Draw what is learned by the round, or print one of its lines."""
    learned: dict[str, list[tuple[float, float]]] = {}
    if only in ("", "in-step"):
        steps = ROUNDS * INNER_STEPS
        lines = alone(BATCH * WORKERS, steps, validate_every=CURVES["validate_every"])
        learned["in step"] = points(lines)
    for compress, fragments in COMPARED:
        if only not in ("", f"{compress}-{fragments}"):
            continue
        name = compress if fragments == 1 else f"{compress}, {fragments} fragments"
        params = {**CURVES, "workers": WORKERS, "quorum": WORKERS}
        with job(**params, compress=compress, fragments=fragments) as run:
            run.start_all()
            run.wait()
            learned[name] = points(run.events("validation"))
    for name, curve in learned.items():
        tell("curves", how=name, curve=curve)
    if not only:
        draw(learned)


def draw(learned: Mapping[str, list[tuple[float, float]]]) -> None:
    """Draw losses by round, for the guide."""
    by_round = [Curve(name, curve) for name, curve in learned.items()]
    picture = drawn(by_round, "rounds", "validation loss")
    (PICTURES / "diloco-rounds.svg").write_text(picture)


# On the wire.


class Wire:
    """Four nodes on links of `RATE`, and the counters of their interfaces."""

    def __init__(
        self, reef: Found, nodes: dict[str, LiveNode], spaces: list[Any]
    ) -> None:
        self.reef = reef
        self.nodes = nodes
        self._spaces = spaces

    @property
    def first(self) -> LiveNode:
        """The node that takes the jobs."""
        return next(iter(self.nodes.values()))

    def sent(self) -> int:
        """Return the bytes that left a node so far, as its interface counts them."""
        return sum(self.sent_by_node())

    def sent_by_node(self) -> list[int]:
        """Return the bytes that left each node so far."""
        total: list[int] = []
        for prefix in self._spaces:
            read = [*prefix, "cat", "/sys/class/net/wan/statistics/tx_bytes"]
            done = subprocess.run(read, capture_output=True, check=True)
            total.append(int(done.stdout))
        return total

    def counted(self) -> Counter[str]:
        """Return what interfaces and kernels of all nodes have counted so far."""
        total = Counter(bytes=self.sent())
        for prefix in self._spaces:
            read = [*prefix, "cat", "/proc/net/snmp", "/proc/net/netstat"]
            done = subprocess.run(read, capture_output=True, check=True, text=True)
            rows = [line.split() for line in done.stdout.splitlines()]
            for names, values in zip(rows[::2], rows[1::2], strict=True):
                if names[0] in ("Tcp:", "TcpExt:"):
                    pairs = zip(names[1:], map(int, values[1:]), strict=True)
                    total.update({n: v for n, v in pairs if n in COUNTED})
        return total

    def run(
        self, folder: Path, params: Mapping[str, Any], workers: int = WORKERS
    ) -> list[dict[str, Any]]:
        """Run a job to its end; return what its aggregator printed."""
        folder.mkdir(parents=True)
        shutil.copy(MLP, folder)
        spec = {
            "recipe": "diloco",
            "nodes": workers,
            "workdir": str(folder),
            "resources": {"cpu": 1.5, "ram": "1GB"},
            "params": {"gather": 120.0, **params},
        }
        path = folder / "job.json"
        path.write_text(json.dumps(spec))
        done = subprocess.run(
            [sys.executable, "-m", "shoal.cli", "submit", "-q", str(path)],
            env={**os.environ, "SHOAL_HOME": str(self.first.home.path)},
            capture_output=True,
            check=True,
            text=True,
        )
        job = done.stdout.strip()
        state = finished(self.first, job, TIMEOUT_S).state
        with self.first.client() as client:
            request = pb.LogsRequest(job=job, task="aggregate.0")
            text = b"".join(piece.data for piece in client.logs(request)).decode()
        assert state == pb.STATE_DONE, text[-3_000:]
        return [json.loads(line) for line in text.splitlines() if line[:1] == "{"]


@contextlib.contextmanager
def wire() -> Iterator[Wire]:
    """Start four nodes on slow links, and end them."""
    with (
        tempfile.TemporaryDirectory() as name,
        internet() as net,
        shoal(Path(name)) as reef,
    ):
        spaces: list[Any] = []
        nodes: dict[str, LiveNode] = {}
        for last in range(WORKERS):
            address, prefix = net.machine(f"node{last}", 10 + last, rate=RATE)
            spaces.append(prefix)
            start = reef.join if nodes else reef.found
            nodes[f"node{last}"] = start(f"node{last}", address, prefix=prefix)
        made = Wire(reef, nodes, spaces)
        eventually(lambda: len(made.first.views()) == WORKERS, 120.0, made.first.story)
        yield made


def in_step() -> float:
    """Train in one process what the others train on slow links; return its loss."""
    steps = WIRE["rounds"] * WIRE["inner_steps"]
    curve = alone(
        batch=WIRE["batch"] * WORKERS,
        steps=steps,
        rounds=WIRE["rounds"],
        program=MLP,
        samples=WIRE["samples"],
        validate_every=WIRE["rounds"],
    )
    return float(curve[-1]["validation_loss"])


def on_the_wire(only: str = "") -> None:
    """Train on slow links; compare what a run claims to send with the interfaces."""
    if only in ("", "in-step"):
        tell("wire", how="in step", loss=in_step())
    rows = [row for row in WIRED if only in ("", "-".join(map(str, row)))]
    if not rows:
        return
    with wire() as nodes, tempfile.TemporaryDirectory() as name:
        time.sleep(SETTLE_S)  # New nodes say more than old ones.
        before, began = nodes.counted(), time.monotonic()
        time.sleep(IDLE_S)
        spent_s = time.monotonic() - began
        idle = {n: v / spent_s for n, v in (nodes.counted() - before).items()}
        tell("wire", how="idle", bytes_per_s=round(idle["bytes"]))
        for compress, fragments, reduce in rows:
            folder = Path(name) / f"{compress}-{fragments}-{reduce}"
            params = {**WIRE, "compress": compress, "fragments": fragments}
            params["reduce"] = reduce
            before, began = nodes.counted(), time.monotonic()
            lines = nodes.run(folder, params)
            sent, seconds = nodes.counted() - before, time.monotonic() - began
            figures = wire_figures(lines, params)
            closed = [line for line in lines if line["event"] == "round"]
            tell(
                "wire",
                **figures,
                **surplus(sent, idle, seconds, figures["claimed_bytes"]),
                seconds=round(seconds, 1),
                curve=[(x["bytes_sent_total"] / 1e6, x["loss"]) for x in closed],
            )


def picture(results: str = "results.jsonl") -> None:
    """Draw the rows of `wire` in a file of results, and print their table."""
    lines = [json.loads(line) for line in Path(results).read_text().splitlines()]
    rows = latest_rows(lines, WIRED)
    (PICTURES / "diloco-wire.svg").write_text(curves_of(rows))
    print("\n".join(table_of(rows)))


def wire_figures(
    lines: list[dict[str, Any]], params: Mapping[str, Any]
) -> dict[str, Any]:
    """Return what a run on the wire says of itself."""
    rounds = [line for line in lines if line["event"] == "round"]
    claimed = [line for line in lines if line["event"] == "sent"][-1]
    [measured] = [line for line in lines if line["event"] == "validation"][-1:]
    settled = rounds[len(rounds) // 4 :]
    seconds = settled[-1]["seconds"] - settled[0]["seconds"]
    counted = settled[-1]["round"] - settled[0]["round"]
    busy = [
        statistics.median(line["by_worker"][name]["busy"] for line in settled)
        for name in settled[-1]["by_worker"]
    ]
    [loaded] = [line for line in lines if line["event"] == "loaded"]
    steps = params["rounds"] * params["inner_steps"]
    would = synchronous_bytes(loaded["parameters"], WORKERS, steps)
    return {
        "how": "diloco",
        "compress": params["compress"],
        "fragments": params["fragments"],
        "reduce": params["reduce"],
        "loss": measured["validation_loss"],
        "claimed_bytes": claimed["bytes_sent_total"],
        "by_kind": claimed["bytes_sent_by_kind"],
        "synchronous_bytes": would,
        "seconds_a_round": seconds / counted,
        "busy": [round(each, 3) for each in busy],
        "load": os.getloadavg()[0],
        "left_out": sum(bool(line["missing"]) for line in rounds),
    }


def centre(only: str = "") -> None:
    """Compare what each node sends with and without a centre, and how long it takes."""
    with wire() as nodes, tempfile.TemporaryDirectory() as name:
        for reduce in [each for each in ("shared", "central") if only in ("", each)]:
            params = {**CENTRE, "reduce": reduce}
            tell("centre", **evenness(nodes, Path(name) / reduce, params))


def evenness(nodes: Wire, folder: Path, params: Mapping[str, Any]) -> dict[str, Any]:
    """Run a job; compare it with an even exchange.

    In that each of k nodes sends 2 (k - 1) / k deltas in a round, at full rate.
    """
    before = nodes.sent_by_node()
    lines = nodes.run(folder, params)
    after = nodes.sent_by_node()
    sent = [late - early for early, late in zip(before, after, strict=True)]
    rounds = [line for line in lines if line["event"] == "round"]
    claimed = [line for line in lines if line["event"] == "sent"][-1]
    size = rounds[-1]["by_worker"]["train.0"]["bytes_sent"]
    even_s = 2 * (WORKERS - 1) / WORKERS * size / RATE_BYTES_PER_S
    gaps = [b["seconds"] - a["seconds"] for a, b in itertools.pairwise(rounds)]
    return {
        "reduce": params["reduce"],
        "delta_bytes": size,
        "sent_by_node": sent,
        "most_of_mean": max(sent) / statistics.mean(sent),
        "seconds_a_round": [round(gap, 1) for gap in gaps],
        "even_s": round(even_s, 1),
        "of_even": statistics.median(gaps) / even_s,
        "claimed_bytes": claimed["bytes_sent_total"],
        "by_kind": claimed["bytes_sent_by_kind"],
        "load": os.getloadavg(),
        "left_out": sum(bool(line["missing"]) for line in rounds),
    }


def spanned(only: str = "") -> None:
    """Train with workers that are groups: over two machines each, or on one."""
    kinds = [kind for kind in GROUPS if only in ("", kind)]
    with wire() as nodes, tempfile.TemporaryDirectory() as name:
        for kind, over in itertools.product(kinds, ("machines", "processes")):
            params = {**SPANNED, "program": GROUPS[kind], "inner.over": over}
            params[f"inner.{kind}"] = 2
            before, began = nodes.sent(), time.monotonic()
            lines = nodes.run(Path(name) / f"{kind}-{over}", params, workers=2)
            rounds = [line for line in lines if line["event"] == "round"]
            claimed = [line for line in lines if line["event"] == "sent"][-1]
            tell(
                "spanned",
                kind=kind,
                over=over,
                workers=sorted(rounds[-1]["by_worker"]),
                loss=rounds[-1]["loss"],
                rounds=len(rounds),
                claimed_bytes=claimed["bytes_sent_total"],
                interface_bytes=nodes.sent() - before,
                seconds=round(time.monotonic() - began, 1),
                load=os.getloadavg()[0],
            )


def robust(_only: str = "") -> None:
    """Train with one worker of four that errs, next to three honest ones."""
    params = {**WIRE, "batch": 64, "step_s": 0.0, "samples": 40_000, "quorum": 3}
    with job(**params, workers=3) as run:
        run.start_all(workers=3)
        honest = run.wait()
    tell("robust", how="three honest workers", loss=honest)
    for bad, average in WAYS:
        with job(**params, workers=4, bad=bad, average=average) as run:
            run.start_all()
            loss = run.wait()
            refused = {line["worker"] for line in run.events("refused")}
            tell(
                "robust",
                how=bad,
                average=average,
                loss=loss,
                worse_by=loss / honest - 1,
                refused=sorted(refused),
            )


def size(_only: str = "") -> None:
    """Train 25 million parameters with two workers; read memory from the kernel."""
    with job(
        program="gpt",
        rounds=SIZE_ROUNDS,
        inner_steps=2,
        batch=1,
        context=16,
        width=512,
        layers=8,
        corpus_bytes=400_000,
        validation_batches=1,
        validate_every=SIZE_ROUNDS,
        checkpoint_every=2,
        workers=2,
        quorum=2,
        compress="float16",
    ) as run:
        run.start_all(workers=2)
        peaks = dict.fromkeys(run.processes, 0)
        while any(each.poll() is None for each in run.processes.values()):
            for name, process in run.processes.items():
                peaks[name] = max(peaks[name], resident_bytes(process.pid))
            time.sleep(0.05)
        run.wait()
        rounds = run.events("round")
        [loaded] = run.events("loaded")
        gaps = [b["seconds"] - a["seconds"] for a, b in itertools.pairwise(rounds)]
        tell(
            "size",
            parameters=loaded["parameters"],
            peak_mb={name: peak >> 20 for name, peak in peaks.items()},
            seconds_a_round=[round(gap, 2) for gap in gaps],
        )


def resident_bytes(pid: int) -> int:
    """Return the most memory that a process had resident, as the kernel counts it."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM"):
                return int(line.split()[1]) * 1024
    return 0


QUESTIONS = {
    "wire": on_the_wire,
    "picture": picture,
    "centre": centre,
    "robust": robust,
    "size": size,
    "compare": compare,
    "composed": composed,
    "spanned": spanned,
    "curves": curves,
    "speeds": speeds,
    "faults": faults,
}


def main() -> None:
    """Answer the questions that are asked, or all."""
    for asked in sys.argv[1:] or [name for name in QUESTIONS if name != "picture"]:
        name, _, only = asked.partition(":")
        QUESTIONS[name](only)


if __name__ == "__main__":
    main()
