"""Messages by which blobs travel: code, data and results, named by their content."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from shoal.model.bounds import Count, Text
from shoal.model.ids import BlobId
from shoal.protocol.limits import PIECES_MAX, Level, PieceData
from shoal.protocol.message import Message


class PieceWanted(Message, frozen=True, tag="piece-wanted"):
    """Send me these pieces of a blob, each by its level and its index there.

    Level 0 is the bytes of the blob; above it are the hashes of the level below.
    `under` is a tree that names the blob: who knows the one may have the other.
    """

    blob: BlobId
    pieces: Annotated[tuple[tuple[Level, Count], ...], Meta(max_length=PIECES_MAX)]
    under: BlobId = BlobId("")


class BlobPiece(Message, frozen=True, tag="blob-piece"):
    """One piece of a blob. The receiver believes it only if its hash is right."""

    blob: BlobId
    level: Level
    index: Count
    data: PieceData


class PieceRefusal(Message, frozen=True, tag="piece-refusal"):
    """The sender does not hold this blob, or not for the receiver."""

    blob: BlobId
    reason: Text = ""
