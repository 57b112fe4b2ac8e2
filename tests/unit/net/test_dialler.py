import asyncio
import socket
from itertools import pairwise
from random import Random

import pytest
from tests.runtime.virtual_time import run
from tests.unit.net.shoals import identity

from shoal.errors import ShoalError
from shoal.model.ids import NodeId
from shoal.net.direct.dialler import (
    REDIAL,
    AddressBook,
    Dialler,
    Endpoint,
    race,
    resolve,
)
from shoal.net.direct.settings import LinkSettings
from shoal.net.multiaddr import parse

ANN, BOB = identity(1).node, identity(2).node
HERE = "/ip4/192.0.2.1/tcp/4001"
THERE = "/ip4/192.0.2.2/tcp/4001"


def test_the_latest_address_comes_first_and_each_is_kept_once() -> None:
    book = AddressBook()

    book.add(ANN, [HERE])
    book.add(ANN, [THERE, f"{HERE}/p2p/{ANN}"])

    assert [str(address) for address in book.get(ANN)] == [THERE, HERE]


def test_bad_addresses_and_those_of_others_are_left_out_and_counted() -> None:
    book = AddressBook()

    bad = book.add(ANN, [HERE, "nonsense", f"{THERE}/p2p/{BOB}"])

    assert bad == 2
    assert [str(address) for address in book.get(ANN)] == [HERE]


def test_a_peer_has_no_more_than_sixteen_addresses() -> None:
    book = AddressBook()

    for port in range(1, 100):
        book.add(ANN, [f"/ip4/192.0.2.1/tcp/{port}"])

    assert [address.port for address in book.get(ANN)] == list(range(99, 83, -1))


def test_the_book_forgets_who_was_told_of_longest_ago() -> None:
    book = AddressBook(peers_max=2)

    for peer in ("a", "b", "a", "c"):
        book.add(NodeId(peer), [HERE])

    assert [bool(book.get(NodeId(peer))) for peer in "abc"] == [True, False, True]
    assert len(book) == 2


def test_each_failure_makes_the_wait_longer_up_to_a_limit() -> None:
    random = Random(1)

    for failures in range(50):
        longest = min(REDIAL.most_s, 0.25 * 2**failures)
        assert longest / 2 <= REDIAL.pause_s(failures, random) <= longest


def test_addresses_become_places_once_each() -> None:
    async def main() -> None:
        addresses = [parse(HERE), parse("/ip6/2001:db8::1/tcp/9"), parse(HERE)]

        assert await resolve(addresses) == [
            Endpoint(socket.AF_INET, "192.0.2.1", 4001),
            Endpoint(socket.AF_INET6, "2001:db8::1", 9),
        ]

    run(main())


class Ways:
    """Attempts that take a known time and then succeed or fail."""

    def __init__(self) -> None:
        self.log: list[str] = []

    def way(self, name: str, takes_s: float, *, works: bool) -> "Way":
        return Way(self.log, name, takes_s, works)


class Way:
    def __init__(self, log: list[str], name: str, takes_s: float, works: bool) -> None:
        self.log, self.name, self.takes_s, self.works = log, name, takes_s, works

    async def __call__(self) -> None:
        at = asyncio.get_running_loop().time()
        self.log.append(f"{self.name} starts at {at:g}")
        try:
            await asyncio.sleep(self.takes_s)
        except asyncio.CancelledError:
            self.log.append(f"{self.name} is stopped")
            raise
        if not self.works:
            raise ShoalError(f"{self.name} failed")
        self.log.append(f"{self.name} works")


def test_each_place_gets_a_head_start_and_the_first_to_work_wins() -> None:
    async def main() -> None:
        ways = Ways()
        slow, fast = (
            ways.way("slow", 9.0, works=True),
            ways.way("fast", 1.0, works=True),
        )

        await race([slow, fast], stagger_s=0.25)

        assert ways.log == [
            "slow starts at 0",
            "fast starts at 0.25",
            "fast works",
            "slow is stopped",
        ]

    run(main())


def test_a_failure_starts_the_next_at_once() -> None:
    async def main() -> None:
        ways = Ways()
        bad, good = ways.way("bad", 0.125, works=False), ways.way("good", 1, works=True)

        await race([bad, good], stagger_s=0.25)

        assert ways.log == ["bad starts at 0", "good starts at 0.125", "good works"]

    run(main())


def test_all_reasons_are_told_when_no_way_leads_there() -> None:
    async def main() -> None:
        ways = Ways()
        two = [ways.way(name, 0.1, works=False) for name in ("one", "two")]

        with pytest.raises(ShoalError, match="one failed; two failed"):
            await race(two)
        with pytest.raises(ShoalError, match="none is known"):
            await race([])

    run(main())


def test_a_race_that_is_cancelled_stops_all() -> None:
    async def main() -> None:
        ways = Ways()
        task = asyncio.create_task(race([ways.way("a", 9, works=True)]))
        await asyncio.sleep(1.0)

        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

        assert ways.log == ["a starts at 0", "a is stopped"]

    run(main())


def test_a_peer_is_dialled_again_and_again_with_growing_pauses() -> None:
    async def main() -> None:
        clock = asyncio.get_running_loop().time
        tries: list[float] = []

        async def connect(peer: NodeId, place: Endpoint) -> None:
            tries.append(clock())
            raise ShoalError("nobody there")

        def missed(peer: NodeId, why: str) -> None:
            dialler.start_later(peer)

        dialler = Dialler(connect, missed, LinkSettings(), Random(1))
        dialler.book.add(ANN, [HERE])
        dialler.start(ANN)
        dialler.start(ANN)
        await asyncio.sleep(60.0)
        await dialler.close()
        count = len(tries)
        await asyncio.sleep(60.0)

        pauses = [later - sooner for sooner, later in pairwise(tries)]
        assert 6 <= len(tries) == count <= 14
        assert pauses[0] < 0.6
        assert max(pauses) <= REDIAL.most_s
        assert pauses[5] > pauses[0]

    run(main())


def test_a_new_address_is_tried_without_waiting() -> None:
    async def main() -> None:
        clock = asyncio.get_running_loop().time
        tries: list[tuple[float, str]] = []

        async def connect(peer: NodeId, place: Endpoint) -> None:
            tries.append((clock(), place.host))
            raise ShoalError("nobody there")

        dialler = Dialler(connect, lambda *_: None, LinkSettings(), Random(1))
        dialler.book.add(ANN, [HERE])
        for _ in range(20):
            dialler.start_later(ANN)
            await asyncio.sleep(20.0)
        dialler.start_later(ANN)
        tries.clear()

        dialler.book.add(ANN, [THERE])
        dialler.hurry(ANN)
        await asyncio.sleep(0.3)

        assert [host for _, host in tries] == ["192.0.2.2", "192.0.2.1"]
        await dialler.close()

    run(main())
