"""The worker that averages shares, as a machine: what to fetch, when to average.

Theory of operation. The coordinator sends `Duties`: of which syncs this worker averages
which shares, from which contributions, and, once that is decided or can be presumed,
which of them count and how much. The worker sends a `ShareReport` of all that it has
done of them, with each heartbeat and as soon as somebody waits for it (`news`). Both
say everything and are numbered; an older one, or one for an earlier life, changes
nothing. A share of a sync goes through these states:

- **Fetching** (`FetchShare` -> `ShareFetched`): from all contributors at once, one
  share at a time from each. What cannot be fetched now is asked for again, as long as
  it is a duty.
- **Measured**: its norm and faults are reported; the coordinator decides by those.
- **Averaging** (`ReduceShares` -> `SharesReduced`): once it is said what counts, all of
  that is here without a fault, and the weights are those before the sync
  (`SharesMerged`). What was measured meanwhile is reported with the outcome.
- **Reduced**: reported, and fetched by the others. It counts when the sync is merged
  and not before: another decision, with a higher number or epoch, replaces it.
- **Dropped** (`DropShares`), when it is no duty any more.

Besides, all weights are offered to others when duties ask for it (`OfferState`).
Nothing is durable: if this worker dies, its shares are duties of another, who fetches
them from the contributors again.
"""

from __future__ import annotations

from typing import final

import msgspec

from shoal.train.diloco.messages import KeptState
from shoal.train.diloco.shares.messages import (
    MARK,
    SPOILED_MAX,
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


class OutcomeSpoiled(msgspec.Struct, frozen=True):
    """The outcome of a share is here, and cannot be merged."""

    sync: int
    file: str


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
    | OutcomeSpoiled
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

    @property
    def is_under_way(self) -> bool:
        """Whether something is being fetched or averaged."""
        return bool(self.fetching) or self.asked[:2] != self.done


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
        self._reported: tuple[Reduced, ...] = ()
        self._reported_offer: KeptState | None = None
        self._spoiled: dict[str, int] = {}  # files of outcomes, and their syncs
        self._reported_spoiled: tuple[str, ...] = ()
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
                self._on_merged(event.syncs)
            case OutcomeSpoiled():
                if len(self._spoiled) < SPOILED_MAX:
                    self._spoiled[event.file] = event.sync
            case StateOffered():
                self._offering, self._offered = False, event.kept
        return effects + self._advance()

    @property
    def has_duties(self) -> bool:
        """Whether there is anything that the coordinator waits for."""
        duties = self._duties
        if duties is None:
            return False
        wanted = bool(duties.reductions) or duties.offer is not None
        return wanted or bool(self._spoiled)

    def news(self) -> ShareReport | None:
        """Return the finished duties, if others wait for what was not reported yet.

        Of a sync of which something is being fetched or averaged, more follows in a
        moment; and nothing is decided before the last contribution is measured. What
        nobody waits for, such as that duties were heard, is told by a heartbeat.
        """
        reductions = self._duties.reductions if self._duties else ()
        complete = {each.sync for each in reductions if each.is_complete}
        reported = {each.sync: each for each in self._reported}
        is_news = self._offered != self._reported_offer
        is_news |= tuple(self._spoiled) != self._reported_spoiled
        for each in self._done():
            if each.sync in complete and not self._syncs[each.sync].is_under_way:
                is_news |= each != reported.get(each.sync, Reduced(each.sync))
        return self.report() if is_news else None

    def report(self) -> ShareReport:
        """Return the finished duties."""
        self._seq += 1
        self._reported, self._reported_offer = self._done(), self._offered
        self._reported_spoiled = tuple(self._spoiled)
        return ShareReport(
            worker=self._worker,
            life=self._life,
            seq=self._seq,
            heard=(self._duties.epoch, self._duties.seq) if self._duties else (0, 0),
            offered=self._offered,
            reduced=self._reported,
            spoiled=self._reported_spoiled,
        )

    def _done(self) -> tuple[Reduced, ...]:
        duties = self._duties.reductions if self._duties else ()
        return tuple(self._reduced(each) for each in duties)

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
        if known is None or known.epoch != duties.epoch:
            self._reported = ()  # Whoever took over knows nothing of it.
        self._duties = duties
        wanted = [each.sync for each in duties.reductions]
        over = [sync for sync in self._syncs if sync not in wanted]
        for sync in over:
            del self._syncs[sync]
        for sync in wanted:
            self._syncs.setdefault(sync, _Progress())
        return [DropShares(sync) for sync in over]

    def _on_merged(self, syncs: int) -> None:
        """Note the weights; what could not be merged before is of the past."""
        self._merged = syncs
        later = {f: sync for f, sync in self._spoiled.items() if sync >= syncs}
        self._spoiled = later

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
        found = [progress.norms[key] for key in needed if key in progress.norms]
        if len(found) < len(needed) or any(not each.is_usable for each in found):
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
