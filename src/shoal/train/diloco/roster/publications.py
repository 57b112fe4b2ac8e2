"""What an aggregator publishes of its state, and what workers keep of it.

*Weights* are for workers that cannot follow by outcomes: who holds them, and whether
the outcomes since are still to be had. A *checkpoint* is for keepers, every
`checkpoint_syncs`: who keeps it, how long it may take on its way, and which syncs are
safe with enough of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, final

from shoal.train.diloco.events import PublishState
from shoal.train.diloco.messages import KeptState
from shoal.train.diloco.roster.safekeeping import keepers, safe_syncs
from shoal.train.diloco.rules import UNHURRIED

if TYPE_CHECKING:
    from collections.abc import Collection, Container, Sequence

    from shoal.train.diloco.events import Effect, Loaded, LoadState, Published
    from shoal.train.diloco.messages import Status
    from shoal.train.diloco.rules import RoundRules


@final
class Publications:
    """What of the state is out, as far as an aggregator knows."""

    def __init__(self, rules: RoundRules) -> None:
        self.checkpoint: KeptState | None = None
        self.keepers: tuple[str, ...] = ()
        self.keep_over_s = 0.0  # that a checkpoint may take on its way
        self.safe = 0  # syncs whose contributions nobody needs any more
        self._rules = rules
        self._weights: KeptState | None = None
        self._holder = ""  # of the weights: a worker, or nobody but us
        self._due = 0  # syncs that the checkpoint must include
        self._under_way: list[str] = []
        self._keeping_changed = True  # since keepers were chosen

    def publish(self, kind: Literal["weights", "checkpoint"]) -> list[Effect]:
        """Publish the state, unless that is under way."""
        if kind in self._under_way:
            return []
        self._under_way.append(kind)
        return [PublishState(kind)]

    def published(self, event: Published) -> list[Effect]:
        """Note what is out; publish a checkpoint again if it is not the one due."""
        self._under_way = [kind for kind in self._under_way if kind != event.kind]
        kept = KeptState(event.syncs, event.file)
        if event.kind == "weights":
            self._weights, self._holder = kept, event.holder
            return []
        self.checkpoint = kept
        self._keeping_changed = True  # Links may be known better by now.
        return self.publish("checkpoint") if kept.syncs < self._due else []

    def begin(self, load: LoadState, event: Loaded, *, is_shared: bool) -> list[Effect]:
        """Note what the run begins with: others may have it already."""
        self._due = 0
        self._keeping_changed = True
        is_initial = load.kind == "initial" and load.syncs == event.syncs
        if is_initial or (is_shared and load.worker):
            self._weights = KeptState(event.syncs, load.file)
            self._holder = load.worker
        if load.kind == "weights" or not load.worker:
            return self.publish("checkpoint")  # For nobody keeps it yet.
        self.checkpoint = KeptState(event.syncs, load.file)
        return []

    def after_sync(self, closed: int, took_s: float) -> list[Effect]:
        """Publish a checkpoint if one is due after this sync."""
        interval = self._rules.checkpoint_syncs
        if closed % interval or closed >= self._rules.syncs:
            return []
        self.keep_over_s = round(UNHURRIED * took_s * interval, 1)
        self._due = closed
        return self.publish("checkpoint")

    def withdraw(self) -> None:
        """Forget the weights: the run goes on from others."""
        self._weights = None
        self._under_way.clear()

    def note_keeping(self) -> None:
        """Note that workers, or what these keep, changed."""
        self._keeping_changed = True

    def choose_keepers(
        self, said: Sequence[Status], narrow: Collection[str], *, is_shared: bool
    ) -> None:
        """Choose who keeps a checkpoint, and note what is safe: never less.

        Without a centre everybody has the whole state.
        """
        if not self._keeping_changed:
            return
        self._keeping_changed = False
        count = self._rules.keepers
        self.safe = max(self.safe, safe_syncs(said, count, is_shared=is_shared))
        self.keepers = () if is_shared else keepers(said, count, narrow)

    def weights_for(
        self, closed: int, outcomes: Container[int], members: Container[str]
    ) -> KeptState | None:
        """Return weights from which `outcomes` lead to the present ones, if any."""
        found = self._weights
        if found is None or found.syncs > closed:
            return None
        if self._holder and self._holder not in members:
            return None
        later = range(found.syncs, closed)
        return found if all(sync in outcomes for sync in later) else None
