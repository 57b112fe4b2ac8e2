"""Function calls: translates between clients' messages and the node's sessions.

The same messages arrive in two ways: over gRPC from anywhere, and on this machine over
a plain socket next to that of the API, `node.calls`, which only the node's user can
open. Each client has one session. It is closed, and its interpreters end, when the
client disconnects. Results wait in the session while the client does not read.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import traceback
from typing import TYPE_CHECKING, Final, cast, final

from google.protobuf.message import DecodeError

from shoal.api import shoal_pb2 as pb
from shoal.api.call_frames import ERROR, MESSAGE, frame, frame_buffer
from shoal.api.failures import message_of
from shoal.api.sockets import private
from shoal.core.calls.call_dispatcher import Call
from shoal.errors import ShoalError, UsageError
from shoal.framing import FramingError
from shoal.protocol.call_items import NUMBER_MAX, PART_BYTES, PAYLOAD_BYTES_MAX

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from shoal.api.service.callers import Caller
    from shoal.core.calls.call_dispatcher import CallResult, Kind
    from shoal.runtime.calls.sessions import CallSession, CallSessions, SessionNews

WRITE_BYTES_HIGH: Final = 1 << 20
_KINDS: Final[dict[Kind, pb.CallResult.Kind]] = {
    "value": pb.CallResult.KIND_VALUE,
    "raised": pb.CallResult.KIND_RAISED,
    "lost": pb.CallResult.KIND_LOST,
    "refused": pb.CallResult.KIND_REFUSED,
}


@final
class Intake:
    """Applies the messages of one client to its session."""

    def __init__(self, session: CallSession) -> None:
        self._session = session
        self._begun: dict[int, list[bytes]] = {}  # incomplete payloads, by call

    def take(self, request: pb.CallsRequest) -> None:
        """Apply one message; raise `UsageError` if it is invalid."""
        session = self._session
        for pool in request.pools:
            session.open_pool(
                pool.id, pool.spec, pool.lanes_max, pool.idle_s, pool.never_s
            )
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
        """Return a complete call; None if more parts are to come."""
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


def reply_of(news: SessionNews) -> pb.CallsReply:
    """Encode news of a session as a reply."""
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


def _result(result: CallResult) -> pb.CallResult:
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
    calls: CallSessions, requests: AsyncIterator[pb.CallsRequest], caller: Caller
) -> AsyncIterator[pb.CallsReply]:
    """Serve a client until it disconnects; then end its interpreters."""
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
                reading.result()  # Raises if a request was invalid.
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
class CallServer:
    """Accepts local clients that call functions."""

    def __init__(
        self, calls: CallSessions, path: Path, opened: Callable[[], None] | None = None
    ) -> None:
        """Call `opened` for each new client."""
        self.path = path
        self._calls = calls
        self._opened = opened
        self._server: asyncio.Server | None = None
        self._lines: set[CallConnection] = set()

    async def open(self) -> None:
        """Start listening; only the node's user can connect."""
        loop = asyncio.get_running_loop()
        with private(self.path):
            self._server = await loop.create_unix_server(self._line, str(self.path))

    def close(self) -> None:
        """Stop listening and disconnect all clients."""
        if self._server is not None:
            self._server.close()
            self.path.unlink(missing_ok=True)
        for line in list(self._lines):
            line.hang_up()

    def _line(self) -> CallConnection:
        if self._opened is not None:
            self._opened()
        return CallConnection(self._calls, self._lines)


@final
class CallConnection(asyncio.Protocol):
    """The connection of one local client."""

    def __init__(self, calls: CallSessions, lines: set[CallConnection]) -> None:
        self._calls = calls
        self._lines = lines
        self._session: CallSession | None = None
        self._intake: Intake | None = None
        self._transport: asyncio.Transport | None = None
        self._buffer = frame_buffer()
        self._loop = asyncio.get_running_loop()
        self._write_soon = False
        self._full = False

    def hang_up(self) -> None:
        """Abort the connection."""
        if self._transport is not None:
            self._transport.abort()

    # Called by the event loop.

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
        """Apply all messages that are complete."""
        try:
            for body in self._buffer.feed(data):
                if self._intake is None:
                    return
                self._intake.take(pb.CallsRequest.FromString(body[1:]))
        except FramingError as error:
            self._fail(UsageError("a message is too long", because=str(error)))
        except DecodeError as error:
            self._fail(UsageError("this is no message of ours", because=str(error)))
        except ShoalError as error:
            self._fail(error)
        except Exception as error:  # noqa: BLE001 - One client must not end the node.
            traceback.print_exception(error)
            self._fail(ShoalError("the node failed", because=repr(error)))

    def pause_writing(self) -> None:
        """Leave results in the session while the client does not read."""
        self._full = True

    def resume_writing(self) -> None:
        """Write the results that have accumulated."""
        self._full = False
        self._write()

    def connection_lost(self, exc: Exception | None) -> None:
        """Close the client's session."""
        self._lines.discard(self)
        self._intake = None
        session, self._session = self._session, None
        if session is not None:
            session.close()

    # Replies.

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
        """Report an error and hang up."""
        self._intake = None
        if self._transport is not None:
            self._transport.write(frame(ERROR, message_of(error)))
            self._transport.close()
