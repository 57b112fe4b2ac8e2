"""Channels: every item once and in order, for those who may, within bounds."""

from collections import deque
from typing import Final

import pytest

from shoal.core.channels.channels import (
    BEAT_S,
    CHANNELS_MAX,
    FLOOD_BYTES,
    FLOODED,
    HEARD_S,
    OPENED_MAX,
    SILENT_S,
    UNLINKED_S,
    WINDOW_BYTES,
    Channels,
)
from shoal.core.channels.events import (
    ChannelDropped,
    ChannelFinished,
    ChannelSlowed,
    ChannelWanted,
    ChannelWrote,
    DeliverItems,
    EndChannel,
    PauseChannel,
    ServeChannel,
    TaskClosed,
    TaskOpened,
)
from shoal.core.events import (
    DeadlineReached,
    Effect,
    Event,
    MessageReceived,
    PeerConnected,
    PeerLost,
    Send,
)
from shoal.core.membership.members import TERM
from shoal.core.membership.roster import Roster
from shoal.model.ids import Attempt, NodeId, OwnerId
from shoal.protocol.channels.messages import (
    ChannelBatch,
    ChannelEnd,
    ChannelId,
    ChannelOpen,
    ChannelUse,
)
from shoal.protocol.limits import SLOTS_MAX
from shoal.protocol.messages import Goodbye
from shoal.sim.node import trust

ANN, BOB, EVE = NodeId("ann"), NodeId("bob"), NodeId("eve")
OWNER: Final = OwnerId("lab")
ATTEMPT: Final = Attempt(ANN, 1, 1)
PORT: Final = ChannelUse(kind="port", port=80)


class Reef:
    """A scheduler, a worker, and a stranger, with links that hold what is sent."""

    def __init__(self) -> None:
        self.now = 0.0
        self.rosters: dict[NodeId, Roster] = {}
        self.nodes: dict[NodeId, Channels] = {}
        self.wire: deque[tuple[NodeId, Send]] = deque()
        self.done: dict[NodeId, list[Effect]] = {}
        for node in (ANN, BOB, EVE):
            self.boot(node, life=1)
        self.tell(BOB, TaskOpened(ATTEMPT))

    def boot(self, node: NodeId, life: int) -> None:
        roster = Roster(trust.members(), trust.WALL_AT_START_S)
        for peer in (ANN, BOB, EVE):
            owner = OwnerId("others") if peer == EVE else OWNER
            roster.meet(peer, trust.grant(peer, ("scheduler", "worker"), owner), 0.0)
        self.rosters[node] = roster
        self.nodes[node] = Channels(roster, OWNER, life)
        self.done[node] = []

    def tell(self, node: NodeId, event: Event) -> list[Effect]:
        effects = self.nodes[node].handle(event, self.now)
        for effect in effects:
            if isinstance(effect, Send):
                self.wire.append((node, effect))
            else:
                self.done[node].append(effect)
        return effects

    def carry(self) -> None:
        """Deliver all that is on its way, and what that leads to."""
        while self.wire:
            sender, sent = self.wire.popleft()
            self.tell(sent.peer, MessageReceived(sender, sent.message))

    def wait(self, seconds: float, *, lossy: bool = False) -> None:
        until = self.now + seconds
        while True:
            due = {n: at for n, m in self.nodes.items() if (at := m.next_deadline())}
            first = min(due.values(), default=until + 1)
            if first > until:
                break
            self.now = max(self.now, first)
            for node, at in due.items():
                if at <= self.now:
                    self.tell(node, DeadlineReached())
            if lossy:
                self.wire.clear()
            self.carry()
        self.now = until

    def open(self, end: int = 1, use: ChannelUse = PORT) -> int:
        """Open a channel from scheduler to worker; return the worker's end."""
        self.tell(ANN, ChannelWanted(end, BOB, use, ATTEMPT))
        self.carry()
        served = [e for e in self.done[BOB] if isinstance(e, ServeChannel)]
        return served[-1].end

    def items(self, node: NodeId, end: int) -> list[bytes]:
        found = [e for e in self.done[node] if isinstance(e, DeliverItems)]
        return [item for each in found if each.end == end for item in each.items]

    def ends(self, node: NodeId) -> list[EndChannel]:
        return [e for e in self.done[node] if isinstance(e, EndChannel)]


def test_items_go_both_ways_at_once_and_the_end_waits_for_them() -> None:
    reef = Reef()
    end = reef.open()

    reef.tell(ANN, ChannelWrote(1, (b"ping",)))
    reef.tell(BOB, ChannelWrote(end, (b"pong", b"bye")))
    reef.carry()
    reef.tell(BOB, ChannelFinished(end))
    assert reef.ends(ANN) == []
    reef.wait(0.2)

    assert reef.items(BOB, end) == [b"ping"]
    assert reef.items(ANN, 1) == [b"pong", b"bye"]
    assert reef.ends(ANN) == [EndChannel(1, "")]
    assert reef.ends(BOB) == []
    assert reef.nodes[BOB].served == 0


def test_a_long_transfer_needs_no_waiting_and_keeps_a_window_at_most() -> None:
    reef = Reef()
    end = reef.open()
    piece, count = bytes(65_000), 200

    most = 0
    for _ in range(count):
        reef.tell(BOB, ChannelWrote(end, (piece,)))
        reef.carry()
        most = max(most, reef.nodes[BOB].waiting_bytes)

    assert len(reef.items(ANN, 1)) == count
    assert most <= WINDOW_BYTES
    assert not [e for e in reef.done[BOB] if isinstance(e, PauseChannel)]


def test_what_overtakes_waits_for_what_it_overtook() -> None:
    reef = Reef()
    end = reef.open()
    for text in (b"one", b"two", b"three"):
        reef.tell(BOB, ChannelWrote(end, (text,)))

    reef.wire.reverse()
    reef.carry()

    assert reef.items(ANN, 1) == [b"one", b"two", b"three"]


def test_what_was_lost_is_sent_again_and_repeats_change_nothing() -> None:
    reef = Reef()
    end = reef.open()
    reef.tell(BOB, ChannelWrote(end, (b"one",)))
    reef.wire.clear()
    reef.tell(BOB, ChannelWrote(end, (b"two",)))
    reef.wire.extend(list(reef.wire) * 3)
    reef.carry()
    assert reef.items(ANN, 1) == []

    reef.wait(2.0)

    assert reef.items(ANN, 1) == [b"one", b"two"]


def test_a_slow_reader_holds_the_writer_and_nothing_more_is_sent() -> None:
    reef = Reef()
    end = reef.open()
    reef.tell(ANN, ChannelSlowed(1, slow=True))
    reef.carry()
    piece = bytes(65_000)
    written = 0
    while PauseChannel(end, paused=True) not in reef.done[BOB]:
        reef.tell(BOB, ChannelWrote(end, (piece,)))
        written += 1
        reef.carry()
    assert written * len(piece) <= WINDOW_BYTES + len(piece)
    assert reef.items(ANN, 1) == []

    reef.tell(ANN, ChannelSlowed(1, slow=False))
    reef.carry()

    assert len(reef.items(ANN, 1)) == written
    assert reef.done[BOB][-1] == PauseChannel(end, paused=False)


def test_an_end_that_sends_on_though_there_is_no_room_loses_the_channel() -> None:
    reef = Reef()
    end = reef.open()
    reef.tell(BOB, ChannelSlowed(end, slow=True))
    [channel] = {sent.message.channel for _, sent in reef.wire}  # type: ignore[union-attr]
    piece = bytes(65_000)

    for first in range(FLOOD_BYTES // len(piece) + 1):
        batch = ChannelBatch(
            channel=channel, by_opener=True, first=first, taken=0, items=(piece,)
        )
        reef.tell(BOB, MessageReceived(ANN, batch))

    assert reef.ends(BOB) == [EndChannel(end, FLOODED)]
    assert sum(map(len, reef.items(BOB, end))) <= FLOOD_BYTES
    assert reef.nodes[BOB].served == 0
    reef.carry()
    assert reef.ends(ANN) == [EndChannel(1, FLOODED)]


@pytest.mark.parametrize("asker", [BOB, EVE])
def test_only_the_scheduler_of_the_attempt_opens_a_channel_to_it(asker: NodeId) -> None:
    reef = Reef()

    reef.tell(asker, ChannelWanted(1, BOB, PORT, ATTEMPT))
    reef.carry()

    [end] = reef.ends(asker)
    assert "or not for this node" in end.reason
    assert not [e for e in reef.done[BOB] if isinstance(e, ServeChannel)]


def test_an_attempt_that_does_not_run_or_runs_no_more_is_not_entered() -> None:
    reef = Reef()
    reef.tell(ANN, ChannelWanted(1, BOB, PORT, Attempt(ANN, 1, 2)))
    reef.tell(BOB, TaskClosed(ATTEMPT))
    reef.tell(ANN, ChannelWanted(2, BOB, PORT, ATTEMPT))
    reef.carry()

    assert [end.end for end in reef.ends(ANN)] == [1, 2]


def test_jobs_are_for_nodes_of_the_same_owner() -> None:
    reef = Reef()
    reef.tell(EVE, ChannelWanted(1, BOB, PORT, job="last"))
    reef.tell(ANN, ChannelWanted(1, BOB, PORT, job="last"))
    reef.carry()

    assert [end.reason for end in reef.ends(EVE)] == [
        "it is for nodes of the same owner"
    ]
    [served] = [e for e in reef.done[BOB] if isinstance(e, ServeChannel)]
    assert served.caller.node == ANN


def test_another_node_cannot_write_to_a_channel_or_end_it() -> None:
    reef = Reef()
    end = reef.open()
    [served] = [e for e in reef.done[BOB] if isinstance(e, ServeChannel)]
    channel = served.asked.channel
    forged = ChannelBatch(
        channel=channel, by_opener=True, first=0, taken=0, items=(b"x",)
    )

    reef.tell(BOB, MessageReceived(EVE, forged))
    told = ChannelEnd(channel=channel, by_opener=True, reason="")
    reef.tell(BOB, MessageReceived(EVE, told))

    assert reef.items(BOB, end) == []
    assert reef.ends(BOB) == []


def test_a_revoked_node_gets_nothing_more() -> None:
    reef = Reef()
    end = reef.open()
    reef.rosters[BOB].revoke(trust.revocation(ANN, serial=TERM - 1))

    reef.tell(BOB, ChannelWrote(end, (b"secret",)))
    reef.tell(BOB, MessageReceived(ANN, Goodbye(reason="revoked")))

    assert not reef.wire
    assert [each.end for each in reef.ends(BOB)] == [end]


def test_opening_again_opens_nothing_again_not_even_after_the_end() -> None:
    reef = Reef()
    reef.tell(ANN, ChannelWanted(1, BOB, PORT, ATTEMPT))
    opening = reef.wire[0]
    reef.wire.append(opening)
    reef.carry()
    end = -1
    reef.tell(BOB, ChannelFinished(end))
    reef.carry()

    reef.wire.append(opening)
    reef.carry()

    assert len([e for e in reef.done[BOB] if isinstance(e, ServeChannel)]) == 1
    assert reef.nodes[BOB].served == 0


def test_a_later_channel_of_a_slot_ends_the_former_and_an_earlier_is_too_late() -> None:
    reef = Reef()
    former = reef.open()
    opening = ChannelOpen(channel=ChannelId(1, 9, 0), use=PORT, attempt=ATTEMPT)
    late = ChannelOpen(channel=ChannelId(1, 5, 0), use=PORT, attempt=ATTEMPT)

    reef.tell(BOB, MessageReceived(ANN, opening))
    reef.tell(BOB, MessageReceived(ANN, late))

    assert [each.end for each in reef.ends(BOB)] == [former]
    assert len([e for e in reef.done[BOB] if isinstance(e, ServeChannel)]) == 2
    assert reef.nodes[BOB].counts["channels opened too late"] == 1


def test_a_restarted_worker_says_so_and_a_restarted_scheduler_opens_anew() -> None:
    reef = Reef()
    reef.open()
    reef.boot(BOB, life=2)
    reef.tell(BOB, TaskOpened(ATTEMPT))
    reef.tell(ANN, ChannelWrote(1, (b"hello?",)))
    reef.carry()
    assert [each.end for each in reef.ends(ANN)] == [1]

    reef.open(2)
    reef.boot(ANN, life=2)
    end = reef.open(1)

    assert [each.end for each in reef.ends(BOB)] == [end + 1]
    assert reef.nodes[BOB].served == 1


def test_an_opening_that_is_lost_is_repeated_and_at_last_given_up() -> None:
    reef = Reef()
    reef.tell(ANN, ChannelWanted(1, BOB, PORT, ATTEMPT))
    reef.wire.clear()
    reef.wait(1.0)
    assert reef.nodes[BOB].served == 1

    reef.tell(ANN, ChannelWanted(2, BOB, PORT, ATTEMPT))
    reef.wire.clear()
    reef.wait(HEARD_S + 1, lossy=True)

    assert [each.end for each in reef.ends(ANN)] == [2]


def test_silence_and_a_lost_link_end_a_channel_and_a_new_link_saves_it() -> None:
    reef = Reef()
    end = reef.open()
    reef.wait(10 * BEAT_S)
    assert reef.nodes[ANN].served + reef.nodes[BOB].served == 1

    reef.tell(ANN, PeerLost(BOB))
    reef.tell(BOB, PeerLost(ANN))
    reef.wait(UNLINKED_S / 2, lossy=True)
    grant = trust.grant(BOB, ("worker",), OWNER)
    reef.tell(ANN, PeerConnected(BOB, grant))
    reef.carry()
    reef.wait(BEAT_S)
    assert reef.ends(ANN) == reef.ends(BOB) == []

    reef.wait(SILENT_S + BEAT_S, lossy=True)

    assert [each.end for each in reef.ends(ANN)] == [1]
    assert [each.end for each in reef.ends(BOB)] == [end]


def test_there_is_a_most_of_channels_for_each_peer_and_for_all() -> None:
    reef = Reef()
    for number in range(1, SLOTS_MAX + 2):
        reef.tell(ANN, ChannelWanted(number, BOB, PORT, ATTEMPT))
        reef.carry()

    [end] = reef.ends(ANN)
    assert end.end == SLOTS_MAX + 1
    assert reef.nodes[BOB].served == SLOTS_MAX
    assert SLOTS_MAX < CHANNELS_MAX < OPENED_MAX


def test_a_user_that_leaves_ends_the_channel_on_the_other_side() -> None:
    reef = Reef()
    end = reef.open()

    reef.tell(ANN, ChannelDropped(1, "its user has gone"))
    reef.carry()

    assert reef.ends(BOB) == [EndChannel(end, "its user has gone")]
    assert reef.ends(ANN) == []
