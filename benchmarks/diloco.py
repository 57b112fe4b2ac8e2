"""Compare DiLoCo with synchronous training: what it learns, and what it sends.

Run: python benchmarks/diloco.py [compare|speeds|faults ...] >> results.jsonl
What it draws goes to the terminal.

Real processes train the byte-level GPT on the standard library's source text. They are
joined by a folder, so what is measured is learning and not a network; bytes are those
of the files that would be sent. `compare` trains four workers with H=50 next to one
process that does what synchronous data-parallel training does with the same tokens;
`speeds` joins two workers of which one computes three times as slowly; `faults` kills
a worker in mid-round, adds another, and kills the aggregator.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

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

SPEED_ROUNDS = 10
SLICE_S = 0.03
GATHER_S = 300.0
TIMEOUT_S = 1_800.0


class Job:
    """An aggregator and its workers, as processes joined by a folder."""

    def __init__(self, folder: Path, params: Mapping[str, Any]) -> None:
        self.folder = folder
        self.params = {"program": "gpt", "gather": GATHER_S, **SIZES, **params}
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, **env: str) -> None:
        """Start a task, under its name in the job."""
        work = self.folder / "work" / name
        work.mkdir(parents=True, exist_ok=True)
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


def alone(batch: int, steps: int, **params: object) -> list[dict[str, Any]]:
    """Train in one process; return its validation lines."""
    with tempfile.TemporaryDirectory() as folder:
        words = {**SIZES, "batch": batch, "rounds": ROUNDS, **params}
        words["inner_steps"] = steps // ROUNDS
        flags = [word for k, v in words.items() for word in (f"--{k}", str(v))]
        done = subprocess.run(
            [sys.executable, "-m", "shoal.train.programs.gpt", *flags],
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


def compare() -> None:
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
            sent = run.events("round")[-1]["bytes_sent_total"]
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


def speeds() -> None:
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


def faults() -> None:
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


QUESTIONS = {"compare": compare, "speeds": speeds, "faults": faults}


def main() -> None:
    """Answer the questions that are asked, or all."""
    for name in sys.argv[1:] or QUESTIONS:
        QUESTIONS[name]()


if __name__ == "__main__":
    main()
