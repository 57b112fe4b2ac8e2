"""A DiLoCo worker's session, around a training loop of any framework.

The loop calls `step` after each inner step. Everything else happens in there: weights
are exchanged when it is time, and other people's progress is merged. Two threads help:
one talks, so that the aggregator always hears that this worker is alive, and one
carries files, so that with several fragments sending overlaps with computing.
"""

from __future__ import annotations

import queue
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Final, final

import numpy as np

from shoal.errors import ProtocolError
from shoal.train import tensors
from shoal.train.diloco import compression, messages
from shoal.train.diloco.member import (
    Compute,
    LeaveTraining,
    Member,
    Merge,
    Reload,
    Validate,
    Wait,
)
from shoal.train.exchange import Exchange, ExchangeError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from shoal.train.diloco.compression import Array
    from shoal.train.diloco.messages import Update
    from shoal.train.settings import TrainSettings

HEARTBEAT_S: Final = 1.0
RETRY_S: Final = 0.5


@final
class DilocoSession:
    """Joins a training loop with the loops of the other workers.

    `read` returns the weights of the loop as named arrays and `write` sets them;
    `validate` measures the model as it is, and returns figures.
    """

    def __init__(
        self,
        exchange: Exchange,
        settings: TrainSettings,
        *,
        life: int,
        aggregator: str = "aggregate.0",
        read: Callable[[], Mapping[str, Array]],
        write: Callable[[Mapping[str, Array]], None],
        validate: Callable[[], Mapping[str, float]] | None = None,
    ) -> None:
        self.waited_s = 0.0  # for others
        self.computed_s = 0.0
        self._exchange = exchange
        self._aggregator = aggregator
        self._settings = settings
        self._read, self._write, self._validate = read, write, validate
        first = dict(read())
        self._layout = tensors.layout_of(first)
        self._shared = self._layout.flat(first)
        self._lost = np.zeros_like(self._shared)  # by compression, to be sent later
        self._snapshots: dict[int, Array] = {}
        initial = exchange.put(tensors.pack_weights(self._layout, self._shared))
        self._member = Member(exchange.name, life, initial, settings.fragments)
        self._news = threading.Condition()  # guards the member
        self._files: dict[str, bytes] = {}  # updates that were fetched ahead
        self._errands: queue.SimpleQueue[Callable[[], None] | None] = (
            queue.SimpleQueue()
        )
        self._failure: BaseException | None = None
        self._ended = threading.Event()
        self._segment: Compute | None = None
        self._steps = self._samples = self._tokens = 0
        self._loss_sum = self._seconds = 0.0
        self._since_sync: list[int] = [0] * settings.fragments  # samples
        self._began_step = 0.0

    def __enter__(self) -> DilocoSession:
        for work in (self._talk, self._carry):
            threading.Thread(target=self._guarded, args=(work,), daemon=True).start()
        self._find_work()
        return self

    def __exit__(self, *exception: object) -> None:
        if self._failure is None:
            with self._news:
                self._member.leaves()
            self._tell()  # It is not lost, so the others need not wait for it.
        self._ended.set()
        self._errands.put(None)

    @property
    def round(self) -> int:
        """How many rounds are merged."""
        with self._news:
            return self._member.merged // self._settings.fragments

    @property
    def finished(self) -> bool:
        """Whether nothing is left to compute."""
        return self._segment is None

    def step(self, samples: int, loss: float, tokens: int = 0) -> None:
        """Note an inner step on `samples` samples; exchange weights if it is time."""
        assert self._segment is not None, "look at `finished` before each step"
        spent_s = time.monotonic() - self._began_step
        self.computed_s += spent_s
        self._seconds += spent_s
        self._steps += 1
        self._samples += samples
        self._tokens += tokens
        self._loss_sum += loss * samples
        self._since_sync = [each + samples for each in self._since_sync]
        if self._steps >= self._segment.steps:
            self._contribute(self._segment)
            self._find_work()
        elif self._news_wait():
            self._find_work(keep=self._segment)
        self._began_step = time.monotonic()

    # Between two steps.

    def _news_wait(self) -> bool:
        """Whether there is something to merge before the segment is over."""
        with self._news:
            action = self._member.next_action()
        if isinstance(action, Merge) and self._settings.fragments > 1:
            return action.update.file in self._files  # Else it is on its way.
        return isinstance(action, Merge | Reload | LeaveTraining)

    def _find_work(self, keep: Compute | None = None) -> None:
        """Act until there is something to compute, or nothing more to do."""
        began = time.monotonic()
        self._segment = None
        while self._segment is None:
            with self._news:
                self._raise_failure()
                action = self._member.next_action()
                if self._exchange.has_ended(self._aggregator):
                    break  # There will be no directive any more.
                if isinstance(action, Wait):
                    self._news.wait(timeout=HEARTBEAT_S)
                    continue
            match action:
                case Merge():
                    self._merge(action.update)
                case Reload():
                    self._reload(action)
                case Validate():
                    self._measure(action.syncs)
                case LeaveTraining():
                    break
                case Compute():
                    self._segment = action
        if self._segment is not None and (
            keep is None or keep.segment != self._segment.segment
        ):
            self._steps = self._samples = self._tokens = 0
            self._loss_sum = self._seconds = 0.0
        now = time.monotonic()
        self.waited_s += now - began
        self._began_step = now

    def _part(self, sync: int) -> slice:
        return self._layout.fragment(
            sync % self._settings.fragments, self._settings.fragments
        )

    def _own(self) -> Array:
        return self._layout.flat(dict(self._read()))

    def _contribute(self, order: Compute) -> None:
        """Snapshot a fragment, and send its delta."""
        part = self._part(order.segment)
        fragment = order.segment % self._settings.fragments
        samples, self._since_sync[fragment] = self._since_sync[fragment], 0
        own = self._own()[part]
        delta = self._shared[part] - own
        self._snapshots[order.segment] = own
        steps, seconds, tokens = self._steps, self._seconds, self._tokens
        loss = self._loss_sum / max(1, self._samples)
        with self._news:
            self._member.computed(order.segment)

        def send() -> None:
            data, _, self._lost[part] = compression.with_feedback(
                delta, self._lost[part], self._settings.compress
            )
            packed = tensors.pack_fragment(data, self._settings.compress)
            contribution = messages.Contribution(
                sync=order.segment,
                file=self._exchange.put(packed),
                samples=samples,
                steps=steps,
                seconds=seconds,
                bytes=len(packed),
                loss=loss,
                tokens=tokens,
            )
            with self._news:
                self._member.contributed(contribution)
            self._tell()

        self._errands.put(send)

    def _merge(self, update: Update) -> None:
        part = self._part(update.sync)
        data = self._files.pop(update.file, None) or self._get(update.file)
        if data is None:
            return
        add = tensors.unpack_fragment(data, part.stop - part.start)
        before = self._snapshots.pop(update.sync, None)
        if before is None:
            before = self._shared[part].copy()
        shared = self._shared[part] + add
        if tensors.check(shared) != update.check:
            # Ours are not the weights that this update is for.
            with self._news:
                order = self._member.weights_now
            self._reload(order)
            return
        self._shared[part] = shared
        self._shift(part, before)
        with self._news:
            self._member.has_merged(update)
        self._tell()

    def _shift(self, part: slice, before: Array) -> None:
        """Give the loop the shared weights, with its own progress since `before`."""
        own = self._own()
        since = own[part] - before
        own[part] = self._shared[part] + since if since.any() else self._shared[part]
        self._write(self._layout.named(own))

    def _reload(self, order: Reload) -> None:
        data = self._get(order.file)
        if data is None:
            return
        layout, shared = tensors.unpack_weights(data)
        if layout != self._layout:
            raise ProtocolError(
                "the weights of the others are not those of this model",
                because=f"they have {layout.size} values, ours {self._layout.size}",
                hint="run the same program with the same params on all workers",
            )
        before, self._shared = self._shared, shared
        self._snapshots.clear()
        self._shift(slice(0, layout.size), before)
        check = tensors.check(shared[self._part(order.syncs - 1)])
        with self._news:
            self._member.has_reloaded(order.syncs, check)
        self._tell()

    def _measure(self, syncs: int) -> None:
        """Validate the shared weights, in place of the loop's own."""
        figures: dict[str, float] = {}
        if self._validate is not None:
            own = self._own()
            self._write(self._layout.named(self._shared))
            figures = dict(self._validate())
            self._write(self._layout.named(own))
        with self._news:
            self._member.has_validated(syncs, figures)
        self._tell()

    # Threads.

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - It is raised in the loop.
            with self._news:
                self._failure = error
                self._news.notify_all()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _talk(self) -> None:
        """Send the status periodically, and receive directives."""
        self._tell()
        told_at = time.monotonic()
        while not self._ended.is_set():
            mail = self._exchange.receive(timeout_s=HEARTBEAT_S / 4)
            if mail is not None and mail.sender == self._aggregator:
                self._hear(mail.data)
            if time.monotonic() - told_at >= HEARTBEAT_S:
                self._tell()
                told_at = time.monotonic()

    def _hear(self, data: bytes) -> None:
        directive = messages.decode_directive(data)
        with self._news:
            if not self._member.direct(directive):
                return
            for file in self._member.unneeded():
                self._errands.put(partial(self._exchange.forget, file))
            for update in directive.updates:
                if update.sync == self._member.merged:
                    self._errands.put(partial(self._fetch_ahead, update))
            if self._member.to_keep or self._member.is_asked_to_offer:
                self._errands.put(self._keep)
            self._news.notify_all()
        self._tell()

    def _tell(self) -> None:
        with self._news:
            status = self._member.status()
        self._exchange.send(self._aggregator, messages.encode(status))

    def _carry(self) -> None:
        while (errand := self._errands.get()) is not None:
            errand()

    def _fetch_ahead(self, update: Update) -> None:
        """Fetch an update while the loop computes, so that it need not wait."""
        if update.file in self._files or self._settings.fragments == 1:
            return
        data = self._get(update.file)
        if data is not None:
            self._files[update.file] = data

    def _keep(self) -> None:
        """Keep a checkpoint for a future aggregator, or offer weights to one."""
        with self._news:
            wanted, offer = self._member.to_keep, self._member.is_asked_to_offer
            merged = self._member.merged
        if wanted is not None and (data := self._get(wanted.file)) is not None:
            kept = messages.KeptState(wanted.syncs, self._exchange.put(data))
            with self._news:
                before = self._member.keeps(kept)
            if before is not None and before.file != kept.file:
                self._exchange.forget(before.file)
        if offer:
            packed = tensors.pack_weights(self._layout, self._shared)
            offered = messages.KeptState(merged, self._exchange.put(packed))
            with self._news:
                self._member.offers(offered)
        self._tell()

    def _get(self, file: str) -> bytes | None:
        """Fetch a file of the aggregator; if it is not there, wait a little."""
        try:
            return self._exchange.get(file, self._aggregator)
        except ExchangeError:
            self._ended.wait(RETRY_S)
            return None
