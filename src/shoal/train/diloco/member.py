"""The DiLoCo worker as a machine: what to do next, and what to report.

Theory of operation. The aggregator sends a `Directive`, everything that it wants of
this worker; the worker sends a `Status`, everything that it has. Each is repeated whole
and numbered, so any may be lost, doubled or late: an older one changes nothing, and one
for an earlier life of this name is not taken in. The host calls `direct` with what has
come and a method such as `contributed` with what it has done; `next_action` is always
what to do now. A worker goes through these states:

- **Waiting** (`Wait`), until a directive says that the run has begun.
- **Loading** (`Reload`), while its shared weights are not those of the others: it is
  new, has missed outcomes that nobody keeps any more, or a check differs.
- **Taking over** (`TakeInner`), if its loop keeps more than weights, such as an
  optimiser, and has none of it yet. It waits where a directive says that it comes.
- **Computing** (`Compute`): a segment of inner steps, whose delta becomes a
  `Contribution` to one sync. It may be ahead of outcomes by `in_flight` syncs.
- **Merging** (`Merge`): outcomes are merged in the order of syncs, each once.
- **Leaving** (`LeaveTraining`), after all syncs, and after it has measured the weights
  (`Validate`) and published what its loop keeps (`ShareInner`), if it was asked to.

Nothing is durable here: a worker that starts again is a new life, and loads. But others
rely on what it holds. It keeps each contribution until a directive says that it is
`safe`, because an aggregator that starts anew closes those syncs again, and the latest
checkpoint that it was told to keep. Contributions that are kept are bounded.
"""

from __future__ import annotations

from typing import Final, Literal, final

import msgspec

from shoal.train.diloco.messages import (
    CONTRIBUTIONS_TOLD,
    Contribution,
    Directive,
    KeptState,
    Status,
    Update,
    files_of,
    in_flight,
    same_content,
)

INTERVALS_KEPT: Final = 3
"""Contributions of so many times between checkpoints are kept: a checkpoint travels
for half of one, and older ones have become part of it."""


class Compute(msgspec.Struct, frozen=True):
    """Compute a segment of inner steps, and contribute to its sync."""

    segment: int
    steps: int


class Merge(msgspec.Struct, frozen=True):
    """Add the outcome of a sync to the shared weights, and to the local ones."""

    update: Update


class Reload(msgspec.Struct, frozen=True):
    """Reload the shared weights from a file, as they are after `syncs` syncs."""

    syncs: int
    file: str


class Validate(msgspec.Struct, frozen=True):
    """Measure the shared weights as they are after this many syncs."""

    syncs: int


class TakeInner(msgspec.Struct, frozen=True):
    """Take over what another worker's loop keeps."""

    kept: KeptState


class ShareInner(msgspec.Struct, frozen=True):
    """Publish what this worker's loop keeps, as it is after `syncs` syncs."""

    syncs: int


class StartOver(msgspec.Struct, frozen=True):
    """Give up the loop's own progress: it cannot be used."""


class LeaveTraining(msgspec.Struct, frozen=True):
    """Nothing is left to do."""


class Wait(msgspec.Struct, frozen=True):
    """Nothing to do until the next directive."""


Action = (
    Compute
    | Merge
    | Reload
    | Validate
    | TakeInner
    | ShareInner
    | StartOver
    | LeaveTraining
    | Wait
)


@final
class Member:
    """One worker, from its start to its end."""

    def __init__(
        self,
        worker: str,
        life: int,
        initial: str,
        fragments: int,
        *,
        checkpoint_syncs: int = 10,
        keeps_inner: bool = False,
        values: int = 0,
    ) -> None:
        """Begin with `values` weights whose file is `initial`.

        With `keeps_inner` the loop has something to keep besides its weights.
        """
        self.merged = 0
        self.segment = 0  # the next to be computed
        self._directive: Directive | None = None
        self._worker = worker
        self._life = life
        self._initial = initial
        self._fragments = fragments
        self._values = values
        self._kept_most = INTERVALS_KEPT * checkpoint_syncs + CONTRIBUTIONS_TOLD
        self._check = 0
        self._loaded = False  # whether it has the shared weights
        self._reloaded_by = (0, 0)  # the directive that was last obeyed in this
        self._seq = 0
        self._contributions: dict[int, Contribution] = {}
        self._under_way: list[int] = []  # segments whose contribution is being made
        self._unneeded: list[str] = []
        self._holds: KeptState | None = None
        self._offered: KeptState | None = None
        self._inner_is: Literal["none", "fresh", "trained"] = "none"
        if keeps_inner:
            self._inner_is = "fresh"
        self._inner: KeptState | None = None
        self._started_over = (0, 0)  # by which epoch, and how often
        self._validated = 0
        self._validation: dict[str, float] = {}
        self._steps_total = 0
        self._leaving = False

    # What comes in.

    def direct(self, directive: Directive) -> bool:
        """Take in a directive; return whether it is news."""
        known = self._directive
        if directive.life != self._life:
            return False  # For a worker that had this name before.
        if known is not None and (directive.epoch, directive.seq) <= (
            known.epoch,
            known.seq,
        ):
            return False
        self._directive = directive
        weights, keep = directive.weights, directive.keep
        if weights and weights.syncs == 0 and same_content(weights.file, self._initial):
            self._loaded = True
        if keep and not self._holds and same_content(keep.file, self._initial):
            self._holds = KeptState(keep.syncs, self._initial)
        for sync in [s for s in self._contributions if s < directive.safe]:
            self._unneeded += files_of(self._contributions.pop(sync))
        return True

    def unneeded(self) -> list[str]:
        """Return contribution files that will not be asked for any more."""
        files, self._unneeded = self._unneeded, []
        in_use = {f for each in self._contributions.values() for f in files_of(each)}
        return [file for file in files if file not in in_use]

    def computed(self, segment: int) -> None:
        """Note that the steps of a segment are done, and its delta is being made."""
        self.segment = max(self.segment, segment + 1)
        self._under_way.append(segment)
        if self._inner_is == "fresh":
            self._inner_is = "trained"

    def contributed(self, contribution: Contribution) -> None:
        """Note that the delta of a segment can be fetched."""
        self._under_way.remove(contribution.sync)
        self._contributions[contribution.sync] = contribution
        self._steps_total += contribution.steps
        while len(self._contributions) > self._kept_most:
            oldest = self._contributions.pop(min(self._contributions))
            self._unneeded += files_of(oldest)

    def has_merged(self, update: Update) -> None:
        """Note that the outcome of a sync is in the shared weights."""
        assert update.sync == self.merged
        self.merged += 1
        if self._worker in update.missing and update.sync in self._contributions:
            # Nobody may count it when the sync is closed again, after a fail-over.
            self._unneeded.append(self._contributions.pop(update.sync).file)
        self._check = update.check
        self.segment = max(self.segment, self.merged)

    def has_lost_its_way(self) -> None:
        """Note that the shared weights here differ from the others'."""
        self._loaded = False

    def has_reloaded(self, syncs: int, check: int) -> None:
        """Note after how many syncs the shared weights now are.

        `check` is that of the fragment which was last changed.
        """
        self.merged = syncs
        self._check = check
        self._loaded = True
        if self._directive is not None:
            self._reloaded_by = (self._directive.epoch, self._directive.seq)
        self.segment = max(self.segment, syncs)

    def has_validated(self, syncs: int, figures: dict[str, float]) -> None:
        """Note how good the shared weights are."""
        self._validated, self._validation = syncs, figures

    def keeps(self, kept: KeptState) -> KeptState | None:
        """Note that a checkpoint is here; return the one that it replaces."""
        before, self._holds = self._holds, kept
        return before

    def offers(self, kept: KeptState) -> None:
        """Note that the shared weights can be fetched by the others."""
        self._offered = kept

    def took_inner(self) -> None:
        """Note that the loop goes on from what another kept, or cannot."""
        self._inner_is = "trained"

    def shares_inner(self, kept: KeptState) -> KeptState | None:
        """Note that others can fetch what the loop keeps; return what it replaces."""
        before, self._inner = self._inner, kept
        return before

    def has_started_over(self) -> None:
        """Note that the loop goes on from the shared weights."""
        assert self._directive is not None
        self._started_over = (self._directive.epoch, self._directive.start_over)

    def leaves(self) -> None:
        """Note that this worker has left."""
        self._leaving = True

    # What goes out.

    def status(self, received: dict[str, int] | None = None) -> Status:
        """Return this worker's status; `received` are bytes by kind."""
        self._seq += 1
        known = self._directive
        first = known.syncs if known else 0
        open_ = [c for sync, c in sorted(self._contributions.items()) if sync >= first]
        return Status(
            worker=self._worker,
            life=self._life,
            seq=self._seq,
            heard=(known.epoch, known.seq) if known else (0, 0),
            merged=self.merged,
            check=self._check,
            initial="" if self.merged else self._initial,  # It is history then.
            loaded=self._loaded,
            segment=min(self._under_way, default=self.segment),
            listed_from=first,
            contributions=tuple(open_[:CONTRIBUTIONS_TOLD]),
            holds=self._holds,
            offered=self._offered,
            validated=self._validated,
            validation=self._validation,
            steps_total=self._steps_total,
            received=received or {},
            inner_is=self._inner_is,
            inner=self._inner,
            values=self._values,
            leaving=self._leaving,
        )

    def next_action(self) -> Action:
        """Return what to do now."""
        directive = self._directive
        if directive is None or not directive.running:
            return Wait()
        shares = self._is_to_share(directive)
        if directive.finished and not (directive.validate or shares):
            return LeaveTraining()
        if self._must_reload(directive):
            weights = directive.weights
            if weights is None or self._has_reloaded_by(directive):
                return Wait()
            return Reload(weights.syncs, weights.file)
        asked = (directive.epoch, directive.start_over)
        if directive.start_over and self._started_over < asked:
            return StartOver()
        for update in directive.updates:
            if update.sync == self.merged:
                return Merge(update)
        if shares and self.merged >= directive.share_inner:
            return ShareInner(self.merged)
        if self.merged == directive.syncs:
            if directive.validate and self._validated < self.merged:
                return Validate(self.merged)
            if directive.finished:
                return LeaveTraining()
        if self._inner_is == "fresh":
            if directive.inner is not None:
                return TakeInner(directive.inner)
            if directive.inner_comes:
                return Wait()
        return self._compute(directive)

    @property
    def loaded(self) -> bool:
        """Whether the shared weights here equal the others'."""
        return self._loaded

    @property
    def to_keep(self) -> KeptState | None:
        """The checkpoint to fetch now, if there is one."""
        wanted = self._directive.keep if self._directive else None
        if wanted is None or (self._holds and self._holds.syncs >= wanted.syncs):
            return None
        return wanted

    @property
    def keep_over_s(self) -> float:
        """How long to take for it."""
        return self._directive.keep_over_s if self._directive else 0.0

    @property
    def is_asked_to_offer(self) -> bool:
        """Whether to publish the shared weights, since there is no checkpoint."""
        if self._directive is None or not self._directive.offer:
            return False
        return self._offered is None or self._offered.syncs != self.merged

    @property
    def refused(self) -> str:
        """Why the last contribution did not count, if it did not."""
        return self._directive.refused if self._directive else ""

    def _is_to_share(self, directive: Directive) -> bool:
        done = self._inner.syncs if self._inner else 0
        return self._inner_is == "trained" and directive.share_inner > done

    def _must_reload(self, directive: Directive) -> bool:
        """Whether the shared weights must be taken anew."""
        behind = directive.syncs > self.merged
        can_follow = any(update.sync == self.merged for update in directive.updates)
        must = directive.reload and not self._has_reloaded_by(directive)
        return not self._loaded or must or (behind and not can_follow)

    def _has_reloaded_by(self, directive: Directive) -> bool:
        return self._reloaded_by == (directive.epoch, directive.seq)

    def _compute(self, directive: Directive) -> Action:
        segment = max(self.segment, directive.first)
        steps = directive.steps.get(str(segment))
        ahead = in_flight(self._fragments, directive.shares)
        if steps is None or self.merged < segment - ahead:
            return Wait()
        return Compute(segment, steps)
