"""Shared HTTP layer of a node: header checks, security headers, JSON errors.

`RequestGate` wraps an application. It refuses requests that a proxy could parse
differently, calls the application's guard to authorise the request, and adds headers
that forbid browsers everything that our pages do not need. Every failure is answered as
JSON: what failed, why, and what to do next.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final, final

import msgspec
from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from shoal.api.failures import kind_of, shown_of
from shoal.errors import NotFoundError, ShoalError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from starlette.requests import Request
    from starlette.routing import BaseRoute
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from shoal.api.server.tls_door import Guest

    Guard = Callable[[Scope], None]
    """Raises `RefusalError` unless a request is allowed."""

HEAD_BYTES_MAX: Final = 16_384
BODY_BYTES_MAX: Final = 1 << 20
JSON: Final = "application/json"
_POLICY: Final = (
    "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
SECURITY: Final = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_ONCE: Final = (b"host", b"origin", b"authorization", b"content-type")
_STATUS: Final = {
    "usage": 400,
    "not-allowed": 403,
    "not-found": 404,
    "refused": 409,
    "unreachable": 503,
}
_LAST: Final = frozenset({400, 413, 431, 501, 505})
"""Statuses after which the connection is closed: its framing is in doubt."""

_encode: Final = msgspec.json.Encoder().encode  # NaN and infinity become null.


@final
class RefusalError(Exception):
    """A refused request: the HTTP status and the error to answer with."""

    def __init__(self, status: int, error: ShoalError) -> None:
        super().__init__(str(error))
        self.status = status
        self.error = error


def make_app(routes: Sequence[BaseRoute], guard: Guard, listing: str) -> ASGIApp:
    """Return an application; `listing` tells users where its paths are listed."""

    def unknown(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        if error.status_code == 405:
            allow = (error.headers or {}).get("Allow", "")
            wrong = UsageError(
                "this method is not allowed here",
                because=f"the path takes {allow}",
                hint=listing,
            )
            return failure(wrong, 405, allow)
        missing = NotFoundError(
            f"there is no '{request.url.path[:80]}' here",
            because="no page and no answer has this name",
            hint=listing,
        )
        return failure(missing)

    app = Starlette(
        routes=routes,
        exception_handlers={
            HTTPException: unknown,
            RefusalError: lambda _request, error: _answer_to(error),
            ShoalError: lambda _request, error: _answer_to(error),
            ClientDisconnect: lambda _request, _error: Response(status_code=400),
        },
        middleware=[Middleware(RequestGate, guard=guard)],
    )
    app.router.redirect_slashes = False
    return app


@final
class RequestGate:
    """Passes well-formed, authorised requests to an application."""

    def __init__(self, app: ASGIApp, guard: Guard) -> None:
        self._app = app
        self._guard = guard

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check and answer one request."""
        has_begun = False

        async def secured(message: Message) -> None:
            nonlocal has_begun
            if message["type"] == "http.response.start":
                has_begun = True
                MutableHeaders(scope=message).update(SECURITY)
            await send(message)

        try:
            check_head(scope)
            self._guard(scope)
            await self._app(scope, receive, secured)
        except Exception as error:
            if has_begun:
                raise  # uvicorn logs it and closes the connection.
            await _answer_to(error)(scope, receive, secured)


def check_head(scope: Scope) -> None:
    """Refuse a request head that h11 accepts but a proxy could read differently."""
    headers: list[tuple[bytes, bytes]] = scope["headers"]
    size = len(scope["raw_path"]) + len(scope["query_string"])
    size += sum(len(name) + len(value) for name, value in headers)
    counts = Counter(name for name, _ in headers)
    if size > HEAD_BYTES_MAX:
        raise RefusalError(431, malformed(f"its head is over {HEAD_BYTES_MAX} bytes"))
    if counts[b"content-length"] and counts[b"transfer-encoding"]:
        raise RefusalError(400, malformed("it has both a length and chunks"))
    if scope["http_version"] not in {"1.0", "1.1"}:
        raise RefusalError(505, malformed("it is of another version of HTTP"))
    for name in _ONCE:
        if counts[name] > 1:
            raise RefusalError(400, malformed(f"there are two headers {name.decode()}"))


def header_of(scope: Scope, name: bytes) -> str | None:
    """Return a header of a request that passed `check_head`, or None."""
    for key, value in scope["headers"]:
        if key == name:
            return str(value.decode("latin-1"))
    return None


def guest_of(scope: Scope) -> Guest:
    """Return the client that sent a request."""
    guest: Guest = scope["state"]["guest"]()
    return guest


async def body_of(request: Request) -> bytes:
    """Read the body of a request; refuse more than `BODY_BYTES_MAX`."""
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > BODY_BYTES_MAX:
            error = UsageError(
                "the request is too long",
                because=f"it has more than {BODY_BYTES_MAX} bytes",
                hint="`shoal submit FILE` takes longer ones",
            )
            raise RefusalError(413, error)
    return bytes(body)


def encoded(document: Any) -> bytes:  # noqa: ANN401 - Any JSON value.
    """Encode a document as one line of JSON."""
    return _encode(document)


def failure(
    error: ShoalError, status: int = 0, allow: str = "", *, is_last: bool = False
) -> Response:
    """Return the response for an error: what failed, why, and what to do next."""
    headers = {"Allow": allow} if allow else {}
    if is_last:
        headers["Connection"] = "close"
    body = encoded({"error": error_fields(error)})
    return Response(body, status or _STATUS[kind_of(error)], headers, JSON)


def error_fields(error: ShoalError) -> dict[str, str]:
    """Return an error as JSON fields."""
    return {
        "what": error.what,
        "because": error.because,
        "hint": error.hint,
        "kind": kind_of(error),
    }


def malformed(because: str) -> UsageError:
    """Return the error for a malformed request."""
    return UsageError(
        "the request is malformed", because=because, hint="speak HTTP/1.1 to this port"
    )


def _answer_to(error: Exception) -> Response:
    """Return the response to a failed request; log a traceback if it is a bug."""
    if isinstance(error, RefusalError):
        return failure(error.error, error.status, is_last=error.status in _LAST)
    shown, _ = shown_of(error)
    return failure(shown, 0 if isinstance(error, ShoalError) else 500)
