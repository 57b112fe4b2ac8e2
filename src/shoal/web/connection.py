"""One visitor: HTTP/1.1 over a connection, by h11, with a limit for everything.

A visitor that sends too much, too slowly, or nonsense, is told so and cut off. One that
does not take what it is sent is cut off too: nothing piles up for it here.
"""

from __future__ import annotations

import asyncio
import contextlib
import traceback
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, cast, final
from urllib.parse import parse_qsl, unquote

import h11

from shoal.api.failures import shown_of
from shoal.errors import ShoalError, UsageError
from shoal.web.exchange import (
    RefusalError,
    Request,
    Response,
    Stream,
    encoded,
    error_fields,
    failure,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    Answer = Callable[[Request], Awaitable[Response | Stream]]

HEAD_BYTES_MAX: Final = 16_384
BODY_BYTES_MAX: Final = 1 << 20
READ_BYTES: Final = 65_536
FIRST_S: Final = 30.0
"""How long a visitor may say nothing before its first request, and between two."""

REQUEST_S: Final = 10.0
"""How long a request may take to come, from its first byte."""

SEND_S: Final = 20.0
"""How long a visitor may refuse to take what it is sent."""

BEAT_S: Final = 15.0
"""How often a stream says something, so that it is noticed if nobody is there."""

CLOSE_S: Final = 2.0
_POLICY: Final = (
    "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
SECURITY: Final = (
    ("Content-Security-Policy", _POLICY),
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Cache-Control", "no-store"),
)
_ONCE: Final = frozenset({"host", "origin", "authorization", "content-type"})


@final
class Connection:
    """Serves one visitor until either side has had enough."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        answer: Answer,
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._answer = answer
        self._http = h11.Connection(
            h11.SERVER, max_incomplete_event_size=HEAD_BYTES_MAX
        )
        self._sending = asyncio.Lock()

    async def run(self) -> None:
        """Answer requests, one after the other; closes the connection at the end."""
        try:
            while await self._exchange():
                self._http.start_next_cycle()
        except (TimeoutError, ConnectionError, h11.LocalProtocolError):
            self._writer.transport.abort()  # It is gone, too slow, or stuck.
        finally:
            self._writer.close()
            with contextlib.suppress(ConnectionError, TimeoutError):
                async with asyncio.timeout(CLOSE_S):
                    await self._writer.wait_closed()
            self._writer.transport.abort()

    async def _exchange(self) -> bool:
        """Answer one request; return whether another may follow."""
        try:
            request = await self._next_request()
        except h11.RemoteProtocolError as error:
            await self._refuse(_nonsense(str(error)), error.error_status_hint)
            return False
        except RefusalError as refusal:
            await self._refuse(refusal.error, refusal.status)
            return False
        if request is None:
            return False
        answer = await self._answered(request)
        if isinstance(answer, Stream):
            await self._stream(answer)
            return False
        await self._respond(answer, has_body=request.method != "HEAD")
        return self._http.our_state is h11.DONE and self._http.their_state is h11.DONE

    async def _answered(self, request: Request) -> Response | Stream:
        try:
            return await self._answer(request)
        except RefusalError as refusal:
            return failure(refusal.error, refusal.status)
        except ShoalError as error:
            return failure(error)
        except Exception as error:  # noqa: BLE001 - A visitor gets an answer.
            bug, _ = shown_of(error)
            return failure(bug, 500)

    # Requests.

    async def _next_request(self) -> Request | None:
        if not self._http.trailing_data[0]:  # Else the next one has come already.
            async with asyncio.timeout(FIRST_S):
                self._http.receive_data(await self._reader.read(READ_BYTES))
        async with asyncio.timeout(REQUEST_S):
            head: h11.Request | None = None
            body = bytearray()
            while True:
                event = self._http.next_event()
                match event:
                    case h11.NEED_DATA:
                        if self._http.they_are_waiting_for_100_continue:
                            go_on = h11.InformationalResponse(
                                status_code=100, headers=[]
                            )
                            await self._send(go_on)
                        self._http.receive_data(await self._reader.read(READ_BYTES))
                    case h11.Request():
                        head = _checked(event)
                    case h11.Data():
                        body += event.data
                        if len(body) > BODY_BYTES_MAX:
                            raise RefusalError(413, _too_long())
                    case h11.EndOfMessage():
                        assert head is not None
                        return _request(head, bytes(body))
                    case _:
                        return None  # It has closed, or wants to speak another way.

    # Answers.

    async def _refuse(self, error: ShoalError, status: int) -> None:
        if self._http.our_state in {h11.IDLE, h11.SEND_RESPONSE}:
            await self._respond(failure(error, status), has_body=True, last=True)

    async def _respond(
        self, answer: Response, *, has_body: bool, last: bool = False
    ) -> None:
        headers = [
            ("Content-Type", answer.type),
            ("Content-Length", str(len(answer.body))),
            *SECURITY,
            *answer.headers,
            *([("Connection", "close")] if last else []),
        ]
        reason = HTTPStatus(answer.status).phrase
        await self._send(
            h11.Response(status_code=answer.status, headers=headers, reason=reason)
        )
        if has_body:
            await self._send(h11.Data(data=answer.body))
        await self._send(h11.EndOfMessage())

    async def _send(self, event: h11.Event) -> None:
        data = self._http.send(event)
        if not data:
            return
        async with self._sending, asyncio.timeout(SEND_S):
            self._writer.write(data)
            await self._writer.drain()

    # Streams.

    async def _stream(self, stream: Stream) -> None:
        """Tell events until the visitor has gone, or there are no more."""
        headers = [("Content-Type", "text/event-stream"), *SECURITY]
        await self._send(h11.Response(status_code=200, headers=headers))
        tasks = [
            asyncio.ensure_future(part)
            for part in (self._tell(stream), self._until_gone(), self._beat())
        ]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        if not tasks[1].cancelled():
            return
        await self._send(h11.EndOfMessage())

    async def _tell(self, stream: Stream) -> None:
        try:
            await stream.run(self._tell_event)
        except Exception as error:
            cause = _cause(error)
            if isinstance(cause, ShoalError):
                await self._tell_event("error", encoded(error_fields(cause)))
                return
            if not isinstance(cause, TimeoutError | ConnectionError):
                traceback.print_exception(error)  # Into the node's log.
            raise

    async def _tell_event(self, name: str, document: bytes) -> None:
        data = b"event: %b\ndata: %b\n\n" % (name.encode(), document)
        await self._send(h11.Data(data=data))

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(BEAT_S)
            await self._send(h11.Data(data=b": still here\n\n"))

    async def _until_gone(self) -> None:
        while await self._reader.read(READ_BYTES):
            pass  # Whoever follows a stream has nothing more to say.


def _checked(head: h11.Request) -> h11.Request:
    """Refuse what h11 would take, but a proxy in front might take for another thing."""
    size = len(head.target) + sum(
        len(name) + len(value) for name, value in head.headers
    )
    names = {name for name, _ in head.headers}
    if size > HEAD_BYTES_MAX:
        raise RefusalError(431, _nonsense(f"its head is over {HEAD_BYTES_MAX} bytes"))
    if {b"content-length", b"transfer-encoding"} <= names:
        raise RefusalError(400, _nonsense("it has a length, and chunks as well"))
    if head.http_version not in {b"1.0", b"1.1"}:
        raise RefusalError(505, _nonsense("it is of another version of HTTP"))
    return head


def _request(head: h11.Request, body: bytes) -> Request:
    headers: dict[str, str] = {}
    for raw_name, raw_value in head.headers:
        name, value = raw_name.decode("ascii"), raw_value.decode("latin-1")
        if name in _ONCE and name in headers:
            raise RefusalError(400, _nonsense(f"there are two headers {name}"))
        headers[name] = value
    path, _, query = head.target.decode("ascii").partition("?")
    return Request(
        method=head.method.decode("ascii"),
        path=unquote(path),
        query=dict(parse_qsl(query, keep_blank_values=True)),
        headers=headers,
        body=body,
    )


def _cause(error: Exception) -> Exception:
    """Return the first of what failed in tasks that ran side by side."""
    while isinstance(error, ExceptionGroup):
        group = cast("ExceptionGroup[Exception]", error)
        error = group.exceptions[0]
    return error


def _nonsense(because: str) -> UsageError:
    return UsageError(
        "that is no request", because=because, hint="speak HTTP/1.1 to this port"
    )


def _too_long() -> UsageError:
    return UsageError(
        "the request is too long",
        because=f"it has more than {BODY_BYTES_MAX} bytes",
        hint="`shoal submit FILE` takes longer ones",
    )
