"""Answers calls about allocations: what this node may ask of engines."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from shoal.api import shoal_pb2 as pb
from shoal.core.allocation.records import AllocationTerms
from shoal.errors import UsageError
from shoal.net.identity.petname import petname
from shoal.runtime.discovery.listen_addresses import only_here

if TYPE_CHECKING:
    from shoal.core.allocation.records import AllocationKept
    from shoal.runtime.allocation.allocations import Allocations

NAME: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?")
CHANGES: Final = ("pause", "resume", "remove")


class AllocationCalls:
    """The part of the service that knows allocations."""

    allocations: Allocations  # from when the node has its network

    async def on_allocations(
        self, request: pb.AllocationsRequest
    ) -> pb.AllocationsReply:
        """Add, try, list or change allocations."""
        desk = self.allocations
        if request.verb == "list":
            found = [desk.called(request.name)] if request.name else desk.known
            return pb.AllocationsReply(allocations=map(_view, found))
        if request.verb in CHANGES:
            refused = await desk.change(request.name, request.verb)
            left = [each for each in desk.known if each.terms.name == request.name]
            return pb.AllocationsReply(allocations=map(_view, left), refused=refused)
        terms = _terms(request)
        if request.verb == "dry-run":
            command, script, refused = await desk.dry_run(terms)
            return pb.AllocationsReply(command=command, script=script, refused=refused)
        if request.verb != "add":
            raise UsageError(f"allocations cannot '{request.verb[:40]}'")
        refused = await desk.add(terms)
        return pb.AllocationsReply(
            allocations=[_view(desk.called(terms.name))],
            refused=refused,
            only_here=only_here(desk.addresses()),
        )


def _terms(request: pb.AllocationsRequest) -> AllocationTerms:
    name = request.name or request.engine
    if not NAME.fullmatch(name):
        raise UsageError(
            f"'{name[:40]}' is no name of an allocation",
            because="names have lower-case letters, digits and dashes, 32 at most",
            hint="write it like --name gpu-short",
        )
    return AllocationTerms(
        name=name,
        engine=request.engine,
        arguments=tuple(request.arguments),
        time_limit_s=request.time_limit_s,
        idle_s=request.idle_s,
        pilots_max=request.max,
        backlog=request.backlog,
        shoal=request.shoal,
    )


def _view(kept: AllocationKept) -> pb.AllocationView:
    terms = kept.terms
    return pb.AllocationView(
        name=terms.name,
        engine=terms.engine,
        arguments=terms.arguments,
        time_limit_s=terms.time_limit_s,
        idle_s=terms.idle_s,
        max=terms.pilots_max,
        backlog=terms.backlog,
        state=_state(kept),
        paused=kept.paused,
        failures=kept.failures,
        pilots=[
            pb.PilotView(
                number=each.number,
                state=each.state,
                native=each.native,
                node=pb.NodeName(id=each.node, petname=petname(each.node))
                if each.node
                else None,
            )
            for each in kept.pilots
        ],
        log=[pb.AllocationNote(at=each.wall_s, text=each.text) for each in kept.notes],
    )


def _state(kept: AllocationKept) -> str:
    if kept.removed:
        return "ending"
    if kept.paused:
        return "paused"
    return "active" if kept.tried else "trying"
