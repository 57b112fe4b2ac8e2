"""Ask services of the system's D-Bus: one call at a time, and its answer.

A call takes texts only; an answer may hold all types. So there is little to write, and
all of the type system to read. What does not fit the protocol raises `BusError`, as a
bus that does not answer in time does.

The protocol: https://dbus.freedesktop.org/doc/dbus-specification.html
"""

from __future__ import annotations

import os
import socket
import struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple, final

if TYPE_CHECKING:
    from collections.abc import Mapping

ADDRESS: Final = "DBUS_SYSTEM_BUS_ADDRESS"
DEFAULT: Final = "unix:path=/run/dbus/system_bus_socket"
BUS: Final = "org.freedesktop.DBus"
TIMEOUT_S: Final = 2.0
MESSAGE_BYTES_MAX: Final = 1 << 20
DEPTH_MAX: Final = 32
HEADER_BYTES: Final = 16
LINE_BYTES_MAX: Final = 512

CALL, RETURN, ERROR = 1, 2, 3
PATH, INTERFACE, MEMBER, ERROR_NAME, REPLY_SERIAL, TO, SIGNATURE = 1, 2, 3, 4, 5, 6, 8
_NUMBERS: Final = {
    "y": "B",
    "b": "I",
    "n": "h",
    "q": "H",
    "i": "i",
    "u": "I",
    "h": "I",
    "x": "q",
    "t": "Q",
    "d": "d",
}
_ALIGNED: Final = {"v": 1, "g": 1, "s": 4, "o": 4, "a": 4, "(": 8, "{": 8}


class BusError(Exception):
    """The bus cannot be asked, or answers something else."""


class BusCallError(Exception):
    """A service refuses a call, perhaps as its object is gone."""


class Target(NamedTuple):
    """A method of an object of a service."""

    service: str
    path: str
    interface: str
    method: str


@final
class SystemBus:
    """A connection to the bus. Its methods block, for no longer than `TIMEOUT_S`."""

    def __init__(self, env: Mapping[str, str] | None = None) -> None:
        """Connect; raise `BusError` if there is no bus."""
        self._serial = 0
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(TIMEOUT_S)
        try:
            self._socket.connect(_place(os.environ if env is None else env))
            self._prove()
            self.call(Target(BUS, "/org/freedesktop/DBus", BUS, "Hello"), "s")
        except (OSError, BusCallError) as error:
            self.close()
            raise BusError(str(error)) from None
        except BusError:
            self.close()
            raise

    def close(self) -> None:
        """Disconnect."""
        self._socket.close()

    def call(self, target: Target, answers: str, *texts: str) -> list[Any]:
        """Call a method; return its answer, which has the types `answers`.

        Raises `BusCallError` if the service answers with an error.
        """
        self._serial += 1
        serial = self._serial
        try:
            self._socket.sendall(_method_call(serial, target, texts))
            while True:
                kind, fields, reader = self._receive()
                if fields.get(REPLY_SERIAL) != serial:
                    continue  # A signal, such as our own new name.
                if kind == ERROR:
                    raise BusCallError(str(fields.get(ERROR_NAME, "an error")))
                if (told := str(fields.get(SIGNATURE, ""))) != answers:
                    raise BusError(f"it answers {told[:16]!r} and not {answers!r}")
                return reader.values(answers)
        except OSError as error:
            raise BusError(str(error)) from None

    def _prove(self) -> None:
        """Say which user we are; the kernel tells the bus whether that is so."""
        user = str(os.geteuid()).encode().hex()
        self._socket.sendall(b"\0AUTH EXTERNAL " + user.encode() + b"\r\n")
        answer = b""
        while not answer.endswith(b"\r\n"):
            answer += self._read(1)
            if len(answer) > LINE_BYTES_MAX:
                raise BusError("its answer has no end")
        if not answer.startswith(b"OK "):
            raise BusError("it does not believe who we are")
        self._socket.sendall(b"BEGIN\r\n")

    def _receive(self) -> tuple[int, dict[int, Any], BusReader]:
        head = self._read(HEADER_BYTES)
        order = {ord("l"): "<", ord("B"): ">"}.get(head[0])
        if order is None:
            raise BusError("it speaks another protocol")
        body_bytes, _, field_bytes = struct.unpack_from(f"{order}III", head, 4)
        rest_bytes = field_bytes + -field_bytes % 8 + body_bytes
        if rest_bytes > MESSAGE_BYTES_MAX:
            raise BusError(f"a message has {rest_bytes} bytes")
        data = head + self._read(rest_bytes)
        fields = dict(BusReader(data, order, at=HEADER_BYTES - 4).value("a(yv)"))
        reader = BusReader(data, order, at=len(data) - body_bytes)
        return head[1], fields, reader

    def _read(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            piece = self._socket.recv(count - len(data))
            if not piece:
                raise BusError("it hung up")
            data += piece
        return data


def _place(env: Mapping[str, str]) -> str:
    """Return the first socket of a list of addresses that has a name."""
    for address in (env.get(ADDRESS) or DEFAULT).split(";"):
        kind, _, rest = address.partition(":")
        pairs: dict[str, str] = {}
        for pair in rest.split(","):
            name, _, value = pair.partition("=")
            pairs[name] = value
        if kind == "unix" and "path" in pairs:
            return pairs["path"]
        if kind == "unix" and "abstract" in pairs:
            return f"\0{pairs['abstract']}"
    raise BusError("its address is no socket of this machine")


def _method_call(serial: int, target: Target, texts: tuple[str, ...]) -> bytes:
    service, path, interface, method = target
    body = b""
    for text in texts:
        body = _padded(body, 4) + _text(text)
    fields = b""
    named = {PATH: path, INTERFACE: interface, MEMBER: method, TO: service}
    for code, value in named.items():
        kind = b"o" if code == PATH else b"s"
        fields = _padded(fields, 8) + bytes((code, 1)) + kind + b"\0" + _text(value)
    if texts:
        signature = b"s" * len(texts)
        fields = _padded(fields, 8) + bytes((SIGNATURE, 1)) + b"g\0"
        fields += bytes((len(signature),)) + signature + b"\0"
    head = struct.pack("<cBBBIII", b"l", CALL, 0, 1, len(body), serial, len(fields))
    return _padded(head + fields, 8) + body


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<I", len(data)) + data + b"\0"


def _padded(data: bytes, to: int) -> bytes:
    return data + bytes(-len(data) % to)


@final
class BusReader:
    """Reads values of given types, one after the other."""

    def __init__(self, data: bytes, order: str, at: int = 0) -> None:
        self._data = data
        self._order = order
        self._at = at

    def values(self, signature: str) -> list[Any]:
        """Read a value of each of these types."""
        found: list[Any] = []
        while signature:
            first, signature = _first(signature)
            found.append(self.value(first))
        return found

    def value(self, kind: str, depth: int = 0) -> Any:  # noqa: ANN401 - Of any type.
        """Read a value of one type."""
        if depth > DEPTH_MAX:
            raise BusError("its values are too deep")
        first = kind[:1]
        if first in _NUMBERS:
            size = struct.calcsize(_NUMBERS[first])
            number = self._unpack(_NUMBERS[first], size)
            return bool(number) if first == "b" else number
        self._align(_ALIGNED.get(first, 1))
        match first:
            case "s" | "o":
                return self._string(self._unpack("I", 4))
            case "g":
                return self._string(self._unpack("B", 1))
            case "v":
                inner = self._string(self._unpack("B", 1))
                if _first(inner) != (inner, ""):
                    raise BusError("a variant holds more than one value")
                return self.value(inner, depth + 1)
            case "a":
                return self._array(kind[1:], depth)
            case "(" | "{":
                parts: list[Any] = []
                rest = kind[1:-1]
                while rest:
                    part, rest = _first(rest)
                    parts.append(self.value(part, depth + 1))
                return tuple(parts)
            case _:
                raise BusError(f"it has a type {kind[:8]!r}")

    def _array(self, element: str, depth: int) -> list[Any]:
        size = self._unpack("I", 4)
        letter = element[0]
        width = struct.calcsize(_NUMBERS[letter]) if letter in _NUMBERS else 1
        self._align(_ALIGNED.get(letter, width))
        end = self._at + size
        if end > len(self._data):
            raise BusError("a list is longer than its message")
        found: list[Any] = []
        while self._at < end:
            found.append(self.value(element, depth + 1))
        return found

    def _unpack(self, letter: str, size: int) -> Any:  # noqa: ANN401 - A number.
        self._align(size)
        if self._at + size > len(self._data):
            raise BusError("a message ends too early")
        (number,) = struct.unpack_from(self._order + letter, self._data, self._at)
        self._at += size
        return number

    def _string(self, size: int) -> str:
        end = self._at + size
        if end >= len(self._data):
            raise BusError("a text is longer than its message")
        text = self._data[self._at : end].decode(errors="replace")
        self._at = end + 1
        return text

    def _align(self, to: int) -> None:
        self._at += -self._at % to


def _first(signature: str) -> tuple[str, str]:
    """Split the first complete type off a signature."""
    at = 0
    while signature[at : at + 1] == "a":
        at += 1
    depth = 0
    for end in range(at, len(signature)):
        depth += {"(": 1, "{": 1, ")": -1, "}": -1}.get(signature[end], 0)
        if depth == 0:
            return signature[: end + 1], signature[end + 1 :]
    raise BusError(f"it has a type {signature[:8]!r}")
