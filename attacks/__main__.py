"""Run all attacks against real nodes, and print a table of what happened."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import attacks.by_channels
import attacks.by_member_environments
import attacks.by_member_floods
import attacks.by_member_orders
import attacks.by_member_rights
import attacks.by_stranger
import attacks.by_task
import attacks.by_worker  # noqa: F401 - These register what they can do.
from attacks.reef import Node, Reef
from attacks.verdict import ATTACKS, Attack, Broken, State, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator
    from multiprocessing.queues import Queue

REEFS = 2  # Attacks mostly wait, and each reef has addresses of its own.
PATIENCE_S = 600.0

Told = tuple[int, State, str, float]
"""The number of an attack and how it ended, or -1 and why there is no reef."""


def main() -> int:
    """Return 0 if every promise held."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--only", default="", help="attacks with this in their name")
    arguments.add_argument("--json", action="store_true", help="print JSON lines")
    given = arguments.parse_args()
    chosen = [
        number
        for number, each in enumerate(ATTACKS)
        if given.only in f"{each.who}: {each.name}"
    ]
    if not chosen:
        arguments.error(f"no attack has '{given.only}' in its name")
    began = time.monotonic()
    verdicts: list[Verdict] = []
    for verdict in all_tried(chosen):
        print(_json(verdict) if given.json else _row(verdict), flush=True)
        verdicts.append(verdict)
    return summed_up(verdicts, time.monotonic() - began, as_json=given.json)


def all_tried(chosen: list[int]) -> Iterator[Verdict]:
    """Try attacks on some reefs at the same time; yield verdicts as they come."""
    context = multiprocessing.get_context("fork")
    todo: Queue[int | None] = context.Queue()
    told: Queue[Told] = context.Queue()
    reefs = min(REEFS, len(chosen))
    processes = [context.Process(target=serve, args=(todo, told)) for _ in range(reefs)]
    for process in processes:
        process.start()
    for number in [*chosen, *[None] * reefs]:
        todo.put(number)
    for _ in chosen:
        which, state, seen, seconds = told.get(timeout=PATIENCE_S)
        assert which >= 0, seen
        yield Verdict(ATTACKS[which], state, seen, seconds)
    for process in processes:
        process.join()


def serve(todo: Queue[int | None], told: Queue[Told]) -> None:
    """Start a reef, and try one attack after another on it while there are any."""
    folder = tempfile.mkdtemp(prefix="shoal-attack-")
    reef = Reef(Path(folder))
    try:
        reef.start()
        while (number := todo.get()) is not None:
            told.put((number, *tried(ATTACKS[number], reef)))
    except Exception as error:
        told.put((-1, "unclear", f"the reef did not start: {error!r}", 0.0))
    finally:
        reef.close()
        # Python's own removal would give up at folders that an attack may have left.
        subprocess.run(["rm", "-rf", folder], check=False)


def tried(attack: Attack, reef: Reef) -> tuple[State, str, float]:
    """Try one attack; a node that it ended is started again for the next."""
    began = time.monotonic()
    state: State
    try:
        seen, state = attack.run(reef), "held"
    except Broken as finding:
        seen, state = str(finding), "BROKEN"
    except Exception as error:
        seen, state = f"{type(error).__name__}: {error}", "unclear"
    ended = [node for node in reef.nodes if not node.alive]
    if ended:
        seen, state = f"{ended[0].name}'s node ended; {seen}", "BROKEN"
        for node in ended:
            _revive(node)
    return state, seen, time.monotonic() - began


def _revive(node: Node) -> None:
    """Start a node again that an attack has ended, without its journal if need be."""
    try:
        node.up()
    except AssertionError:
        for path in node.home.path.glob("journal.db*"):
            path.rename(path.with_suffix(".poisoned"))
        node.up()


def _row(verdict: Verdict) -> str:
    who, name, promise, _ = verdict.attack
    seen = " ".join(verdict.seen.split())
    most = 160 if verdict.state == "held" else 1_500
    return (
        f"{verdict.state:<8} {who + ': ' + name:<72} {verdict.seconds:5.1f} s\n"
        f"         promise: {promise}\n         seen:    {seen[:most]}"
    )


def _json(verdict: Verdict) -> str:
    who, name, promise, _ = verdict.attack
    return json.dumps(
        {
            "who": who,
            "attack": name,
            "promise": promise,
            "state": verdict.state,
            "seen": verdict.seen,
            "seconds": round(verdict.seconds, 3),
        }
    )


def summed_up(verdicts: list[Verdict], seconds: float, *, as_json: bool) -> int:
    """Print how many promises held; return the exit code."""
    bad = [verdict for verdict in verdicts if verdict.state != "held"]
    print(
        f"{len(verdicts)} attacks in {seconds:.0f} s: {len(verdicts) - len(bad)} held, "
        f"{len(bad)} did not",
        file=sys.stderr if as_json else sys.stdout,
    )
    for verdict in bad:
        print(f"  {verdict.state}: {verdict.attack.who}: {verdict.attack.name}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
