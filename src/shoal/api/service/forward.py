"""Forwards calls about jobs to other nodes of the same owner, over links.

A user with several machines works at one of them; its node asks the others. Both nodes
check that they have the same owner, `rights` limits the methods, and
`core.forwarding.forwarded_calls` is the protocol. Reaching a node takes at most
`REACH_S`; a list of all jobs asks at most `NODES_MAX` nodes. A job that is not here is
sought by its whole id, at the linked ones.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import aclosing
from typing import TYPE_CHECKING, Final, final

from google.protobuf.message import DecodeError

from shoal.api import shoal_pb2 as pb
from shoal.api.failures import error_of
from shoal.api.methods import told
from shoal.api.selectors import is_id, known_nodes, moved, node_called
from shoal.api.server.rights import (
    check_forwarded,
    check_neighbour,
    check_owner,
    member,
)
from shoal.api.service.audited import Origin, refused
from shoal.api.service.callers import answer_for, current
from shoal.api.service.views import name_of
from shoal.errors import (
    MovedError,
    NotAllowedError,
    NotFoundError,
    ShoalError,
    UnreachableError,
)
from shoal.model.ids import NodeId
from shoal.net.identity.petname import petname
from shoal.runtime.forwarding.call_runner import ApiAnswers

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable

    from shoal.api.methods import Methods
    from shoal.core.membership.members import Admission
    from shoal.runtime.discovery.node_network import NodeNetwork
    from shoal.runtime.forwarding.call_runner import Answer
    from shoal.runtime.node import Node

REACH_S: Final = 5.0
"""Time for a link to come up when a user names the node."""

LOOK_S: Final = 0.02
ANSWER_S: Final = 4.0
ANSWER_MAX_S: Final = 15.0
NODES_MAX: Final = 64
"""Nodes to ask for a list of all jobs; linked ones come first."""

HOLDER_S: Final = 2.0
"""Time for linked nodes to say whether they have a job that is not here."""


@final
class Forwarder:
    """Forwards calls of local clients to other nodes, and answers forwarded calls."""

    def __init__(self, node: Node, network: NodeNetwork, methods: Methods) -> None:
        self._node = node
        self._network = network
        self._methods = methods
        self._machine = node.forwarded_calls
        self._not_allowed = 0
        node.api_calls.open(ApiAnswers(self._answer, self._refuse))

    @property
    def counts(self) -> Counter[str]:
        """Counts of events of calls between nodes."""
        return self._machine.counts + Counter({"calls not allowed": self._not_allowed})

    async def call(self, request: pb.ForwardRequest) -> AsyncGenerator[pb.ForwardReply]:
        """Forward a call to the node that a user names; raise the errors it reports."""
        check_forwarded(request.method)
        peer = await self.reach(request.node)
        if peer == self._node.id:
            async for own in self._methods.answers(request.method, request.request):
                yield pb.ForwardReply(reply=own.SerializeToString())
            return
        asking = self._ask(peer, request.method, request.request)
        async with aclosing(asking) as answers:
            async for data in answers:
                yield pb.ForwardReply(reply=data)

    async def ask(
        self, node: str, method: str, request: bytes
    ) -> AsyncGenerator[bytes]:
        """Yield the answers of a node to a call, once it is linked."""
        asked = pb.ForwardRequest(node=node, method=method, request=request)
        async with aclosing(self.call(asked)) as replies:
            async for reply in replies:
                yield reply.reply

    async def reach(self, name: str) -> NodeId:
        """Return the node of this owner that a user names, once it is linked."""
        known = [self._node.id, *known_nodes(self._node, self._network)]
        try:
            peer = node_called(name, known)
        except NotFoundError as error:
            error.hint += "; an address is HOST:PORT"
            raise
        if peer == self._node.id:
            return peer
        try:
            async with asyncio.timeout(REACH_S):
                await self._reach(peer)
        except TimeoutError:
            raise out_of_reach(peer, self._network.links.trouble(peer)) from None
        check_owner(petname(peer), self._admission(peer).owner, self._node.owner)
        return peer

    async def jobs_everywhere(
        self, request: pb.ListEverywhereRequest
    ) -> pb.ListEverywhereReply:
        """Return jobs of this and other nodes; name nodes that do not answer."""
        timeout_s = min(request.timeout_s or ANSWER_S, ANSWER_MAX_S)
        asked = request.list.SerializeToString()
        reply = pb.ListEverywhereReply()
        async for own in self._methods.answers("List", asked):
            assert isinstance(own, pb.ListReply)
            reply.nodes.append(_jobs_of(self._node.id, own))
        others = known_nodes(self._node, self._network)[:NODES_MAX]
        looks = (self.ask_own(peer, "List", asked, timeout_s) for peer in others)
        for peer, data in zip(others, await asyncio.gather(*looks), strict=True):
            found = _jobs_in(peer, data) if isinstance(data, bytes) else data
            if isinstance(found, pb.NodeJobs):
                reply.nodes.append(found)
            elif found is not None and self.is_ours(peer):
                trouble = told(found)
                reply.nodes.append(pb.NodeJobs(node=name_of(peer), trouble=trouble))
            elif found is not None:
                reply.unreached += 1
        return reply

    async def seek(self, job: str) -> MovedError | None:
        """Say which node of this owner has a job that is not here.

        Linked nodes are asked, of which its keepers know. None if nobody does.
        """
        caller, owner = current(), self._node.owner
        if caller.way in ("link", "task") or caller.owner not in (None, owner):
            return None  # A node asks no third one for another.
        if not is_id(job):
            return None
        peers = [peer for peer in self._network.links.peers if self.is_ours(peer)]
        peers = peers[:NODES_MAX]
        asked = pb.GetRequest(job=job, tasks_max=1).SerializeToString()
        looks = (self.ask_own(peer, "Get", asked, HOLDER_S) for peer in peers)
        said = await asyncio.gather(*looks)
        at = holder_of(job, zip(peers, said, strict=True))
        return None if at is None else moved(job, at, "has it")

    async def ask_own(
        self, peer: NodeId, method: str, asked: bytes, timeout_s: float
    ) -> bytes | ShoalError | None:
        """Return a node's first answer, or the error; None if it has another owner."""
        try:
            async with asyncio.timeout(timeout_s / 2):
                await self._reach(peer)
            if self._admission(peer).owner != self._node.owner:
                return None
            async with (
                asyncio.timeout(timeout_s),
                aclosing(self._ask(peer, method, asked)) as answers,
            ):
                data = await anext(answers, None)
        except TimeoutError:
            return out_of_reach(peer, self._network.links.trouble(peer))
        except ShoalError as error:
            return error
        return nonsense(peer) if data is None else data

    async def _ask(
        self, peer: NodeId, method: str, request: bytes
    ) -> AsyncGenerator[bytes]:
        asking = self._node.api_calls.ask(peer, method, request)
        async with aclosing(asking) as answers:
            async for kind, data in answers:
                if kind == "error":
                    raise _error_from(peer, data)
                yield data

    async def _reach(self, peer: NodeId) -> None:
        """Wait for a link to a node, without a timeout."""
        self._network.links.reach(peer)
        while not self._machine.is_linked(peer):  # noqa: ASYNC110 - No event.
            await asyncio.sleep(LOOK_S)

    def _admission(self, peer: NodeId) -> Admission:
        now = asyncio.get_running_loop().time()
        admission = self._node.roster.recall(peer, now)
        if isinstance(admission, str):
            raise NotAllowedError(
                f"{petname(peer)} is no member of this shoal", because=admission
            )
        return admission

    def is_ours(self, peer: NodeId) -> bool:
        """Return whether a node that was admitted before has the same owner."""
        admission = self._node.admission(peer)
        return admission is not None and admission.owner == self._node.owner

    async def _answer(
        self, admission: Admission, method: str, request: bytes
    ) -> AsyncGenerator[Answer]:
        """Answer a call forwarded by another node."""
        owner = self._node.owner
        try:
            check_neighbour(petname(admission.node), admission, owner, method)
            grant = self._node.roster.shown(admission.node)
            answer_for(member(admission, grant, owner, way="link"))
            async for answer in self._methods.answers(method, request):
                yield "message", answer.SerializeToString()
        except NotAllowedError as error:
            yield "error", self._not_allowed_to(admission, method, error)
        except Exception as error:  # noqa: BLE001 - Reported to the peer.
            yield "error", told(error).SerializeToString()

    def _refuse(self, admission: Admission, method: str) -> bytes:
        """Return the error for any call by a node of another owner."""
        try:
            check_owner(petname(admission.node), admission.owner, self._node.owner)
        except NotAllowedError as error:
            return self._not_allowed_to(admission, method, error)
        raise AssertionError("only other owners are refused")

    def _not_allowed_to(
        self, admission: Admission, method: str, error: NotAllowedError
    ) -> bytes:
        self._not_allowed += 1
        place = Origin("link", admission.node, admission.owner)
        refused(self._node.audit.note, method[:80], place, str(error))
        return told(error).SerializeToString()


def holder_of(
    job: str, said: Iterable[tuple[NodeId, bytes | ShoalError | None]]
) -> NodeId | None:
    """Return who has a job: a node that says so, else one that another names.

    A prefix or a name of the job is not enough: other nodes have jobs of such names,
    and a command must not change one of these by mistake.
    """
    named: NodeId | None = None
    for peer, answer in said:
        if isinstance(answer, bytes) and _id_in(answer) == job:
            return peer
        if isinstance(answer, MovedError):
            named = NodeId(answer.node)
    return named


def _id_in(data: bytes) -> str:
    try:
        return pb.Job.FromString(data).id
    except DecodeError:
        return ""


def _jobs_in(peer: NodeId, data: bytes) -> pb.NodeJobs | ShoalError:
    try:
        return _jobs_of(peer, pb.ListReply.FromString(data))
    except DecodeError:
        return nonsense(peer)


def _jobs_of(node: NodeId, found: pb.ListReply) -> pb.NodeJobs:
    return pb.NodeJobs(node=name_of(node), jobs=found.jobs, total=found.total)


def _error_from(peer: NodeId, data: bytes) -> ShoalError:
    try:
        error = error_of(pb.Error.FromString(data))
    except DecodeError:
        return nonsense(peer)
    error.what = f"{petname(peer)}: {error.what}"
    return error


def nonsense(peer: NodeId) -> ShoalError:
    """Return the error for an answer that makes no sense."""
    return ShoalError(
        f"{petname(peer)} sent an answer that cannot be read",
        because="it is of another version than this node, or broken",
        hint="run the same version of shoal on both",
    )


def out_of_reach(peer: NodeId, trouble: str) -> UnreachableError:
    """Return the error for a node without a link."""
    name = petname(peer)
    return UnreachableError(
        f"{name} cannot be reached",
        because=trouble or "it did not answer in time",
        hint=f"see that it is up; `shoal ping {name}` tries again",
    )
