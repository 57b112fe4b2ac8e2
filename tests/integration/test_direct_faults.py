import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from tests.integration.direct_nodes import (
    LOOPS,
    Log,
    closed,
    eventually,
    node,
    numbered,
    numbers,
    output,
    run,
)
from tests.integration.live_shoal import promised

from shoal.model.ids import LeaseId, NodeId
from shoal.net.direct.settings import LinkSettings
from shoal.protocol.messages import Grant, Release

pytestmark = pytest.mark.integration
ROOT = Path(__file__).parents[2]


@contextlib.asynccontextmanager
async def child(number: int) -> AsyncIterator[tuple[int, NodeId, list[str]]]:
    """Start a node in a process of its own; yield its pid, id and addresses."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.integration.direct_child", str(number)),
        stdout=asyncio.subprocess.PIPE,
        cwd=ROOT,
    )
    assert process.stdout is not None
    try:
        said = json.loads(await asyncio.wait_for(process.stdout.readline(), 120))
        yield process.pid, NodeId(said["node"]), said["at"]
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


@pytest.mark.parametrize("loop", LOOPS)
def test_a_peer_that_is_killed_is_missed_at_once(loop: str) -> None:
    async def missed_s() -> float:
        ann = await node(1)
        async with child(2) as (pid, bob, addresses):
            ann.links.know(bob, addresses)
            ann.links.send(bob, numbered(1))
            await eventually(lambda: bob in ann.links.connected)

            os.kill(pid, signal.SIGKILL)
            killed_at = time.monotonic()
            await eventually(lambda: ann.log.count("lost", bob))
            took_s = time.monotonic() - killed_at

        await ann.links.close()
        return took_s

    promised(lambda: run(missed_s(), loop), 1.0)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_peer_that_stops_is_missed_within_three_to_six_seconds(loop: str) -> None:
    async def missed_s() -> float:
        clock = asyncio.get_running_loop().time
        ann = await node(1)
        async with child(2) as (pid, bob, addresses):
            ann.links.know(bob, addresses)
            ann.links.send(bob, numbered(1))
            await eventually(lambda: ann.log.rtts)

            os.kill(pid, signal.SIGSTOP)
            stopped_at = clock()
            await eventually(lambda: ann.log.count("lost", bob))
            lost_after_s = clock() - stopped_at
            os.kill(pid, signal.SIGCONT)
            ann.links.send(bob, numbered(2))
            await eventually(lambda: ann.log.count("connected", bob) == 2)

        assert lost_after_s >= 3.0
        assert ann.links.counts["silent"] == 1
        await ann.links.close()
        return lost_after_s

    promised(lambda: run(missed_s(), loop), 6.0)


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("seed", range(5))
def test_two_who_dial_at_once_get_one_link(loop: str, seed: int) -> None:
    async def main() -> None:
        ann, bob = await node(10 + seed), await node(20 + seed)
        ann.know(bob)
        bob.know(ann)

        ann.say(bob, numbered(1))
        bob.say(ann, numbered(2))
        await eventually(lambda: ann.heard(bob) and bob.heard(ann))
        await eventually(lambda: len(ann.links._open) == len(bob.links._open) == 1)

        assert ann.log.events == [("connected", bob.id)]
        assert bob.log.events == [("connected", ann.id)]
        await closed(ann, bob)

    run(main(), loop)


@pytest.mark.parametrize("count", [10, pytest.param(20, marks=pytest.mark.soak)])
def test_many_nodes_link_all_to_all_and_lose_nothing(count: int) -> None:
    async def main() -> None:
        # They share one process, where all handshakes at once may take their time.
        patient = LinkSettings(handshake_s=60.0, dial_s=60.0, give_up_s=60.0)
        nodes = [await node(number, settings=patient) for number in range(1, count + 1)]
        for one in nodes:
            for other in nodes:
                if one is not other:
                    one.know(other)

        for turn in range(20):
            for one in nodes:
                for other in nodes:
                    if one is not other:
                        one.say(other, numbered(turn))
            await asyncio.sleep(0.01)
        pairs = [(one, other) for one in nodes for other in nodes if one is not other]
        await eventually(
            lambda: all(len(one.heard(other)) == 20 for one, other in pairs), 120.0
        )

        for one, other in pairs:
            assert numbers(one.heard(other)) == list(range(20))
            assert one.log.count("connected", other.id) == 1
        await closed(*nodes)

    run(main())


@pytest.mark.parametrize(("first", "second"), [(1, 2), (2, 1)])
def test_a_node_that_restarts_replaces_its_old_link_at_once(
    first: int, second: int
) -> None:
    async def main() -> None:
        ann, bob = await node(first), await node(second, generation=1)
        bob.know(ann)
        bob.say(ann, numbered(1))
        await eventually(lambda: ann.heard(bob))

        again = await node(second, generation=2)
        again.know(ann)
        again.say(ann, numbered(2))
        await eventually(lambda: len(ann.heard(bob)) == 2)

        told = [event for event, _ in ann.log.events]
        assert told == ["connected", "lost", "connected"]
        assert ann.links.counts["silent"] == 0, "it did not take that long"
        await closed(ann, bob, again)

    run(main())


def test_what_waits_for_a_peer_arrives_when_it_comes() -> None:
    async def main() -> None:
        ann, bob = await node(1), await node(2)
        ann.know(bob)
        addresses = bob.links.addresses
        await bob.links.close()
        ann.links._dialler._failures[bob.id] = 9  # The next try is seconds away.

        ann.say(bob, numbered(1))
        await eventually(lambda: ann.links.counts["dial failed"])
        again = await node(2)
        ann.say(again, numbered(2))
        ann.links.know(again.id, again.links.addresses)
        await eventually(lambda: len(again.heard(ann)) == 2)

        assert addresses != again.links.addresses
        assert numbers(again.heard(ann)) == [1, 2]
        await closed(ann, again)

    run(main())


def test_what_waits_too_long_is_given_up_and_counted() -> None:
    async def main() -> None:
        ann = await node(1, settings=LinkSettings(give_up_s=0.5))
        bob = await node(2)
        ann.know(bob)
        await bob.links.close()

        ann.say(bob, numbered(1))
        await eventually(lambda: ann.links.drops["dropped undelivered"] == 1)

        assert ann.links._peers == {}
        await ann.links.close()

    run(main())


def test_a_peer_that_nobody_knows_cannot_be_reached() -> None:
    async def main() -> None:
        ann = await node(1)

        ann.links.send(NodeId("12D3KooWNobody"), numbered(1))

        assert ann.links.counts["dropped unreachable"] == 1
        await ann.links.close()

    run(main())


def test_output_is_dropped_first_when_a_peer_does_not_keep_up() -> None:
    async def main() -> None:
        ann = await node(1)
        async with child(2) as (pid, bob, addresses):
            ann.links.know(bob, addresses)
            ann.links.send(bob, numbered(0))
            await eventually(lambda: bob in ann.links.connected)

            os.kill(pid, signal.SIGSTOP)
            for number in range(600):
                ann.links.send(bob, output(ann.id, number))
                ann.links.send(bob, numbered(number))
                await asyncio.sleep(0)
            os.kill(pid, signal.SIGCONT)

        assert ann.links.drops["dropped soft"] > 100
        assert ann.links.drops["dropped full"] == 0
        await ann.links.close()

    run(main())


def test_closing_delivers_what_was_sent() -> None:
    async def main() -> None:
        ann, bob = await node(1), await node(2)
        ann.know(bob)
        ann.say(bob, numbered(0))
        await eventually(lambda: bob.heard(ann))

        for number in range(1, 5_000):
            ann.say(bob, numbered(number))
        await ann.links.close()
        await eventually(lambda: bob.log.count("lost", ann.id))

        assert numbers(bob.heard(ann)) == list(range(5_000))
        assert bob.links.trouble(ann.id) == "it said: leaving"
        await bob.links.close()

    run(main())


def test_closing_waits_for_what_does_not_fit_into_the_socket() -> None:
    async def main() -> None:
        ann, bob = await node(1), await node(2)
        ann.know(bob)
        ann.say(bob, numbered(0))
        await eventually(lambda: bob.heard(ann))
        large = Release(leases=tuple(LeaseId(f"{n:0190}") for n in range(4_000)))

        for _ in range(9):
            ann.say(bob, large)
        await ann.links.close()
        await eventually(lambda: bob.log.count("lost", ann.id))

        assert bob.heard(ann) == [numbered(0), *[large] * 9]
        await bob.links.close()

    run(main())


def test_an_idle_link_stays_up_and_is_measured() -> None:
    async def main() -> None:
        ann, bob = await node(1), await node(2)
        ann.know(bob)
        ann.say(bob, numbered(0))

        await eventually(lambda: len(ann.log.rtts) + len(bob.log.rtts) >= 5, 10.0)

        assert ann.log.events == [("connected", bob.id)]
        assert all(0 < rtt_s < 1 for rtt_s in ann.log.rtts + bob.log.rtts)
        await closed(ann, bob)

    run(main())


def test_a_node_that_stood_still_itself_blames_nobody() -> None:
    async def main() -> None:
        ann, bob = await node(1), await node(2)
        ann.know(bob)
        ann.say(bob, numbered(0))
        await eventually(lambda: bob.heard(ann))

        # As if six seconds had passed in which this process did not run.
        for one in (ann, bob):
            one.links._tick_at -= 6.0
            for link in one.links._up.values():
                link.pulse.excuse(-6.0)
        late = ann.links._tick_at, bob.links._tick_at
        await eventually(lambda: ann.links._tick_at > late[0])
        await eventually(lambda: bob.links._tick_at > late[1])

        assert ann.log.events == [("connected", bob.id)]
        assert bob.log.events == [("connected", ann.id)]
        await closed(ann, bob)

    run(main())


class Parting(Log):
    """Does something soon after a link came up, and as soon as it is lost."""

    def __init__(self, act: Callable[[], None]) -> None:
        super().__init__()
        self.act = act

    def connected(self, peer: NodeId, grant: Grant | None) -> None:
        asyncio.get_running_loop().call_later(0.02, self.act)

    def lost(self, peer: NodeId) -> None:
        self.act()


def test_two_who_link_and_part_do_so_with_pauses() -> None:
    async def main() -> None:
        settings = LinkSettings(refuse_s=0.0)
        ann, bob = await node(1, settings=settings), await node(2)
        bob.know(ann)
        ann.links._listener = Parting(lambda: ann.links.disconnect(bob.id, "no"))
        bob.links._listener = Parting(lambda: bob.say(ann, numbered(1)))

        began = time.monotonic()
        bob.say(ann, numbered(0))
        await eventually(lambda: bob.links.counts["up"] == 4)

        assert time.monotonic() - began > 0.3
        await closed(ann, bob)

    run(main())
