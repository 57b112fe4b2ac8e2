"""The stream of one client that calls functions, and the session behind it."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final

from shoal.api import shoal_pb2 as pb
from shoal.core.calls import Call
from shoal.errors import UsageError
from shoal.protocol.call_items import NUMBER_MAX, PART_BYTES

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from shoal.core.calls import Kind, Result
    from shoal.runtime.calls import Calls, Session

PAYLOAD_BYTES_MAX: Final = 1 << 30
"""The arguments of one call; larger ones belong into files."""

_KINDS: Final[dict[Kind, pb.CallResult.Kind]] = {
    "value": pb.CallResult.KIND_VALUE,
    "raised": pb.CallResult.KIND_RAISED,
    "lost": pb.CallResult.KIND_LOST,
    "refused": pb.CallResult.KIND_REFUSED,
}


async def serve(
    calls: Calls, name: str, requests: AsyncIterator[pb.CallsRequest]
) -> AsyncIterator[pb.CallsReply]:
    """Answer a client until it has gone; its interpreters end then."""
    session = calls.open(name)
    reading = asyncio.ensure_future(_read(session, requests))
    reading.add_done_callback(lambda _: session.finish())
    try:
        while True:
            results, states = await session.take()
            if reading.done():
                reading.result()  # Raises what was wrong with a request.
                return
            yield pb.CallsReply(
                results=[_result(result) for result in results],
                pools=[
                    pb.CallPoolState(id=id_, credit=credit, lanes=lanes, hired=hired)
                    for id_, credit, lanes, hired in states
                ],
            )
    finally:
        reading.cancel()
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await reading
        session.close()


async def _read(session: Session, requests: AsyncIterator[pb.CallsRequest]) -> None:
    begun: dict[int, list[bytes]] = {}  # payloads of which more is to come
    async for request in requests:
        for pool in request.pools:
            session.open_pool(pool.id, pool.spec, pool.lanes_max, pool.idle_s)
        for function in request.functions:
            session.define(function.id, function.code)
        by_pool: dict[int, list[Call]] = {}
        for told in request.calls:
            call = _call(told, begun)
            if call is not None:
                by_pool.setdefault(told.pool, []).append(call)
        for backlog in request.backlogs:
            session.backlog(backlog.pool, backlog.waiting)
        for number, found in by_pool.items():
            session.call(number, found)
        if request.stops:
            session.stop(tuple(request.stops))


def _call(told: pb.Call, begun: dict[int, list[bytes]]) -> Call | None:
    """Return a call of which all is there; None if more is to come."""
    if told.id > NUMBER_MAX or len(told.payload) > PART_BYTES:
        raise UsageError(
            f"call {told.id} is out of bounds",
            because=f"an id is at most {NUMBER_MAX}, a part {PART_BYTES} bytes",
            hint="send large payloads in parts",
        )
    parts = begun.pop(told.id, None) if begun else None
    if parts is None and not told.more:
        return Call(
            told.id,
            told.function,
            (told.payload,),
            told.retries,
            size=len(told.payload),
        )
    parts = [] if parts is None else parts
    parts.append(told.payload)
    size = (len(parts) - 1) * PART_BYTES + len(told.payload)
    if size > PAYLOAD_BYTES_MAX:
        raise UsageError(
            f"the arguments of call {told.id} are too large",
            because=f"the most is {PAYLOAD_BYTES_MAX >> 30} GiB",
            hint="write them to a file, and pass its name",
        )
    if told.more:
        begun[told.id] = parts
        return None
    return Call(told.id, told.function, tuple(parts), told.retries, size=size)


def _result(result: Result) -> pb.CallResult:
    return pb.CallResult(
        id=result.id,
        kind=_KINDS[result.kind],
        payload=result.payload,
        more=result.more,
        part=result.part,
    )
