from tests.sim.stubs import Scribe, Stage

from shoal.core.events import (
    Effect,
    Event,
    MessageReceived,
    PathMeasured,
    PeerConnected,
    PeerLost,
    Publish,
    Send,
    SizeEstimated,
)
from shoal.model.ids import NodeId
from shoal.protocol.messages import Goodbye

A, B = NodeId("a"), NodeId("b")


def spoken(scribe: Scribe) -> list[str]:
    """Return what peers said, and when links came and went."""
    lines: list[str] = []
    for event in scribe.heard:
        match event:
            case MessageReceived(message=Goodbye(reason=reason)):
                lines.append(reason)
            case PeerConnected():
                lines.append(f"+{event.peer}")
            case PeerLost():
                lines.append(f"-{event.peer}")
            case PathMeasured() | SizeEstimated():
                pass
            case _:
                lines.append(repr(event))
    return lines


def say(stage: Stage, src: NodeId, dst: NodeId, text: str) -> None:
    stage.world.network.send(stage.world.hosts[src], dst, Goodbye(reason=text))


def two() -> Stage:
    stage = Stage()
    stage.add("a")
    stage.add("b")
    return stage


def test_both_sides_know_of_a_link_before_its_first_message() -> None:
    stage = two()

    say(stage, A, B, "hi")
    stage.world.run(1.0)
    say(stage, B, A, "hello")
    stage.world.run(2.0)

    assert spoken(stage.now("a")) == ["+b", "hello"]
    assert spoken(stage.now("b")) == ["+a", "hi"]


def test_two_who_dial_each_other_at_once_share_one_link() -> None:
    stage = two()

    say(stage, A, B, "hi")
    say(stage, B, A, "hello")
    stage.world.run(1.0)

    assert spoken(stage.now("a")) == ["+b", "hello"]
    assert spoken(stage.now("b")) == ["+a", "hi"]


def test_a_crash_is_noticed_within_6_s() -> None:
    stage = two()
    say(stage, A, B, "hi")
    stage.world.run(1.0)

    stage.world.crash(B)
    stage.world.run(7.0)

    assert spoken(stage.now("a")) == ["+b", "-b"]


def test_a_closed_socket_is_noticed_within_1_s() -> None:
    stage = two()
    say(stage, A, B, "hi")
    stage.world.run(1.0)

    stage.world.crash(B, closed=True)
    stage.world.run(2.0)

    assert spoken(stage.now("a")) == ["+b", "-b"]


def test_a_node_that_restarts_soon_is_lost_and_connected_again() -> None:
    stage = two()
    say(stage, A, B, "hi")
    stage.world.run(1.0)

    stage.world.crash(B, closed=False)
    stage.world.restart(B)
    say(stage, B, A, "back")
    stage.world.run(9.0)

    assert spoken(stage.now("a")) == ["+b", "-b", "+b", "back"]
    assert spoken(stage.now("b")) == ["+a"]


def test_a_cut_in_one_direction_ends_the_link_for_both() -> None:
    stage = two()
    say(stage, A, B, "hi")
    stage.world.run(1.0)

    hosts = stage.world.hosts
    stage.world.network.cut([hosts[A]], [hosts[B]])
    say(stage, A, B, "lost")
    say(stage, B, A, "passes")
    stage.world.run(8.0)
    say(stage, B, A, "too late")
    stage.world.run(9.0)

    assert spoken(stage.now("a")) == ["+b", "passes", "-b"]
    assert spoken(stage.now("b")) == ["+a", "hi", "-a"]


def test_a_cut_that_is_mended_at_once_is_not_noticed() -> None:
    stage = two()
    say(stage, A, B, "hi")
    stage.world.run(1.0)

    hosts = list(stage.world.hosts.values())
    stage.world.network.cut(hosts[:1], hosts[1:])
    stage.world.network.mend(hosts[:1], hosts[1:])
    say(stage, A, B, "again")
    stage.world.run(9.0)

    assert spoken(stage.now("a")) == ["+b"]
    assert spoken(stage.now("b")) == ["+a", "hi", "again"]


def test_after_healing_the_next_message_makes_a_new_link() -> None:
    stage = two()
    say(stage, A, B, "hi")
    stage.world.run(1.0)
    hosts = list(stage.world.hosts.values())
    stage.world.network.cut(hosts[:1], hosts[1:])
    stage.world.run(8.0)

    stage.world.network.mend_all()
    say(stage, A, B, "again")
    stage.world.run(9.0)

    assert spoken(stage.now("a")) == ["+b", "-b", "+b"]
    assert spoken(stage.now("b")) == ["+a", "hi", "-a", "+a", "again"]


def test_loss_and_duplication_happen_as_often_as_they_should() -> None:
    stage = two()
    stage.world.network.loss = 0.3
    stage.world.network.duplication = 0.5

    for number in range(2_000):
        say(stage, A, B, str(number))
    stage.world.run(60.0)

    heard = spoken(stage.now("b"))[1:]
    assert 0.66 < len(set(heard)) / 2_000 < 0.74
    assert 1.45 < len(heard) / len(set(heard)) < 1.55
    assert heard != sorted(heard, key=int)


def test_a_link_keeps_order_where_that_is_asked_for() -> None:
    stage = two()
    stage.world.network.ordered = True

    for number in range(200):
        say(stage, A, B, str(number))
    stage.world.run(60.0)

    assert spoken(stage.now("b"))[1:] == [str(number) for number in range(200)]


def test_gossip_goes_around_a_cut() -> None:
    def gossip(event: Event) -> list[Effect]:
        return [Publish(Goodbye(reason="news"))] if event == PeerLost(A) else []

    stage = Stage()
    stage.add("a", gossip)
    stage.add("b")
    stage.add("c")
    hosts = stage.world.hosts
    stage.world.network.cut([hosts[A]], [hosts[B]])

    stage.world.feed(A, PeerLost(A))
    stage.world.run(5.0)

    assert spoken(stage.now("b")) == ["news"]
    assert spoken(stage.now("c")) == ["news"]


def test_a_message_to_nobody_is_lost() -> None:
    stage = two()

    say(stage, A, NodeId("nobody"), "hi")
    stage.world.run(9.0)

    assert spoken(stage.now("a")) == []


def test_a_node_hears_itself_without_a_link() -> None:
    def echo(event: Event) -> list[Effect]:
        return [Send(A, Goodbye(reason="me"))] if event == PeerLost(A) else []

    stage = Stage()
    stage.add("a", echo)

    stage.world.feed(A, PeerLost(A))
    stage.world.run(1.0)

    assert spoken(stage.now("a")) == ["-a", "me"]
