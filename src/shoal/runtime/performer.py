"""Perform a machine's effects on the real network, disks and processes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, final

from shoal import failpoints
from shoal.core import events
from shoal.core.artifacts.events import (
    DropKept,
    DropOutputs,
    FetchCheckpoint,
    FetchKept,
    FetchOutputs,
)
from shoal.core.calls import events as call_events
from shoal.core.discovery.events import LearnAddresses
from shoal.core.mail import events as mail_events
from shoal.model.ids import TaskId

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from shoal.core.events import Effect
    from shoal.model.ids import NodeId
    from shoal.net.base import Finder, Links
    from shoal.protocol.messages import AnyMessage, Grant, PeerAddress
    from shoal.runtime.artifacts.artifacts import Artifacts
    from shoal.runtime.clients import WaitingClients
    from shoal.runtime.leasing.task_faults import TaskFaults
    from shoal.runtime.leasing.task_runner import TaskRunner
    from shoal.runtime.monitoring.event_log import EventLog
    from shoal.runtime.monitoring.output_log import OutputLog
    from shoal.runtime.monitoring.seen_members import How, SeenMembers

    Know = Callable[[NodeId, Sequence[str]], None]


FLUSHED_S: Final = 0.05
"""Time after which a message handed to a link has been sent."""


_OF_TASKS: Final = (
    events.Send,
    events.Show,
    events.StageTask,
    events.StartTask,
    events.StopTask,
    events.DoubtOutput,
    call_events.WriteLane,
    call_events.AnswerCalls,
    mail_events.DeliverLetters,
    LearnAddresses,
)


@final
class Performer:
    """Dispatches each effect to its performer."""

    def __init__(
        self,
        *,
        links: Links,
        finder: Finder,
        tasks: TaskRunner,
        outputs: OutputLog,
        clients: WaitingClients,
        artifacts: Artifacts,
        task_faults: TaskFaults,
        others: Mapping[type[Effect], Callable[..., None]],
    ) -> None:
        """Perform other effects by `others`."""
        self._task_faults = task_faults
        self._tasks = tasks
        self._environments = artifacts.environments
        made = self._environments
        self._by_type: dict[type, Callable[[Any], None]] = {
            events.Send: lambda e: links.send(e.peer, e.message),
            events.Publish: lambda e: finder.publish(e.message),
            events.Spread: lambda e: finder.spread(e.message),
            events.Disconnect: lambda e: links.disconnect(e.peer, e.reason),
            events.LookUp: lambda e: finder.look_up(e.lookup, e.key, e.limit),
            events.Provide: lambda e: finder.provide(e.keys),
            events.Answer: clients.answer,
            events.StageTask: tasks.stage,
            events.StartTask: tasks.start,
            events.StopTask: self._stop,
            events.PauseOutput: tasks.pause_output,
            events.DoubtOutput: outputs.doubt,
            FetchOutputs: artifacts.output_fetch.start,
            DropOutputs: artifacts.output_fetch.drop,
            FetchCheckpoint: artifacts.checkpoints.start,
            FetchKept: artifacts.kept_files.start,
            DropKept: artifacts.drop_kept,
            events.Show: lambda e: outputs.show(e.task, e.message),
            LearnAddresses: lambda e: links.know(e.node, e.addresses),
            **({} if made is None else made.performers),
            **others,
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
            # These carry input of peers and tasks, which must not end the node. A
            # message that is not sent counts as lost by the network.
            self._task_faults.note(type(effect).__name__, _task_of(effect), error)

    def _stop(self, effect: events.StopTask) -> None:
        """Stop an attempt, or what is made for it before it starts."""
        if self._environments is None or not self._environments.stop(effect):
            self._tasks.stop(effect)

    def _send_past_failpoints(self, effect: events.Send) -> None:
        kind = effect.message.__struct_config__.tag
        failpoints.reach(f"send.{kind}")
        self._by_type[events.Send](effect)
        later = asyncio.get_running_loop().call_later
        later(FLUSHED_S, failpoints.reach, f"sent.{kind}")


def _task_of(effect: Effect) -> TaskId:
    task = getattr(effect, "task", None)
    return TaskId("") if task is None else TaskId(getattr(task, "id", task))


@final
class NetworkListener:
    """Turns network events into facts for the machine."""

    def __init__(
        self,
        feed: Callable[[events.Event], None],
        know: Know,
        event_log: EventLog,
        seen: SeenMembers,
        parting: Callable[[NodeId], How],
    ) -> None:
        """Report facts to `feed`, and peers' addresses to `know`.

        `parting` says how a peer goes whose link is lost now.
        """
        self._feed = feed
        self._know = know
        self._event_log = event_log
        self._seen = seen
        self._parting = parting

    def connected(self, peer: NodeId, grant: Grant | None) -> None:
        """Note that a link is up."""
        self._event_log.linked(peer)
        self._seen.linked(peer)
        self._feed(events.PeerConnected(peer, grant))

    def lost(self, peer: NodeId) -> None:
        """Note that a link is down."""
        self._event_log.lost(peer)
        self._seen.parted(peer, self._parting(peer))
        self._feed(events.PeerLost(peer))

    def received(self, peer: NodeId, messages: Sequence[AnyMessage]) -> None:
        """Handle the messages of one frame."""
        for message in messages:
            self._feed(events.MessageReceived(peer, message))

    def heard(self, origin: NodeId, message: AnyMessage) -> None:
        """Handle a gossip message."""
        self._feed(events.MessageReceived(origin, message))

    def looked_up(self, lookup: int, providers: Sequence[PeerAddress]) -> None:
        """Handle the result of a look-up; learn the peers' addresses."""
        for provider in providers:
            self._know(provider.node, provider.addresses)
        self._feed(events.LookedUp(lookup, tuple(providers)))

    def measured(self, peer: NodeId, rtt_s: float) -> None:
        """Report a peer's round-trip time."""
        self._feed(events.PathMeasured(peer, rtt_s))

    def estimated(self, nodes: int) -> None:
        """Report an estimate of the shoal's size."""
        self._feed(events.SizeEstimated(nodes))
