"""Calls between nodes: bounded, in order, and deaf to what comes out of turn."""

from typing import Final, TypeVar

import pytest

from shoal.core.events import (
    DeadlineReached,
    Effect,
    MessageReceived,
    PeerConnected,
    PeerLost,
    Send,
)
from shoal.core.forwarding.events import (
    AnswerTaken,
    CallAbandoned,
    CallAnswered,
    CallAsked,
    ContinueCall,
    DeliverAnswer,
    EndCall,
    ForwardingEvent,
    RefuseCall,
    RunCall,
    StopCall,
)
from shoal.core.forwarding.forwarded_calls import (
    AHEAD_MAX,
    ANSWER_BYTES_MAX,
    ASKED_MAX,
    BEAT_S,
    CALLS_MAX,
    CALLS_PER_PEER_MAX,
    HEARD_S,
    RECEIPT_EVERY,
    SILENT_S,
    CallForwarding,
)
from shoal.core.membership.roster import Roster
from shoal.model.ids import NodeId, OwnerId
from shoal.protocol.forwarding import ApiCall, ApiPiece, ApiReceipt, ToApi
from shoal.protocol.messages import Goodbye
from shoal.sim.node import trust

ANN, BOB = NodeId("ann"), NodeId("bob")
OWNER: Final = OwnerId("lab")
M = TypeVar("M", ApiCall, ApiPiece, ApiReceipt)


class Calls:
    """A machine that is told facts at a time, and what it answered."""

    def __init__(self, *peers: NodeId, owner: OwnerId = OWNER) -> None:
        self.roster = Roster(trust.members(), trust.WALL_AT_START_S)
        self.machine = CallForwarding(self.roster, OWNER)
        self.now = 0.0
        for peer in peers or (ANN, BOB):
            self.link(peer, owner)

    def link(self, peer: NodeId, owner: OwnerId = OWNER) -> list[Effect]:
        grant = trust.grant(peer, ("scheduler",), owner)
        self.roster.meet(peer, grant, self.now)
        return self.machine.handle(PeerConnected(peer, grant), self.now)

    def tell(self, event: ForwardingEvent) -> list[Effect]:
        return self.machine.handle(event, self.now)

    def hear(self, peer: NodeId, message: ToApi | Goodbye) -> list[Effect]:
        return self.machine.handle(MessageReceived(peer, message), self.now)

    def wait_until(self, now: float) -> list[Effect]:
        """Let time pass, as a host does."""
        effects: list[Effect] = []
        while (due := self.machine.next_deadline()) is not None and due <= now:
            self.now = due
            effects += self.machine.handle(DeadlineReached(), due)
        self.now = now
        return effects

    def call(self, peer: NodeId, number: int) -> int | None:
        """Let a peer call; return the run, if there is one."""
        effects = self.hear(peer, ApiCall(number=number, method="List"))
        runs = [each.run for each in effects if isinstance(each, RunCall)]
        return runs[0] if runs else None

    def ask(self, token: int = 7) -> int:
        """Ask Ann; return the number of the call."""
        [call] = messages(self.tell(CallAsked(token, ANN, "List")), ApiCall)
        return call.number

    def count(self, what: str) -> int:
        return self.machine.counts[what]


def messages(effects: list[Effect], kind: type[M]) -> list[M]:
    sent = [each.message for each in effects if isinstance(each, Send)]
    return [each for each in sent if isinstance(each, kind)]


def message(seq: int, data: bytes = b"x", number: int = 1) -> ApiPiece:
    return ApiPiece(number=number, seq=seq, kind="message", data=data)


def part(seq: int, data: bytes = b"x") -> ApiPiece:
    return ApiPiece(number=1, seq=seq, kind="part", data=data)


def end(seq: int) -> ApiPiece:
    return ApiPiece(number=1, seq=seq, kind="end")


# Answering.


def test_a_call_is_run_once_however_often_it_is_said() -> None:
    calls = Calls()

    runs = [calls.call(ANN, 3), calls.call(ANN, 3), calls.call(ANN, 2)]
    calls.hear(ANN, ApiReceipt(number=3, taken=0, stop=True))
    runs.append(calls.call(ANN, 3))

    assert runs == [1, None, None, None]
    assert calls.count("calls again") == 3
    assert calls.call(BOB, 3) == 2, "everybody counts alone"


def test_the_calls_of_one_peer_and_of_all_peers_are_bounded() -> None:
    peers = [NodeId(f"n{n}") for n in range(CALLS_MAX)]
    calls = Calls(ANN, *peers)

    of_one = [calls.call(ANN, n) for n in range(CALLS_PER_PEER_MAX + 1)]
    of_all = [calls.call(peer, 0) for peer in peers]

    assert None not in of_one[:-1]
    assert of_one[-1] is None
    assert calls.machine.open == CALLS_MAX
    assert of_all[-1] is None
    calls.hear(ANN, ApiReceipt(number=0, taken=0, stop=True))
    assert calls.call(ANN, 99) is not None, "there is room again"


def test_a_call_of_another_owner_is_refused_by_the_api_and_not_run() -> None:
    calls = Calls(ANN, owner=OwnerId("eve"))

    effects = calls.hear(ANN, ApiCall(number=1, method="List"))

    [refused] = [each for each in effects if isinstance(each, RefuseCall)]
    assert refused.caller.owner == "eve"
    assert not any(isinstance(each, RunCall) for each in effects)
    ended = calls.tell(CallAnswered(refused.run, "error", b"no"))
    assert [piece.kind for piece in messages(ended, ApiPiece)] == ["error"]
    assert calls.machine.open == 0


def test_a_revocation_ends_calls_at_once_and_no_answer_leaves_any_more() -> None:
    calls = Calls()
    run = calls.call(ANN, 1)
    assert run is not None
    calls.call(BOB, 1)

    calls.roster.revoke(trust.revocation(ANN, serial=1))
    effects = calls.hear(ANN, Goodbye(reason="revoked"))

    assert [piece.kind for piece in messages(effects, ApiPiece)] == ["refusal"]
    assert StopCall(run) in effects
    assert calls.tell(CallAnswered(run, "message", b"secret")) == []
    assert calls.machine.open == 1, "that of Bob"


def test_a_goodbye_of_a_member_ends_nothing_before_its_link_does() -> None:
    calls = Calls()
    calls.call(ANN, 1)

    assert calls.hear(ANN, Goodbye(reason="going down")) == []
    assert calls.machine.open == 1


def test_the_api_is_asked_for_no_more_than_the_asker_has_room_for() -> None:
    calls = Calls()
    run = calls.call(ANN, 1)
    assert run is not None

    sent = 0
    while ContinueCall(run) in (effects := calls.tell(CallAnswered(run, "message"))):
        sent += len(messages(effects, ApiPiece))
    assert (sent, effects) == (AHEAD_MAX, []), "one answer waits here"

    effects = calls.hear(ANN, ApiReceipt(number=1, taken=1))
    assert [piece.seq for piece in messages(effects, ApiPiece)] == [AHEAD_MAX]
    assert effects[-1] == ContinueCall(run)


def test_receipts_for_what_was_never_sent_change_nothing() -> None:
    calls = Calls()
    run = calls.call(ANN, 1)
    assert run is not None
    for _ in range(AHEAD_MAX + 1):
        calls.tell(CallAnswered(run, "message"))

    assert calls.hear(ANN, ApiReceipt(number=1, taken=AHEAD_MAX + 1)) == []
    assert calls.hear(BOB, ApiReceipt(number=1, taken=1)) == []
    assert calls.hear(ANN, ApiReceipt(number=2, taken=0)) == []

    assert calls.count("receipts for nothing") == 3


def test_an_asker_that_says_nothing_for_long_is_given_up() -> None:
    calls = Calls()
    silent = calls.call(ANN, 1)
    calls.call(BOB, 1)
    assert silent is not None

    effects: list[Effect] = []
    while calls.now <= SILENT_S + BEAT_S:
        effects += calls.wait_until(calls.now + BEAT_S)
        calls.hear(BOB, ApiReceipt(number=1, taken=0))

    assert [each for each in effects if isinstance(each, StopCall)] == [
        StopCall(silent)
    ]
    assert calls.machine.open == 1


@pytest.mark.parametrize("is_back", [False, True])
def test_a_link_that_is_gone_or_new_ends_its_calls_both_ways(is_back: bool) -> None:
    calls = Calls()
    calls.call(ANN, 7)
    calls.ask(token=5)

    lost = calls.machine.handle
    effects = calls.link(ANN) if is_back else lost(PeerLost(ANN), 0.0)

    broken = EndCall(5, "broken", reason="the link to it broke")
    assert effects == [StopCall(1), broken]
    calls.link(ANN)
    assert calls.call(ANN, 1) == 2, "it counts anew"


# Asking.


def test_pieces_become_answers_and_then_there_is_one_end() -> None:
    calls = Calls()
    calls.ask()

    got = [
        calls.hear(ANN, piece)
        for piece in (part(0, b"a"), message(1, b"b"), message(2, b""), end(3), end(3))
    ]

    assert got == [
        [],
        [DeliverAnswer(7, b"ab")],
        [DeliverAnswer(7, b"")],
        [EndCall(7, "end")],
        [],
    ]


def test_an_error_may_have_parts_too() -> None:
    calls = Calls()
    calls.ask()

    calls.hear(ANN, part(0, b"no "))
    error = ApiPiece(number=1, seq=1, kind="error", data=b"such job")

    assert calls.hear(ANN, error) == [EndCall(7, "error", b"no such job")]


def test_a_piece_that_is_repeated_is_left_out() -> None:
    calls = Calls()
    calls.ask()

    assert calls.hear(ANN, message(0)) == [DeliverAnswer(7, b"x")]
    assert calls.hear(ANN, message(0)) == []


def test_a_piece_that_is_missing_breaks_the_call_and_stops_it_over_there() -> None:
    calls = Calls()
    calls.ask()
    calls.hear(ANN, message(0))

    effects = calls.hear(ANN, ApiPiece(number=1, seq=2, kind="alive"))

    [stop] = messages(effects, ApiReceipt)
    assert stop.stop
    assert isinstance(effects[-1], EndCall)
    assert (effects[-1].kind, "lost" in effects[-1].reason) == ("broken", True)


def test_a_peer_that_sends_more_than_it_may_is_cut_off() -> None:
    calls = Calls()
    calls.ask()

    effects = [calls.hear(ANN, message(n))[-1] for n in range(AHEAD_MAX + 1)]

    assert effects[:-1] == [DeliverAnswer(7, b"x")] * AHEAD_MAX
    assert isinstance(effects[-1], EndCall)


def test_an_answer_without_end_is_cut_off() -> None:
    calls = Calls()
    calls.ask()
    big = bytes(1 << 20)

    seq = 0
    while not any(
        isinstance(ended := each, EndCall) for each in calls.hear(ANN, part(seq, big))
    ):
        seq += 1

    assert seq == ANSWER_BYTES_MAX // len(big)
    assert isinstance(ended, EndCall)
    assert "64 MiB" in ended.reason


def test_receipts_are_due_after_some_pieces_and_not_after_each() -> None:
    calls = Calls()
    calls.ask()
    told: list[int] = []
    for n in range(4 * AHEAD_MAX):
        calls.hear(ANN, message(n))
        told += [r.taken for r in messages(calls.tell(AnswerTaken(7)), ApiReceipt)]

    assert told == list(range(RECEIPT_EVERY, 4 * AHEAD_MAX + 1, RECEIPT_EVERY))


def test_what_is_not_read_is_not_told_to_be_taken() -> None:
    calls = Calls()
    calls.ask()
    effects = [each for n in range(AHEAD_MAX) for each in calls.hear(ANN, message(n))]

    assert messages(effects, ApiReceipt) == []
    alive = calls.hear(ANN, ApiPiece(number=1, seq=AHEAD_MAX, kind="alive"))
    assert [receipt.taken for receipt in messages(alive, ApiReceipt)] == [0]


@pytest.mark.parametrize(("is_heard", "limit_s"), [(False, HEARD_S), (True, SILENT_S)])
def test_a_peer_that_falls_silent_is_given_up(is_heard: bool, limit_s: float) -> None:
    calls = Calls()
    calls.ask()
    if is_heard:
        calls.hear(ANN, ApiPiece(number=1, seq=0, kind="alive"))

    assert calls.wait_until(limit_s - 0.1) == []
    effects = calls.wait_until(limit_s)

    assert isinstance(effects[-1], EndCall)
    assert ("older shoal" in effects[-1].reason) == (not is_heard)


def test_a_client_that_leaves_stops_the_call_over_there() -> None:
    calls = Calls()
    calls.ask()

    [stop] = messages(calls.tell(CallAbandoned(7)), ApiReceipt)

    assert stop.stop
    assert calls.tell(CallAbandoned(7)) == []
    [again] = messages(calls.hear(ANN, message(0)), ApiReceipt)
    assert again.stop, "the first stop may have been lost"


def test_clients_have_so_many_calls_under_way_at_most() -> None:
    calls = Calls()
    for token in range(ASKED_MAX):
        calls.ask(token)

    assert calls.tell(CallAsked(999, ANN, "List")) == [EndCall(999, "full")]
