"""Ask how fast direct links are, and what they cost, next to bare TLS of asyncio.

Two nodes in two processes on loopback. Bare TLS is `asyncio.start_server` with the
same certificates and frames, and nothing else: no queues, no checks, no messages.

Run: python benchmarks/links.py >> benchmarks/results.jsonl
Compare ratios of lines from one run: machines differ, and other work disturbs.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import statistics
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uvloop

from shoal.model.ids import Attempt, LeaseId, NodeId, OwnerId
from shoal.net import multiaddr
from shoal.net.direct.frames import HEADER_BYTES, FrameKind, framed
from shoal.net.direct.links import DirectLinks
from shoal.net.direct.settings import LinkSettings
from shoal.net.identity.certificates import contexts
from shoal.net.identity.identity import Identity
from shoal.protocol import codec
from shoal.protocol.messages import Grant, Output, Renew

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence
    from multiprocessing.connection import Connection

    from shoal.protocol.messages import AnyMessage

REPEATS = 5
PING_PONGS = 2_000
PIPELINED = 50_000
OUTPUT_MB = 64
OUTPUT_BYTES = 65_536
HANDSHAKES = 100
LINKS = 200
LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}

SMALL = Renew(leases=(LeaseId("worker/17"),), lease_s=15.0)
HALF = Output(
    attempt=Attempt(NodeId("s"), 1, 1),
    stream="stdout",
    offset=0,
    data=bytes(OUTPUT_BYTES // 2),
)


class Ears:
    """Counts what arrives, and passes it on."""

    def __init__(self, on: Callable[[NodeId, Sequence[AnyMessage]], None]) -> None:
        self._on = on
        self.events: Counter[str] = Counter()
        self.changed = asyncio.Event()

    def connected(self, peer: NodeId, grant: Grant | None) -> None:
        """Count a link."""
        self.events["connected"] += 1
        self.changed.set()

    def lost(self, peer: NodeId) -> None:
        """Count a link that is gone."""
        self.events["lost"] += 1
        self.changed.set()

    def received(self, peer: NodeId, messages: Sequence[AnyMessage]) -> None:
        """Pass messages on."""
        self._on(peer, messages)

    def heard(self, origin: NodeId, message: AnyMessage) -> None:
        """Take no gossip."""

    def looked_up(self, lookup: int, providers: Sequence[Any]) -> None:
        """Look nothing up."""

    def measured(self, peer: NodeId, rtt_s: float) -> None:
        """Measure elsewhere."""

    def estimated(self, nodes: int) -> None:
        """Count no nodes."""

    async def until(self, event: str, count: int) -> None:
        """Wait until something happened so often."""
        while self.events[event] < count:
            self.changed.clear()
            await self.changed.wait()


def links_of(identity: Identity, ears: Ears) -> DirectLinks:
    """Return links of a node that admits everybody."""
    grant = Grant(
        node=identity.node, shoal="bench", roles=("worker",), owner=OwnerId("ann")
    )
    settings = LinkSettings(refuse_s=0.0)
    return DirectLinks(
        identity, grant, admit=lambda *_: None, listener=ears, settings=settings
    )


# Direct links.


async def serve_links(pipe: Connection) -> None:
    """Answer every small message, count every output, until killed."""
    outputs = 0

    def on(peer: NodeId, messages: Sequence[AnyMessage]) -> None:
        nonlocal outputs
        for message in messages:
            if isinstance(message, Renew):
                links.send(peer, message)
            else:
                outputs += 1
                if outputs % (2 * OUTPUT_MB * (1 << 20) // OUTPUT_BYTES) == 0:
                    links.send(peer, SMALL)

    identity = Identity.generate()
    links = links_of(identity, Ears(on))
    await links.listen("127.0.0.1")
    pipe.send((identity.node, links.addresses))
    await asyncio.Event().wait()


class User:
    """Sends to a server that answers, and waits for its answers."""

    def __init__(self, node: NodeId, addresses: Sequence[str]) -> None:
        self.links = links_of(Identity.generate(), Ears(self._on))
        self.links.know(node, addresses)
        self.node = node
        self.back = 0
        self._wake = asyncio.Event()

    def _on(self, _: NodeId, messages: Sequence[AnyMessage]) -> None:
        self.back += len(messages)
        self._wake.set()

    def send(self, message: AnyMessage) -> None:
        """Send one message to the server."""
        self.links.send(self.node, message)

    async def until(self, count: int) -> None:
        """Wait until so many answers are there."""
        while self.back < count:
            self._wake.clear()
            await self._wake.wait()

    async def ping_pong(self) -> None:
        """Send one message after the answer to the one before."""
        for _ in range(PING_PONGS):
            count = self.back + 1
            self.send(SMALL)
            await self.until(count)

    async def pipeline(self) -> None:
        """Send many at a time, with no more than some thousand on their way."""
        count = self.back
        for sent in range(500, PIPELINED + 1, 500):
            for _ in range(500):
                self.send(SMALL)
            await asyncio.sleep(0)
            await self.until(count + sent - 8_000)
        await self.until(count + PIPELINED)

    async def pour(self) -> None:
        """Send output as fast as it is taken."""
        count = self.back + 1
        for _ in range(OUTPUT_MB * (1 << 20) // OUTPUT_BYTES):
            self.send(HALF)
            self.send(HALF)
            await asyncio.sleep(0)
            while self.links.queued_bytes > 1 << 20:  # noqa: ASYNC110
                await asyncio.sleep(0)
        await self.until(count)


async def use_links(node: NodeId, addresses: Sequence[str]) -> dict[str, list[float]]:
    """Return what direct links do."""
    user = User(node, addresses)
    user.send(SMALL)
    await user.until(1)
    found: dict[str, list[float]] = {}
    for _ in range(REPEATS):
        start = time.perf_counter()
        await user.ping_pong()
        note(found, "ping_pong_per_s", PING_PONGS / (time.perf_counter() - start))
        start = time.perf_counter()
        await user.pipeline()
        note(found, "pipelined_per_s", PIPELINED / (time.perf_counter() - start))
        start = time.perf_counter()
        await user.pour()
        took_s = time.perf_counter() - start
        note(found, "output_mb_per_s", OUTPUT_MB * (1 << 20) / 1e6 / took_s)
    await user.links.close()
    return found


async def shake_links(node: NodeId, addresses: Sequence[str]) -> dict[str, list[float]]:
    """Return how long a link takes to come up, from a new node each time."""
    found: dict[str, list[float]] = {}
    for _ in range(HANDSHAKES):
        ears = Ears(lambda *_: None)
        links = links_of(Identity.generate(), ears)
        links.know(node, addresses)
        start = time.perf_counter()
        links.send(node, SMALL)
        await ears.until("connected", 1)
        note(found, "handshake_ms", (time.perf_counter() - start) * 1e3)
        await links.close()
        await asyncio.sleep(0.04)  # The door lets in 32 a second from one address.
    return found


# Bare TLS.


async def serve_bare(pipe: Connection) -> None:
    """Do the same with streams: answer small frames, count large ones."""

    async def on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        taken = 0
        while header := await reader.read(HEADER_BYTES):
            header += await reader.readexactly(HEADER_BYTES - len(header))
            payload = await reader.readexactly(int.from_bytes(header[1:], "big"))
            if len(payload) < 1_000:
                writer.write(header + payload)
                continue
            taken += 1
            if taken % (OUTPUT_MB * (1 << 20) // OUTPUT_BYTES) == 0:
                writer.write(framed(FrameKind.PING))

    accepting = contexts(Identity.generate(), None).accepting
    server = await asyncio.start_server(on, "127.0.0.1", 0, ssl=accepting)
    pipe.send(server.sockets[0].getsockname())
    await asyncio.Event().wait()


async def use_bare(host: str, port: int) -> dict[str, list[float]]:
    """Return what bare TLS does with frames of the same size."""
    context = contexts(Identity.generate(), None).dialling
    small = framed(FrameKind.MESSAGES, codec.encode([SMALL])[0])
    large = framed(FrameKind.MESSAGES, bytes(OUTPUT_BYTES))
    reader, writer = await asyncio.open_connection(
        host, port, ssl=context, server_hostname=""
    )
    found: dict[str, list[float]] = {}
    for _ in range(REPEATS):
        start = time.perf_counter()
        for _ in range(PING_PONGS):
            writer.write(small)
            await reader.readexactly(len(small))
        note(found, "ping_pong_per_s", PING_PONGS / (time.perf_counter() - start))

        start = time.perf_counter()
        for _ in range(PIPELINED // 500):
            for _ in range(500):
                writer.write(small)
            await writer.drain()
            await reader.readexactly(500 * len(small))
        note(found, "pipelined_per_s", PIPELINED / (time.perf_counter() - start))

        start = time.perf_counter()
        for _ in range(OUTPUT_MB * (1 << 20) // OUTPUT_BYTES):
            writer.write(large)
            await writer.drain()
        await reader.readexactly(HEADER_BYTES)
        took_s = time.perf_counter() - start
        note(found, "output_mb_per_s", OUTPUT_MB * (1 << 20) / 1e6 / took_s)
    writer.close()
    for _ in range(HANDSHAKES):
        start = time.perf_counter()
        _, writer = await asyncio.open_connection(
            host, port, ssl=context, server_hostname=""
        )
        note(found, "handshake_ms", (time.perf_counter() - start) * 1e3)
        writer.close()
    return found


# Memory.


async def weigh_links() -> dict[str, list[float]]:
    """Return what both ends of an idle link take, in one process."""
    hub_ears = Ears(lambda *_: None)
    hub = links_of(Identity.generate(), hub_ears)
    await hub.listen("127.0.0.1")
    others: list[DirectLinks] = []
    for _ in range(LINKS):
        others.append(links_of(Identity.generate(), Ears(lambda *_: None)))
        others[-1].know(hub.node, hub.addresses)
    before = resident_bytes()
    for number, other in enumerate(others, start=1):
        other.send(hub.node, SMALL)
        await hub_ears.until("connected", number)
        await asyncio.sleep(0.035)
    grown = resident_bytes() - before
    await asyncio.gather(hub.close(), *(other.close() for other in others))
    return {"memory_kb_per_end": [grown / LINKS / 2 / 1e3]}


async def weigh_bare() -> dict[str, list[float]]:
    """Return what both ends of an idle bare connection take."""
    made = contexts(Identity.generate(), None)
    kept: list[asyncio.StreamWriter] = []

    def on(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        kept.append(writer)

    server = await asyncio.start_server(on, "127.0.0.1", 0, ssl=made.accepting)
    host, port = server.sockets[0].getsockname()
    before = resident_bytes()
    for _ in range(LINKS):
        _, writer = await asyncio.open_connection(
            host, port, ssl=made.dialling, server_hostname=""
        )
        kept.append(writer)
    while len(kept) < 2 * LINKS:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    grown = resident_bytes() - before
    for writer in kept:
        writer.transport.abort()
    server.close()
    return {"memory_kb_per_end": [grown / LINKS / 2 / 1e3]}


# How it is run.


def note(found: dict[str, list[float]], what: str, value: float) -> None:
    """Add one measurement."""
    found.setdefault(what, []).append(value)


def resident_bytes() -> int:
    """Return how much memory this process has."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def run(loop: str, work: Coroutine[Any, Any, Any]) -> Any:  # noqa: ANN401
    """Run something on a loop of this kind."""
    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        return runner.run(work)


def _serve(loop: str, serve: Callable[[Connection], Any], pipe: Connection) -> None:
    run(loop, serve(pipe))


def _weigh(loop: str, weigh: Callable[[], Any], pipe: Connection) -> None:
    pipe.send(run(loop, weigh()))


def child(target: Callable[..., None], loop: str, work: Callable[..., Any]) -> Any:  # noqa: ANN401
    """Start a process, and return it with the first thing that it says."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(
        target=target, args=(loop, work, theirs), daemon=True
    )
    process.start()
    return process, ours.recv()


def show(loop: str, stack: str, found: dict[str, list[float]]) -> None:
    """Print one line for each thing that was measured."""
    for what, values in found.items():
        line = {
            "benchmark": "links",
            "stack": stack,
            "loop": loop,
            "what": what,
            "median": round(statistics.median(values), 2),
            "best": round(max(values) if what.endswith("_s") else min(values), 2),
            "samples": len(values),
        }
        print(json.dumps(line), flush=True)


def measure(loop: str) -> None:
    """Measure both stacks on one kind of loop."""
    server, (node, addresses) = child(_serve, loop, serve_links)
    assert multiaddr.parse(addresses[0])
    show(loop, "direct", run(loop, use_links(node, addresses)))
    show(loop, "direct", run(loop, shake_links(node, addresses)))
    server.kill()
    server, (host, port) = child(_serve, loop, serve_bare)
    show(loop, "bare", run(loop, use_bare(host, port)))
    server.kill()
    for stack, weigh in (("direct", weigh_links), ("bare", weigh_bare)):
        weigher, found = child(_weigh, loop, weigh)
        show(loop, stack, found)
        weigher.join()


def main() -> None:
    """Measure on the loops named, or on all."""
    for loop in sys.argv[1:] or LOOPS:
        measure(loop)


if __name__ == "__main__":
    main()
