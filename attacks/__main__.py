"""Run all attacks against real nodes, and print a table of what happened."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import attacks.by_member_floods
import attacks.by_member_orders
import attacks.by_member_rights
import attacks.by_stranger
import attacks.by_task
import attacks.by_worker  # noqa: F401 - These register what they can do.
from attacks.reef import Node, Reef
from attacks.verdict import ATTACKS, Attack, Broken, State, Verdict


def main() -> int:
    """Return 0 if every promise held."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--only", default="", help="attacks with this in their name")
    arguments.add_argument("--json", action="store_true", help="print JSON lines")
    given = arguments.parse_args()
    chosen = [each for each in ATTACKS if given.only in f"{each.who}: {each.name}"]
    if not chosen:
        arguments.error(f"no attack has '{given.only}' in its name")
    began = time.monotonic()
    folder = tempfile.mkdtemp(prefix="shoal-attack-")
    reef = Reef(Path(folder))
    try:
        reef.start()
        verdicts = [tried(each, reef, as_json=given.json) for each in chosen]
    finally:
        reef.close()
        # Python's own removal would give up at folders that an attack may have left.
        subprocess.run(["rm", "-rf", folder], check=False)
    return summed_up(verdicts, time.monotonic() - began, as_json=given.json)


def tried(attack: Attack, reef: Reef, *, as_json: bool) -> Verdict:
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
    verdict = Verdict(attack, state, seen, time.monotonic() - began)
    print(_json(verdict) if as_json else _row(verdict), flush=True)
    return verdict


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
