"""The age of demands, as far as the worker has seen them wait.

A demand states its age, and of two demands of one priority the older goes first. But a
scheduler may lie. So a worker believes an age only as far as it has heard the scheduler
ask for the same profile without being served; a scheduler it has not heard before gets
a small credit. A scheduler that is served starts again at zero, and so does one that
room was kept for and that never took it.

No age counts beyond a maximum. At the maximum two schedulers have the same order at
every worker, so of two gangs that need the same workers one goes first at all of them
(decision 27).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import msgspec

if TYPE_CHECKING:
    from shoal.model.ids import NodeId
    from shoal.model.resources import Profile

CREDIT_S: Final = 10.0
"""An age that is believed of somebody who was not heard of before."""

AGE_MAX_S: Final = 60.0
PATIENCE_S: Final = 600.0
"""Who has asked for so long, and taken nothing, waits from the beginning."""

SILENCE_S: Final = 60.0
"""Who has not asked for so long is forgotten."""

PROFILES_MAX: Final = 4
"""Profiles for which one scheduler can be waiting at one worker."""

PEERS_MAX: Final = 1_024


class _Wait(msgspec.Struct):
    since: float
    heard_at: float
    credit_s: float = CREDIT_S  # nothing, once it was served here


@final
class DemandAges:
    """Since when each scheduler has been waiting here, by profile."""

    def __init__(self) -> None:
        # The scheduler that was heard of last is the last, and so is its profile.
        self._waits: dict[NodeId, dict[Profile, _Wait]] = {}

    def believed(
        self, peer: NodeId, profile: Profile, claimed_s: float, now: float
    ) -> float:
        """Return the believed age of a demand that arrives now."""
        wait = self._heard(peer, profile, now)
        if now - wait.since > PATIENCE_S:
            wait.since = now
        return min(claimed_s, now - wait.since + wait.credit_s, AGE_MAX_S)

    def served(self, peer: NodeId, profile: Profile, now: float) -> None:
        """Reset the wait of a scheduler that was served."""
        wait = self._heard(peer, profile, now)
        wait.since, wait.credit_s = now, 0.0

    def _heard(self, peer: NodeId, profile: Profile, now: float) -> _Wait:
        waits = self._waits.pop(peer, {})
        wait = waits.pop(profile, None)
        if wait is None or now - wait.heard_at > SILENCE_S:
            wait = _Wait(now, now)
        wait.heard_at = now
        if len(waits) >= PROFILES_MAX:
            del waits[next(iter(waits))]
        if len(self._waits) >= PEERS_MAX:
            del self._waits[next(iter(self._waits))]
        waits[profile] = wait
        self._waits[peer] = waits
        return wait
