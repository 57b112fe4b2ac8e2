"""Frames on a stream of bytes: a header and a payload.

The header has four bytes: the kind of frame and the length of its payload. Frames of
kind `MESSAGES` hold frames of the codec; the other kinds maintain the link.
"""

from __future__ import annotations

from enum import IntEnum, unique
from typing import TYPE_CHECKING, Final, NamedTuple, final

from shoal.errors import ProtocolError
from shoal.protocol.limits import FRAME_BYTES_MAX

if TYPE_CHECKING:
    from collections.abc import Iterator

HEADER_BYTES: Final = 4
CONTROL_BYTES_MAX: Final = 1_024
REASON_LENGTH_MAX: Final = 250


@unique
class FrameKind(IntEnum):
    """Kinds of frames. Numbers are wire format: never change or reuse one."""

    MESSAGES = 0
    PING = 1  # answer with a pong of the same bytes
    PONG = 2
    SELECT = 3  # of the links between us, this is the one
    CLOSE = 4  # nothing follows; the bytes say why, in words
    MOVED = 5  # nothing follows here: what is next comes over another link


class Frame(NamedTuple):
    """One frame, without its header."""

    kind: FrameKind
    payload: bytes


def framed(kind: FrameKind, payload: bytes = b"") -> bytes:
    """Return the bytes of a frame."""
    assert len(payload) <= FRAME_BYTES_MAX
    return bytes((kind,)) + len(payload).to_bytes(3, "big") + payload


def closing(reason: str) -> bytes:
    """Return the bytes of the last frame, which gives the reason."""
    return framed(
        FrameKind.CLOSE, reason.encode("utf-8", "replace")[:REASON_LENGTH_MAX]
    )


def reason_of(payload: bytes) -> str:
    """Return the reason in a peer's last frame, made safe for a log."""
    text = payload[:REASON_LENGTH_MAX].decode("utf-8", "replace")
    return "".join(c if c.isprintable() else "?" for c in text)


@final
class FrameReader:
    """Splits a stream into frames; buffers at most one unfinished frame."""

    def __init__(self, bytes_max: int = FRAME_BYTES_MAX) -> None:
        """Refuse frames of messages with more than `bytes_max`, which may change."""
        self.bytes_max = bytes_max
        # Begins with a header; no longer than that and the frame it announces.
        self._rest = bytearray()

    @property
    def is_amid(self) -> bool:
        """Whether a frame has begun and is not whole."""
        return bool(self._rest)

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Yield the frames that are whole now; raise `ProtocolError` if one is bad.

        Take all of them before feeding more. A change of `bytes_max` in between
        holds for the frames that follow.
        """
        if self._rest:
            self._rest += data
            if len(self._rest) < self._needed(self._rest, 0):
                return
            data = bytes(self._rest)
            self._rest.clear()
        start = 0
        while start + (needed := self._needed(data, start)) <= len(data):
            payload = data[start + HEADER_BYTES : start + needed]
            yield Frame(FrameKind(data[start]), payload)
            start += needed
        self._rest += data[start:]

    def _needed(self, data: bytes | bytearray, start: int) -> int:
        """Return how many bytes the frame that starts here has, as far as is known."""
        if len(data) - start < HEADER_BYTES:
            return HEADER_BYTES
        kind = data[start]
        length = int.from_bytes(data[start + 1 : start + HEADER_BYTES], "big")
        if kind > FrameKind.MOVED:
            raise ProtocolError(f"a frame of unknown kind {kind}", kind="malformed")
        limit = CONTROL_BYTES_MAX if kind else self.bytes_max
        if length > limit:
            raise ProtocolError(
                f"a frame of {length} bytes",
                kind="oversized",
                because=f"{limit} bytes are the most",
            )
        return HEADER_BYTES + length
