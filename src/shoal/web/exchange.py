"""What goes in and out of the site: requests, answers, and streams of events."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple, final

import msgspec

from shoal.api.failures import kind_of
from shoal.errors import ShoalError

Send = Callable[[str, bytes], Awaitable[None]]
"""Tells a visitor of an event: its name, and a document on one line."""

JSON: Final = "application/json"
_STATUS: Final = {"usage": 400, "not-allowed": 403, "not-found": 404, "refused": 409}
_encode: Final = msgspec.json.Encoder().encode  # What is no number becomes null.


class Request(NamedTuple):
    """A request that has come whole. Names of headers are in small letters."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes = b""


class Response(NamedTuple):
    """An answer that goes whole."""

    status: int
    body: bytes
    type: str = JSON
    headers: tuple[tuple[str, str], ...] = ()


class Stream(NamedTuple):
    """An answer that goes on until the visitor has gone, or `run` returns."""

    run: Callable[[Send], Awaitable[None]]


@final
class RefusalError(Exception):
    """A request that is answered with an error, and nothing else."""

    def __init__(self, status: int, error: ShoalError) -> None:
        super().__init__(str(error))
        self.status = status
        self.error = error


def encoded(document: Any) -> bytes:  # noqa: ANN401 - Whatever JSON can say.
    """Return a document as JSON, on one line."""
    return _encode(document)


def told(document: Any) -> Response:  # noqa: ANN401
    """Answer with a document."""
    return Response(200, encoded(document))


def failure(error: ShoalError, status: int = 0) -> Response:
    """Answer with what failed, why, and what next."""
    code = status or _STATUS[kind_of(error)]
    return Response(code, encoded({"error": error_fields(error)}))


def error_fields(error: ShoalError) -> dict[str, str]:
    """Return an error for JSON."""
    return {
        "what": error.what,
        "because": error.because,
        "hint": error.hint,
        "kind": kind_of(error),
    }
