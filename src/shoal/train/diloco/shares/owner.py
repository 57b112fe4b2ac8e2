"""A worker's part in averaging shares: runs the machine of `reducer`.

Files are fetched and averages computed by threads, beside the training loop.
"""

from __future__ import annotations

import math
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, final

from shoal.train import tensors
from shoal.train.diloco.averaging import deltas_in, measured
from shoal.train.diloco.messages import KeptState, encode
from shoal.train.diloco.rules import UPDATES_KEPT
from shoal.train.diloco.shares.messages import (
    Duties,
    ShareOutcome,
    ShareReport,
)
from shoal.train.diloco.shares.reducer import (
    DropShares,
    DutiesReceived,
    FetchShare,
    OfferState,
    OutcomeSpoiled,
    Reducer,
    ReducerEffect,
    ReducerEvent,
    ReduceShares,
    ShareFetched,
    SharesMerged,
    SharesReduced,
    ShareUnavailable,
    StateOffered,
)
from shoal.train.diloco.shares.state import OuterState, OuterStep
from shoal.train.exchange import ExchangeError
from shoal.train.pieces import OFFERS_KEPT, LatestFiles, PieceExchange

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from shoal.train.diloco.compression import Array, Encoding
    from shoal.train.diloco.messages import Update
    from shoal.train.exchange import Exchange
    from shoal.train.settings import TrainSettings
    from shoal.train.tensors import Layout

FETCHES_AT_ONCE: Final = 4
RETRY_S: Final = 0.5


@final
class ShareOwner:
    """Averages shares for all, and knows the momentum of all.

    Whoever changes `state` holds `guard`, so that nobody reads half of it.
    """

    def __init__(
        self,
        exchange: Exchange,
        settings: TrainSettings,
        layout: Layout,
        weights: Array,
        *,
        life: int,
        coordinator: str,
        shares: int,
        fail: Callable[[BaseException], None],
    ) -> None:
        """Average over `weights`, into which the caller merges updates."""
        self.shares = shares
        self.guard = threading.Lock()
        step = OuterStep(settings.outer_rule(), settings.average, settings.compress)
        fragments = settings.fragments
        self.state = OuterState(
            layout, weights, step, fragments=fragments, shares=shares
        )
        self._exchange, self._large = exchange, PieceExchange(exchange)
        self._encoding: Encoding = settings.compress
        self._coordinator, self._fail = coordinator, fail
        self._noted = -1  # by the machine, of syncs
        self._files: dict[tuple[int, str, int], Path] = {}
        # Outcomes: of all shares, since any may come to be averaged here.
        self._given = LatestFiles(exchange.forget, (UPDATES_KEPT + 1) * shares)
        self._offered = LatestFiles(self._large.forget, OFFERS_KEPT)
        self._machine = Reducer(exchange.name, life, settings.fragments)
        self._lock = threading.Lock()  # of the machine
        self._fetchers = ThreadPoolExecutor(FETCHES_AT_ONCE)
        self._desk = ThreadPoolExecutor(1)
        self._ended = threading.Event()

    def close(self) -> None:
        """Begin nothing more."""
        self._ended.set()
        for pool in (self._fetchers, self._desk):
            pool.shutdown(wait=False, cancel_futures=True)

    def hear(self, duties: Duties) -> None:
        """Take in what the coordinator wants."""
        self._feed(DutiesReceived(duties))

    def tell(self) -> None:
        """Repeat finished work for workers that wait for it."""
        with self._lock:
            report = self._machine.report() if self._machine.has_duties else None
        if report is not None:
            self._send(report)

    def note_syncs(self, syncs: int) -> None:
        """Note after which sync the weights and momentum are.

        Below 0 they are not those of the others.
        """
        with self.guard:
            self.state.syncs = syncs
        if syncs != self._noted:
            self._noted = syncs
            self._feed(SharesMerged(syncs))

    # Outcomes of syncs.

    def fetch(self, update: Update) -> list[Path]:
        """Fetch all shares of an outcome; raise `ExchangeError` if one is not there.

        One that cannot be merged is as good as none, and the coordinator is told.
        """
        pieces = self.state.pieces(update.sync)

        def get(number: int) -> Path | ExchangeError:
            file = update.shares[number]
            try:
                path = self._exchange.get(file, "an owner", "updates")
            except ExchangeError as error:
                return error
            norm, fault = measured(path, pieces[number])
            if math.isfinite(norm) and not fault:
                return path
            path.unlink(missing_ok=True)
            self._feed(OutcomeSpoiled(update.sync, file))
            return ExchangeError("a share of an outcome cannot be merged")

        # After one's own comes another's for each, so that not all ask the same owner.
        first = next(iter(self.state.averaged(update.sync)), 0)
        turn = [*range(first, len(update.shares)), *range(first)]
        files = self._fetchers.map(get, turn)
        got = dict(zip(turn, files, strict=True))
        found = [got[number] for number in sorted(got)]
        paths = [each for each in found if not isinstance(each, ExchangeError)]
        for error in found:
            if isinstance(error, ExchangeError):
                for path in paths:
                    path.unlink(missing_ok=True)
                raise error
        return paths

    def save(self, path: Path) -> int:
        """Write weights and momentum; return after how many syncs they are."""
        with self.guard:
            state = self.state.whole()
            tensors.save_state(path, state)
            return state.syncs

    # The machine.

    def _feed(self, event: ReducerEvent) -> None:
        with self._lock:
            effects = self._machine.handle(event)
            report = self._machine.news()
        for effect in effects:
            self._perform(effect)
        if report is not None:
            self._send(report)

    def _send(self, report: ShareReport) -> None:
        self._exchange.send(self._coordinator, encode(report))

    def _perform(self, effect: ReducerEffect) -> None:
        match effect:
            case FetchShare():
                self._start(self._fetchers, lambda: self._fetch_share(effect))
            case ReduceShares():
                self._start(self._desk, lambda: self._reduce(effect))
            case OfferState():
                self._start(self._desk, self._offer)
            case DropShares():
                for key in [key for key in self._files if key[0] == effect.sync]:
                    self._files.pop(key).unlink(missing_ok=True)

    def _start(self, pool: ThreadPoolExecutor, act: Callable[[], ReducerEvent]) -> None:
        def run() -> None:
            try:
                self._feed(act())
            except BaseException as error:  # noqa: BLE001 - It is raised in the loop.
                if not self._ended.is_set():
                    self._fail(error)

        if not self._ended.is_set():
            pool.submit(run)

    def _fetch_share(self, order: FetchShare) -> ReducerEvent:
        began = time.monotonic()
        try:
            path = self._exchange.get(order.file, order.worker, "contributions")
        except ExchangeError:
            self._ended.wait(RETRY_S)  # It is asked for again at once.
            return ShareUnavailable(order)
        took_s = time.monotonic() - began
        norm, fault = measured(path, self.state.pieces(order.sync)[order.share])
        self._files[order.sync, order.contribution, order.share] = path
        return ShareFetched(order, norm * norm, fault, took_s)

    def _reduce(self, order: ReduceShares) -> ReducerEvent:
        try:
            outcomes = tuple(self._average(order, share) for share in order.shares)
        except (KeyError, OSError):
            return SharesReduced(
                order, ()
            )  # It is not wanted any more: files are gone.
        return SharesReduced(order, outcomes)

    def _average(self, order: ReduceShares, share: int) -> ShareOutcome:
        """Average one share, over a copy of it."""
        with self.guard:
            state = self.state.share(order.sync, share)
        part = state.layout.fragment(0, 1)
        paths = [self._files[order.sync, each, share] for each in order.contributions]
        done = self.state.average(state, deltas_in(paths, part, order.parts))
        path = self._exchange.draft()
        tensors.save_fragment(path, part, done.chunks, done.buffers, self._encoding)
        size = path.stat().st_size
        file = self._exchange.put(path)
        self._given.add(file)
        with self.guard:
            self.state.keep(order.sync, share, file, done)
        return ShareOutcome(share, file, done.check, size)

    def _offer(self) -> ReducerEvent:
        path = self._exchange.draft()
        syncs = self.save(path)
        file = self._large.put(path)
        self._offered.add(file)
        return StateOffered(KeptState(syncs, file))
