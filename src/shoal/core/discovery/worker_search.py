"""Search for workers when the known ones cannot meet demand.

Both ways run at once: an announcement by gossip, repeated with back-off while the
demand lasts, and a DHT look-up of the rarest capability. A look-up yields hints only:
each named worker is asked for its inventory, and only its own answer counts.

What one node announces, all others hear. So announcements to all are rationed by the
size of the shoal: however many search, a node hears about as many. Between two of them
only the neighbours are told, and look-ups, which draw samples, go on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from shoal.core.deadlines import DeadlineHeap, Deadlines
from shoal.core.events import Effect, LookedUp, LookUp, Publish, Send, Spread
from shoal.core.timing import ANNOUNCE, LOOKUP_AGAIN_S
from shoal.model.directory.capability import lookup_keys
from shoal.protocol.messages import Announcement, Inquiry, Want

if TYPE_CHECKING:
    from collections.abc import Container, Sequence
    from random import Random

    from shoal.model.ids import NodeId, RequestId
    from shoal.model.resources import Profile
    from shoal.protocol.messages import Grant, PeerAddress

WANTS_MAX: Final = 16  # profiles in one announcement
LOOKUPS_MAX: Final = 4  # look-ups at one time
RECENT_S: Final = 30.0  # demand that was met so long is new when it comes again
SAMPLE_MAX: Final = 64  # providers asked per look-up

LARGE_FROM: Final = 2_048
RATION_S: Final = 60.0
"""In a shoal of more nodes than that, a node announces to all every so many seconds for
each such number of nodes."""


@final
class WorkerSearch:
    """Announces and looks up, for as long as demand is unmet."""

    def __init__(
        self, node: NodeId, grant: Grant | None, rng: Random, heap: DeadlineHeap
    ) -> None:
        self.addresses: tuple[str, ...] = ()  # where this node can be dialled
        self.wants: dict[Profile, int] = {}  # the demand that is unmet
        self._node = node
        self.grant = grant
        self._rng = rng
        self._recent: dict[Profile, float] = {}  # when each was last unmet
        self._oldest = 0.0  # none of these is older
        self._seq = 0
        self._nodes = 1  # in the shoal, about
        self._rations_at = float("-inf")  # when it may announce to all again
        self._lookups: dict[int, Profile] = {}
        self._lookup_seq = 0
        self._tried: dict[Profile, int] = {}  # look-ups so far: the next key's place
        self._due: Deadlines[str] = Deadlines(heap)

    def on_size(self, nodes: int) -> None:
        """Take in about how many nodes the shoal has."""
        self._nodes = nodes

    def want(
        self, unmet: dict[Profile, int], now: float, *, wait_s: float = 0.0
    ) -> None:
        """Set the unmet demand. New demand is announced after `wait_s`.

        Demand that ceased for a moment, while slots for it were being negotiated,
        is not new: its back-off goes on where it was.
        """
        if now - self._oldest > RECENT_S:
            self._forget(now)
        news = not unmet.keys() <= self._recent.keys()
        for profile in unmet:
            self._recent[profile] = now
        self.wants = unmet
        if news:
            self._seq = 0
        if news or (unmet and "announce" not in self._due):
            self._due.set("announce", now + wait_s)
            self._due.set("lookup", now + wait_s)

    def _forget(self, now: float) -> None:
        """Forget demand that has been met for a while."""
        for profile in [p for p, at in self._recent.items() if now - at > RECENT_S]:
            del self._recent[profile]
            self._tried.pop(profile, None)
        self._oldest = min(self._recent.values(), default=now)

    def due(self, epoch: int, now: float) -> list[Effect]:
        """Return the announcements and look-ups that are due."""
        effects: list[Effect] = []
        for chore in self._due.pop_due(now):
            if not self.wants:
                continue  # Silent until there is demand again.
            effects += self._announce(epoch, now) if chore == "announce" else []
            effects += self._look_up(now) if chore == "lookup" else []
        return effects

    def on_looked_up(
        self, event: LookedUp, known: Container[NodeId], request: RequestId
    ) -> list[Effect]:
        """Ask a sample of the named providers for their inventory."""
        if self._lookups.pop(event.lookup, None) is None:
            return []
        strangers = [p for p in event.providers if p.node not in known]
        return [
            Send(provider.node, Inquiry(request=request))
            for provider in self._sample(strangers)
        ]

    def _announce(self, epoch: int, now: float) -> list[Effect]:
        self._due.set("announce", now + ANNOUNCE.pause_s(self._seq, self._rng))
        wants = [Want(profile, count) for profile, count in self.wants.items()]
        announcement = Announcement(
            scheduler=self._node,
            addresses=self.addresses,
            epoch=epoch,
            seq=self._seq,
            wants=tuple(wants[:WANTS_MAX]),
            grant=self.grant,
        )
        self._seq += 1
        if now < self._rations_at:
            return [Spread(announcement)]
        if self._nodes > LARGE_FROM:
            pause_s = RATION_S * self._nodes / LARGE_FROM
            self._rations_at = now + pause_s * self._rng.uniform(0.9, 1.1)
        return [Publish(announcement)]

    def _look_up(self, now: float) -> list[Effect]:
        self._due.set("lookup", now + LOOKUP_AGAIN_S * self._rng.uniform(0.9, 1.1))
        effects: list[Effect] = []
        self._lookups.clear()  # One that was not answered by now never will be.
        for profile in [p for p in self._tried if p not in self._recent]:
            del self._tried[profile]
        for profile in list(self.wants)[:LOOKUPS_MAX]:
            keys = lookup_keys(profile)
            if not keys:
                continue
            tried = self._tried[profile] = self._tried.get(profile, -1) + 1
            self._lookup_seq += 1
            self._lookups[self._lookup_seq] = profile
            key = keys[tried % len(keys)]
            effects.append(LookUp(self._lookup_seq, key, SAMPLE_MAX))
        return effects

    def _sample(self, providers: Sequence[PeerAddress]) -> Sequence[PeerAddress]:
        if len(providers) <= SAMPLE_MAX:
            return providers
        return self._rng.sample(providers, SAMPLE_MAX)
