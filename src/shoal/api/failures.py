"""Errors between node and client: what failed, why, and what to do next.

Commands import this module, so it must not import gRPC; `grpc_failures` does.
"""

from __future__ import annotations

import errno
import traceback
from typing import Final

from shoal.api import shoal_pb2 as pb
from shoal.errors import (
    MovedError,
    NotAllowedError,
    NotFoundError,
    ShoalError,
    UnreachableError,
    UsageError,
)

NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT)

KINDS: Final[dict[str, type[ShoalError]]] = {
    "usage": UsageError,
    "moved": MovedError,
    "not-found": NotFoundError,
    "not-allowed": NotAllowedError,
    "unreachable": UnreachableError,
}


def kind_of(error: ShoalError) -> str:
    """Return the kind of an error, for programs to match on."""
    found = (kind for kind, type_ in KINDS.items() if isinstance(error, type_))
    return next(found, "refused")


def message_of(error: ShoalError, kind: str = "") -> pb.Error:
    """Encode an error for clients."""
    return pb.Error(
        what=error.what,
        because=error.because,
        hint=error.hint,
        kind=kind or kind_of(error),
        node=error.node if isinstance(error, MovedError) else "",
    )


def shown_of(error: Exception) -> tuple[ShoalError, str]:
    """Return the error to report and its kind; log a traceback if it is a bug."""
    if isinstance(error, ShoalError):
        return error, kind_of(error)
    if isinstance(error, OSError) and error.errno in NO_ROOM:
        return _full(error), "refused"
    traceback.print_exception(error)  # Into the node's log.
    bug = ShoalError(
        "the node failed",
        because=f"{type(error).__name__}: {error}",
        hint="this is a bug: the node's log has the details",
    )
    return bug, "error"


def _full(error: OSError) -> ShoalError:
    return ShoalError(
        "the node has no room on its disk",
        because=error.strerror or str(error),
        hint="free some space on its machine; `shoal doctor` there says where",
    )


def error_of(told: pb.Error) -> ShoalError:
    """Decode the error that a node reported."""
    if told.kind == "moved":
        return MovedError(told.what, told.node, because=told.because, hint=told.hint)
    type_ = KINDS.get(told.kind, ShoalError)
    return type_(told.what, because=told.because, hint=told.hint)
