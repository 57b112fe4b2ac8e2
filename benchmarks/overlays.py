"""Measure what load gossip costs by each overlay, and how stale what nodes know is.

Eight nodes are in network namespaces: two sites of four, with a line of 20 ms between
them. With each overlay, nodes have news one after the other: they take no new tasks, or
take them again. Counted from outside are the bytes that leave all interfaces, in slices
of equal length with and without news, of which the medians count. How late news is, is
the time until the metric `shoal_load_news_total` of each other node rises, on the clock
of the machine; messages are counted by the nodes themselves.

Not all of the bytes is gossip: schedulers are told news directly, too. That part, pings
and all else are the same with each overlay, so compare differences.

With `--simulate`, the machines of 8 and 14 fully linked members run in virtual time,
and told is how often each piece of news is passed on; it is the same everywhere.

The live one needs root and `ip`, as `tests/integration/namespaces.py` does.

Run: python -m benchmarks.overlays [--overlays random,mst] >> benchmarks/results.jsonl
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Final, get_args

from tests.integration.found_shoal import linked, shoal, without
from tests.integration.live_shoal import eventually
from tests.integration.namespaces import internet

from shoal.model.ids import NodeId
from shoal.model.kinds import Overlay
from shoal.sim.discovery.overlay_trial import OverlayScript, OverlayTrial

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.integration.live_shoal import LiveNode

NODES, FAR = 8, 4
MEMBERS: Final = (8, 14)
NEWS: Final = 12
LONG_S: Final = 120.0
SETTLE_S: Final = 20.0
"""After all are linked: trees are made, and probes are over."""

SLICE_S: Final = 7.0
REST: Final = 4  # slices without news, before and after
LOOK_S: Final = 0.05


def sent(prefix: Sequence[str]) -> int:
    """Return the bytes that left a namespace, besides those to itself."""
    asked = (*prefix, "cat", "/proc/net/dev")
    text = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
    lines = [line.split() for line in text.splitlines()[2:]]
    return sum(int(line[9]) for line in lines if line[0] != "lo:")


def metric(node: LiveNode, name: str) -> int:
    """Return what a node counted."""
    with node.client() as client:
        lines = client.metrics().splitlines()
    return int(sum(float(x.split()[1]) for x in lines if x.startswith(f"{name} ")))


def heard(node: LiveNode) -> int:
    """Return how often a node heard news."""
    return metric(node, "shoal_load_news_total")


def late_s(teller: LiveNode, others: list[LiveNode], *, undo: bool) -> list[float]:
    """Let a node have news; return when each of the others heard it."""
    before = {node.id: heard(node) for node in others}
    began, took = time.monotonic(), list[float]()
    with teller.client() as client:
        client.drain(undo=undo)
    waiting = list(others)
    while waiting and time.monotonic() - began < LONG_S:
        for node in list(waiting):
            if heard(node) > before[node.id]:
                took.append(time.monotonic() - began)
                waiting.remove(node)
        time.sleep(LOOK_S)
    return took


def measure(overlay: str) -> dict[str, object]:
    """Run a shoal with one overlay."""
    with (
        tempfile.TemporaryDirectory() as folder,
        internet() as net,
        shoal(Path(folder)) as reef,
    ):
        net.lay_line(delay_ms=20, mbit=50)
        nodes: list[LiveNode] = []
        prefixes: list[tuple[str, ...]] = []
        args = ("--no-lan", *without("p2p", "probes"), "--overlay", overlay)
        for index in range(NODES):
            name = f"m{index}"
            where, there = net.machine(name, 11 + index, far=index >= NODES - FAR)
            make = reef.join if nodes else reef.found
            nodes.append(make(name, where, *args, prefix=there))
            prefixes.append(there)
        eventually(lambda: all(len(linked(n)) == NODES - 1 for n in nodes), LONG_S)
        time.sleep(SETTLE_S)

        def count() -> int:
            return sum(sent(prefix) for prefix in prefixes)

        def messages() -> int:
            return sum(metric(node, "shoal_load_messages_total") for node in nodes)

        def sliced(happens: Callable[[], object]) -> float:
            """Return the bytes a second while something happens."""
            before, began = count(), time.monotonic()
            happens()
            time.sleep(max(0.0, SLICE_S - (time.monotonic() - began)))
            return (count() - before) / (time.monotonic() - began)

        told_of: list[float] = []

        def tell(number: int) -> None:
            teller = nodes[number // 2 % NODES]
            others = [node for node in nodes if node is not teller]
            told_of.extend(late_s(teller, others, undo=number % 2 == 1))

        rest = [sliced(tuple) for _ in range(REST)]
        said = messages()
        busy = [sliced(partial(tell, number)) for number in range(NEWS)]
        said = messages() - said
        rest += [sliced(tuple) for _ in range(REST)]
    told_of.sort()
    return {
        "benchmark": "overlays",
        "overlay": overlay,
        "nodes": NODES,
        "rest_bytes_s": round(statistics.median(rest)),
        "news_bytes_s": round(statistics.median(busy)),
        "messages_per_news": round(said / NEWS, 1),
        "late_median_s": round(statistics.median(told_of), 2),
        "late_p90_s": round(told_of[int(0.9 * len(told_of))], 2),
        "late_most_s": round(told_of[-1], 2),
        "heard": f"{len(told_of)} of {NEWS * (NODES - 1)}",
        "load": round(os.getloadavg()[0], 1),
    }


def simulate(overlay: Overlay, members: int) -> dict[str, object]:
    """Let the machines of some members pass on news in virtual time."""
    names = [NodeId(f"o{number}") for number in range(members)]
    script = OverlayScript(
        overlays=dict.fromkeys(names, overlay),
        links=tuple(combinations(names, 2)),
        far_us=40_000,
        liar=None,
        silent=False,
        crashes=(),
        late=None,
    )
    trial = OverlayTrial(1, script)
    trial.run()
    return {
        "benchmark": "overlays, simulated",
        "overlay": overlay,
        "nodes": members,
        "told_of_each_news": round(trial.told_of_each, 1),
    }


def main() -> None:
    """Print one line for each overlay."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--overlays", default=",".join(get_args(Overlay)))
    parser.add_argument("--simulate", action="store_true")
    options = parser.parse_args()
    for overlay in options.overlays.split(","):
        if not options.simulate:
            print(json.dumps(measure(overlay)), flush=True)
            continue
        for members in MEMBERS:
            print(json.dumps(simulate(overlay, members)), flush=True)


if __name__ == "__main__":
    main()
