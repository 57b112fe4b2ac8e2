"""Large files in pieces, so that they can travel slowly beside what is urgent.

A file is put as a manifest that names its pieces. Whoever keeps a copy for others
fetches them one by one, with pauses: a checkpoint never has more than one piece on a
link at a time, and contributions pass between two of them.
"""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, Annotated, Final, final

import msgspec
from msgspec import Meta

from shoal.errors import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from shoal.train.exchange import Exchange, Kind

PIECES_MAX: Final = 256
PIECE_BYTES: Final = 1 << 15
"""A piece is this large, unless there would be too many."""

COPY_BYTES: Final = 1 << 20
OFFERS_KEPT: Final = 2
"""Of what replaces each other: who is fetching the one before goes on."""


class Manifest(msgspec.Struct, frozen=True):
    """The pieces of a file, in order, by the names of their content."""

    pieces: Annotated[tuple[str, ...], Meta(max_length=PIECES_MAX)]


@final
class LatestFiles:
    """The last files of one kind that were put; older ones are forgotten."""

    def __init__(self, forget: Callable[[str], None], most: int) -> None:
        self._forget, self._most = forget, most
        self._kept: deque[str] = deque()

    def add(self, file: str) -> None:
        """Keep a file, and forget the oldest: unless its content is here again."""
        self._kept.append(file)
        if len(self._kept) > self._most:
            old = self._kept.popleft()
            if old not in self._kept:
                self._forget(old)


@final
class PieceExchange:
    """Puts and gets large files; remembers the pieces of those it has put."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._pieces: dict[str, list[str]] = {}  # by file

    def put(self, path: Path) -> str:
        """Take a file over, for others to fetch; return its name."""
        size = path.stat().st_size
        each = max(PIECE_BYTES, -(-size // PIECES_MAX))
        names: list[str] = []
        with path.open("rb") as whole:
            for start in range(0, size, each):
                piece = self._exchange.draft()
                with piece.open("wb") as out:
                    for at in range(start, min(size, start + each), COPY_BYTES):
                        out.write(whole.read(min(COPY_BYTES, start + each - at)))
                names.append(self._exchange.put(piece))
        path.unlink()
        manifest = self._exchange.draft()
        content = tuple(name.partition("@")[0] for name in names)
        manifest.write_bytes(msgspec.msgpack.encode(Manifest(content)))
        file = self._exchange.put(manifest)
        self._pieces[file] = names
        return file

    def get(
        self,
        file: str,
        holder: str,
        kind: Kind,
        *,
        over_s: float = 0.0,
        pause: Callable[[float], object] = time.sleep,
    ) -> Path:
        """Fetch a file, piece by piece, over at least the given seconds."""
        manifest = self._manifest(file, holder, kind)
        _, at, node = file.partition("@")
        path = self._exchange.draft()
        with path.open("wb") as whole:
            for content in manifest.pieces:
                piece = self._exchange.get(f"{content}{at}{node}", holder, kind)
                with piece.open("rb") as part:
                    while data := part.read(COPY_BYTES):
                        whole.write(data)
                piece.unlink()
                if over_s:
                    pause(over_s / len(manifest.pieces))
        return path

    def forget(self, file: str) -> None:
        """Drop a file that was put here."""
        for name in (file, *self._pieces.pop(file, ())):
            if not any(name in others for others in self._pieces.values()):
                self._exchange.forget(name)

    def _manifest(self, file: str, holder: str, kind: Kind) -> Manifest:
        path = self._exchange.get(file, holder, kind)
        data = path.read_bytes()
        path.unlink()
        try:
            return msgspec.msgpack.decode(data, type=Manifest)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise ProtocolError(
                f"a file of {holder} has no list of pieces", because=str(error)
            ) from error
