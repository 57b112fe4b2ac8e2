"""Weights and momentum as a worker has them that averages shares.

What was averaged has no effect before the sync is merged, which is when weights and
momentum change for everybody: the momentum of the shares that were averaged here
exactly, that of the others as far as their updates tell.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import msgspec
import numpy as np

from shoal.train import tensors
from shoal.train.diloco import outer
from shoal.train.diloco.averaging import average
from shoal.train.diloco.messages import same_content

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shoal.train.diloco.averaging import Delta
    from shoal.train.diloco.compression import Array, Encoding, Residual
    from shoal.train.diloco.messages import Update
    from shoal.train.diloco.outer import Combination
    from shoal.train.tensors import Fragment, Layout


class OuterStep(msgspec.Struct, frozen=True):
    """How deltas become an update."""

    rule: outer.Outer
    by: Combination
    encoding: Encoding


class AveragedShare(msgspec.Struct, frozen=True):
    """A share as it is after a sync, if that is closed so."""

    chunks: list[bytes]  # of the update
    buffers: Array
    check: int
    momentum: Array
    lost: Residual


@final
class OuterState:
    """All weights, into which the caller merges updates, and their momentum."""

    def __init__(
        self,
        layout: Layout,
        weights: Array,
        step: OuterStep,
        *,
        fragments: int,
        shares: int,
    ) -> None:
        self.weights = weights
        self.syncs = -1  # that it is after; unknown below 0
        self._layout, self._step = layout, step
        self._fragments, self._shares = fragments, shares
        self._momentum = np.zeros(layout.trained_size, dtype=np.float32)
        self._lost: dict[tuple[int, int], Residual] = {}  # by fragment and share
        # What came of averaging, and its file, by sync and share.
        self._averaged: dict[tuple[int, int], tuple[str, AveragedShare]] = {}

    def pieces(self, sync: int) -> list[Fragment]:
        """Return the shares of the fragment that a sync exchanges."""
        part = self._layout.fragment(sync % self._fragments, self._fragments)
        return part.cut(self._shares)

    def whole(self) -> tensors.State:
        """Return weights and momentum as they are; what rounding owes is not known."""
        lost = np.zeros(self._layout.trained_size, dtype=np.float16)
        return tensors.State(
            max(0, self.syncs),
            self._fragments,
            self._layout,
            self.weights,
            self._momentum,
            lost,
        )

    def replace(self, state: tensors.State) -> None:
        """Take weights and momentum of another."""
        self.weights, self._momentum = state.weights, state.momentum
        self.syncs = state.syncs
        self._lost.clear()
        self._averaged.clear()

    # Averaging.

    def share(self, sync: int, number: int) -> tensors.State:
        """Return a copy of one share, as a state of its own."""
        place = self.pieces(sync)[number]
        trained, buffers = self.weights[place.trained], self.weights[place.buffers]
        layout = tensors.Layout({"trained": trained.shape}, {"buffers": buffers.shape})
        flat = np.concatenate([trained, buffers])
        state = tensors.begun(layout, flat, sync, self._fragments)
        state.momentum = self._momentum[place.trained].copy()
        lost = self._lost.get((sync % self._fragments, number))
        if lost is not None:
            state.lost = lost.copy()
        return state

    def average(self, state: tensors.State, deltas: Sequence[Delta]) -> AveragedShare:
        """Take the outer step in a copy of a share."""
        part = state.layout.fragment(0, 1)
        chunks = average(
            state,
            part,
            deltas,
            self._step.rule,
            rounds_done=state.syncs // self._fragments,
            by=self._step.by,
            encoding=self._step.encoding,
        )
        check = tensors.check(state.weights, part)
        buffers = state.weights[part.buffers]
        return AveragedShare(chunks, buffers, check, state.momentum, state.lost)

    def keep(self, sync: int, number: int, file: str, done: AveragedShare) -> None:
        """Remember what came of a share: it counts if the sync is closed so."""
        self._averaged[sync, number] = file, done

    def averaged(self, sync: int) -> list[int]:
        """Return the shares of a sync that were averaged here."""
        return sorted(number for each, number in self._averaged if each == sync)

    # Merging.

    def follow(self, update: Update, place: slice, add: Array) -> None:
        """Let the momentum follow a part of an update."""
        self._momentum[place] = outer.followed(
            self._step.rule,
            add,
            self._momentum[place],
            rounds_done=update.sync // self._fragments,
            workers=max(1.0, update.workers),
        )

    def settle(self, update: Update) -> None:
        """Let the shares count that were averaged here: the update is merged."""
        fragment = update.sync % self._fragments
        for number, part in enumerate(self.pieces(update.sync)):
            self._lost.pop((fragment, number), None)
            file, own = self._averaged.get((update.sync, number), ("", None))
            if own is not None and same_content(file, update.shares[number]):
                self._momentum[part.trained] = own.momentum
                self._lost[fragment, number] = own.lost
        for past in [key for key in self._averaged if key[0] <= update.sync]:
            del self._averaged[past]
        self.syncs = update.sync + 1
