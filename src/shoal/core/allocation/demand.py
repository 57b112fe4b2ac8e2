"""Demand that nobody can meet, and how many pilots it is worth.

Own demand is looked at when it is needed. Other schedulers of the same owner announce
theirs, and say nothing when it is met: so what was heard counts until the next repeat
is overdue. Demand of other owners is theirs: nobody spends another's allocation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import msgspec

from shoal.core.timing import ANNOUNCE
from shoal.model.resources import Ledger, Profile

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shoal.model.ids import NodeId
    from shoal.model.resources import Capacity
    from shoal.protocol.messages import Announcement

SCHEDULERS_MAX: Final = 64
OVERDUE_S: Final = 3.0


class UnmetDemand(msgspec.Struct):
    """So many tasks of one profile that wait; `told_at` is when that was true."""

    profile: Profile
    count: float
    told_at: float


class _Heard(msgspec.Struct, frozen=True):
    wants: tuple[tuple[Profile, int], ...]
    at: float
    until: float


@final
class DemandBook:
    """What schedulers have announced."""

    def __init__(self) -> None:
        self._heard: dict[NodeId, _Heard] = {}  # at most SCHEDULERS_MAX, latest last

    def hear(self, scheduler: NodeId, announcement: Announcement, now: float) -> None:
        """Note the demand of a scheduler until it should say so again."""
        longest_s = ANNOUNCE.pause_s(announcement.seq) * ANNOUNCE.spread[1]
        wants = tuple((want.profile, want.count) for want in announcement.wants)
        self._heard.pop(scheduler, None)
        self._heard[scheduler] = _Heard(wants, now, now + longest_s + OVERDUE_S)
        if len(self._heard) > SCHEDULERS_MAX:
            del self._heard[next(iter(self._heard))]

    def forget(self, scheduler: NodeId) -> None:
        """Drop what a scheduler has announced: it has left."""
        self._heard.pop(scheduler, None)

    def unmet(self, own: Mapping[Profile, int], now: float) -> list[UnmetDemand]:
        """Return all demand that is unmet as far as is known, this node's own first."""
        for node in [n for n, heard in self._heard.items() if now > heard.until]:
            del self._heard[node]
        found = [UnmetDemand(profile, count, now) for profile, count in own.items()]
        for heard in self._heard.values():
            found += [UnmetDemand(*want, heard.at) for want in heard.wants]
        return [demand for demand in found if demand.count > 0]


def slots(profile: Profile, shape: Capacity) -> int:
    """Return how many tasks of a profile an idle worker of this shape can run."""
    if isinstance(Ledger(shape).fit(profile), str):
        return 0
    room = [
        have // need
        for have, need in (
            (shape.cpu_milli, profile.cpu_milli),
            (shape.memory_bytes, profile.memory_bytes),
            (shape.disk_bytes, profile.disk_bytes),
        )
        if need
    ]
    if (gpu := profile.gpu) is not None:
        matching = sum(1 for device in shape.devices if not gpu.rules_out(device))
        room.append(matching * (1_000 // gpu.milli) // gpu.count)
    return max(1, min(room, default=1_000_000))
