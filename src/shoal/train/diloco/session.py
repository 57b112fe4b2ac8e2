"""A DiLoCo worker's session, around a training loop of any framework.

The loop calls `step` after each inner step. Everything else happens in there: weights
are exchanged when it is time, and other people's progress is merged. Three threads
help: one talks, so that the aggregator always hears that this worker is alive; one
carries deltas and outcomes, so that with several fragments sending overlaps with
computing; and one keeps checkpoints for others, which is in nobody's way.
"""

from __future__ import annotations

import queue
import sys
import threading
import time
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol, final

import msgspec
import numpy as np

from shoal.errors import ProtocolError
from shoal.train import tensors
from shoal.train.diloco import compression, messages
from shoal.train.diloco.member import (
    Action,
    Compute,
    LeaveTraining,
    Member,
    Merge,
    Reload,
    ShareInner,
    StartOver,
    TakeInner,
    Validate,
    Wait,
)
from shoal.train.diloco.memory import give_back
from shoal.train.diloco.shares.messages import Duties, decode_for_worker
from shoal.train.diloco.shares.owner import ShareOwner
from shoal.train.exchange import Exchange, ExchangeError, Kind
from shoal.train.pieces import PieceExchange

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path

    from shoal.train.diloco.compression import Array
    from shoal.train.diloco.messages import Update
    from shoal.train.settings import TrainSettings
    from shoal.train.tensors import Fragment
    from shoal.train.weights import Weights

HEARTBEAT_S: Final = 1.0
RETRY_S: Final = 0.5
LEAVE_S: Final = 5.0
"""How long to wait for the helping threads at the end: for a transfer no longer."""

FAIL_S: Final = 1.0
"""The same when the loop raised: its error is not known before the process ends."""


class InnerState(Protocol):
    """What a loop keeps besides its weights: optimizer, schedule."""

    def save(self, path: Path) -> None:
        """Write all of it to a file."""
        ...

    def load(self, path: Path) -> None:
        """Take all of it from a file; raise `ProtocolError` if that is none."""
        ...


@final
class DilocoSession:
    """Joins a training loop with the loops of the other workers.

    `weights` are those of the loop, and `inner` is what else it keeps; `validate`
    measures the model as it is, and returns figures.
    """

    def __init__(
        self,
        exchange: Exchange,
        settings: TrainSettings,
        *,
        life: int,
        weights: Weights,
        aggregator: str = "aggregate.0",
        validate: Callable[[], Mapping[str, float]] | None = None,
        inner: InnerState | None = None,
    ) -> None:
        self.waited_s = 0.0  # for others
        self.computed_s = 0.0
        self._exchange = exchange
        self._large = PieceExchange(exchange)
        self._aggregator = aggregator
        self._settings = settings
        self._weights, self._validate, self._inner = weights, validate, inner
        self._layout = weights.layout
        self._shared = weights.read(slice(0, self._layout.size))
        # By compression, to be sent later.
        self._lost = np.zeros(self._layout.trained_size, dtype=np.float16)
        self._snapshots: dict[int, tuple[Array, Array]] = {}  # trained, buffers
        self._is_shared = True  # whether the loop's weights are the shared ones
        self._steps_since = 0  # the last contribution
        self._fetch_s = 0.0  # that the last outcome took
        path = exchange.draft()
        tensors.save_weights(path, self._layout, self._shared)
        rules = settings.rules()
        self._member = Member(
            exchange.name,
            life,
            self._large.put(path),
            settings.fragments,
            checkpoint_syncs=rules.checkpoint_syncs,
            keeps_inner=inner is not None,
            values=self._layout.size,
        )
        self._life = life
        self._owner: ShareOwner | None = None  # if there is no centre
        self._news = threading.Condition()  # guards the member
        self._files: dict[str, list[Path]] = {}  # updates that were fetched ahead
        self._queued: set[str] = set()  # updates that the carrier is to fetch
        self._errands: queue.SimpleQueue[Callable[[], None] | None] = (
            queue.SimpleQueue()
        )
        self._keeping: queue.SimpleQueue[Callable[[], None] | None] = (
            queue.SimpleQueue()
        )
        self._refused = ""  # as was told to the user
        self._failure: BaseException | None = None
        self._ended = threading.Event()
        self._threads: list[threading.Thread] = []
        self._segment: Compute | None = None
        self._steps = self._samples = self._tokens = 0
        self._loss_sum = self._seconds = 0.0
        self._since_sync: list[int] = [0] * settings.fragments  # samples
        self._began_step = 0.0

    def __enter__(self) -> DilocoSession:
        carry = partial(self._run_errands, self._errands)
        keep = partial(self._run_errands, self._keeping)
        for work in (self._talk, carry, keep):
            self._threads.append(
                threading.Thread(target=self._guarded, args=(work,), daemon=True)
            )
        for thread in self._threads:
            thread.start()
        try:
            self._find_work()
        except BaseException as error:
            self.__exit__(type(error), error)
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        if self._failure is None:
            with self._news:
                self._member.leaves()
            self._tell()  # It is not lost, so the others need not wait for it.
        self._ended.set()
        if self._owner is not None:
            self._owner.close()
        self._errands.put(None)
        self._keeping.put(None)
        # A thread that drops the last tensor while the interpreter ends takes the
        # process down: torch cannot be left in the middle of freeing.
        raised = any(exception) or self._failure is not None
        until = time.monotonic() + (FAIL_S if raised else LEAVE_S)
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))

    @property
    def busy(self) -> float:
        """The share of its time in which the loop computed."""
        return self.computed_s / max(1e-9, self.computed_s + self.waited_s)

    @property
    def round(self) -> int:
        """How many rounds are merged."""
        with self._news:
            return self._member.merged // self._settings.fragments

    @property
    def global_step(self) -> int:
        """How many inner steps the run has done, as its fastest worker counts them."""
        each = max(1, round(self._settings.inner_steps / self._settings.fragments))
        with self._news:
            done = max(self._member.merged, self._member.segment) * each
        return done + (self._steps if self._segment is not None else 0)

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
        self._steps_since += 1
        self._is_shared = False
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
        """Whether there is something to do before the segment is over."""
        with self._news:
            action = self._member.next_action()
            if self._must_come_first(action):
                return False
        now = Merge | Reload | ShareInner | StartOver | LeaveTraining
        return isinstance(action, now)

    def _must_come_first(self, action: Action) -> bool:
        """Whether an action needs an outcome that the carrier has yet to fetch."""
        if not isinstance(action, Merge) or self._settings.fragments == 1:
            return False
        file = action.update.file
        if file not in self._files and file not in self._queued:
            self._queued.add(file)
            self._errands.put(partial(self._fetch_ahead, action.update))
        return file not in self._files

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
                if isinstance(action, Wait) or self._must_come_first(action):
                    self._news.wait(timeout=HEARTBEAT_S)
                    continue
            if isinstance(action, LeaveTraining):
                break
            self._segment = self._act(action)
        if self._segment is not None and (
            keep is None or keep.segment != self._segment.segment
        ):
            self._steps = self._samples = self._tokens = 0
            self._loss_sum = self._seconds = 0.0
        now = time.monotonic()
        self.waited_s += now - began
        self._began_step = now

    def _act(self, action: Action) -> Compute | None:
        """Do what is not computing; return what is."""
        match action:
            case Merge():
                self._merge(action.update)
            case Reload():
                self._reload(action)
            case Validate():
                self._measure(action.syncs)
            case TakeInner():
                self._take_inner(action.kept.file)
            case ShareInner():
                self._share_inner(action.syncs)
            case StartOver():
                self._start_over()
            case Compute():
                return action
            case Wait() | LeaveTraining():
                pass
        return None

    def _part(self, sync: int) -> Fragment:
        return self._layout.fragment(
            sync % self._settings.fragments, self._settings.fragments
        )

    # Shares.

    @property
    def _shares(self) -> int:
        """How many shares a fragment is cut into; 0 if there is a centre."""
        return self._owner.shares if self._owner is not None else 0

    @property
    def _guard(self) -> AbstractContextManager[object]:
        """What keeps others from reading shared weights while they change."""
        return self._owner.guard if self._owner is not None else nullcontext()

    def _own_shares(self, shares: int) -> None:
        """Begin to average shares for all, if there is no centre."""
        if shares and self._owner is None:
            self._owner = ShareOwner(
                self._exchange,
                self._settings,
                self._layout,
                self._shared,
                life=self._life,
                coordinator=self._aggregator,
                shares=shares,
                fail=self._fail,
            )

    def _note_weights(self) -> None:
        """Tell who averages shares after how many syncs the weights are."""
        if self._owner is not None:
            with self._news:
                merged = self._member.merged if self._member.loaded else -1
            self._owner.note_syncs(merged)

    # Contributions.

    def _contribute(self, order: Compute) -> None:
        """Send a fragment's delta."""
        part = self._part(order.segment)
        fragment = order.segment % self._settings.fragments
        samples, self._since_sync[fragment] = self._since_sync[fragment], 0
        draft = messages.Contribution(
            sync=order.segment,
            file="",
            samples=min(samples, messages.COUNT_MAX),
            steps=self._steps,
            seconds=self._seconds,
            loss=self._loss_sum / max(1, self._samples),
            tokens=min(self._tokens, messages.COUNT_MAX),
            fetch_s=self._fetch_s,
        )
        self._steps_since = 0
        give_back()
        compress = self._compressing(order.segment, part)
        with self._news:
            self._member.computed(order.segment)
        self._errands.put(lambda: self._send(draft, compress()))

    def _compressing(self, sync: int, part: Fragment) -> Callable[[], list[Path]]:
        """Return what writes a fragment's delta as it is now, share by share.

        With one fragment the loop waits for the outcome, so it compresses here and
        needs no snapshot; with several the carrier does it, beside computing.
        """
        if self._settings.fragments == 1:
            paths = self._compressed(
                part, self._shared, self._weights.read, self._weights.read(part.buffers)
            )
            return lambda: paths
        own, buffers = (
            self._weights.read(part.trained),
            self._weights.read(part.buffers),
        )
        self._snapshots[sync] = own, buffers
        shared, start = self._shared, part.trained.start

        def read(each: slice) -> Array:
            return own[each.start - start : each.stop - start]

        return lambda: self._compressed(part, shared, read, buffers)

    def _compressed(
        self,
        part: Fragment,
        shared: Array,
        read: Callable[[slice], Array],
        buffers: Array,
    ) -> list[Path]:
        """Write the delta of a fragment, compressed, a file for each share."""
        paths: list[Path] = []
        start = part.buffers.start
        for share in part.cut(max(1, self._shares)):
            path = self._exchange.draft()
            own = buffers[share.buffers.start - start : share.buffers.stop - start]
            chunks = self._chunks(share, shared, read)
            tensors.save_fragment(path, share, chunks, own, self._settings.compress)
            paths.append(path)
        return paths

    def _chunks(
        self, part: Fragment, shared: Array, read: Callable[[slice], Array]
    ) -> Iterator[bytes]:
        """Yield the compressed delta chunk by chunk: all of it is never in memory."""
        for each in part.chunks:
            delta = shared[each] - read(each)
            data, _, lost = compression.with_feedback(
                delta, self._lost[each], self._settings.compress
            )
            self._lost[each] = lost
            yield data

    def _send(self, draft: messages.Contribution, paths: list[Path]) -> None:
        size = sum(path.stat().st_size for path in paths)
        files = [self._exchange.put(path) for path in paths]
        contribution = msgspec.structs.replace(draft, file=files[0], bytes=size)
        if self._owner is not None:
            contribution = messages.of_shares(contribution, files)
        with self._news:
            self._member.contributed(contribution)
        self._tell()

    # Outcomes.

    def _merge(self, update: Update) -> None:
        paths = self._files.pop(update.file, None) or self._fetched(update)
        if paths is None:
            return
        part, is_right = self._part(update.sync), False
        try:
            with self._guard:
                self._add(update, paths, self._snapshots.pop(update.sync, None))
                check = tensors.check(self._shared, part, self._shares)
                is_right = check == update.check
                if self._owner is not None and is_right:
                    self._owner.state.settle(update)
        except ProtocolError:
            is_right = False
        finally:
            for path in paths:
                path.unlink(missing_ok=True)
        with self._news:
            if is_right:
                self._member.has_merged(update)
            else:  # Ours are not the weights that this update is for.
                self._member.has_lost_its_way()
        self._note_weights()
        if not is_right:  # Else it is told with the next contribution, or heartbeat.
            self._tell()

    def _add(
        self, update: Update, paths: list[Path], snapshot: tuple[Array, Array] | None
    ) -> None:
        """Add an outcome to the shared weights, and move the loop's along."""
        part = self._part(update.sync)
        start, first = part.trained.start, part.buffers.start
        for path, share in zip(paths, part.cut(len(paths)), strict=True):
            for each, add in zip(
                share.chunks, tensors.fragment_chunks(path, share), strict=True
            ):
                before = (
                    self._shared[each].copy()
                    if snapshot is None
                    else snapshot[0][each.start - start : each.stop - start]
                )
                self._shared[each] += add
                self._shift(each, before)
                if self._owner is not None:
                    self._owner.state.follow(update, each, add)
            place = share.buffers
            before = (
                self._shared[place].copy()
                if snapshot is None
                else snapshot[1][place.start - first : place.stop - first]
            )
            self._shared[place] = tensors.fragment_buffers(path, share)
            self._shift(place, before)
        self._is_shared = self._settings.fragments == 1 and self._steps_since == 0

    def _shift(self, part: slice, before: Array) -> None:
        """Give the loop the shared weights, with its own progress since `before`."""
        values = self._shared[part]
        if self._settings.fragments > 1 or self._steps_since:
            since = self._weights.read(part) - before
            if np.isfinite(since).all():
                values = np.add(values, since, dtype=np.float32)
        self._weights.write(part, values)

    def _reload(self, order: Reload) -> None:
        path = self._got(order.file, "weights")
        if path is None:
            return
        state: tensors.State | None = None
        if self._owner is None:
            layout, shared = tensors.load_weights(path)
        else:
            state = tensors.load_state(path, self._settings.fragments)
            layout, shared, state.syncs = state.layout, state.weights, order.syncs
        path.unlink()
        if layout != self._layout:
            raise ProtocolError(
                "the weights of the others are not those of this model",
                because=_difference(layout, self._layout),
                hint="run the same program with the same params on all workers",
            )
        before = self._shared
        with self._guard:
            self._shared = shared
            if self._owner is not None and state is not None:
                self._owner.state.replace(state)
        self._snapshots.clear()
        size = layout.size
        for start in range(0, size, tensors.CHUNK):
            each = slice(start, min(size, start + tensors.CHUNK))
            self._shift(each, before[each])
        self._is_shared = self._settings.fragments == 1 and self._steps_since == 0
        check = tensors.check(shared, self._part(order.syncs - 1), self._shares)
        with self._news:
            self._member.has_reloaded(order.syncs, check)
        self._note_weights()
        self._tell()

    def _start_over(self) -> None:
        """Go on from the shared weights: the loop's own cannot be used."""
        self._weights.write(slice(0, self._layout.size), self._shared)
        self._lost[:] = 0
        for sync in self._snapshots:
            part = self._part(sync)
            shared = self._shared[part.trained], self._shared[part.buffers]
            self._snapshots[sync] = shared[0].copy(), shared[1].copy()
        with self._news:
            self._member.has_started_over()

    def _measure(self, syncs: int) -> None:
        """Validate the shared weights, in place of the loop's own."""
        figures: dict[str, float] = {}
        if self._validate is not None:
            whole = slice(0, self._layout.size)
            own = None if self._is_shared else self._weights.read(whole)
            if own is not None:
                self._weights.write(whole, self._shared)
            figures = dict(self._validate())
            if own is not None:
                self._weights.write(whole, own)
        with self._news:
            self._member.has_validated(syncs, figures)
        self._tell()

    # What the loop keeps.

    def _take_inner(self, file: str) -> None:
        path = self._got(file, "inner")
        if path is None:
            return
        assert self._inner is not None
        try:
            self._inner.load(path)
        except ProtocolError as error:
            _say(f"this worker's optimizer starts anew: {error}")
        path.unlink(missing_ok=True)
        with self._news:
            self._member.took_inner()
        self._tell()

    def _share_inner(self, syncs: int) -> None:
        assert self._inner is not None
        path = self._exchange.draft()
        self._inner.save(path)
        kept = messages.KeptState(syncs, self._large.put(path))
        with self._news:
            before = self._member.shares_inner(kept)
        if before is not None and before.file != kept.file:
            self._large.forget(before.file)
        self._tell()

    # Threads.

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - It is raised in the loop.
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
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
                if self._owner is not None:
                    self._owner.tell()
                told_at = time.monotonic()

    def _hear(self, data: bytes) -> None:
        directive = decode_for_worker(data)
        if isinstance(directive, Duties):
            if self._owner is not None:
                self._owner.hear(directive)
            return
        with self._news:
            was_loaded = self._member.loaded
            if not self._member.direct(directive):
                return
            is_news = self._member.loaded != was_loaded
            self._own_shares(directive.shares)
            for file in self._member.unneeded():
                self._errands.put(partial(self._exchange.forget, file))
            self._must_come_first(self._member.next_action())
            if self._member.to_keep or self._member.is_asked_to_offer:
                self._keeping.put(self._keep)
            refused = self._member.refused
            self._news.notify_all()
        if refused and refused != self._refused:
            _say(f"this worker's contribution was refused: {refused}")
        self._refused = refused
        self._note_weights()
        if is_news:  # That it was heard is told by the next status.
            self._tell()

    def _tell(self) -> None:
        with self._news:
            status = self._member.status(dict(self._exchange.traffic))
        self._exchange.send(self._aggregator, messages.encode(status))

    def _run_errands(
        self, errands: queue.SimpleQueue[Callable[[], None] | None]
    ) -> None:
        while (errand := errands.get()) is not None:
            errand()
            del errand  # What it holds is not to wait for the next.

    def _fetch_ahead(self, update: Update) -> None:
        """Fetch an update while the loop computes, so that it need not wait."""
        paths = self._fetched(update)
        with self._news:
            self._queued.discard(update.file)
            if paths is not None:
                self._files[update.file] = paths
                self._news.notify_all()

    def _fetched(self, update: Update) -> list[Path] | None:
        """Fetch an outcome, and note how long it took."""
        began = time.monotonic()
        try:
            if self._owner is not None:
                paths = self._owner.fetch(update)
            else:
                paths = [self._exchange.get(update.file, self._aggregator, "updates")]
        except ExchangeError:
            self._ended.wait(RETRY_S)
            return None
        self._fetch_s = time.monotonic() - began
        return paths

    def _keep(self) -> None:
        """Keep a checkpoint for a future aggregator, or offer weights to one."""
        with self._news:
            wanted, offer = self._member.to_keep, self._member.is_asked_to_offer
            over_s, merged = self._member.keep_over_s, self._member.merged
        if wanted is not None:
            path = self._got(wanted.file, "checkpoints", over_s)
            if path is not None:
                kept = messages.KeptState(wanted.syncs, self._large.put(path))
                with self._news:
                    before = self._member.keeps(kept)
                if before is not None and before.file != kept.file:
                    self._large.forget(before.file)
        if offer:
            path = self._exchange.draft()
            if self._owner is not None:
                merged = self._owner.save(path)
            else:
                tensors.save_weights(path, self._layout, self._shared)
            offered = messages.KeptState(merged, self._large.put(path))
            with self._news:
                self._member.offers(offered)
        self._tell()

    def _got(self, file: str, kind: Kind, over_s: float = 0.0) -> Path | None:
        """Fetch a large file; if it is not there, wait a little."""
        try:
            return self._large.get(
                file, self._aggregator, kind, over_s=over_s, pause=self._ended.wait
            )
        except (ExchangeError, ProtocolError):
            self._ended.wait(RETRY_S)
            return None


def _difference(theirs: tensors.Layout, ours: tensors.Layout) -> str:
    if theirs.frozen != ours.frozen:
        return "weights that are not trained differ, and these do not travel"
    return f"they have {theirs.size} values, ours {ours.size}"


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
