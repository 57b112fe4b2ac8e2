"""Nodes call each other's API: answers come back whole, and nothing is left open."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import aclosing
from typing import Any

import pytest
from tests.runtime import virtual_time

from shoal.core.durability.journal import Entry
from shoal.core.events import (
    Effect,
    MessageReceived,
    PeerConnected,
    PeerLost,
    Send,
    WallClockRead,
)
from shoal.core.forwarding.forwarded_calls import (
    AHEAD_MAX,
    BEAT_S,
    CALLS_PER_PEER_MAX,
    HEARD_S,
    CallForwarding,
)
from shoal.core.membership.members import Admission
from shoal.core.membership.membership import Membership
from shoal.core.membership.roster import Roster
from shoal.core.peer import Peer
from shoal.errors import NotAllowedError, ShoalError, UnreachableError, UsageError
from shoal.model.ids import NodeId, OwnerId
from shoal.net.identity.identity import Identity
from shoal.protocol.forwarding import ApiCall, ApiPiece, ApiReceipt, ToApi
from shoal.protocol.limits import API_REQUEST_BYTES_MAX, OUTPUT_BYTES_MAX
from shoal.protocol.messages import AnyMessage
from shoal.runtime.forwarding.call_runner import (
    Answer,
    ApiAnswers,
    CallRunner,
)
from shoal.runtime.host import Host
from shoal.sim.node import trust

LAPTOP = Identity.from_seed(bytes([1] * 32)).node
DESKTOP = Identity.from_seed(bytes([2] * 32)).node
ANN = OwnerId("ann")


class NoJournal:
    """A journal of a machine that keeps nothing."""

    def append(self, entry: Entry, *, durable: bool, within_s: float = 0.0) -> int:
        raise AssertionError("calls are not durable")


class Side:
    """A node with nothing but calls: machine, host, and what performs effects."""

    def __init__(self, pair: "Pair", node: NodeId) -> None:
        self.grant = trust.grant(node, ("scheduler",), ANN)
        roster = Roster(trust.members(), trust.WALL_AT_START_S)
        self.machine = CallForwarding(roster, ANN)
        self.membership = Membership(node, roster, self.grant)
        self._pair = pair
        self._node = node
        peer = Peer(self.membership, [self.machine])
        self.host = Host()
        self.host.start(peer, NoJournal(), self._perform, on_failure=self._fail)
        self.calls = CallRunner(self.host.feed)

    @property
    def counts(self) -> Counter[str]:
        return self.machine.counts

    def received(self, peer: NodeId, message: AnyMessage) -> None:
        self.host.feed(MessageReceived(peer, message))

    def _perform(self, effect: Effect) -> None:
        if isinstance(effect, Send):
            self._pair.carry(self._node, effect.peer, effect.message)
        elif type(effect) in self.calls.performers:
            self.calls.performers[type(effect)](effect)

    def _fail(self, error: BaseException) -> None:
        raise AssertionError("a machine never raises") from error


class Pair:
    """A laptop that asks, and a desktop that answers."""

    def __init__(self) -> None:
        self.said: list[ToApi] = []
        self.loses: Callable[[ToApi], bool] = lambda _: False
        self.wrote = 0
        self.closed = 0
        self.refused: list[str] = []
        self.sides = {node: Side(self, node) for node in (LAPTOP, DESKTOP)}
        self.laptop, self.desktop = self.sides[LAPTOP], self.sides[DESKTOP]
        self.desktop.calls.open(ApiAnswers(self._serve, self._refuse))
        self.link()

    def link(self) -> None:
        self.laptop.host.feed(PeerConnected(DESKTOP, self.desktop.grant))
        self.desktop.host.feed(PeerConnected(LAPTOP, self.laptop.grant))

    def carry(self, source: NodeId, target: NodeId, message: AnyMessage) -> None:
        if not isinstance(message, ToApi):
            return  # Members also tell each other of revocations.
        self.said.append(message)
        if not self.loses(message):
            self.sides[target].received(source, message)

    def revoke(self) -> None:
        """Have the desktop hear that the grant of the laptop is void."""
        self.desktop.membership.roster.revoke(trust.revocation(LAPTOP, serial=1))

    def ask(self, method: str, request: bytes = b"") -> AsyncGenerator[Answer]:
        return self.laptop.calls.ask(DESKTOP, method, request)

    @property
    def open(self) -> int:
        return self.desktop.machine.open

    def _refuse(self, admission: Admission, method: str) -> bytes:
        self.refused.append(method)
        return b"you are of another owner"

    async def _serve(
        self, admission: Admission, method: str, request: bytes
    ) -> AsyncGenerator[Answer]:
        assert admission.owner == "ann"
        try:
            match method:
                case "Echo":
                    yield "message", request
                case "Count":
                    for self.wrote in range(1, int(request) + 1):
                        yield "message", b"%d" % self.wrote
                case "Wait":
                    yield "message", b"waiting"
                    await asyncio.sleep(float(request))
                    yield "message", b"done"
                case "Bug":
                    raise RuntimeError("oh")
                case _:
                    yield "error", b"there is no such call"
        finally:
            self.closed += 1


def run(scenario: Callable[[Pair], Coroutine[Any, Any, None]]) -> None:
    async def within() -> None:
        pair = Pair()
        await scenario(pair)
        for side in pair.sides.values():
            await side.calls.close()
            side.host.close()
            assert not side.calls._runs

    virtual_time.run(within())


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def test_answers_of_any_size_arrive_whole_and_in_order() -> None:
    async def scenario(pair: Pair) -> None:
        big = bytes(range(256)) * (OUTPUT_BYTES_MAX // 100)

        echoed = [one async for one in pair.ask("Echo", big)]
        counted = [int(data) async for _, data in pair.ask("Count", b"1000")]
        wrong = [one async for one in pair.ask("Nonsense")]

        assert echoed == [("message", big)]
        assert counted == list(range(1, 1_001))
        assert wrong == [("error", b"there is no such call")]
        assert (pair.open, pair.closed) == (0, 3)

    run(scenario)


def test_who_reads_slowly_holds_up_who_writes() -> None:
    async def scenario(pair: Pair) -> None:
        answers = pair.ask("Count", b"1000")
        await anext(answers)
        await settle()

        assert pair.wrote <= AHEAD_MAX + 2
        assert len([one async for one in answers]) == 999

    run(scenario)


def test_who_stops_ends_the_call_over_there() -> None:
    async def scenario(pair: Pair) -> None:
        async with aclosing(pair.ask("Wait", b"1e9")) as answers:
            await anext(answers)
            assert pair.open == 1
        await settle()

        assert (pair.open, pair.closed) == (0, 1)

    run(scenario)


def test_a_call_that_is_quiet_for_an_hour_goes_on() -> None:
    async def scenario(pair: Pair) -> None:
        got = [data async for _, data in pair.ask("Wait", b"3600")]

        assert got == [b"waiting", b"done"]

    run(scenario)


@pytest.mark.parametrize("is_back", [False, True])
def test_a_link_that_breaks_ends_the_call_on_both_sides(is_back: bool) -> None:
    async def scenario(pair: Pair) -> None:
        answers = pair.ask("Wait", b"1e9")
        await anext(answers)

        if is_back:
            pair.link()  # A stream that was opened anew; what was on it is lost.
        else:
            pair.laptop.host.feed(PeerLost(DESKTOP))
            pair.desktop.host.feed(PeerLost(LAPTOP))

        with pytest.raises(UnreachableError, match="did not answer to the end"):
            await anext(answers)
        await settle()
        assert (pair.open, pair.closed) == (0, 1)

    run(scenario)


def test_a_node_that_does_not_know_such_calls_is_given_up_soon() -> None:
    async def scenario(pair: Pair) -> None:
        pair.loses = lambda message: isinstance(message, ApiCall)
        began = asyncio.get_running_loop().time()

        with pytest.raises(UnreachableError) as caught:
            await anext(pair.ask("Echo"))

        assert "older shoal" in caught.value.because
        assert asyncio.get_running_loop().time() - began == HEARD_S

    run(scenario)


def test_a_piece_that_was_lost_is_noticed_though_it_was_the_last() -> None:
    async def scenario(pair: Pair) -> None:
        def is_waiting(message: ToApi) -> bool:
            return isinstance(message, ApiPiece) and message.data == b"waiting"

        pair.loses = is_waiting

        with pytest.raises(UnreachableError) as caught:
            await anext(pair.ask("Wait", b"1e9"))

        assert "lost on the way" in caught.value.because
        await settle()
        assert pair.open == 0, "it was told to stop"

    run(scenario)


def test_a_stop_that_was_lost_is_said_again() -> None:
    async def scenario(pair: Pair) -> None:
        answers = pair.ask("Wait", b"1e9")
        await anext(answers)
        pair.loses = lambda message: isinstance(message, ApiReceipt)
        await answers.aclose()
        await settle()
        pair.loses = lambda _: False

        await asyncio.sleep(2 * BEAT_S)

        assert pair.open == 0
        assert pair.laptop.counts["pieces for nobody"] == 1

    run(scenario)


def test_a_grant_that_no_longer_holds_ends_the_call() -> None:
    async def scenario(pair: Pair) -> None:
        answers = pair.ask("Wait", b"1")
        await anext(answers)
        pair.revoke()

        with pytest.raises(NotAllowedError) as caught:
            await anext(answers)

        assert "revoked" in caught.value.because
        with pytest.raises(UnreachableError):
            await anext(pair.ask("Echo"))
        assert pair.desktop.counts["calls refused"] == 1

    run(scenario)


def test_a_grant_that_expires_while_nothing_is_said_ends_the_call_too() -> None:
    async def scenario(pair: Pair) -> None:
        answers = pair.ask("Wait", b"1e9")
        await anext(answers)
        pair.desktop.host.feed(WallClockRead(trust.WALL_AT_START_S + 1e9))

        await asyncio.sleep(BEAT_S + 1.0)

        assert (pair.open, pair.closed) == (0, 1)

    run(scenario)


def test_a_bug_in_the_api_is_an_answer() -> None:
    async def scenario(pair: Pair) -> None:
        with pytest.raises(ShoalError) as caught:
            await anext(pair.ask("Bug"))

        assert "RuntimeError" in caught.value.because

    run(scenario)


def test_a_request_that_is_too_long_is_not_sent() -> None:
    async def scenario(pair: Pair) -> None:
        with pytest.raises(UsageError, match="too long"):
            await anext(pair.ask("Echo", bytes(API_REQUEST_BYTES_MAX + 1)))

        assert pair.said == []

    run(scenario)


def test_a_node_of_another_owner_is_told_no_and_its_call_is_not_run() -> None:
    async def scenario(pair: Pair) -> None:
        pair.laptop.grant = trust.grant(LAPTOP, ("scheduler",), OwnerId("eve"))
        pair.link()

        got = [one async for one in pair.ask("Count", b"3")]

        assert got == [("error", b"you are of another owner")]
        assert (pair.refused, pair.wrote) == (["Count"], 0)

    run(scenario)


def test_a_peer_without_a_link_is_not_asked() -> None:
    async def scenario(pair: Pair) -> None:
        pair.laptop.host.feed(PeerLost(DESKTOP))

        with pytest.raises(UnreachableError) as caught:
            await anext(pair.ask("Echo"))

        assert "no link" in caught.value.because
        assert pair.said == []

    run(scenario)


# Peers that mean harm.


def test_a_flood_of_calls_is_refused_beyond_the_limit() -> None:
    async def scenario(pair: Pair) -> None:
        pair.loses = lambda message: isinstance(message, ApiPiece)
        for number in range(1_000):
            call = ApiCall(number=number, method="Wait", request=b"1e9")
            pair.desktop.received(LAPTOP, call)
        await settle()

        assert pair.open == CALLS_PER_PEER_MAX
        assert pair.desktop.counts["calls refused, too many"] == 984

    run(scenario)


def test_calls_that_are_stopped_in_the_same_breath_leave_nothing() -> None:
    async def scenario(pair: Pair) -> None:
        for number in range(1_000):
            call = ApiCall(number=number, method="Wait", request=b"1e9")
            pair.desktop.received(LAPTOP, call)
            stop = ApiReceipt(number=number, taken=0, stop=True)
            pair.desktop.received(LAPTOP, stop)
        await settle()

        assert pair.open == 0
        assert pair.desktop.counts["calls answered"] == 1_000

    run(scenario)


def test_what_nobody_asked_for_is_counted_and_changes_nothing() -> None:
    async def scenario(pair: Pair) -> None:
        answers = pair.ask("Wait", b"1")
        await anext(answers)
        for seq in range(100):
            piece = ApiPiece(number=99, seq=seq, kind="message", data=b"?")
            pair.laptop.received(DESKTOP, piece)
            pair.desktop.received(LAPTOP, ApiReceipt(number=1, taken=seq + 50))
            pair.desktop.received(LAPTOP, ApiReceipt(number=77, taken=1, stop=True))
        pair.desktop.received(LAPTOP, ApiCall(number=1, method="Echo"))

        assert await anext(answers) == ("message", b"done")
        assert pair.laptop.counts["pieces for nobody"] == 100
        assert pair.desktop.counts["receipts for nothing"] == 100
        assert pair.desktop.counts["stops too late"] >= 100
        assert pair.desktop.counts["calls again"] == 1

    run(scenario)


def test_who_never_says_that_it_took_anything_is_given_up() -> None:
    async def scenario(pair: Pair) -> None:
        pair.loses = lambda message: isinstance(message, ApiPiece)
        call = ApiCall(number=1, method="Wait", request=b"1e9")
        pair.desktop.received(LAPTOP, call)

        await asyncio.sleep(6 * BEAT_S)

        assert (pair.open, pair.closed) == (0, 1)
        assert pair.desktop.counts["calls ended, silent"] == 1

    run(scenario)
