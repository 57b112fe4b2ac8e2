"""Count what a node of a very large shoal pays, and how soon it finds workers.

The live machines run in virtual time (`shoal.lab.scale`): nodes come and go, one of a
hundred submits gangs of eight. All runs of a sweep share the cores. Each run prints one
JSON line when it ends; how far the runs are goes to stderr. `--pictures` draws what
lines there are into SVG files.

Run: python -m benchmarks.scale crowd 1000 10000 --seeds 3 >> benchmarks/results.jsonl
     python -m benchmarks.scale directory 1000 1000000 >> benchmarks/results.jsonl
     python -m benchmarks.scale pictures benchmarks/results.jsonl docs/img
Counts do not depend on the machine; CPU seconds do.
"""

from __future__ import annotations

import argparse
import gc
import json
import multiprocessing
import os
import statistics
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.report.line_chart import Curve, drawn

from shoal.lab.scale.directory_load import directory_load
from shoal.lab.scale.figures import measure

SHOWN_EVERY_S = 5.0

Row = dict[str, Any]

CROWD_PICTURES = {
    "scale-traffic": (
        "bytes per node and second",
        {"all machines": "bytes_per_node_s", "pings of links": "ping_bytes_per_node_s"},
    ),
    "scale-find": (
        "seconds from submit to commit, gangs of 8",
        {"median": "commit_s_p50", "95 of 100": "commit_s_p95"},
    ),
    "scale-busiest": (
        "messages a second",
        {"busiest gate": "gate_messages_s_max", "busiest other": "node_messages_s_max"},
    ),
    "scale-stale": (
        "per cent of rumours that are not true",
        {"load has changed": "rumours_wrong", "node has gone": "rumours_of_gone"},
    ),
}
WAYS = {"all begin at the root": True, "by the size of the shoal": False}


def crowd(options: argparse.Namespace, nodes: int, seed: int) -> list[dict[str, Any]]:
    """Run one shoal in this process."""
    gc.disable()  # Nothing of it is a cycle, and there are very many objects.
    shown = Shown(f"{nodes:,} nodes, seed {seed}")
    return [
        measure(
            nodes,
            seed,
            warm_s=options.warm,
            span_s=options.span,
            lean=options.lean,
            progress=shown,
        )
    ]


def directory(
    _options: argparse.Namespace, nodes: int, seed: int
) -> list[dict[str, Any]]:
    """Count how often the busiest key is asked, in the former way and now."""
    gc.disable()
    shown = Shown(f"{nodes:,} nodes in the DHT, seed {seed}")
    return [
        directory_load(nodes, seed, from_root=from_root, progress=shown)
        for from_root in (True, False)
    ]


class Shown:
    """Says now and then on stderr how far one run is, and how long it will take."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._began = self._shown_at = time.monotonic()

    def __call__(self, done: float) -> None:
        """Take in which part of the run is done."""
        now = time.monotonic()
        if now - self._shown_at < SHOWN_EVERY_S or not done:
            return
        self._shown_at = now
        left_s = (now - self._began) * (1 - done) / done
        text = f"{self._name}: {done:.0%}, about {left_s:.0f} s left"
        print(text, file=sys.stderr, flush=True)


def main() -> None:
    """Run what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    cases = parser.add_subparsers(dest="case", required=True)
    for name in ("crowd", "directory"):
        case = cases.add_parser(name)
        case.add_argument("nodes", type=int, nargs="+")
        case.add_argument("--seeds", type=int, default=1)
        case.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
        case.add_argument("--warm", type=float, default=30.0)
        case.add_argument("--span", type=float, default=60.0)
        case.add_argument("--lean", action="store_true", help="see lab/scale/crowd.py")
    pictures = cases.add_parser("pictures")
    pictures.add_argument("lines", type=Path)
    pictures.add_argument("folder", type=Path)
    options = parser.parse_args()
    if options.case == "pictures":
        rows = [json.loads(line) for line in options.lines.read_text().splitlines()]
        draw(rows, options.folder)
        return
    run = crowd if options.case == "crowd" else directory
    runs = [(n, s) for n in options.nodes for s in range(1, options.seeds + 1)]
    # The largest first: the others fill the gaps.
    runs.sort(reverse=True)
    with multiprocessing.Pool(min(options.jobs, len(runs)), maxtasksperchild=1) as pool:
        started = [
            pool.apply_async(partial(run, options), each, callback=show)
            for each in runs
        ]
        for each in started:
            each.get()


def show(lines: list[dict[str, Any]]) -> None:
    """Print the lines of one run."""
    for line in lines:
        print(json.dumps(line), flush=True)


def draw(rows: Sequence[Row], folder: Path) -> None:
    """Write a picture for each group of figures that there are."""
    crowds = [row for row in rows if row.get("benchmark") == "scale"]
    for name, (words, keys) in CROWD_PICTURES.items():
        per_cent = 100 if words.startswith("per cent") else 1
        curves = [
            Curve(title, grown(crowds, key, per_cent)) for title, key in keys.items()
        ]
        save(folder / f"{name}.svg", curves, words)
    keys_asked = [row for row in rows if row.get("benchmark") == "scale-directory"]
    curves = [
        Curve(
            title,
            grown(
                [r for r in keys_asked if r["from_root"] is way], "busiest_key_per_s"
            ),
        )
        for title, way in WAYS.items()
    ]
    save(folder / "scale-directory.svg", curves, "questions a second, busiest key")


def save(path: Path, curves: Sequence[Curve], words: str) -> None:
    """Write one picture, if there are points to join."""
    if all(len(curve.points) > 1 for curve in curves):
        path.write_text(drawn(curves, "nodes", words, powers=True), encoding="utf-8")


def grown(rows: Sequence[Row], key: str, scale: int = 1) -> list[tuple[float, float]]:
    """Return the median over seeds of a figure, for each number of nodes."""
    found: dict[int, list[float]] = {}
    for row in rows:
        if row[key] is not None:
            found.setdefault(row["nodes"], []).append(scale * row[key])
    return [
        (nodes, statistics.median(values)) for nodes, values in sorted(found.items())
    ]


if __name__ == "__main__":
    main()
