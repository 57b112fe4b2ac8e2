"""Encode and decode texts and numbers in frames between local processes.

A node, its supervisors and their keepers use this format. A number takes 8 bytes, a
text follows its length (4 bytes), and the texts of a list follow their count (4 bytes)
and all their lengths. So no content of a text can be mistaken for the next field. Texts
become arguments, variables and paths, which end at a NUL, so both sides refuse texts
that contain one.

What is sent for each task has a `FrameLayout`: its numbers and the counts of its lists
come first, and then all its texts as one list, which are read by a few calls in all.
Field by field, that took a fifth of a supervisor's time.

Supervisors use this, so it may import only the standard library.
"""

from __future__ import annotations

import itertools
import os
import struct
from typing import TYPE_CHECKING, Any, Final, final

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

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


@final
class FrameLayout:
    """The fields of a tuple, of which those not named are lists of texts."""

    def __init__(
        self,
        fields: Iterable[str],
        *,
        texts: Collection[str] = (),
        numbers: Collection[str] = (),
        flags: Collection[str] = (),
    ) -> None:
        kinds = dict.fromkeys(numbers, "number")
        kinds |= dict.fromkeys(texts, "text") | dict.fromkeys(flags, "flag")
        self._kinds = [kinds.get(name, "texts") for name in fields]
        lists = self._kinds.count("texts")
        self._texts = self._kinds.count("text")
        self._numbers = len(self._kinds) - lists - self._texts
        self._head = struct.Struct(f"<{self._numbers}q{lists}I")

    def pack(self, values: Iterable[Any]) -> bytes:
        """Return the body with these fields."""
        numbers: list[int] = []
        counts: list[int] = []
        texts: list[str] = []
        for kind, value in zip(self._kinds, values, strict=True):
            if kind == "text":
                texts.append(value)
            elif kind == "texts":
                counts.append(len(value))
                texts += value
            else:
                numbers.append(value)
        try:
            head = self._head.pack(*numbers, *counts)
        except struct.error:
            raise FrameError(f"a number of {numbers} needs more than 8 bytes") from None
        return head + packed_texts(texts)

    def unpack(self, body: bytes) -> list[Any]:
        """Return the fields in order; raise `FrameError` if the body is invalid."""
        if len(body) < self._head.size:
            raise FrameError("a frame ends within a field")
        found = self._head.unpack_from(body)
        numbers, counts = iter(found[: self._numbers]), found[self._numbers :]
        rest = FrameFields(body[self._head.size :])
        texts = rest.texts()
        rest.end()
        if len(texts) != self._texts + sum(counts):
            raise FrameError(f"{len(texts)} texts are not what the fields need")
        lists = iter(counts)
        values: list[Any] = []
        at = 0
        for kind in self._kinds:
            if kind == "number":
                values.append(next(numbers))
            elif kind == "flag":
                values.append(flag(next(numbers)))
            elif kind == "text":
                values.append(texts[at])
                at += 1
            else:
                end = at + next(lists)
                values.append(texts[at:end])
                at = end
        return values


def flag(number: int) -> bool:
    """Return what a number says, so that each frame has one form."""
    if number not in (0, 1):
        raise FrameError(f"a flag of {number}")
    return number == 1


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
