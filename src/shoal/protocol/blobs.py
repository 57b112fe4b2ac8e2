"""Messages that transfer blobs: code, data and results, named by their hash."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from shoal.model.ids import BlobId
from shoal.model.text.bounds import Count, Text
from shoal.protocol.limits import PIECES_MAX, Level, PieceData
from shoal.protocol.message import Message


class PieceWanted(Message, frozen=True, tag="piece-wanted"):
    """Send me these pieces of a blob, each named by level and index.

    Level 0 is the bytes of the blob; above it are the hashes of the level below.
    `under` is a tree that names the blob: a peer that knows the tree may read the blob.
    """

    blob: BlobId
    pieces: Annotated[tuple[tuple[Level, Count], ...], Meta(max_length=PIECES_MAX)]
    under: BlobId = BlobId("")


class BlobPiece(Message, frozen=True, tag="blob-piece"):
    """One piece of a blob. The receiver checks its hash."""

    blob: BlobId
    level: Level
    index: Count
    data: PieceData


class PieceRefusal(Message, frozen=True, tag="piece-refusal"):
    """The sender does not have this blob, or the receiver may not read it."""

    blob: BlobId
    reason: Text = ""
