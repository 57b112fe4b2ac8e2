"""Encode and decode texts and numbers in frames between local processes.

A node, its supervisors and their keepers use this format. A number takes 8 bytes, a
text follows its length (4 bytes), and the texts of a list follow their count (4 bytes)
and all their lengths. So no content of a text can be mistaken for the next field. Texts
become arguments, variables and paths, which end at a NUL, so both sides refuse texts
that contain one.

Supervisors use this, so it may import only the standard library.
"""

from __future__ import annotations

import itertools
import os
import struct
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Iterable

NUMBER_MAX: Final = (1 << 63) - 1
_NUMBER: Final = struct.Struct("<q")
_LENGTH: Final = struct.Struct("<I")


class FrameError(ValueError):
    """Invalid bytes in a frame, or a text that cannot be sent in one."""


@final
class Packer:
    """Builds the body of a frame from fields."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def number(self, value: int) -> Packer:
        """Add a number."""
        try:
            self._pieces.append(_NUMBER.pack(value))
        except struct.error:
            raise FrameError(f"the number {value} needs more than 8 bytes") from None
        return self

    def text(self, value: str) -> Packer:
        """Add a text."""
        data = encoded(value)
        self._pieces += (_LENGTH.pack(len(data)), data)
        return self

    def texts(self, values: Iterable[str]) -> Packer:
        """Add a list of texts."""
        self._pieces.append(packed_texts(values))
        return self

    def packed(self, data: bytes) -> Packer:
        """Add a field that is packed already."""
        self._pieces.append(data)
        return self

    def body(self) -> bytes:
        """Return the body."""
        return b"".join(self._pieces)


@final
class FrameFields:
    """Reads the fields of a body in order."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._at = 0

    def number(self) -> int:
        """Read a number."""
        found: int = self._unpack(_NUMBER)
        return found

    def text(self) -> str:
        """Read a text."""
        size = self._unpack(_LENGTH)
        data = self._body[self._at : self._at + size]
        if len(data) < size:
            raise FrameError(f"a text of {size} bytes has {len(data)}")
        if b"\0" in data:
            raise FrameError("a text contains a NUL byte")
        self._at += size
        return data.decode() if data.isascii() else os.fsdecode(data)

    def texts(self) -> list[str]:
        """Read a list of texts."""
        count = self._unpack(_LENGTH)
        start = self._at + count * _LENGTH.size
        if start > len(self._body):
            raise FrameError(f"a list of {count} texts does not fit into its frame")
        lengths = struct.unpack_from(f"<{count}I", self._body, self._at)
        end = start + sum(lengths)
        data = self._body[start:end]
        if len(data) < end - start:
            raise FrameError(f"texts of {end - start} bytes have {len(data)}")
        if b"\0" in data:
            raise FrameError("a text contains a NUL byte")
        self._at = end
        ends = list(itertools.accumulate(lengths))
        if data.isascii():  # As most are: to decode all at once is far quicker.
            text = data.decode()
            return [text[e - n : e] for e, n in zip(ends, lengths, strict=True)]
        spans = zip(ends, lengths, strict=True)
        return [os.fsdecode(data[e - n : e]) for e, n in spans]

    def end(self) -> None:
        """Raise `FrameError` if any bytes are left."""
        if left := len(self._body) - self._at:
            raise FrameError(f"{left} bytes follow the last field")

    def _unpack(self, kind: struct.Struct) -> int:
        try:
            found: int = kind.unpack_from(self._body, self._at)[0]
        except struct.error:
            raise FrameError("a frame ends within a field") from None
        self._at += kind.size
        return found


def packed_texts(values: Iterable[str]) -> bytes:
    """Return a list of texts as it is in a body."""
    values = list(values)
    together = "".join(values)
    if together.isascii():
        data, lengths = encoded(together), map(len, values)
    else:
        texts = list(map(encoded, values))
        data, lengths = b"".join(texts), map(len, texts)
    return struct.pack(f"<{len(values) + 1}I", len(values), *lengths) + data


def encoded(text: str) -> bytes:
    """Encode a text for the system; raise `FrameError` if the system cannot take it."""
    if "\0" in text:
        raise FrameError("a text contains a NUL byte")
    if text.isascii():
        return text.encode()  # As most are; it takes half as long.
    try:
        return os.fsencode(text)
    except UnicodeEncodeError:
        raise FrameError("a text holds half of a character") from None
