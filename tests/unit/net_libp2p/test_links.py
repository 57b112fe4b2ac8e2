"""Who gets a link over a stream, and that there is one for each pair."""

from collections.abc import Awaitable, Callable

import trio
from tests.unit.net.shoals import SHOAL, Gatekeeper, granted, identity
from tests.unit.net_libp2p.pipes_in_memory import (
    End,
    framed_messages,
    pipe,
    run,
)

from shoal.model.ids import NodeId, RequestId
from shoal.net.direct.frames import FrameKind, reason_of
from shoal.net.libp2p.settings import Greeting, Libp2pSettings
from shoal.net.libp2p.streams.links import REFUSE_S, StreamLinks
from shoal.net.libp2p.streams.pipe import Pipe
from shoal.net.libp2p.thread import notices
from shoal.net.libp2p.thread.notices import Happening
from shoal.net.libp2p.thread.shared_state import SharedState
from shoal.protocol.codec import encode
from shoal.protocol.messages import Grant, Hello, Inquiry

INQUIRY = Inquiry(request=RequestId("r"))
(FRAME,) = encode([INQUIRY])
# By id, so that it is known who is the smaller.
ANN, BOB = sorted((identity(1), identity(2)), key=lambda someone: someone.node)


class Actor:
    """A node with links; its lanes are served as the event loop would."""

    def __init__(self, number_or_identity: int, nursery: trio.Nursery) -> None:
        self.identity = ANN if number_or_identity == 0 else BOB
        self.node = self.identity.node
        self.hello = Hello(grant=granted(self.node))
        greeting = Greeting(hello=lambda: self.hello, admit=Gatekeeper())
        self.shared = SharedState(self.identity, Libp2pSettings(shoal=SHOAL), greeting)
        self.others: dict[NodeId, Actor] = {}
        self.log: list[Happening] = []
        self.links = StreamLinks(self.shared, self._reach, lambda _peer: False, nursery)
        self._nursery = nursery
        nursery.start_soon(self._serve)

    async def _reach(self, peer: NodeId) -> Pipe | None:
        other = self.others.get(peer)
        await trio.sleep(0.1)
        if other is None:
            return None
        ours, theirs = pipe()
        self._nursery.start_soon(other.links.on_stream, self.node, theirs)
        return ours

    async def _serve(self) -> None:
        while True:
            for happening in self.shared.notices.take(100):
                self.log.append(happening)
                if isinstance(happening, notices.Knocked):
                    reason = self.shared.greeting.admit(happening.peer, happening.grant)
                    self.links.judged(happening.stream, reason)
            await trio.sleep(0.01)

    def saw(self, kind: type[Happening]) -> list[Happening]:
        return [happening for happening in self.log if isinstance(happening, kind)]

    def heard_inquiry(self) -> bool:
        return any(
            isinstance(h, notices.Arrived) and INQUIRY in h.messages for h in self.log
        )


def play(scene: Callable[[Actor, Actor], Awaitable[None]]) -> None:
    """Play a scene between Ann, whose id is the smaller, and Bob."""

    async def stage() -> None:
        async with trio.open_nursery() as nursery:
            ann, bob = Actor(0, nursery), Actor(1, nursery)
            ann.others[bob.node] = bob
            bob.others[ann.node] = ann
            await scene(ann, bob)
            nursery.cancel_scope.cancel()

    run(stage)


async def knock(actor: Actor, hello: bytes, peer: NodeId) -> End:
    """Open a stream to somebody and say `hello`; return our end."""
    ours, theirs = pipe()
    await ours.write(hello)
    with trio.move_on_after(15):
        await actor.links.on_stream(peer, theirs)
    return theirs


def test_a_message_opens_a_link_and_arrives_after_the_greeting() -> None:
    async def scene(ann: Actor, bob: Actor) -> None:
        ann.links.transmit(bob.node, FRAME)
        await trio.sleep(1)

        assert bob.saw(notices.Opened) == [notices.Opened(ann.node, ann.hello.grant)]
        assert bob.saw(notices.Arrived) == [
            notices.Arrived(ann.node, (ann.hello,)),
            notices.Arrived(ann.node, (INQUIRY,)),
        ]
        assert ann.saw(notices.Opened) == [notices.Opened(bob.node, bob.hello.grant)]

    play(scene)


def test_two_that_open_streams_at_the_same_time_end_up_with_one_link() -> None:
    async def scene(ann: Actor, bob: Actor) -> None:
        ann.links.transmit(bob.node, FRAME)
        bob.links.transmit(ann.node, FRAME)
        await trio.sleep(1)
        ann.links.transmit(bob.node, FRAME)
        bob.links.transmit(ann.node, FRAME)
        await trio.sleep(1)

        for actor in (ann, bob):
            assert actor.heard_inquiry()
            opened, ended = actor.saw(notices.Opened), actor.saw(notices.Ended)
            assert len(opened) - len(ended) == 1

    play(scene)


def test_a_stranger_without_a_grant_gets_nothing_but_a_reason() -> None:
    async def scene(ann: Actor, bob: Actor) -> None:
        said = await knock(ann, framed_messages(Hello()), bob.node)

        (frame,) = said.said()
        assert frame.kind is FrameKind.CLOSE
        assert reason_of(frame.payload) == "no grant"
        assert said.is_closed
        assert not ann.saw(notices.Opened)
        assert not ann.links.is_member(bob.node)

    play(scene)


def test_a_grant_of_another_node_opens_no_link() -> None:
    async def scene(ann: Actor, bob: Actor) -> None:
        stolen = Hello(grant=granted(ann.node))

        said = await knock(ann, framed_messages(stolen), bob.node)

        assert [frame.kind for frame in said.said()] == [FrameKind.CLOSE]
        assert not ann.saw(notices.Opened)

    play(scene)


def test_who_is_called_and_has_no_grant_has_no_link_for_a_moment() -> None:
    async def scene(ann: Actor, bob: Actor) -> None:
        bob.hello = Hello(grant=granted(ann.node))

        ann.links.transmit(bob.node, FRAME)
        await trio.sleep(1)

        for actor in (ann, bob):
            assert not actor.saw(notices.Opened)
            assert not actor.heard_inquiry()
        assert bob.links.is_member(ann.node)

    play(scene)


def test_who_says_anything_before_the_greeting_is_told_nothing() -> None:
    async def scene(ann: Actor, bob: Actor) -> None:
        said = await knock(ann, framed_messages(INQUIRY), bob.node)

        assert said.said() == []
        assert said.is_closed
        assert ann.shared.counts["stream-malformed"] == 1

    play(scene)


def test_a_greeting_larger_than_any_grant_is_refused() -> None:
    async def scene(ann: Actor, bob: Actor) -> None:
        said = await knock(ann, b"\x00\x0f\xff\xff" + b"x" * 60_000, bob.node)

        assert said.said() == []
        assert ann.shared.counts["stream-oversized"] == 1

    play(scene)


def test_who_says_nothing_is_let_go_after_a_while() -> None:
    async def scene(ann: Actor, bob: Actor) -> None:
        ours, theirs = pipe()
        with trio.fail_after(15):
            await ann.links.on_stream(bob.node, theirs)

        assert theirs.is_closed
        assert not ours.is_closed

    play(scene)


def test_a_peer_of_a_later_version_is_told_so() -> None:
    async def scene(ann: Actor, bob: Actor) -> None:
        hello = Hello(versions=(9, 9), grant=granted(bob.node))

        said = await knock(ann, framed_messages(hello), bob.node)

        (frame,) = said.said()
        assert "no version" in reason_of(frame.payload)
        assert ann.shared.counts["stream-version"] == 1

    play(scene)


def test_a_peer_that_is_cut_off_cannot_come_back_at_once() -> None:
    async def scene(ann: Actor, bob: Actor) -> None:
        ann.links.transmit(bob.node, FRAME)
        await trio.sleep(1)

        ann.links.cut(bob.node, "revoked")
        await trio.sleep(1)
        bob.links.transmit(ann.node, FRAME)
        await trio.sleep(REFUSE_S / 10)

        assert len(ann.saw(notices.Opened)) == 1
        assert ann.saw(notices.Ended) == [notices.Ended(bob.node, is_definite=True)]
        assert bob.saw(notices.Ended) == [notices.Ended(ann.node, is_definite=True)]
        assert not ann.links.is_member(bob.node)

    play(scene)


def test_frames_for_a_peer_out_of_reach_are_dropped_and_counted() -> None:
    async def scene(ann: Actor, bob: Actor) -> None:
        ann.others.clear()

        for _ in range(3):
            ann.links.transmit(bob.node, FRAME)
        await trio.sleep(1)
        ann.links.transmit(bob.node, FRAME)

        assert ann.shared.counts["unreachable"] == 4

    play(scene)


def test_a_link_that_breaks_is_reported_and_opened_anew_on_demand() -> None:
    async def scene(ann: Actor, bob: Actor) -> None:
        ann.links.transmit(bob.node, FRAME)
        await trio.sleep(1)
        bob.links.cut(ann.node, "a test")
        bob.links._refused.pop(ann.node)
        await trio.sleep(1)

        ann.links.transmit(bob.node, FRAME)
        await trio.sleep(1)

        assert len(ann.saw(notices.Opened)) == 2
        assert ann.saw(notices.Ended) == [notices.Ended(bob.node, is_definite=True)]

    play(scene)


def test_whoever_was_admitted_has_its_own_allowance_for_gossip() -> None:
    async def scene(ann: Actor, bob: Actor) -> None:
        assert await ann.links.ensure(bob.node)

        assert ann.links.is_member(bob.node)
        assert bob.links.is_member(ann.node)

    play(scene)


def test_the_grant_that_a_peer_showed_is_reported() -> None:
    async def scene(ann: Actor, bob: Actor) -> None:
        grant: Grant | None = granted(bob.node, roles=("worker",))
        bob.hello = Hello(grant=grant)

        await ann.links.ensure(bob.node)
        await trio.sleep(1)

        assert ann.saw(notices.Opened) == [notices.Opened(bob.node, grant)]

    play(scene)
