"""The worker that averages shares, as a machine: what to fetch, when to average.

It is told duties, and what its host has done. A share is averaged as soon as it is
decided what counts, all of it is here, and the weights are those before the sync. It
counts when the sync is merged and not before: until then another decision may come.
"""

from __future__ import annotations

from typing import final

import msgspec

from shoal.train.diloco.messages import KeptState
from shoal.train.diloco.shares.messages import (
    MARK,
    Duties,
    Reduced,
    Reduction,
    ShareNorm,
    ShareOutcome,
    ShareReport,
    ShareSource,
    ShareWeight,
)


class DutiesReceived(msgspec.Struct, frozen=True):
    """The coordinator said what it wants."""

    duties: Duties


class ShareFetched(msgspec.Struct, frozen=True):
    """A share of a contribution is here, and measured."""

    order: FetchShare
    squares: float
    fault: str = ""
    seconds: float = 0.0


class ShareUnavailable(msgspec.Struct, frozen=True):
    """A share cannot be fetched now."""

    order: FetchShare


class SharesReduced(msgspec.Struct, frozen=True):
    """Shares are averaged, and others can fetch the outcome."""

    order: ReduceShares
    outcomes: tuple[ShareOutcome, ...]


class SharesMerged(msgspec.Struct, frozen=True):
    """After which sync the weights here are."""

    syncs: int


class StateOffered(msgspec.Struct, frozen=True):
    """Others can fetch all weights."""

    kept: KeptState


class FetchShare(msgspec.Struct, frozen=True):
    """Get a share; answered by `ShareFetched` or `ShareUnavailable`."""

    sync: int
    share: int
    worker: str
    contribution: str
    file: str


class ReduceShares(msgspec.Struct, frozen=True):
    """Average shares, without any effect yet; answered by `SharesReduced`."""

    epoch: int
    number: int
    sync: int
    shares: tuple[int, ...]
    parts: tuple[ShareWeight, ...]
    contributions: tuple[str, ...]  # of the parts


class DropShares(msgspec.Struct, frozen=True):
    """Remove the shares that were fetched for a sync."""

    sync: int


class OfferState(msgspec.Struct, frozen=True):
    """Let others fetch all weights as they are; answered by `StateOffered`."""


ReducerEvent = (
    DutiesReceived
    | ShareFetched
    | ShareUnavailable
    | SharesReduced
    | SharesMerged
    | StateOffered
)
ReducerEffect = FetchShare | ReduceShares | DropShares | OfferState


class _Progress(msgspec.Struct):
    """How far the shares of a sync are."""

    norms: dict[tuple[str, int], ShareNorm] = msgspec.field(
        default_factory=dict[tuple[str, int], ShareNorm]
    )
    fetching: list[tuple[str, int]] = msgspec.field(
        default_factory=list[tuple[str, int]]
    )
    asked: tuple[int, int, tuple[int, ...]] = (0, 0, ())  # the last order to average
    done: tuple[int, int] = (0, 0)  # epoch and number of the outcomes
    outcomes: dict[int, ShareOutcome] = msgspec.field(
        default_factory=dict[int, ShareOutcome]
    )


@final
class Reducer:
    """Decides; the worker's host does it, in the order returned."""

    def __init__(self, worker: str, life: int, fragments: int) -> None:
        self._worker = worker
        self._life = life
        self._fragments = fragments
        self._duties: Duties | None = None
        self._syncs: dict[int, _Progress] = {}
        self._merged = -1  # nothing, until the weights are those of the others
        self._offering = False
        self._offered: KeptState | None = None
        self._seq = 0

    def handle(self, event: ReducerEvent) -> list[ReducerEffect]:
        """Take in one fact; return what to do about it. Raising is a bug."""
        effects: list[ReducerEffect] = []
        match event:
            case DutiesReceived():
                effects = self._on_duties(event.duties)
            case ShareFetched():
                effects = self._on_fetched(event)
            case ShareUnavailable():
                self._on_unavailable(event.order)
            case SharesReduced():
                self._on_reduced(event)
            case SharesMerged():
                self._merged = event.syncs
            case StateOffered():
                self._offering, self._offered = False, event.kept
        return effects + self._advance()

    @property
    def is_fetching(self) -> bool:
        """Whether more will follow before a report is due."""
        return any(progress.fetching for progress in self._syncs.values())

    @property
    def has_duties(self) -> bool:
        """Whether there is anything that the coordinator waits for."""
        duties = self._duties
        if duties is None:
            return False
        return bool(duties.reductions) or duties.offer is not None

    def report(self) -> ShareReport:
        """Return the finished duties."""
        self._seq += 1
        duties = self._duties
        return ShareReport(
            worker=self._worker,
            life=self._life,
            seq=self._seq,
            heard=(duties.epoch, duties.seq) if duties else (0, 0),
            offered=self._offered,
            reduced=tuple(
                self._reduced(each) for each in (duties.reductions if duties else ())
            ),
        )

    def _reduced(self, reduction: Reduction) -> Reduced:
        progress = self._syncs[reduction.sync]
        known = {source.contribution for source in reduction.sources}
        norms = [
            norm
            for (contribution, share), norm in sorted(progress.norms.items())
            if contribution in known and share in reduction.shares
        ]
        assert self._duties is not None
        epoch, order = progress.done
        if epoch != self._duties.epoch:
            return Reduced(reduction.sync, tuple(norms))
        outcomes = tuple(each for _, each in sorted(progress.outcomes.items()))
        return Reduced(reduction.sync, tuple(norms), order, outcomes)

    def _on_duties(self, duties: Duties) -> list[ReducerEffect]:
        known = self._duties
        if duties.life != self._life:
            return []  # For a worker that had this name before.
        if known is not None and (duties.epoch, duties.seq) <= (known.epoch, known.seq):
            return []
        self._duties = duties
        wanted = [each.sync for each in duties.reductions]
        over = [sync for sync in self._syncs if sync not in wanted]
        for sync in over:
            del self._syncs[sync]
        for sync in wanted:
            self._syncs.setdefault(sync, _Progress())
        return [DropShares(sync) for sync in over]

    def _on_unavailable(self, order: FetchShare) -> None:
        """Fetch it again, if it is still wanted."""
        progress = self._syncs.get(order.sync)
        key = order.contribution, order.share
        if progress is not None and key in progress.fetching:
            progress.fetching.remove(key)

    def _on_fetched(self, event: ShareFetched) -> list[ReducerEffect]:
        order = event.order
        if (progress := self._syncs.get(order.sync)) is None:
            return [DropShares(order.sync)]
        key = order.contribution, order.share
        if key in progress.fetching:
            progress.fetching.remove(key)
        progress.norms[key] = ShareNorm(
            order.worker,
            order.contribution[:MARK],
            order.share,
            event.squares,
            event.fault,
            event.seconds,
        )
        return []

    def _on_reduced(self, event: SharesReduced) -> None:
        order = event.order
        progress = self._syncs.get(order.sync)
        if progress is None or progress.asked[:2] != (order.epoch, order.number):
            return  # Something else was decided meanwhile.
        if progress.done != (order.epoch, order.number):
            progress.outcomes.clear()
        progress.done = order.epoch, order.number
        progress.outcomes.update({each.share: each for each in event.outcomes})

    def _advance(self) -> list[ReducerEffect]:
        """Take every step that is possible now."""
        duties = self._duties
        effects: list[ReducerEffect] = []
        if duties is None:
            return effects
        for reduction in duties.reductions:
            progress = self._syncs[reduction.sync]
            effects += self._fetches(reduction, progress)
            effects += self._reduce(duties.epoch, reduction, progress)
        if duties.offer is not None and not self._offering:
            done = self._offered.syncs if self._offered else -1
            if done < duties.offer <= self._merged:
                self._offering = True
                effects.append(OfferState())
        return effects

    def _fetches(
        self, reduction: Reduction, progress: _Progress
    ) -> list[ReducerEffect]:
        """Fetch what is lacking: from all at once, and one share at a time from each.

        So whoever contributes last is not left alone with its link at the end.
        """
        effects: list[ReducerEffect] = []
        busy = [contribution for contribution, _ in progress.fetching]
        for place, share in enumerate(reduction.shares):
            for source in self._in_turn(reduction):
                key = source.contribution, share
                known = key in progress.norms or source.contribution in busy
                if known or place >= len(source.files):
                    continue
                progress.fetching.append(key)
                busy.append(source.contribution)
                effects.append(
                    FetchShare(
                        reduction.sync,
                        share,
                        source.worker,
                        source.contribution,
                        source.files[place],
                    )
                )
        return effects

    def _in_turn(self, reduction: Reduction) -> list[ShareSource]:
        """Begin with the next worker by name, so that not all ask the same one."""
        sources = reduction.sources
        after = [each for each in sources if each.worker > self._worker]
        return [*after, *(each for each in sources if each.worker <= self._worker)]

    def _reduce(
        self, epoch: int, reduction: Reduction, progress: _Progress
    ) -> list[ReducerEffect]:
        asked = epoch, reduction.order, reduction.shares
        if not reduction.order or progress.asked == asked:
            return []
        if self._merged < max(0, reduction.sync - self._fragments + 1):
            return []  # The weights are not yet those before this sync.
        named = {source.worker: source.contribution for source in reduction.sources}
        contributions = tuple(named.get(part.worker, "") for part in reduction.parts)
        needed = [(each, share) for each in contributions for share in reduction.shares]
        if not all(key in progress.norms for key in needed):
            return []
        progress.asked = asked
        return [
            ReduceShares(
                epoch,
                reduction.order,
                reduction.sync,
                reduction.shares,
                reduction.parts,
                contributions,
            )
        ]
