"""What `shoal.train.diloco.shares.owner` does, in virtual time."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING

import numpy as np

from shoal.train import tensors
from shoal.train.diloco import outer
from shoal.train.diloco.averaging import Delta, norm_of
from shoal.train.diloco.messages import KeptState, Update
from shoal.train.diloco.shares import coordinator, reducer
from shoal.train.diloco.shares.messages import Duties, ShareOutcome, ShareReport
from shoal.train.diloco.shares.state import OuterState, OuterStep

if TYPE_CHECKING:
    from tests.sim.train_world import SimWorker

    from shoal.train.diloco.compression import Array

NO_BUFFERS = np.zeros(0, dtype=np.float32)
STEP = OuterStep(outer.Outer(), "mean", "float16")
RETRY_S = 0.5


class SimSharing:
    """A worker's part in averaging shares; nothing, as long as there is a centre."""

    def __init__(self, worker: SimWorker, life: int) -> None:
        self.worker, self.world = worker, worker.world
        self.shares = 0
        self.stuck = False  # whether nothing comes through its link
        self.spoils = False  # whether what it averages is garbage
        self.accuses = False  # whether it says so of others
        self.machine = reducer.Reducer(worker.name, life, worker.rules.fragments)
        self.state: OuterState | None = None
        self._got: dict[tuple[int, str, int], object] = {}
        self._noted = -1

    def begin(self, shares: int) -> None:
        if shares and self.state is None:
            self.shares = shares
            layout = tensors.Layout({"w": self.worker.shared.shape})
            self.state = OuterState(
                layout,
                self.worker.shared,
                STEP,
                fragments=self.worker.rules.fragments,
                shares=shares,
            )

    def hear(self, duties: Duties) -> None:
        self.feed(reducer.DutiesReceived(duties))

    def note(self) -> None:
        """Tell the machine after how many syncs the weights are."""
        if self.state is None:
            return
        member = self.worker.member
        self.state.syncs = member.merged if member.loaded else -1
        if self.state.syncs != self._noted:
            self._noted = self.state.syncs
            self.feed(reducer.SharesMerged(self._noted))

    def repeat(self) -> None:
        if self.machine.has_duties:
            self._report()

    def whole(self) -> tensors.State | None:
        return deepcopy(self.state.whole()) if self.state else None

    def replace(self, state: tensors.State) -> None:
        if self.state is not None:
            self.state.replace(state)

    def follow(self, update: Update, place: slice, add: Array) -> None:
        if self.state is not None:
            self.state.follow(update, place, add)

    def settle(self, update: Update) -> None:
        if self.state is not None:
            self.state.settle(update)

    def count(self, update: Update) -> None:
        """Count what the owners of an outcome have sent to this worker."""
        for file in update.shares:
            holders = [n for n, files in self.world.files.items() if file in files]
            if holders and self.worker.name not in holders:
                self.world.sent[holders[0]] += 1

    def judge(self, update: Update, found: list[object]) -> None:
        """Tell of shares that are here and cannot be merged."""
        for file, each in zip(update.shares, found, strict=True):
            if self.accuses or not isinstance(each, bytes | None):
                self.feed(reducer.OutcomeSpoiled(update.sync, file))

    def feed(self, event: reducer.ReducerEvent) -> None:
        if not self.worker.alive:
            return
        for effect in self.machine.handle(event):
            self._perform(effect)
        if (report := self.machine.news()) is not None:
            self._send(report)

    def _report(self) -> None:
        if self.worker.alive:
            self._send(self.machine.report())

    def _send(self, report: ShareReport) -> None:

        def arrive() -> None:
            if self.world.aggregator is not None:
                self.world.aggregator.feed(coordinator.ReportReceived(report))

        self.world.post(arrive)

    def _perform(self, effect: reducer.ReducerEffect) -> None:
        match effect:
            case reducer.FetchShare():
                source = self.world.workers.get(effect.worker)
                link_s = source.link_s if source else RETRY_S
                link_s = max(link_s, self.worker.link_s)
                if not self.stuck:
                    self.world.after(link_s, lambda: self._fetch(effect, link_s))
            case reducer.ReduceShares():
                self.world.after(0.05, lambda: self._reduce(effect))
            case reducer.OfferState():
                self.world.after(0.05, self._offer)
            case reducer.DropShares():
                for key in [key for key in self._got if key[0] == effect.sync]:
                    del self._got[key]

    def _fetch(self, order: reducer.FetchShare, link_s: float) -> None:
        found = self.world.files.get(order.worker, {}).get(order.file)
        if found is None:
            unavailable = reducer.ShareUnavailable(order)
            self.world.after(RETRY_S, lambda: self.feed(unavailable))
            return
        if order.worker != self.worker.name:
            self.world.sent[order.worker] += 1
        self._got[order.sync, order.contribution, order.share] = deepcopy(found)
        if isinstance(found, np.ndarray):
            squares = norm_of([found], NO_BUFFERS) ** 2
            self.feed(reducer.ShareFetched(order, squares, "", link_s))
        else:
            fault = "its file cannot be read"
            self.feed(reducer.ShareFetched(order, 0.0, fault, link_s))

    def _reduce(self, order: reducer.ReduceShares) -> None:
        if not self.worker.alive:
            return
        assert self.state is not None
        outcomes: list[ShareOutcome] = []
        for share in order.shares:
            deltas: list[Delta] = []
            for name, part in zip(order.contributions, order.parts, strict=True):
                values = self._got.get((order.sync, name, share))
                if not isinstance(values, np.ndarray):
                    return  # It is not wanted any more.
                deltas.append(
                    Delta(iter([values]), NO_BUFFERS, part.samples, part.scale)
                )
            state = self.state.share(order.sync, share)
            done = self.state.average(state, deltas)
            [data] = done.chunks
            file = self.world.put(self.worker.name, data, data)
            if self.spoils:
                file = self.world.put(self.worker.name, "garbage", b"garbage" + data)
            self.state.keep(order.sync, share, file, done)
            outcomes.append(ShareOutcome(share, file, done.check, len(data)))
        self.feed(reducer.SharesReduced(order, tuple(outcomes)))

    def _offer(self) -> None:
        if self.worker.alive and self.state is not None:
            state = deepcopy(self.state.whole())
            data = state.weights.tobytes() + state.momentum.tobytes()
            file = self.world.put(self.worker.name, state, data)
            self.feed(reducer.StateOffered(KeptState(state.syncs, file)))
