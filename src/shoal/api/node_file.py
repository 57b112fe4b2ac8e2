"""Where to reach a running node: `node.json` in its home, and its token.

The node writes `node.json` when it is ready and removes it when it ends. After a crash
the file remains, so `running` and `required` also probe the socket. Clients import this
module, so it must import nothing slow.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from shoal.api.sockets import check_peer
from shoal.errors import NotAllowedError, UnreachableError, UsageError
from shoal.runtime.home import Home

if TYPE_CHECKING:
    from collections.abc import Iterator

VERSION: Final = 1
TASK_VARIABLE: Final = "SHOAL_TASK_ID"
SOCKET_VARIABLE: Final = "SHOAL_SOCKET"
SOCKET_PATH_BYTES_MAX: Final = 100
"""The kernel allows 107 bytes; this leaves some for gRPC."""


class NodeFile(NamedTuple):
    """The contents of `node.json`."""

    pid: int
    node: str
    petname: str
    shoal: str
    socket: str
    api: str  # host:port
    addresses: tuple[str, ...] = ()
    version: int = VERSION


def socket_path(home: Home) -> Path:
    """Return the path of a node's socket: in its home, if that path fits."""
    path = home.socket
    if len(os.fsencode(path)) <= SOCKET_PATH_BYTES_MAX:
        return path
    from hashlib import sha256  # noqa: PLC0415 - Slow, rarely needed.

    name = sha256(os.fsencode(home.path)).hexdigest()[:16]
    base = os.environ.get("XDG_RUNTIME_DIR") or f"/tmp/shoal-{os.getuid()}"  # noqa: S108
    return Path(base) / f"{name}.sock"


def in_task() -> bool:
    """Return whether this is a task, which has its own way to its shoal.

    A job whose environment names a home means the node of that home.
    """
    names = os.environ
    return (
        TASK_VARIABLE in names
        and SOCKET_VARIABLE in names
        and "SHOAL_HOME" not in names
    )


def refuse_start_in_task() -> None:
    """Raise in a task: a node that started by itself there would be a shoal apart."""
    if TASK_VARIABLE in os.environ:
        raise UnreachableError(
            "no node is started inside a task",
            because="it would be a shoal of its own",
            hint="without SHOAL_HOME, `shoal.Client()` in a task is a client of the "
            "shoal that runs it",
        )


def read(home: Home) -> NodeFile | None:
    """Read `node.json` of a home; return None if it is missing or invalid."""
    try:
        fields: dict[str, Any] = json.loads(home.node_info.read_bytes())
        fields["addresses"] = tuple(fields["addresses"])
        known = {name: fields[name] for name in NodeFile._fields}
        return NodeFile(**known)
    except FileNotFoundError:
        return None
    except PermissionError as error:
        raise NotAllowedError(
            f"cannot read {home.node_info}",
            because=error.strerror or str(error),
            hint="run this as the user of the node, or set SHOAL_HOME",
        ) from None
    except OSError as error:
        raise UsageError(
            f"{home.path} cannot be the home of a node",
            because=error.strerror or str(error),
            hint="set SHOAL_HOME to a folder that you can write to",
        ) from None
    except (ValueError, KeyError, TypeError):
        return None  # Partial, or from another version.


def encoded(found: NodeFile) -> bytes:
    """Encode `node.json`."""
    return json.dumps(found._asdict(), indent=2).encode() + b"\n"


def answers(path: str) -> bool:
    """Return whether a node listens on a socket; a dead one leaves its file."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(2.0)
        try:
            probe.connect(path)
        except OSError:
            return False
        check_peer(probe, Path(path))
    return True


def running(home: Home) -> NodeFile | None:
    """Return how to reach the node of a home; None if it is not running."""
    found = read(home)
    return found if found is not None and answers(found.socket) else None


def required(home: Home) -> NodeFile:
    """Return how to reach the node of a home; raise if it is not running."""
    found = read(home)
    if found is None:
        shoal = f"shoal --net {home.net}" if home.net else "shoal"
        raise UnreachableError(
            "no node is running",
            because=f"there is no node.json in {home.path}",
            hint=f"`{shoal} up` starts one; `{shoal} run` does so by itself",
        )
    if answers(found.socket):
        return found
    if is_node(found.pid):
        raise UnreachableError(
            f"the node {found.petname} does not answer",
            because=f"process {found.pid} runs, but nobody listens on its socket",
            hint="`shoal doctor` looks for the cause; `shoal down` ends it",
        )
    raise UnreachableError(
        "no node is running",
        because=f"{found.petname} (process {found.pid}) died without a word",
        hint=f"`shoal up` starts it again; the end of {home.log} may say why",
    )


def is_node(pid: int) -> bool:
    """Return whether a process is a live node; its pid may have been reused."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
        state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return False
    is_zombie = state.rpartition(")")[2].split()[:1] == ["Z"]
    return b"shoal" in command and not is_zombie


def token_file(home: Home) -> Path:
    """Return the path of the token for calls over the network."""
    return home.path / "api.token"


def read_token(home: Home) -> str:
    """Return the token of a home; empty if there is none."""
    try:
        return token_file(home).read_text(encoding="ascii").strip()
    except OSError:
        return ""


LISTENS: Final = "0A"
TABLES: Final = ("/proc/net/tcp", "/proc/net/tcp6")


def home_serving(port: int) -> Home | None:
    """Return the home of this user's node that listens on a port, or None.

    A user who may read a node's home needs no token to call it. The process that holds
    the listening socket also holds its home's journal open, which /proc shows only to
    the owner of the process: nodes of others are not found. Works on Linux only.
    """
    sockets = set(_listening(port))
    if not sockets:
        return None
    for process in Path("/proc").glob("[0-9]*"):
        opened = _opened(process / "fd")
        if sockets.isdisjoint(opened):
            continue
        for path in map(Path, opened):
            home = Home(path.parent)
            if path == home.journal:
                return home
    return None


def _listening(port: int) -> Iterator[str]:
    """Yield this user's sockets that listen on a port, as named in /proc."""
    own = str(os.getuid())
    for table in TABLES:
        try:
            lines = Path(table).read_text(encoding="ascii").splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            _, local, _, state, _, _, _, uid, _, inode, *_ = line.split()
            if state == LISTENS and uid == own and int(local[-4:], 16) == port:
                yield f"socket:[{inode}]"


def _opened(folder: Path) -> list[str]:
    """Return the open files of a process; skip those that cannot be read."""
    opened: list[str] = []
    with contextlib.suppress(OSError):
        for entry in folder.iterdir():
            with contextlib.suppress(OSError):
                opened.append(str(entry.readlink()))
    return opened
