"""Send a value once, as a blob that interpreters map into memory.

The blob begins with `HEADER`: a magic word, the number of pieces, and the length of
each. The first piece is a pickle; the others are the buffers of its arrays, each at a
multiple of `ALIGNED`. `shoal.task_client.scattered` reads it.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final

from shoal.api import shoal_pb2 as pb
from shoal.protocol import payloads
from shoal.protocol.blob_hashing import Hasher
from shoal.task_client import SCATTER_ALIGNED, SCATTER_MAGIC, Scattered

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shoal.api.client.client import Client

PART_BYTES: Final = 1 << 20


def send(client: Client, value: object) -> Scattered:
    """Upload a value unless the node has it; return what stands for it."""
    pieces = _pieces(value)
    hasher = Hasher()
    for part in _parts(pieces):
        hasher.update(bytes(part))
    name = hasher.name()
    if client.missing_blobs([name]).missing:
        client.put_blobs(
            pb.BlobPart(blob="" if n else name, data=bytes(part))
            for n, part in enumerate(_parts(pieces))
        )
    return Scattered(name)


def _pieces(value: object) -> list[memoryview]:
    """Return the whole blob, without a copy of the arrays in it."""
    buffers: list[Any] = []  # of the kind pickle.PickleBuffer
    module = payloads.cloudpickle()
    data = module.dumps(value, protocol=5, buffer_callback=buffers.append)
    views = [memoryview(data), *(buffer.raw() for buffer in buffers)]
    lengths = struct.pack(f"<{len(views)}Q", *(view.nbytes for view in views))
    header = SCATTER_MAGIC + struct.pack("<Q", len(views)) + lengths
    found = [memoryview(_padded(header))]
    for view in views:
        found += [view, memoryview(_padding(view.nbytes))]
    return found


def _padding(size: int) -> bytes:
    return bytes(-size % SCATTER_ALIGNED)


def _padded(data: bytes) -> bytes:
    return data + _padding(len(data))


def _parts(pieces: list[memoryview]) -> Iterator[memoryview]:
    for piece in pieces:
        for at in range(0, piece.nbytes, PART_BYTES):
            yield piece[at : at + PART_BYTES]
