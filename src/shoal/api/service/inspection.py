"""Describes nodes: this one, others of its owner, and members that are away.

What a machine uses is its owner's business. So a node tells it to nodes of the same
owner only, which ask for it over the link. A list of nodes shows what each of these
last told, asks again for what is older than `FRESH_S`, and waits at most `FIRST_S` for
a node that told nothing yet.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final, NamedTuple, final

from google.protobuf.message import DecodeError

import shoal
from shoal.api import shoal_pb2 as pb
from shoal.api.selectors import known_nodes, node_called
from shoal.api.service import callers, views
from shoal.api.service.forward import nonsense
from shoal.api.service.lending_words import rules_in_words
from shoal.errors import NotFoundError
from shoal.model.ids import JobId, NodeId, TaskId
from shoal.net.identity.petname import petname
from shoal.runtime.monitoring.logged_events import job_of
from shoal.runtime.monitoring.seen_members import WORDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from shoal.api.service.forward import Forwarder
    from shoal.runtime.discovery.node_network import NodeNetwork
    from shoal.runtime.monitoring.machine_use import MachineSize, MachineUse
    from shoal.runtime.node import Node

FRESH_S: Final = 5.0
KEPT_S: Final = 60.0
"""Older uses are not shown: the node may have stopped answering."""

FIRST_S: Final = 0.5
ANSWER_S: Final = 4.0
ASKED_MAX: Final = 64
"""Nodes that are asked for their use to list nodes."""

TASKS_MAX: Final = 1_000


class _Told(NamedTuple):
    at: float  # of the loop
    node: pb.Node


@final
class Inspector:
    """Answers calls about nodes; remembers what nodes of this owner last told."""

    def __init__(
        self,
        node: Node,
        network: NodeNetwork,
        forwarder: Forwarder,
        cautions: Callable[[], list[str]],
    ) -> None:
        """`cautions` returns warnings to the user of this node."""
        self._node = node
        self._network = network
        self._forwarder = forwarder
        self._cautions = cautions
        self._loop = asyncio.get_running_loop()
        self._began = self._loop.time()
        self._told: dict[NodeId, _Told] = {}
        self._asking: dict[NodeId, asyncio.Task[None]] = {}

    async def nodes(self) -> list[pb.Node]:
        """Return this node, the nodes it knows, and members that are away."""
        found = views.nodes_view(self._node, self._network.links)
        if callers.current().is_own:
            self._add_use(found[0])
            await self._add_others(found[1:])
        here = {each.name.id for each in found}
        for id_, seen in self._node.seen.away():
            if id_ not in here:
                found.append(_away(id_, seen.since_s, WORDS[seen.how]))
        return found

    async def inspect(self, request: pb.InspectRequest) -> pb.InspectReply:
        """Return one node of this owner; of others, what is known here."""
        peer = self._called(request.node)
        if peer == self._node.id:
            return self._own(request.since_s)
        reply = pb.InspectReply(node=await self._known(peer))
        if reply.node.away:
            reply.trouble = f"{petname(peer)} is away: {reply.node.away}"
            return self._with_own_tasks(reply)
        asked = pb.InspectRequest(node=peer, since_s=request.since_s)
        data = await self._forwarder.ask_own(
            peer, "Inspect", asked.SerializeToString(), ANSWER_S
        )
        if isinstance(data, bytes):
            return self._with_own_tasks(self._filled(peer, reply.node, data))
        if data is None:
            reply.trouble = (
                f"{petname(peer)} belongs to another owner, so it does not tell what "
                "its machine does"
            )
        else:
            reply.trouble = str(data)
        return self._with_own_tasks(reply)

    def forget(self, request: pb.ForgetRequest) -> pb.ForgetReply:
        """Take a node that is away off the list."""
        known = [node for node, _ in self._node.seen.away()]
        peer = node_called(request.node, known)
        if peer in self._network.links.peers or not self._node.seen.forget(peer):
            raise NotFoundError(
                f"{petname(peer)} is not away",
                because="only a node that is away can be forgotten",
                hint="`shoal revoke` takes a node that is here out of the shoal",
            )
        return pb.ForgetReply(node=views.name_of(peer))

    def _called(self, selector: str) -> NodeId:
        if not selector:
            return self._node.id
        known = [self._node.id, *known_nodes(self._node, self._network)]
        known += [node for node, _ in self._node.seen.away()]
        return node_called(selector, dict.fromkeys(known))

    def _own(self, since_s: float) -> pb.InspectReply:
        node = self._node
        running = node.tasks.running[:TASKS_MAX]
        reply = pb.InspectReply(
            node=views.self_view(node),
            history=map(use_view, node.machine.history.since(since_s)),
            tasks=[
                pb.TaskThere(
                    task=task,
                    job=job_of(task),
                    scheduler=views.name_of(attempt.scheduler),
                )
                for attempt, task in running
            ],
            rules=rules_in_words(node),
            version=shoal.__version__,
            up_s=self._loop.time() - self._began,
            warnings=self._cautions(),
        )
        self._add_use(reply.node)
        self._add_times(reply.tasks)
        return reply

    def _add_use(self, view: pb.Node) -> None:
        machine = self._node.machine
        if machine.history.latest is not None:
            view.used.CopyFrom(use_view(machine.history.latest))
        view.machine.CopyFrom(_size(machine.size, len(view.devices)))

    async def _known(self, peer: NodeId) -> pb.Node:
        found = (each for each in await self.nodes() if each.name.id == peer)
        return next(found, pb.Node(name=views.name_of(peer)))

    def _filled(self, peer: NodeId, known: pb.Node, data: bytes) -> pb.InspectReply:
        """Return what a node told of itself, with how it is reached from here."""
        try:
            reply = pb.InspectReply.FromString(data)
        except DecodeError:
            raise nonsense(peer) from None
        told = reply.node
        told.name.CopyFrom(views.name_of(peer))
        told.self = False
        told.path, told.rtt_us = known.path, known.rtt_us
        if known.HasField("standing"):
            told.standing.CopyFrom(known.standing)
        return reply

    def _with_own_tasks(self, reply: pb.InspectReply) -> pb.InspectReply:
        """Add the tasks of this node's jobs that run there, as far as it knows."""
        peer, scheduler = NodeId(reply.node.name.id), self._node.scheduler
        there = {each.task for each in reply.tasks}
        if scheduler is not None:
            for run in scheduler.book.runs.values():
                if run.worker == peer and run.task not in there:
                    if len(reply.tasks) == TASKS_MAX:
                        break
                    name = views.name_of(self._node.id)
                    reply.tasks.add(task=run.task, job=job_of(run.task), scheduler=name)
        self._add_times(reply.tasks)
        return reply

    def _add_times(self, tasks: Iterable[pb.TaskThere]) -> None:
        scheduler = self._node.scheduler
        if scheduler is None:
            return
        for each in tasks:
            record = scheduler.book.tasks.get(TaskId(each.task))
            if record is not None and JobId(each.job) in scheduler.book.jobs:
                each.began_s = record.began_wall_s

    # What others use.

    async def _add_others(self, found: list[pb.Node]) -> None:
        linked = set(self._network.links.peers)
        ours = [
            each
            for each in found
            if each.name.id in linked and self._forwarder.is_ours(NodeId(each.name.id))
        ][:ASKED_MAX]
        now = self._loop.time()
        first: list[asyncio.Task[None]] = []
        for each in ours:
            peer = NodeId(each.name.id)
            told = self._told.get(peer)
            if told is None or now - told.at > FRESH_S:
                asking = self._asking.get(peer) or self._ask(peer)
                if told is None:
                    first.append(asking)
        if first:
            await asyncio.wait(first, timeout=FIRST_S)
        for each in ours:
            told = self._told.get(NodeId(each.name.id))
            if told is not None and self._loop.time() - told.at < KEPT_S:
                if told.node.HasField("used"):  # It has measured since it started.
                    each.used.CopyFrom(told.node.used)
                each.machine.CopyFrom(told.node.machine)
                each.withheld.CopyFrom(told.node.withheld)
                each.taken, each.lend = told.node.taken, told.node.lend
                each.lending = told.node.lending
                each.others_cpu_milli = told.node.others_cpu_milli

    def _ask(self, peer: NodeId) -> asyncio.Task[None]:
        asking = self._loop.create_task(self._ask_use(peer))
        self._asking[peer] = asking
        asking.add_done_callback(lambda _: self._asking.pop(peer, None))
        return asking

    async def _ask_use(self, peer: NodeId) -> None:
        asked = pb.InspectRequest(
            node=peer, since_s=time.time() + KEPT_S
        )  # No history.
        data = await self._forwarder.ask_own(
            peer, "Inspect", asked.SerializeToString(), ANSWER_S
        )
        node = pb.Node()
        if isinstance(data, bytes):
            try:
                node = pb.InspectReply.FromString(data).node
            except DecodeError:
                node = pb.Node()
        self._told.pop(peer, None)
        self._told[peer] = _Told(self._loop.time(), node)
        if len(self._told) > ASKED_MAX:
            del self._told[next(iter(self._told))]


def use_view(use: MachineUse) -> pb.Use:
    """Return the use of a machine as a message."""
    fields = use._asdict()
    fields["devices"] = [pb.DeviceUse(**each._asdict()) for each in use.devices]
    return pb.Use(**fields)


def _size(size: MachineSize, gpus: int) -> pb.Amounts:
    return pb.Amounts(**size._asdict(), gpu_milli=1_000 * gpus)


def _away(node: NodeId, since_s: float, how: str) -> pb.Node:
    return pb.Node(name=views.name_of(node), away_since_s=since_s, away=how)
