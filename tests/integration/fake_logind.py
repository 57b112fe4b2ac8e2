# ruff: noqa: ANN401 - Values are of any type that the bus has.
"""A bus of our own with a service that answers as logind does.

`dbus-daemon` is the real one, and cuts off whoever sends it what is not valid. So both
the service here and the client that is tested speak its protocol.
"""

import contextlib
import os
import shutil
import socket
import struct
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from shoal.runtime.lending import desktop_input
from shoal.runtime.lending.system_bus import (
    BUS,
    INTERFACE,
    MEMBER,
    PATH,
    REPLY_SERIAL,
    SIGNATURE,
    TO,
    BusReader,
)

DAEMON = shutil.which("dbus-daemon")
SENDER = 7
RETURN, ERROR = 2, 3
CONFIG = """
<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <listen>unix:path={path}</listen>
  <auth>EXTERNAL</auth>
  <policy context="default">
    <allow send_destination="*"/><allow receive_sender="*"/><allow own="*"/>
  </policy>
</busconfig>
"""


def packed(at: int, kind: str, value: Any) -> bytes:
    """Return a value as it is sent, if it begins `at` so many bytes."""
    letters = {"y": "B", "u": "I", "b": "I", "t": "Q", "n": "h"}
    if kind in letters:
        size = struct.calcsize(letters[kind])
        return bytes(-at % size) + struct.pack(f"<{letters[kind]}", int(value))
    if kind in "so":
        text = str(value).encode()
        return bytes(-at % 4) + struct.pack("<I", len(text)) + text + b"\0"
    if kind == "g":
        return bytes((len(value),)) + str(value).encode() + b"\0"
    if kind == "v":
        inner, content = value
        head = packed(at, "g", inner)
        return head + packed(at + len(head), inner, content)
    if kind[0] == "a":
        pad, element = bytes(-at % 4), kind[1:]
        gap = bytes(-(at + len(pad) + 4) % (8 if element[0] in "({" else 4))
        begin = at + len(pad) + 4 + len(gap)
        body = b""
        for each in value:
            body += packed(begin + len(body), element, each)
        return pad + struct.pack("<I", len(body)) + gap + body
    assert kind[0] in "({"
    data = bytes(-at % 8)
    for letter, part in zip(kind[1:-1], value, strict=True):
        data += packed(at + len(data), letter, part)
    return data


def message(
    kind: int, serial: int, fields: dict[int, tuple[str, Any]], types: str, *values: Any
) -> bytes:
    """Return a whole message."""
    body = b""
    for letters, value in zip(types.split(), values, strict=True):
        body += packed(len(body), letters, value)
    if types:
        fields = {**fields, SIGNATURE: ("g", types.replace(" ", ""))}
    head = struct.pack("<cBBBII", b"l", kind, 0, 1, len(body), serial)
    head += packed(len(head), "a(yv)", list(fields.items()))
    return head + bytes(-len(head) % 8) + body


class FakeLogind:
    """Answers for the sessions it has; they may change at any time."""

    def __init__(self, address: Path) -> None:
        self.sessions: dict[str, dict[str, tuple[str, Any]]] = {}
        self.gone: set[str] = set()  # they are listed, and are not there any more
        self.asked = 0
        self._serial = 0
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(str(address))
        self._socket.sendall(
            b"\0AUTH EXTERNAL " + str(os.geteuid()).encode().hex().encode() + b"\r\n"
        )
        assert self._socket.recv(512).startswith(b"OK ")
        self._socket.sendall(b"BEGIN\r\n")
        self._call("Hello", "")
        self._call("RequestName", "s u", desktop_input.LOGIND, 0)
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def desktop(self, name: str = "1", **changes: tuple[str, Any]) -> None:
        """Have a session at a desktop, with these differences."""
        self.sessions[f"/org/freedesktop/login1/session/_3{name}"] = {
            "Type": ("s", "wayland"),
            "Class": ("s", "user"),
            "Active": ("b", True),
            "State": ("s", "active"),
            "IdleHint": ("b", False),
            "IdleSinceHint": ("t", 0),
            "LockedHint": ("b", False),
            "User": ("(uo)", (1000, "/org/freedesktop/login1/user/_1000")),
            "VTNr": ("u", 2),
            **changes,
        }

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._socket.close()

    def _call(self, method: str, types: str, *values: Any) -> None:
        fields: dict[int, tuple[str, Any]] = {
            PATH: ("o", "/org/freedesktop/DBus"),
            INTERFACE: ("s", BUS),
            MEMBER: ("s", method),
            TO: ("s", BUS),
        }
        self._serial += 1
        self._socket.sendall(message(1, self._serial, fields, types, *values))

    def _serve(self) -> None:
        while head := self._socket.recv(16, socket.MSG_WAITALL):
            body_bytes, serial, field_bytes = struct.unpack_from("<III", head, 4)
            rest = field_bytes + -field_bytes % 8 + body_bytes
            data = head + self._socket.recv(rest, socket.MSG_WAITALL)
            fields = dict(BusReader(data, "<", at=12).value("a(yv)"))
            if head[1] == 1:
                self._socket.sendall(self._answer(serial, fields))

    def _answer(self, serial: int, fields: dict[int, Any]) -> bytes:
        self.asked += 1
        self._serial += 1
        back = {REPLY_SERIAL: ("u", serial), TO: ("s", fields[SENDER])}
        if fields[MEMBER] == "ListSessions":
            rows = [("1", 1000, "ann", "seat0", path) for path in self.sessions]
            return message(RETURN, self._serial, back, "a(susso)", rows)
        if fields[PATH] in self.gone:
            back[4] = ("s", "org.freedesktop.DBus.Error.UnknownObject")
            return message(ERROR, self._serial, back, "")
        told = list(self.sessions[fields[PATH]].items())
        return message(RETURN, self._serial, back, "a{sv}", told)


@contextlib.contextmanager
def own_bus(folder: Path) -> Iterator[Path]:
    """Run a bus; yield its socket."""
    assert DAEMON is not None
    path, config = folder / "bus", folder / "bus.conf"
    config.write_text(CONFIG.format(path=path), encoding="ascii")
    argv = [DAEMON, f"--config-file={config}", "--nofork", "--print-address"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as daemon:
        assert daemon.stdout is not None
        daemon.stdout.readline()  # It listens.
        try:
            yield path
        finally:
            daemon.terminate()


@contextlib.contextmanager
def logind(address: Path) -> Iterator[FakeLogind]:
    """Run a service that answers as logind."""
    fake = FakeLogind(address)
    try:
        yield fake
    finally:
        fake.close()
