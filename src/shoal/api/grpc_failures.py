"""Errors over gRPC: a status code, a text, and an `Error` in the metadata."""

from __future__ import annotations

from typing import Final, cast

import grpc

from shoal.api import shoal_pb2 as pb
from shoal.api.failures import error_of, kind_of, message_of
from shoal.errors import ShoalError, UnreachableError

DETAILS: Final = "shoal-error-bin"
"""Key of the trailing metadata that holds an `Error`."""

_CODES: Final[dict[str, grpc.StatusCode]] = {
    "usage": grpc.StatusCode.INVALID_ARGUMENT,
    "not-found": grpc.StatusCode.NOT_FOUND,
    "not-allowed": grpc.StatusCode.PERMISSION_DENIED,
    "unreachable": grpc.StatusCode.UNAVAILABLE,
    "refused": grpc.StatusCode.FAILED_PRECONDITION,
    "error": grpc.StatusCode.INTERNAL,
}
_SILENT: Final = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)


def packed(
    error: ShoalError, kind: str = ""
) -> tuple[grpc.StatusCode, str, tuple[tuple[str, bytes], ...]]:
    """Encode an error as status code, text and trailing metadata."""
    kind = kind or kind_of(error)
    details = message_of(error, kind).SerializeToString()
    return _CODES[kind], str(error), ((DETAILS, details),)


def unpacked(error: grpc.RpcError, node: str) -> ShoalError:
    """Decode the error that a node reported, or say why it gave none."""
    call = cast("grpc.Call", error)  # Errors of a channel are also calls.
    code, details = call.code(), call.details()
    for key, value in call.trailing_metadata() or ():
        if key == DETAILS and isinstance(value, bytes):
            return error_of(pb.Error.FromString(value))
    if code in _SILENT:
        return UnreachableError(
            f"the node {node} does not answer",
            because=_in_short(details) or code.name,
            hint="see that a node runs there: `shoal up` says where it is called"
            if ":" in node
            else "`shoal doctor` looks for the cause",
        )
    if code is grpc.StatusCode.UNIMPLEMENTED:
        return ShoalError(
            f"the node {node} does not know this command",
            because="it runs an older shoal",
            hint="restart it: shoal down; shoal up",
        )
    return ShoalError(
        f"the node {node} failed",
        because=details or code.name,
        hint="its log may say more; `shoal doctor` says where that is",
    )


def _in_short(details: str | None) -> str:
    """Return the last cause in gRPC's text, which lists every attempt."""
    last = (details or "").rpartition("last error: ")[2]
    return last.rpartition(": ")[2].strip() or last
