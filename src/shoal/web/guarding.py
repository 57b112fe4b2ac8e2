"""Who may ask: the token tells, and what a browser says of where a request is from.

The token is shown in a header, which no other site can make a browser send. So neither
a form elsewhere nor a name that leads here is of any use to others. That the host and
the origin are looked at as well is a second wall.
"""

from __future__ import annotations

import hmac
import ipaddress
import socket
from typing import TYPE_CHECKING, Final, final

from shoal.errors import NotAllowedError, UsageError
from shoal.web.exchange import JSON, RefusalError

if TYPE_CHECKING:
    from shoal.web.exchange import Request

GUARDED: Final = "/api/"
"""Whatever is below this needs the token."""

HERE: Final = frozenset({"localhost", "127.0.0.1", "::1"})


@final
class Guard:
    """Decides about each request before anything else looks at it."""

    def __init__(self, token: str, host: str) -> None:
        """Guard a page that listens on this host; off loopback that is by TLS."""
        self._token = f"Bearer {token}".encode()
        self._is_open = not _is_loopback(host)
        self._scheme = "https" if self._is_open else "http"
        self._names = HERE | {host, socket.gethostname().lower()}

    def check(self, request: Request) -> None:
        """Raise `RefusalError` unless this may be answered."""
        self._check_host(request)
        self._check_origin(request)
        if not request.path.startswith(GUARDED):
            return
        shown = request.headers.get("authorization", "").encode()
        if not hmac.compare_digest(shown, self._token):
            error = NotAllowedError(
                "the page does not know you",
                because="a wrong token was shown" if shown else "no token was shown",
                hint="`shoal web` on the machine of the node opens it with its token",
            )
            raise RefusalError(401, error)
        if request.method == "POST":
            kind = request.headers.get("content-type", "").partition(";")[0].strip()
            if kind.lower() != JSON:
                raise RefusalError(415, _not_json(kind))

    def _check_host(self, request: Request) -> None:
        """Refuse names that somebody else may have led here."""
        host = _host_of(request.headers.get("host", ""))
        if host in self._names or (self._is_open and _is_address(host)):
            return
        error = NotAllowedError(
            f"this page is not '{host[:80]}'",
            because="it answers to addresses, and to the name of its machine",
            hint="open the address that `shoal web` prints",
        )
        raise RefusalError(421, error)

    def _check_origin(self, request: Request) -> None:
        """Refuse what a browser says comes from another page."""
        origin = request.headers.get("origin")
        host = request.headers.get("host", "")
        if origin is None or origin == f"{self._scheme}://{host}":
            return
        error = NotAllowedError(
            f"'{origin[:80]}' may not ask this",
            because="only the page of the node itself may",
            hint="open the address that `shoal web` prints",
        )
        raise RefusalError(403, error)


def _not_json(kind: str) -> UsageError:
    return UsageError(
        f"'{kind[:40]}' is not understood here",
        because="what is asked of the node is written in JSON",
        hint=f"send it with content-type: {JSON}",
    )


def _host_of(text: str) -> str:
    """Return the host of `localhost:7420` or `[::1]:7420`."""
    if text.startswith("["):
        return text[1:].partition("]")[0].lower()
    return text.partition(":")[0].lower()


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _is_loopback(host: str) -> bool:
    return host == "localhost" or (
        _is_address(host) and ipaddress.ip_address(host).is_loopback
    )
