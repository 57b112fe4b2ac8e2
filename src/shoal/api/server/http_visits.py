"""The connections of the HTTP server: uvicorn's, with a deadline for every wait.

Theory of operation. A connection is in one of four phases. *idle*: no byte of a request
has come. *request*: a request has begun and is not whole. *answer*: it is whole, and
the application is working. *closing*: the last answer is on its way. Each phase but
*answer* has a deadline that starts when the phase does and that no byte extends; a
visitor that misses it is cut off. While an answer is sent, a visitor that reads nothing
for `send_s` is cut off too, so nothing piles up for it.

uvicorn itself limits neither the time for a request nor the number of connections, and
its `Server` installs signal handlers and wakes ten times a second. `_Server` does
neither; it waits for `Visits.close`.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import sys
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, Literal, cast, final

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from shoal.api.server.http_app import HEAD_BYTES_MAX, SECURITY, failure, malformed
from shoal.api.server.tls_door import Guest

if TYPE_CHECKING:
    import socket
    from collections.abc import Generator, Mapping

    from starlette.types import ASGIApp
    from uvicorn.server import ServerState

    from shoal.api.server.http_server import HttpLimits

    Phase = Literal["", "idle", "request", "answer", "closing"]

CLOSE_S: Final = 2.0
"""Time limit for sending the last answer, and for the application to end."""

ECHO_MAX: Final = 200
"""Characters of a parse error that are quoted to the sender."""


@final
class Visits:
    """Serves an application on sockets and tracks its connections."""

    def __init__(
        self, app: ASGIApp, limits: HttpLimits, guests: Mapping[str, Guest] | None
    ) -> None:
        """Identify visitors in `guests` by the name of their socket.

        None means that visitors connect directly, on loopback and in plain text.
        """
        self.limits = limits
        self._guests = guests
        self._open: dict[HttpVisit, None] = {}  # oldest first
        protocol = functools.partial(HttpVisit, self)
        self._server = _Server(
            uvicorn.Config(
                app,
                http=cast("type[asyncio.Protocol]", protocol),
                ws="none",
                lifespan="off",
                interface="asgi3",
                log_config=None,
                log_level="error",
                access_log=False,
                proxy_headers=False,  # Or visitors could fake addresses.
                h11_max_incomplete_event_size=HEAD_BYTES_MAX,
                timeout_keep_alive=int(limits.idle_s) + 1,  # Our own is shorter.
                timeout_graceful_shutdown=int(CLOSE_S),
            )
        )
        self._serving: asyncio.Task[None] | None = None

    async def start(self, sockets: list[socket.socket]) -> None:
        """Start accepting visitors."""
        self._serving = asyncio.ensure_future(self._server.serve(sockets))

    def cut(self) -> None:
        """Drop all visitors."""
        for visit in list(self._open):
            visit.end()

    async def close(self) -> None:
        """Stop accepting visitors and drop all of them."""
        self.cut()
        self._server.ended.set()
        if self._serving is not None:
            await self._serving

    def arrived(self, visit: HttpVisit) -> None:
        """Record a visitor; on loopback, drop the oldest strangers over the limit."""
        self._open[visit] = None
        if self._guests is not None:
            return  # The door limits strangers.
        strangers = [each for each in self._open if not each.is_known]
        for oldest in strangers[: max(0, len(strangers) - self.limits.strangers_max)]:
            oldest.end()

    def left(self, visit: HttpVisit) -> None:
        """Forget a visitor."""
        self._open.pop(visit, None)

    def guest(self, visit: HttpVisit) -> Guest:
        """Return the identity of a visitor that has sent a request."""
        name = visit.transport.get_extra_info("peername")
        if self._guests is None:
            return Guest(
                None, is_far=False, address=str(name[0]), on_proof=visit.proved
            )
        text = name.decode() if isinstance(name, bytes) else str(name or "")
        unknown = Guest(None)  # The connection has ended.
        return self._guests.get(f"unix-abstract:{text.lstrip(chr(0))}", unknown)


class _Server(uvicorn.Server):
    """uvicorn inside a node: no signal handlers, no periodic wakeups."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ended = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        """Install no signal handlers: the node has its own."""
        yield

    async def main_loop(self) -> None:
        """Wait until the server is closed."""
        await self.ended.wait()


@final
class HttpVisit(H11Protocol):
    """One connection, with a deadline per phase."""

    def __init__(
        self,
        visits: Visits,
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        # uvicorn copies this into the scope of each request.
        state = {**app_state, "guest": lambda: visits.guest(self)}
        super().__init__(config, server_state, state, _loop)
        self.is_known = False  # has shown the token
        self._visits = visits
        self._phase: Phase = ""
        self._deadline: asyncio.TimerHandle | None = None
        self._stuck: asyncio.TimerHandle | None = None  # while not reading

    def proved(self, proof: str) -> None:
        """Record that the visitor showed the token."""
        del proof
        self.is_known = True

    def end(self) -> None:
        """Abort the connection."""
        self.transport.abort()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Register the visitor and start its idle deadline."""
        super().connection_made(transport)
        self._visits.arrived(self)
        self._settle()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the visitor and notify the application."""
        self._visits.left(self)
        for timer in (self._deadline, self._stuck):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse bytes of a request."""
        if self._phase == "idle":
            self._enter("request")
        super().data_received(data)
        self._settle()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        super().on_response_complete()
        self._settle()

    def pause_writing(self) -> None:
        """Pause the application; abort if the visitor does not read in `send_s`."""
        super().pause_writing()
        self._stuck = self.loop.call_later(self._visits.limits.send_s, self.end)

    def resume_writing(self) -> None:
        """Resume the application."""
        super().resume_writing()
        if self._stuck is not None:
            self._stuck.cancel()

    def send_400_response(self, msg: str) -> None:
        """Answer a malformed request and close; called while handling its error."""
        error, status = sys.exception(), 400
        if isinstance(error, h11.RemoteProtocolError):
            msg, status = str(error)[:ECHO_MAX], error.error_status_hint
        if self.conn.our_state in {h11.IDLE, h11.SEND_RESPONSE}:
            answer = failure(malformed(msg), status, is_last=True)
            answer.headers.update(SECURITY)
            reason = HTTPStatus(status).phrase
            head = h11.Response(
                status_code=status, headers=answer.raw_headers, reason=reason
            )
            for event in (head, h11.Data(data=bytes(answer.body)), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()
        self._settle()

    def _settle(self) -> None:
        """Enter the phase that the state of the connection implies."""
        theirs = self.conn.their_state
        if self.transport.is_closing():
            self._enter("closing")
        elif theirs is h11.IDLE and not self.conn.trailing_data[0]:
            self._enter("idle")
        elif theirs in {h11.DONE, h11.MUST_CLOSE}:
            self._enter("answer")
        else:
            self._enter("request")

    def _enter(self, phase: Phase) -> None:
        if phase == self._phase:
            return  # Keep its deadline.
        self._phase = phase
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        limits = self._visits.limits
        allowed = {
            "idle": limits.idle_s,
            "request": limits.request_s,
            "closing": CLOSE_S,
        }
        if phase in allowed:
            self._deadline = self.loop.call_later(allowed[phase], self.end)
