"""Measure what it costs to accept no wrong result, and how soon cheats are found.

Each line is one share of cheating workers of one kind, over some worlds of twenty
workers, each of an owner of its own, and three jobs of 300 tasks with `copies: 2`.
- `wrong`: results that were accepted and are wrong, of so many `accepted`;
- `work`: answers for each task, all in all; `work_known`: in the last job, when
  standings are known;
- `found_after`: results that a cheat gave until it was found, `lies`: how many of these
  were lies (the most, over all cheats); `missed`: cheats that were not found.

`sometimes-10` lies in a tenth of its results: the promise does not cover it. `same` is
collusion, or the same wrong program: nor that.

Run: uv run python benchmarks/verify.py >> benchmarks/results.jsonl
The figures follow from the seeds: every machine prints the same.
"""

import json
import sys
from collections.abc import Iterable

from shoal.sim.faults.cheating import (
    PATIENCE,
    CheatFound,
    cheating_script,
    run_cheating,
)
from shoal.sim.faults.cheats import Cheat

WORKERS = 20
SEEDS = 5
SHARES = (0, 10, 20, 30)
KINDS = {
    "always": Cheat("always"),
    "lazy": Cheat("lazy"),
    "failing": Cheat("failing"),
    "sleeper": Cheat("sleeper", patience=PATIENCE),
    "sometimes-50": Cheat("sometimes", share=0.5),
    "sometimes-30": Cheat("sometimes", share=0.3),
    "sometimes-10": Cheat("sometimes", share=0.1),
    "same": Cheat("same"),
}


def line(kind: str, share: int, found: list[CheatFound]) -> dict[str, object]:
    """Return what several worlds of one kind came to."""
    return {
        "benchmark": "verify",
        "case": f"{kind}-{share}%",
        "worlds": len(found),
        "accepted": sum(each.accepted + each.wrong for each in found),
        "wrong": sum(each.wrong for each in found),
        "undecided": sum(each.failed for each in found),
        "work": _mean(each.work for each in found),
        "work_known": _mean(each.work_later for each in found),
        "work_known_max": round(max(each.work_later for each in found), 3),
        "found_after_max": max((n for f in found for n in f.found_after), default=0),
        "lies_max": max((n for each in found for n in each.lies_before), default=0),
        "missed": sum(each.missed for each in found),
    }


def _mean(values: Iterable[float]) -> float:
    known = list(values)
    return round(sum(known) / len(known), 3)


def main() -> None:
    """Print one line for each share and kind."""
    for share in SHARES:
        for kind, cheat in KINDS.items() if share else [("honest", Cheat("always"))]:
            cheats = [cheat] * (WORKERS * share // 100)
            found = [
                run_cheating(seed, cheating_script(seed, cheats), strict=False)
                for seed in range(SEEDS)
            ]
            sys.stdout.write(json.dumps(line(kind, share, found)) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
