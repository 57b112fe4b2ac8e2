"""Authorises requests to the page: by token, `Host` and `Origin`.

The token comes in the `Authorization` header, which no other site can make a browser
send. That alone defeats cross-site forms and DNS rebinding; checking host and origin is
a second line of defence. Static files need no token. Every refusal is audited.
"""

from __future__ import annotations

import hmac
import ipaddress
import socket
from typing import TYPE_CHECKING, Final, final

from shoal.api.server.http_app import JSON, RefusalError, guest_of, header_of
from shoal.api.server.http_server import is_loopback
from shoal.api.service.audited import Origin, came_by, origin, refused
from shoal.errors import NotAllowedError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import Scope

    from shoal.core.durability.audit_chain import AuditEntry

GUARDED: Final = "/api/"
"""Paths below this need the token."""

HERE: Final = frozenset({"localhost", "127.0.0.1", "::1"})


@final
class Guard:
    """Checks each request before anything else handles it."""

    def __init__(
        self, token: Callable[[], str], host: str, note: Callable[[AuditEntry], None]
    ) -> None:
        """Guard a page that listens on `host`; off loopback, the page uses TLS.

        `note` writes refusals into the audit log.
        """
        self._token = token
        self._is_open = not is_loopback(host)
        self._scheme = "https" if self._is_open else "http"
        self._names = HERE | {host, socket.gethostname().lower()}
        self._note = note

    def __call__(self, scope: Scope) -> None:
        """Raise `RefusalError`, and audit it, unless the request is allowed."""
        guest = guest_of(scope)
        came_by(Origin("page", address=guest.address))
        try:
            self.check(scope)
        except RefusalError as refusal:
            what = f"page {scope['path'][:40]}"
            refused(self._note, what, origin(), str(refusal.error))
            raise
        if scope["path"].startswith(GUARDED):
            guest.prove("token")

    def check(self, scope: Scope) -> None:
        """Raise `RefusalError` on a wrong host, origin, token or content type."""
        host = header_of(scope, b"host") or ""
        self._check_host(host)
        self._check_origin(header_of(scope, b"origin"), host)
        if not scope["path"].startswith(GUARDED):
            return
        shown = (header_of(scope, b"authorization") or "").encode()
        if not hmac.compare_digest(shown, f"Bearer {self._token()}".encode()):
            error = NotAllowedError(
                "the page does not know you",
                because="a wrong token was shown" if shown else "no token was shown",
                hint="`shoal web` on the machine of the node opens it with its token",
            )
            raise RefusalError(401, error)
        if scope["method"] == "POST":
            kind = (header_of(scope, b"content-type") or "").partition(";")[0].strip()
            if kind.lower() != JSON:
                raise RefusalError(415, _not_json(kind))

    def _check_host(self, text: str) -> None:
        """Refuse host names that others may have pointed here (DNS rebinding)."""
        host = _host_of(text)
        if host in self._names or (self._is_open and _is_address(host)):
            return
        error = NotAllowedError(
            f"this page is not '{host[:80]}'",
            because="it answers to addresses, and to the name of its machine",
            hint="open the address that `shoal web` prints",
        )
        raise RefusalError(421, error)

    def _check_origin(self, origin: str | None, host: str) -> None:
        """Refuse requests whose `Origin` is another site."""
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
        because="the page takes requests in JSON only",
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
