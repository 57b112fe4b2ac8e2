"""The DiLoCo worker as a machine: what to do next, and what to report.

It is told directives, and what its host has done; `next_action` is always what to do
now. It keeps every contribution until the aggregator says that it is safe, because an
aggregator that starts anew needs it.
"""

from __future__ import annotations

from typing import Final, final

import msgspec

from shoal.train.diloco.messages import (
    Contribution,
    Directive,
    KeptState,
    Status,
    Update,
    same_content,
)

CONTRIBUTIONS_KEPT: Final = 16
"""More than an aggregator can be behind; older ones have become part of weights."""


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


class LeaveTraining(msgspec.Struct, frozen=True):
    """Nothing is left to do."""


class Wait(msgspec.Struct, frozen=True):
    """Nothing to do until the next directive."""


Action = Compute | Merge | Reload | Validate | LeaveTraining | Wait


@final
class Member:
    """One worker, from its start to its end."""

    def __init__(self, worker: str, life: int, initial: str, fragments: int) -> None:
        """Begin with weights whose file is `initial`."""
        self.merged = 0
        self.segment = 0  # the next to be computed
        self._directive: Directive | None = None
        self._worker = worker
        self._life = life
        self._initial = initial
        self._fragments = fragments
        self._check = 0
        self._loaded = False  # whether it has the shared weights
        self._reloaded_by = (0, 0)  # the directive that was last obeyed in this
        self._seq = 0
        self._contributions: dict[int, Contribution] = {}
        self._unneeded: list[str] = []
        self._holds: KeptState | None = None
        self._offered: KeptState | None = None
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
        if directive.syncs == 0 and same_content(directive.weights, self._initial):
            self._loaded = True
        for sync in [s for s in self._contributions if s < directive.safe]:
            self._unneeded.append(self._contributions.pop(sync).file)
        return True

    def unneeded(self) -> list[str]:
        """Return contribution files that will not be asked for any more."""
        files, self._unneeded = self._unneeded, []
        in_use = {each.file for each in self._contributions.values()}
        return [file for file in files if file not in in_use]

    def contributed(self, contribution: Contribution) -> None:
        """Note that a segment is computed and its outcome can be fetched."""
        self._contributions[contribution.sync] = contribution
        self._contributions.pop(contribution.sync - CONTRIBUTIONS_KEPT, None)
        self._steps_total += contribution.steps

    def computed(self, segment: int) -> None:
        """Note that the steps of a segment are done."""
        self.segment = max(self.segment, segment + 1)

    def has_merged(self, update: Update) -> None:
        """Note that the outcome of a sync is in the shared weights."""
        assert update.sync == self.merged
        self.merged += 1
        self._check = update.check
        self.segment = max(self.segment, self.merged)

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

    def leaves(self) -> None:
        """Note that this worker has left."""
        self._leaving = True

    # What goes out.

    def status(self) -> Status:
        """Return this worker's status."""
        self._seq += 1
        known = self._directive
        return Status(
            worker=self._worker,
            life=self._life,
            seq=self._seq,
            heard=(known.epoch, known.seq) if known else (0, 0),
            merged=self.merged,
            check=self._check,
            initial=self._initial,
            contributions=tuple(self._contributions.values()),
            holds=self._holds,
            offered=self._offered,
            validated=self._validated,
            validation=self._validation,
            steps_total=self._steps_total,
            leaving=self._leaving,
        )

    def next_action(self) -> Action:
        """Return what to do now."""
        directive = self._directive
        if directive is None or not directive.weights:
            return Wait()
        if directive.finished and not directive.validate:
            return LeaveTraining()
        if reload := self._reload(directive):
            return reload
        for update in directive.updates:
            if update.sync == self.merged:
                return Merge(update)
        if self.merged == directive.syncs:
            if directive.validate and self._validated < self.merged:
                return Validate(self.merged)
            if directive.finished:
                return LeaveTraining()
        return self._compute(directive)

    @property
    def weights_now(self) -> Reload:
        """How to reload the shared weights, by the last directive."""
        assert self._directive is not None
        return Reload(self._directive.syncs, self._directive.weights)

    @property
    def to_keep(self) -> KeptState | None:
        """The checkpoint to fetch now, if there is one."""
        wanted = self._directive.keep if self._directive else None
        if wanted is None or (self._holds and self._holds.syncs >= wanted.syncs):
            return None
        return wanted

    @property
    def is_asked_to_offer(self) -> bool:
        """Whether to publish the shared weights, since there is no checkpoint."""
        if self._directive is None or not self._directive.offer:
            return False
        return self._offered is None or self._offered.syncs != self.merged

    def _reload(self, directive: Directive) -> Reload | None:
        """Return how to reload the shared weights, if they must be."""
        behind = directive.syncs > self.merged
        can_follow = any(update.sync == self.merged for update in directive.updates)
        must = directive.reload and self._reloaded_by != (
            directive.epoch,
            directive.seq,
        )
        if self._loaded and not must and (can_follow or not behind):
            return None
        return self.weights_now

    def _compute(self, directive: Directive) -> Action:
        in_flight = 0 if self._fragments == 1 else 1
        segment = max(self.segment, directive.first)
        steps = directive.steps.get(str(segment))
        if steps is None or self.merged < segment - in_flight:
            return Wait()
        return Compute(segment, steps)
