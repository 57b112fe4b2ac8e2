"""Tell repeated announcements from new ones.

A scheduler announces over its links and by gossip, so a worker may hear the same
announcement several times. Equal ones within `ECHO_S` count as one. At most `HEARD_MAX`
are remembered; the oldest go first.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final, final

from shoal.errors import ProtocolError
from shoal.protocol import codec

if TYPE_CHECKING:
    from shoal.protocol.messages import Announcement

ECHO_S: Final = 10.0
HEARD_MAX: Final = 1_024


@final
class AnnouncementLog:
    """The announcements that a node has heard recently."""

    def __init__(self) -> None:
        self._heard_at: OrderedDict[bytes, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._heard_at)

    def repeats(self, announcement: Announcement, now: float) -> bool:
        """Note an announcement; return whether it repeats a recent one."""
        try:
            key = codec.encode_one(announcement)
        except ProtocolError:
            return False  # It came from this node, and will be refused elsewhere.
        before = self._heard_at.pop(key, None)
        if before is not None and now - before < ECHO_S:
            self._heard_at[key] = before
            return True
        self._heard_at[key] = now
        if len(self._heard_at) > HEARD_MAX:
            self._heard_at.popitem(last=False)
        return False
