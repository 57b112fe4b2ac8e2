"""Performs what a machine asks for, on the real network, disks and processes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, final

from shoal import failpoints
from shoal.core import events
from shoal.model.ids import TaskId
from shoal.protocol.api_calls import ApiCall, ApiPiece, ApiReceipt
from shoal.protocol.batches import CallBatch, ResultBatch
from shoal.protocol.mail import Mail, MailReceipt
from shoal.protocol.messages import Announcement, Hello

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from shoal.core.events import Effect
    from shoal.model.ids import NodeId
    from shoal.net.base import Finder, Links
    from shoal.protocol.messages import AnyMessage, Grant, PeerAddress
    from shoal.runtime.api_calls import ApiCalls
    from shoal.runtime.cargo import Cargo
    from shoal.runtime.clients import Clients
    from shoal.runtime.happenings import Happenings
    from shoal.runtime.mail import Post
    from shoal.runtime.mishaps import Mishaps
    from shoal.runtime.outputs import Outputs
    from shoal.runtime.relay import Relay
    from shoal.runtime.renewals import Renewals
    from shoal.runtime.tasks import Tasks

    Know = Callable[[NodeId, Sequence[str]], None]


FLUSHED_S: Final = 0.05
"""After so long, a message that was handed to a link has left."""


_OF_TASKS: Final = (events.Send, events.Show, events.StartTask, events.StopTask)


@final
class Performer:
    """Knows for every effect who performs it."""

    def __init__(
        self,
        *,
        links: Links,
        finder: Finder,
        tasks: Tasks,
        outputs: Outputs,
        clients: Clients,
        cargo: Cargo,
        mishaps: Mishaps,
        renewals: Renewals,
    ) -> None:
        self._mishaps = mishaps
        self._by_type: dict[type, Callable[[Any], None]] = {
            events.Send: lambda e: links.send(e.peer, cargo.dressed(e.peer, e.message)),
            events.Publish: lambda e: finder.publish(e.message),
            events.Spread: lambda e: finder.spread(e.message),
            events.Disconnect: lambda e: links.disconnect(e.peer, e.reason),
            events.LookUp: lambda e: finder.look_up(e.lookup, e.key, e.limit),
            events.Provide: lambda e: finder.provide(e.keys),
            events.Answer: clients.answer,
            events.StartTask: tasks.start,
            events.StopTask: tasks.stop,
            events.Show: lambda e: outputs.show(e.task, e.message),
            events.SignGrant: renewals.sign,
            events.KeepGrant: renewals.keep,
        }

    def perform(self, effect: Effect) -> None:
        """Perform one effect; never blocks."""
        try:
            if failpoints.ARMED is not None and type(effect) is events.Send:
                self._send_past_failpoints(effect)
            else:
                self._by_type[type(effect)](effect)
        except Exception as error:
            if type(effect) not in _OF_TASKS:
                raise
            # What peers and tasks say is in these, and it must not end the node. A
            # message that is not sent is like one that the network has lost.
            self._mishaps.note(type(effect).__name__, _task_of(effect), error)

    def _send_past_failpoints(self, effect: events.Send) -> None:
        kind = effect.message.__struct_config__.tag
        failpoints.reach(f"send.{kind}")
        self._by_type[events.Send](effect)
        later = asyncio.get_running_loop().call_later
        later(FLUSHED_S, failpoints.reach, f"sent.{kind}")


def _task_of(effect: Effect) -> TaskId:
    task = getattr(effect, "task", None)
    return TaskId("") if task is None else TaskId(task.id)


@final
class Ears:
    """Turns what happens on the network into facts for the machine."""

    def __init__(
        self,
        feed: Callable[[events.Event], None],
        know: Know,
        relay: Relay,
        cargo: Cargo,
        post: Post,
        api_calls: ApiCalls,
        happenings: Happenings,
    ) -> None:
        """Tell facts by `feed`, and by `know` where peers may be dialled.

        Calls and their results go to `relay`, blobs to `cargo`, what tasks say to each
        other to `post`, and what users ask of other nodes to `api_calls`: no decision
        of the machine needs them.
        """
        self._feed = feed
        self._know = know
        self._relay = relay
        self._cargo = cargo
        self._post = post
        self._api_calls = api_calls
        self._happenings = happenings

    def connected(self, peer: NodeId, grant: Grant | None) -> None:
        """Note that a link is up."""
        self._happenings.linked(peer)
        self._relay.linked(peer)
        self._api_calls.linked(peer, grant)
        self._feed(events.PeerConnected(peer, grant))

    def lost(self, peer: NodeId) -> None:
        """Note that a link is down."""
        self._relay.lost(peer)
        self._api_calls.lost(peer)
        self._happenings.lost(peer)
        self._cargo.lost(peer)
        self._feed(events.PeerLost(peer))

    def received(self, peer: NodeId, messages: Sequence[AnyMessage]) -> None:
        """Take messages of one frame."""
        for message in messages:
            if isinstance(message, CallBatch | ResultBatch):
                self._relay.received(peer, message)
            elif isinstance(message, Mail | MailReceipt):
                self._post.received(peer, message)
            elif isinstance(message, ApiCall | ApiPiece | ApiReceipt):
                self._api_calls.received(peer, message)
            elif not self._cargo.takes(peer, message):
                if isinstance(message, Hello):
                    self._api_calls.renewed(peer, message.grant)
                self._feed(events.MessageReceived(peer, message))

    def heard(self, origin: NodeId, message: AnyMessage) -> None:
        """Take a message by gossip; an announcement says where to dial."""
        if isinstance(message, Announcement) and message.scheduler == origin:
            self._know(origin, message.addresses)
        self._feed(events.MessageReceived(origin, message))

    def looked_up(self, lookup: int, providers: Sequence[PeerAddress]) -> None:
        """Take the result of a look-up, and where those peers may be dialled."""
        for provider in providers:
            self._know(provider.node, provider.addresses)
        self._feed(events.LookedUp(lookup, tuple(providers)))

    def measured(self, peer: NodeId, rtt_s: float) -> None:
        """Note how far away a peer is."""
        self._feed(events.PathMeasured(peer, rtt_s))

    def estimated(self, nodes: int) -> None:
        """Note how large the shoal is."""
        self._feed(events.SizeEstimated(nodes))
