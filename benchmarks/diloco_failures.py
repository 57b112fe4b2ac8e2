"""Ask how much of a training's work counts when its machines fail all the time.

Run: PYTHONPATH=. python benchmarks/diloco_failures.py [QUESTION ...] >> results.jsonl
`goodput:1024` asks of 1,024 workers only.

Goodput is the samples that entered an outer step, of those that entered one in the same
time when nothing failed.

`goodput` asks the machines of aggregator and workers in virtual time
(`tests/sim/train_failures.py`): 1.2 million chips, in few large or many small workers,
each chip failing once a year; a failed worker is back after 10 seconds. Eight workers
are asked about twice as many chips, too, and 1,024 about ten times as many: one of
them fails every 13 and every 2.6 s. `killed`
asks live processes: two jobs of eight workers run side by side, and of one of them a
worker is killed every 30 seconds and started again. `live` asks the same of tasks on
nodes: two shoals of five nodes side by side, each with a job of eight workers, and in
one of them something is killed every 30 seconds, by turns the process of a task or a
whole node. A step takes a fixed time, so that all of them fit on two cores and none
gets faster when another is dead.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from benchmarks.diloco import Job, job
from tests.integration.train_shoal import (
    ENDS,
    UP,
    TrainShoal,
    kill,
    processes_of,
    train_shoal,
)
from tests.sim.train_failures import FailureModel, goodput

from shoal.train.diloco.rules import RoundRules

CHIPS: Final = 1_200_000
SCALES: Final = (
    (8, 1, CHIPS),
    (8, 4, CHIPS),
    (8, 1, 2 * CHIPS),
    (8, 4, 2 * CHIPS),
    (32, 1, CHIPS),
    (128, 1, CHIPS),
    (1_024, 1, CHIPS),
    (1_024, 1, 10 * CHIPS),
)
"""Workers, fragments, and chips of all workers together."""

SEEDS: Final = 5
SPAN_S: Final = 600.0
LARGE: Final = 128
LARGE_SPAN_S: Final = 200.0
"""More workers than this are watched for a shorter time, with one seed."""

INNER_STEPS: Final = 50  # 5 seconds of the fastest worker

WORKERS: Final = 8
KILL_EVERY_S: Final = 30.0
STEP_S: Final = 0.2
SETTLED: Final = 2  # rounds
LOOK_S: Final = 0.2
LIVE: Final[dict[str, Any]] = {
    "program": "mlp.py",
    "rounds": 62,
    "inner_steps": 50,
    "batch": 32,
    "step_s": STEP_S,
    "workers": WORKERS,
    "quorum": 2,
    "samples": 20_000,
    "validate_every": 5,
}
SOFTMAX: Final = Path(__file__).with_name("softmax.py")
NODES: Final = ("home", "a", "b", "c", "d")
NODE_IN: Final = 10
"""One kill in this many is that of a node."""


def tell(question: str, **figures: object) -> None:
    """Print a line of results."""
    line = {"benchmark": "diloco_failures", "question": question, **figures}
    print(json.dumps(line), flush=True)


def simulated(only: str = "") -> None:
    """Let machines fail in virtual time, at several scales."""
    for workers, fragments, chips in SCALES:
        if only not in ("", str(workers)):
            continue
        rules = RoundRules(
            rounds=1_000_000,
            inner_steps=INNER_STEPS,
            fragments=fragments,
            workers=workers,
            quorum=workers // 4,
            gather_s=5.0,
        )
        model = FailureModel(chips=chips // workers)
        seeds = range(SEEDS if workers < LARGE else 2 if workers == LARGE else 1)
        span_s = SPAN_S if workers <= LARGE else LARGE_SPAN_S
        began_s = time.process_time()
        found = [goodput(seed, rules, model, span_s) for seed in seeds]
        tell(
            "goodput",
            workers=workers,
            fragments=fragments,
            mtbf_s=round(model.mtbf_s),
            a_failure_every_s=round(model.mtbf_s / workers, 1),
            recovery_s=model.recovery_s,
            span_s=span_s,
            goodput=[round(each, 4) for each in found],
            least=round(min(found), 4),
            median=round(statistics.median(found), 4),
            cpu_s=round(time.process_time() - began_s, 1),
        )


def killed(_only: str = "") -> None:
    """Kill a live worker every now and then; compare with a job beside it."""
    with job(**LIVE) as calm, job(**LIVE) as stormy:
        for run in (calm, stormy):
            run.start_all(WORKERS)
        for run in (calm, stormy):
            run.wait_for_round(SETTLED)
        began = [run.events("round")[-1]["seconds"] for run in (calm, stormy)]
        kills = kill_in_turn(stormy, until=calm)
        losses = [run.wait() for run in (calm, stormy)]
        rounds = [run.events("round") for run in (calm, stormy)]
    both = list(zip(rounds, began, strict=True))
    span_s = min(lines[-1]["seconds"] - since for lines, since in both)
    samples = [samples_within(lines, since, since + span_s) for lines, since in both]
    tell(
        "killed",
        workers=WORKERS,
        kills=kills,
        every_s=KILL_EVERY_S,
        seconds=round(span_s, 1),
        rounds=[len(lines) for lines in rounds],
        samples=samples,
        goodput=round(samples[1] / samples[0], 4),
        losses=losses,
        worse_by=round(losses[1] / losses[0] - 1, 5),
        left_out=[sum(len(line["missing"]) for line in lines) for lines in rounds],
    )


def kill_in_turn(run: Job, until: Job) -> int:
    """Kill one worker after another and start it again, until a job is over."""
    kills = 0
    due = time.monotonic() + KILL_EVERY_S
    while all(each.processes["aggregate.0"].poll() is None for each in (run, until)):
        if time.monotonic() >= due:
            name = f"train.{kills % WORKERS}"
            run.kill(name)
            run.start(name)
            kills += 1
            due += KILL_EVERY_S
        time.sleep(LOOK_S)
    return kills


def samples_within(lines: list[dict[str, Any]], since: float, until: float) -> int:
    """Return the samples that entered an outer step in a span of time."""
    return sum(
        part["samples"]
        for line in lines
        if since < line["seconds"] <= until
        for part in line["by_worker"].values()
    )


class LiveJob:
    """A training job as tasks of nodes that can be killed."""

    def __init__(self, folder: Path, shoal: TrainShoal) -> None:
        work = folder / "work"
        work.mkdir()
        shutil.copy(SOFTMAX, work)
        params = {k: LIVE[k] for k in ("rounds", "inner_steps", "batch", "step_s")}
        spec = {
            "recipe": "diloco",
            "nodes": f"{LIVE['quorum']}..{WORKERS}",
            "workdir": str(work),
            "resources": {"cpu": 0.9, "ram": "400MB"},
            "params": {"gather": 300.0, "program": SOFTMAX.name, **params},
        }
        self.shoal = shoal
        self.kills: list[str] = []
        self._left_out = 0  # lines that were there when counting began
        self._id = shoal.submit(folder, json.dumps(spec))

    def is_over(self) -> bool:
        """Whether it has ended."""
        return self.shoal.job(self._id).state in ENDS

    def begin(self) -> None:
        """Wait for the first rounds, and count from there."""
        self.shoal.wait_for_round(self._id, SETTLED)
        self._left_out = len(self.rounds())

    def rounds(self) -> list[dict[str, Any]]:
        """Return what is said of rounds, also of such as are closed again."""
        return self.shoal.lines(self._id, "round")

    def samples(self) -> int:
        """Return the samples that entered an outer step until now, each round once."""
        last = {line["round"]: line for line in self.rounds()[self._left_out :]}
        parts = [part for line in last.values() for part in line["by_worker"].values()]
        return sum(part["samples"] for part in parts)

    def kill_next(self) -> None:
        """Kill a task that runs, or a node, which is started again."""
        number = len(self.kills)
        if number % NODE_IN == NODE_IN - 1:
            name = NODES[1 + number // NODE_IN % (len(NODES) - 1)]
            self.shoal.homes[name].kill()
            self.shoal.homes[name].up(*UP)
            self.kills.append(name)
            return
        tasks = [f"train.{(number + n) % WORKERS}" for n in range(WORKERS)]
        assert not self.is_over(), self.shoal.job(self._id)
        name = next(each for each in tasks if processes_of(self._id, each))
        kill(self._id, name)
        self.kills.append(name)

    def loss(self) -> float:
        """Wait for the end; return the last validation loss."""
        while not self.is_over():
            time.sleep(LOOK_S)
        last = max(self.shoal.lines(self._id, "validation"), key=lambda v: v["round"])
        return float(last["validation_loss"])


def live(_only: str = "") -> None:
    """Kill tasks and nodes; compare with a shoal beside it."""
    with (
        tempfile.TemporaryDirectory() as name,
        train_shoal(Path(name) / "calm", *NODES) as one,
        train_shoal(Path(name) / "stormy", *NODES) as other,
    ):
        jobs = calm, stormy = [
            LiveJob(Path(name) / folder, shoal)
            for folder, shoal in (("calm", one), ("stormy", other))
        ]
        for each in jobs:
            each.begin()
        began, load = time.monotonic(), [os.getloadavg()[0]]
        while not calm.is_over():
            time.sleep(LOOK_S)
            if time.monotonic() - began >= KILL_EVERY_S * (1 + len(stormy.kills)):
                stormy.kill_next()
                load.append(os.getloadavg()[0])
        seconds = time.monotonic() - began
        samples = [each.samples() for each in jobs]
        losses = [each.loss() for each in jobs]
        rounds = [each.rounds() for each in jobs]
    tell(
        "live",
        workers=WORKERS,
        nodes=len(NODES),
        kills=stormy.kills,
        every_s=KILL_EVERY_S,
        seconds=round(seconds, 1),
        samples=samples,
        goodput=round(samples[1] / samples[0], 4),
        losses=losses,
        worse_by=round(losses[1] / losses[0] - 1, 5),
        closed_again=[len(x) - len({line["round"] for line in x}) for x in rounds],
        left_out=[sum(len(line["missing"]) for line in lines) for lines in rounds],
        load=[round(min(load), 1), round(max(load), 1)],
    )


QUESTIONS: Final = {"goodput": simulated, "killed": killed, "live": live}


def main() -> None:
    """Answer the questions that are asked, or all."""
    for asked in sys.argv[1:] or QUESTIONS:
        name, _, only = asked.partition(":")
        QUESTIONS[name](only)


if __name__ == "__main__":
    main()
