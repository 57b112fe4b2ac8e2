"""Clients that call functions: between their messages and the sessions of the node.

The same messages come two ways: over gRPC from anywhere, and on this machine over a
plain socket beside that of the API, `node.calls`, which only the node's user can open.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import traceback
from typing import TYPE_CHECKING, Final, cast, final

from google.protobuf.message import DecodeError

from shoal.api import shoal_pb2 as pb
from shoal.api.call_frames import ERROR, FRAME_BYTES_MAX, HEAD_BYTES, MESSAGE, frame
from shoal.api.failures import message_of
from shoal.api.sockets import private
from shoal.core.calls import Call
from shoal.errors import ShoalError, UsageError
from shoal.protocol.call_items import NUMBER_MAX, PART_BYTES, PAYLOAD_BYTES_MAX

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from shoal.api.callers import Caller
    from shoal.core.calls import Kind, Result
    from shoal.runtime.calls import Calls, News, Session

WRITE_BYTES_HIGH: Final = 1 << 20
_KINDS: Final[dict[Kind, pb.CallResult.Kind]] = {
    "value": pb.CallResult.KIND_VALUE,
    "raised": pb.CallResult.KIND_RAISED,
    "lost": pb.CallResult.KIND_LOST,
    "refused": pb.CallResult.KIND_REFUSED,
}


@final
class Intake:
    """Does what the messages of one client say."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._begun: dict[int, list[bytes]] = {}  # payloads of which more is to come

    def take(self, request: pb.CallsRequest) -> None:
        """Do what one message says; raise `UsageError` if that makes no sense."""
        session = self._session
        for pool in request.pools:
            session.open_pool(pool.id, pool.spec, pool.lanes_max, pool.idle_s)
        for function in request.functions:
            session.define(function.id, function.code)
        by_pool: dict[int, list[Call]] = {}
        for told in request.calls:
            call = self._call(told)
            if call is not None:
                by_pool.setdefault(told.pool, []).append(call)
        for backlog in request.backlogs:
            session.backlog(backlog.pool, backlog.waiting)
        for number, found in by_pool.items():
            session.call(number, found)
        if request.stops:
            session.stop(tuple(request.stops))

    def _call(self, told: pb.Call) -> Call | None:
        """Return a call of which all is there; None if more is to come."""
        id_, payload = told.id, told.payload
        if id_ > NUMBER_MAX or len(payload) > PART_BYTES:
            raise UsageError(
                f"call {id_} is out of bounds",
                because=f"an id is at most {NUMBER_MAX}, a part {PART_BYTES} bytes",
                hint="send large payloads in parts",
            )
        parts = self._begun.pop(id_, None) if self._begun else None
        if parts is None and not told.more:
            size = len(payload)
            return Call(id_, told.function, (payload,), told.retries, size=size)
        parts = [] if parts is None else parts
        parts.append(payload)
        size = sum(map(len, parts)) if not told.more else len(parts) * PART_BYTES
        if size > PAYLOAD_BYTES_MAX + PART_BYTES:
            raise UsageError(
                f"the arguments of call {id_} are too large",
                because=f"the most is {PAYLOAD_BYTES_MAX >> 30} GiB",
                hint="write them to a file, and pass its name",
            )
        if told.more:
            self._begun[id_] = parts
            return None
        return Call(id_, told.function, tuple(parts), told.retries, size=size)


def reply_of(news: News) -> pb.CallsReply:
    """Return news as a client is told them."""
    reply = pb.CallsReply()
    for result in news.results:
        reply.results.append(_result(result))
    for state in news.pools:
        reply.pools.append(
            pb.CallPoolState(
                id=state.id, credit=state.credit, lanes=state.lanes, hired=state.hired
            )
        )
    return reply


def _result(result: Result) -> pb.CallResult:
    return pb.CallResult(
        id=result.id,
        kind=_KINDS[result.kind],
        payload=result.payload,
        more=result.more,
        part=result.part,
        own=result.own,
    )


def _name() -> str:
    return f"calls-{secrets.token_hex(3)}"


# Over gRPC.


async def serve(
    calls: Calls, requests: AsyncIterator[pb.CallsRequest], caller: Caller
) -> AsyncIterator[pb.CallsReply]:
    """Answer a client until it has gone; its interpreters end then."""
    wake = asyncio.Event()
    session = calls.open(_name(), wake.set, caller.submitter)
    reading = asyncio.ensure_future(_read(Intake(session), requests))
    reading.add_done_callback(lambda _: wake.set())
    try:
        while True:
            await wake.wait()
            wake.clear()
            while news := session.take():
                yield reply_of(news)
            if reading.done():
                reading.result()  # Raises what was wrong with a request.
                return
    finally:
        reading.cancel()
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await reading
        session.close()


async def _read(intake: Intake, requests: AsyncIterator[pb.CallsRequest]) -> None:
    async for request in requests:
        intake.take(request)


# Over the socket.


@final
class CallsDoor:
    """Listens for clients of this machine."""

    def __init__(
        self, calls: Calls, path: Path, opened: Callable[[], None] | None = None
    ) -> None:
        """Tell `opened` of each client that comes."""
        self.path = path
        self._calls = calls
        self._opened = opened
        self._server: asyncio.Server | None = None
        self._lines: set[CallsLine] = set()

    async def open(self) -> None:
        """Begin to listen; nobody but the node's user can connect."""
        loop = asyncio.get_running_loop()
        with private(self.path):
            self._server = await loop.create_unix_server(self._line, str(self.path))

    def close(self) -> None:
        """Hang up on everybody."""
        if self._server is not None:
            self._server.close()
            self.path.unlink(missing_ok=True)
        for line in list(self._lines):
            line.hang_up()

    def _line(self) -> CallsLine:
        if self._opened is not None:
            self._opened()
        return CallsLine(self._calls, self._lines)


@final
class CallsLine(asyncio.Protocol):
    """One client at the socket."""

    def __init__(self, calls: Calls, lines: set[CallsLine]) -> None:
        self._calls = calls
        self._lines = lines
        self._session: Session | None = None
        self._intake: Intake | None = None
        self._transport: asyncio.Transport | None = None
        self._unread = bytearray()
        self._loop = asyncio.get_running_loop()
        self._write_soon = False
        self._full = False

    def hang_up(self) -> None:
        """End the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    # What the loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Open a session."""
        transport = cast("asyncio.Transport", transport)  # uvloop has its own.
        transport.set_write_buffer_limits(high=WRITE_BYTES_HIGH)
        self._transport = transport
        self._lines.add(self)
        try:
            self._session = self._calls.open(_name(), self._on_news)
        except ShoalError as error:
            self._fail(error)
            return
        self._intake = Intake(self._session)

    def data_received(self, data: bytes) -> None:
        """Take in whole messages."""
        unread = self._unread
        unread += data
        try:
            while len(unread) >= HEAD_BYTES:
                end = HEAD_BYTES + int.from_bytes(unread[:4], "little")
                if end > FRAME_BYTES_MAX:
                    raise UsageError(
                        "a message is too long",
                        because=f"{end} bytes are more than {FRAME_BYTES_MAX}",
                    )
                if len(unread) < end or self._intake is None:
                    return
                body = bytes(memoryview(unread)[HEAD_BYTES:end])
                del unread[:end]
                self._intake.take(pb.CallsRequest.FromString(body))
        except DecodeError as error:
            self._fail(UsageError("this is no message of ours", because=str(error)))
        except ShoalError as error:
            self._fail(error)
        except Exception as error:  # noqa: BLE001 - One client must not end the node.
            traceback.print_exception(error)
            self._fail(ShoalError("the node failed", because=repr(error)))

    def pause_writing(self) -> None:
        """Leave results where they are: the client does not take them."""
        self._full = True

    def resume_writing(self) -> None:
        """Write what has come meanwhile."""
        self._full = False
        self._write()

    def connection_lost(self, exc: Exception | None) -> None:
        """End what the client had."""
        self._lines.discard(self)
        self._intake = None
        session, self._session = self._session, None
        if session is not None:
            session.close()

    # Answers.

    def _on_news(self) -> None:
        if not self._write_soon:
            self._write_soon = True
            self._loop.call_soon(self._write)

    def _write(self) -> None:
        self._write_soon = False
        while self._session is not None and not self._full:
            news = self._session.take()
            if not news or self._transport is None:
                return
            self._transport.write(frame(MESSAGE, reply_of(news)))

    def _fail(self, error: ShoalError) -> None:
        """Say what is wrong, and hang up."""
        self._intake = None
        if self._transport is not None:
            self._transport.write(frame(ERROR, message_of(error)))
            self._transport.close()
