"""Call the worker from inside a task: blobs and checkpoints.

Like `shoal.log` it talks to the socket in SHOAL_SOCKET, one JSON object per line.
Unlike `shoal.log` it waits for the answer, and raises `ShoalError` on a refusal. Paths
are below the work directory.
"""

from __future__ import annotations

import json
import os
import socket
from typing import TYPE_CHECKING, Final, cast

from shoal.errors import NotAllowedError, ShoalError

if TYPE_CHECKING:
    from collections.abc import Sequence

SOCKET_VARIABLE: Final = "SHOAL_SOCKET"
WORKDIR_VARIABLE: Final = "SHOAL_WORKDIR"
ANSWER_BYTES_MAX: Final = 1 << 20


def put(path: str | os.PathLike[str]) -> str:
    """Publish a file under a name derived from its bytes; return that name.

    Any task of this shoal that knows the name can `get` the file from this worker,
    while this task runs and for a while afterwards.
    """
    return str(ask({"call": "put", "path": _below(path)})["blob"])


def get(
    blob: str,
    path: str | os.PathLike[str],
    *,
    nodes: Sequence[str] = (),
    timeout_s: float | None = None,
) -> None:
    """Download a published file to a path, completely or not at all.

    It is searched for on `nodes`, on the nodes of this gang, and on the scheduler of
    this job.
    """
    call: dict[str, object] = {
        "call": "get",
        "blob": blob,
        "path": _below(path),
        "nodes": list(nodes),
    }
    ask(call, timeout_s)


def forget(blob: str) -> None:
    """Let the worker remove a file that was put or got, once it needs the room."""
    ask({"call": "forget", "blob": blob})


def checkpoint(path: str | os.PathLike[str]) -> None:
    """Save a file or folder as the checkpoint of this task.

    When this returns, the worker has its own copy, and the task may change the
    original. A later attempt, perhaps elsewhere, finds it at the same path, which
    SHOAL_CHECKPOINT names.
    """
    ask({"call": "checkpoint", "path": _below(path)})


SCATTER_MAGIC: Final = b"shoal:s1"
SCATTER_ALIGNED: Final = 64
SCATTER_FOLDER: Final = ".shoal-scattered"
SCATTERED_MAX: Final = 64
"""Values that one interpreter keeps; the one that was used longest ago goes first."""


class Scattered:
    """A value that was sent once; a function that is given this gets the value."""

    def __init__(self, blob: str) -> None:
        self.blob = blob

    def __repr__(self) -> str:
        return (
            f"<scattered {self.blob[:12]}, {int(self.blob.rpartition('-')[2]):,} bytes>"
        )

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return scattered, (self.blob,)


_values: dict[str, object] = {}


def scattered(blob: str) -> object:
    """Return the value of a blob, fetched at its first use in this interpreter."""
    if blob not in _values:
        path = f"{os.environ.get(WORKDIR_VARIABLE, '.')}/{SCATTER_FOLDER}/{blob}"
        if not os.path.exists(path):  # noqa: PTH110 - Tasks start faster without Path.
            get(blob, path)
        value = _mapped(path)
        while len(_values) >= SCATTERED_MAX:
            del _values[next(iter(_values))]
        _values[blob] = value
    _values[blob] = value = _values.pop(blob)
    return value


def _mapped(path: str) -> object:
    """Return a value whose arrays are read from its file as they are used."""
    import mmap  # noqa: PLC0415 - Few tasks need these.
    import pickle  # noqa: PLC0415
    import struct  # noqa: PLC0415

    with open(path, "rb") as file:  # noqa: PTH123
        view = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    begin = len(SCATTER_MAGIC)
    if bytes(view[:begin]) != SCATTER_MAGIC:
        raise ShoalError("this blob is no scattered value")
    (count,) = struct.unpack_from("<Q", view, begin)
    sizes = struct.unpack_from(f"<{count}Q", view, begin + 8)
    at, pieces = _aligned(begin + 8 + 8 * count), list[memoryview]()
    for size in sizes:
        pieces.append(view[at : at + size])
        at = _aligned(at + size)
    # The user whose functions run here made it.
    return pickle.loads(pieces[0], buffers=pieces[1:])  # noqa: S301


def _aligned(size: int) -> int:
    return -(-size // SCATTER_ALIGNED) * SCATTER_ALIGNED


def _below(path: str | os.PathLike[str]) -> str:
    """Return a path relative to the work directory."""
    root = os.environ.get(WORKDIR_VARIABLE)
    return os.path.relpath(path, root) if root else os.fspath(path)


def ask(call: dict[str, object], timeout_s: float | None = None) -> dict[str, object]:
    """Return the worker's answer to a call; raise `ShoalError` on a refusal."""
    where = os.environ.get(SOCKET_VARIABLE)
    if not where:
        raise NotAllowedError(
            f"'{call['call']}' works only inside a task",
            because=f"{SOCKET_VARIABLE} is not set",
            hint="submit the program with `shoal run`",
        )
    try:
        answer = _exchange(where, json.dumps(call).encode() + b"\n", timeout_s)
    except OSError as error:
        raise ShoalError("the worker does not answer", because=str(error)) from None
    if "error" in answer:
        raise ShoalError(str(answer["error"]))
    return answer


def api_connection(timeout_s: float | None) -> socket.socket:
    """Return a connection to the API of the shoal that runs this task.

    Raises `NotAllowedError` if the task may not call it, `OSError` if nobody answers.
    """
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(timeout_s)
        connection.connect(os.environ[SOCKET_VARIABLE])
        connection.sendall(b'{"call": "api"}\n')
        answer = _line_of(connection)
    except BaseException:
        connection.close()
        raise
    if "error" in answer:
        connection.close()
        told = {key: str(answer.get(key, "")) for key in ("because", "hint")}
        raise NotAllowedError(str(answer["error"]), **told)
    return connection


def _exchange(where: str, line: bytes, timeout_s: float | None) -> dict[str, object]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(timeout_s)
        connection.connect(where)
        connection.sendall(line)
        return _line_of(connection)


def _line_of(connection: socket.socket) -> dict[str, object]:
    """Return the one line that the worker answers with."""
    data = b""
    while not data.endswith(b"\n"):
        part = connection.recv(65_536)
        if not part or len(data) > ANSWER_BYTES_MAX:
            raise ConnectionResetError("the worker hung up")
        data += part
    return cast("dict[str, object]", json.loads(data))
