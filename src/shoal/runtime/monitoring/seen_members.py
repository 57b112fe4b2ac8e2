"""Members that this node was linked to, and which of them are away.

For people only: nothing is decided by it. A member that goes stays listed, with when
and how it went, until it is seen again, somebody forgets it, or `KEPT_MAX` others came
after it. A node knows that another one stopped if that one said so on the link. The
list is in a file, for the next life of this node.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, Final, Literal, final

import msgspec

from shoal.model.ids import NodeId
from shoal.runtime.membership.shoal_membership import write_private

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

KEPT_MAX: Final = 256

How = Literal["here", "stopped", "lost", "revoked", "unseen"]
"""`unseen`: it was there in an earlier life of this node, and not in this one."""

WORDS: Final[dict[How, str]] = {
    "stopped": "it was stopped",
    "lost": "the link to it broke",
    "revoked": "it was revoked",
    "unseen": "it has not come back since this node started",
}


class SeenMember(msgspec.Struct, frozen=True):
    """A member, and since when it is there or away."""

    since_s: float  # since 1970
    how: How = "here"


Seen = dict[NodeId, SeenMember]


@final
class SeenMembers:
    """Remembers members by what links tell; the file is written in the background."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        """Begin with what the last life of the node has left at `path`."""
        self._path = path
        self._clock = clock
        self._seen: Seen = {}
        for node, was in _load(path).items():
            how: How = "unseen" if was.how == "here" else was.how
            self._seen[node] = SeenMember(was.since_s, how)
        self._dirty = False
        self._closed = False
        self._writing: asyncio.Task[None] | None = None

    def linked(self, node: NodeId) -> None:
        """Note that a member is here."""
        self._note(node, "here")

    def parted(self, node: NodeId, how: How) -> None:
        """Note that the link to a member is gone."""
        self._note(node, how)

    def away(self) -> Iterator[tuple[NodeId, SeenMember]]:
        """Go through the members without a link, the latest first."""
        for node, seen in reversed(self._seen.items()):
            if seen.how != "here":
                yield node, seen

    def forget(self, node: NodeId) -> bool:
        """Drop a member; return whether it was known and away."""
        seen = self._seen.get(node)
        if seen is None or seen.how == "here":
            return False
        del self._seen[node]
        self._keep()
        return True

    async def close(self) -> None:
        """Note nothing more: from here on this node goes. Write the file."""
        self._closed = True
        if self._writing is not None:
            await asyncio.gather(self._writing, return_exceptions=True)

    def _note(self, node: NodeId, how: How) -> None:
        if self._closed:
            return
        self._seen.pop(node, None)
        self._seen[node] = SeenMember(self._clock(), how)
        while len(self._seen) > KEPT_MAX:
            gone = (each for each, seen in self._seen.items() if seen.how != "here")
            del self._seen[next(gone, next(iter(self._seen)))]
        self._keep()

    def _keep(self) -> None:
        self._dirty = True
        if self._writing is None:
            self._writing = asyncio.get_running_loop().create_task(self._write())

    async def _write(self) -> None:
        try:
            while self._dirty:
                self._dirty = False
                text = msgspec.json.encode(self._seen)
                with contextlib.suppress(OSError):  # A full disk; it is for people.
                    await asyncio.to_thread(write_private, self._path, text)
        finally:
            self._writing = None


def _load(path: Path) -> Seen:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Seen)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return {}
