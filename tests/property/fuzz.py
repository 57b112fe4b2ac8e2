"""Tries every decoder with bytes that are nearly right, and with random ones.

Run: python -m tests.property.fuzz --frames 1000000 --seed 13

It prints one line of JSON for each target: how many frames were understood or refused
and by which error, how long it took, and the most memory so far. It exits with 1 if
any target did something else, and prints the bytes to keep in `fuzz_targets.FINDS`.
"""

import argparse
import json
import resource
import sys
import time
import traceback
from collections import Counter
from random import Random
from typing import Any, Final

from tests.property.fuzz_targets import TARGETS, Target, seeds_of, tried

FAILURES_MAX: Final = 5
"""After so many a target is tried no more."""

GROWTH_BYTES_MAX: Final = 256 << 20
"""What a target may add to the memory of the process."""


def bombard(target: Target, frames: int, draw: Random) -> dict[str, Any]:
    """Try a target so often; return what happened."""
    seeds = seeds_of(target)
    counts: Counter[str] = Counter()
    failures: list[str] = []
    before, start = _peak_bytes(), time.perf_counter()
    for number in range(frames):
        data = target.mutate(draw, seeds) if number >= len(seeds) else seeds[number]
        try:
            counts[tried(target, data)] += 1
        except Exception:  # noqa: BLE001 - This is what is looked for.
            counts["failed"] += 1
            failures.append(f"{data!r}\n{traceback.format_exc()}")
            if len(failures) >= FAILURES_MAX:
                break
    grown = _peak_bytes() - before
    if grown > GROWTH_BYTES_MAX:
        failures.append(f"the process has grown by {grown >> 20} MiB")
    return {
        "frames": sum(counts.values()),
        "outcomes": dict(counts),
        "seconds": round(time.perf_counter() - start, 2),
        "peak_rss_mib": _peak_bytes() >> 20,
        "failures": failures,
    }


def shared(frames: int) -> dict[str, int]:
    """Return how many of all frames each target gets."""
    total = sum(target.share for target in TARGETS.values())
    return {name: max(1, frames * t.share // total) for name, t in TARGETS.items()}


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def main() -> int:
    """Run what the arguments say."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--frames", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=13)
    parser.add_argument("--target", choices=sorted(TARGETS))
    given = parser.parse_args()
    counts = shared(given.frames)
    if given.target:
        counts = {given.target: given.frames}
    failed = False
    for name, frames in counts.items():
        found = bombard(TARGETS[name], frames, Random(f"{given.seed} {name}"))
        failures = found.pop("failures")
        print(json.dumps({"target": name, **found}), flush=True)  # noqa: T201
        for text in failures:
            print(f"{name}: {text}", file=sys.stderr)  # noqa: T201
        failed = failed or bool(failures)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
