"""The metrics application: `GET /metrics` in the Prometheus text format."""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING, Final

from starlette.responses import Response
from starlette.routing import Route

from shoal.api.server.http_app import RefusalError, guest_of, header_of, make_app
from shoal.api.server.tokens import secret_of
from shoal.errors import NotAllowedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request
    from starlette.types import ASGIApp, Scope

TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


def metrics_app(text: Callable[[], bytes], token: Callable[[], str] | None) -> ASGIApp:
    """Return an application that serves `text`, and requires `token` if given."""

    async def metrics(request: Request) -> Response:
        del request
        # Scrapers return only after a minute, so do not keep the connection.
        headers = {"Content-Type": TYPE, "Connection": "close"}
        return Response(text(), headers=headers)

    def check(scope: Scope) -> None:
        if token is None:
            return
        kind, _, shown = (header_of(scope, b"authorization") or "").partition(" ")
        told, secret = secret_of(shown).encode(), secret_of(token()).encode()
        if kind != "Bearer" or not hmac.compare_digest(told, secret):
            error = NotAllowedError(
                "other machines need the token of the node to read its metrics",
                because="a wrong token was shown" if shown else "no token was shown",
                hint="`shoal token show` on the machine of the node prints it",
            )
            raise RefusalError(401, error)
        guest_of(scope).prove("token")

    return make_app([Route("/metrics", metrics)], check, "the page is /metrics")
