"""Measure how fast nodes hear of each other, and what libp2p costs them.

Run: make setup && .venv/bin/python benchmarks/discovery.py >> benchmarks/results.jsonl
All nodes run in one thread on loopback, each with its own host, so latencies contain
the work of all of them: with one machine for each node they are lower. Compare ratios
of lines from one run: machines differ, and other work disturbs.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from operator import methodcaller
from statistics import median, quantiles

import psutil
import trio

from shoal.net.identity.identity import Identity
from shoal.net.libp2p.settings import Greeting, Libp2pSettings
from shoal.net.libp2p.thread import notices
from shoal.net.libp2p.thread.shared_state import SharedState
from shoal.net.libp2p.thread.thread import run_host
from shoal.net.libp2p.thread.trio_calls import run, start
from shoal.protocol.codec import encode_gossip
from shoal.protocol.messages import Announcement, Hello

GOSSIP_NODES = 8
DHT_NODES = (8, 16)
MESSAGES = 60
PAUSE_S = 0.15
LIMIT_S = 60.0
GREETING = Greeting(hello=Hello, admit=lambda _peer, _grant: "a benchmark")


class Node:
    """A host in the loop of this benchmark, and what came out of it."""

    def __init__(self, number: int, gates: tuple[str, ...]) -> None:
        self.identity = Identity.from_seed(number.to_bytes(32, "big"))
        settings = Libp2pSettings(
            shoal="bench", listen=("/ip4/127.0.0.1/tcp/0",), gates=gates
        )
        self.shared = SharedState(self.identity, settings, GREETING)
        self.heard: dict[int, float] = {}  # when, by number of the message
        self.found: dict[int, int] = {}  # how many providers, by look-up
        self.addresses: tuple[str, ...] = ()
        self.size = 0
        self.shared.notices.attach(self._take)

    def _take(self) -> None:
        for happening in self.shared.notices.take(1_000):
            match happening:
                case notices.Heard(_, Announcement() as message):
                    self.heard[message.seq] = time.perf_counter()
                case notices.Found():
                    self.found[happening.lookup] = len(happening.providers)
                case notices.Ready():
                    node = self.identity.node
                    self.addresses = tuple(
                        f"{a}/p2p/{node}" for a in happening.addresses
                    )
                case notices.Estimated():
                    self.size = happening.nodes
                case _:
                    pass


def main() -> None:
    """Print one line for each question."""
    show("cost", **cost())
    run(gossip)
    for count in DHT_NODES:
        run(directory, count)


def cost() -> dict[str, float]:
    """Measure, in a fresh process, what importing the library takes."""
    script = (
        "import time, psutil; before = psutil.Process().memory_info().rss;"
        "start = time.perf_counter(); import shoal.net.libp2p.thread.thread;"
        "spent = time.perf_counter() - start;"
        "print(spent, psutil.Process().memory_info().rss - before)"
    )
    out = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True
    ).stdout.split()
    return {
        "import_ms": round(float(out[0]) * 1e3),
        "import_mb": round(float(out[1]) / 1e6, 1),
    }


async def gossip() -> None:
    """Time announcements from all nodes in turn to all others."""
    async with trio.open_nursery() as nursery:
        nodes = await shoal(nursery, GOSSIP_NODES)
        cpu_s = time.process_time()
        spent_ms: list[float] = []
        for seq in range(MESSAGES):
            speaker = nodes[seq % len(nodes)]
            others = [node for node in nodes if node is not speaker]
            message = Announcement(scheduler=speaker.identity.node, seq=seq)
            began = time.perf_counter()
            data = encode_gossip(message)
            speaker.shared.orders.put(methodcaller("publish", data, is_near=False))
            await until(partial(all_heard, others, seq))
            spent_ms += [(node.heard[seq] - began) * 1e3 for node in others]
            await trio.sleep(PAUSE_S)
        cpu_ms = (time.process_time() - cpu_s) * 1e3
        rank = quantiles(spent_ms, n=100)
        show(
            "gossip",
            nodes=len(nodes),
            messages=MESSAGES,
            latency_ms_p50=round(median(spent_ms), 1),
            latency_ms_p99=round(rank[98], 1),
            cpu_ms_per_message_and_node=round(cpu_ms / MESSAGES / len(nodes), 2),
        )
        nursery.cancel_scope.cancel()


async def directory(count: int) -> None:
    """Time how long it takes to provide a key, and to find who provides it."""
    async with trio.open_nursery() as nursery:
        before = psutil.Process().memory_info().rss
        nodes = await shoal(nursery, count)
        grown_mb = (psutil.Process().memory_info().rss - before) / 1e6
        provide_ms: list[float] = []
        find_ms: list[float] = []
        found = 0
        for number, worker in enumerate(nodes):
            began = time.perf_counter()
            worker.shared.orders.put(methodcaller("provide", (f"key/{number}",)))
            await until(partial(worker.shared.counts.__getitem__, "provided"))
            provide_ms.append((time.perf_counter() - began) * 1e3)
        for number in range(count):
            asking = nodes[(number + count // 2) % count]
            began = time.perf_counter()
            look_up = methodcaller("look_up", number, f"key/{number}", 64)
            asking.shared.orders.put(look_up)
            await until(partial(asking.found.__contains__, number))
            find_ms.append((time.perf_counter() - began) * 1e3)
            found += asking.found[number]
        show(
            "directory",
            nodes=count,
            provide_ms_p50=round(median(provide_ms), 1),
            provide_ms_max=round(max(provide_ms), 1),
            find_ms_p50=round(median(find_ms), 1),
            find_ms_max=round(max(find_ms), 1),
            found=f"{found}/{count}",
            mb_per_node=round(grown_mb / count, 2),
        )
        nursery.cancel_scope.cancel()


async def shoal(nursery: trio.Nursery, count: int) -> list[Node]:
    """Start nodes that know only the first one; return them when all know all."""
    nodes: list[Node] = []
    for number in range(count):
        node = Node(number, nodes[0].addresses if nodes else ())
        start(nursery, run_host, node.shared)
        await until(partial(getattr, node, "addresses"))
        nodes.append(node)
    await until(lambda: all(node.size >= count * 0.9 for node in nodes))
    await trio.sleep(2.0)
    return nodes


def all_heard(nodes: list[Node], seq: int) -> bool:
    """Say whether a message came to all of these nodes."""
    return all(seq in node.heard for node in nodes)


async def until(condition: Callable[[], object]) -> None:
    """Wait for something that another task does."""
    with trio.fail_after(LIMIT_S):
        while not condition():  # noqa: ASYNC110 - conditions of many kinds
            await trio.sleep(0.001)


def show(bench: str, **figures: object) -> None:
    """Print a line."""
    print(json.dumps({"bench": f"discovery/{bench}", **figures}), flush=True)


if __name__ == "__main__":
    main()
