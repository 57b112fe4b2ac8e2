import trio
from tests.unit.net_libp2p.pipes_in_memory import Side, framed_messages, pipe, run

from shoal.model.ids import LeaseId
from shoal.net.direct.frames import Frame, FrameKind, closing, framed
from shoal.net.libp2p.streams import link as limits
from shoal.protocol.codec import encode
from shoal.protocol.messages import Release


def release(number: int) -> Release:
    return Release(leases=(LeaseId(f"lease-{number}"),))


def frame_of(message: Release) -> bytes:
    (frame,) = encode([message])
    return frame


BIG = b"\x91" + b"\xc0" * 59_999  # As large as a batch; the peer never decodes it.


def test_messages_arrive_in_order() -> None:
    async def scene() -> None:
        one, other = (Side(end) for end in pipe())
        with trio.move_on_after(2):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(one.link.run, ())
                nursery.start_soon(other.link.run, ())
                for number in range(100):
                    assert one.link.send(frame_of(release(number)))

        assert other.taken == [release(number) for number in range(100)]

    run(scene)


def test_frames_that_came_with_the_greeting_are_taken_first() -> None:
    async def scene() -> None:
        one, _ = (Side(end) for end in pipe())
        early = [Frame(FrameKind.MESSAGES, frame_of(release(n))) for n in (1, 2)]
        with trio.move_on_after(1):
            await one.link.run(early)

        assert one.taken == [release(1), release(2)]

    run(scene)


def test_a_sender_never_has_more_under_way_than_the_window() -> None:
    async def scene() -> None:
        one, other = pipe()
        side = Side(one)
        other.deaf = True
        for _ in range(20):
            assert side.link.send(BIG)
        with trio.move_on_after(10):
            await side.link.run(())

        frames = [frame for frame in one.said() if frame.kind is FrameKind.MESSAGES]
        sent_bytes = sum(len(frame.payload) for frame in frames)
        assert sent_bytes <= limits.WINDOW_BYTES + len(BIG)

    run(scene)


def test_a_sender_goes_on_when_the_peer_has_taken_in_what_was_sent() -> None:
    async def scene() -> None:
        one, other = (Side(end) for end in pipe())
        large = Release(leases=tuple(LeaseId("l" * 60) for _ in range(900)))
        for _ in range(20):
            assert one.link.send(frame_of(large))
        with trio.move_on_after(4):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(one.link.run, ())
                nursery.start_soon(other.link.run, ())

        assert other.taken == [large] * 20
        assert len(one.rtts) > 1

    run(scene)


def test_what_a_slow_peer_leaves_no_room_for_is_refused() -> None:
    async def scene() -> None:
        side = Side(pipe()[0])

        accepted = sum(side.link.send(BIG) for _ in range(200))

        assert accepted == limits.QUEUE_BYTES_MAX // len(BIG)
        await trio.lowlevel.checkpoint()

    run(scene)


def test_a_peer_that_falls_silent_is_given_up() -> None:
    async def scene() -> None:
        side = Side(pipe()[0])

        with trio.fail_after(limits.SILENCE_S + 2 * limits.PING_S):
            await side.link.run(())

        assert side.counts == {"stream-silent": 1}

    run(scene)


def test_two_idle_peers_keep_their_link_and_measure_it() -> None:
    async def scene() -> None:
        one, other = (Side(end) for end in pipe())
        with trio.move_on_after(100) as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(one.link.run, ())
                nursery.start_soon(other.link.run, ())

        assert scope.cancelled_caught
        assert len(one.rtts) >= 100 / limits.PING_S - 1

    run(scene)


def test_a_link_ends_when_the_peer_says_so() -> None:
    async def scene() -> None:
        one, other = pipe()
        side = Side(one)
        await other.write(framed_messages(release(1)) + closing("leaving"))

        with trio.fail_after(1):
            await side.link.run(())

        assert side.taken == [release(1)]

    run(scene)


def test_a_link_ends_at_bytes_that_are_no_frame() -> None:
    async def scene() -> None:
        one, other = pipe()
        side = Side(one)
        await other.write(b"\xff\xff\xff\xff")

        with trio.fail_after(1):
            await side.link.run(())

        assert side.counts == {"stream-malformed": 1}

    run(scene)


def test_a_peer_that_floods_with_pings_and_reads_nothing_is_cut_off() -> None:
    async def scene() -> None:
        one, other = pipe()
        side = Side(one)
        pings = framed(FrameKind.PING, b"12345678") * (limits.CONTROLS_MAX + 10)
        await other.write(pings)

        with trio.fail_after(1):
            await side.link.run(())

        assert side.counts == {"stream-ping-flood": 1}

    run(scene)


def test_a_made_up_pong_measures_nothing() -> None:
    async def scene() -> None:
        one, other = pipe()
        side = Side(one)
        await other.write(framed(FrameKind.PONG, b"whatever"))

        with trio.move_on_after(1):
            await side.link.run(())

        assert side.rtts == []

    run(scene)


def test_a_link_that_is_left_sends_what_is_queued_and_ends_when_both_have_left() -> (
    None
):
    async def scene() -> None:
        one, other = (Side(end) for end in pipe())
        ended: list[float] = []

        async def carry(side: Side) -> None:
            await side.link.run(())
            ended.append(trio.current_time())

        async with trio.open_nursery() as nursery:
            nursery.start_soon(carry, one)
            nursery.start_soon(carry, other)
            for number in range(10):
                one.link.send(frame_of(release(number)))
            one.link.move()
            await trio.sleep(1)
            assert other.moves == 1
            other.link.send(frame_of(release(99)))
            other.link.move()
            left_at = trio.current_time()

        assert other.taken == [release(number) for number in range(10)]
        assert one.taken == [release(99)]
        assert not one.link.send(frame_of(release(1)))
        assert [one.link.end, other.link.end] == ["moved", "moved"]
        assert max(ended) < left_at + 1

    run(scene)


def test_a_link_that_was_left_alone_ends_after_a_while() -> None:
    async def scene() -> None:
        one, other = (Side(end) for end in pipe())
        async with trio.open_nursery() as nursery:
            nursery.start_soon(other.link.run, ())
            one.link.move()
            began = trio.current_time()
            await one.link.run(())
            nursery.cancel_scope.cancel()

        assert trio.current_time() - began <= limits.PARTING_S + 0.1

    run(scene)
