"""The DiLoCo aggregator: runs the machine of `rounds`, and the outer step.

It needs numpy and no torch, so it runs on any node. All events go through one queue;
files are fetched and averages computed by threads, so that workers are always heard.
"""

from __future__ import annotations

import contextlib
import os
import queue
import threading
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, assert_never, final

import numpy as np

from shoal import task_client
from shoal.errors import ProtocolError, ShoalError, UsageError
from shoal.train import tensors
from shoal.train.curves import RunCurves
from shoal.train.diloco import compression, messages, outer, rounds
from shoal.train.exchange import Exchange, ExchangeError, TaskLetter

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from shoal.train.settings import TrainSettings

FETCHES_AT_ONCE: Final = 4
FILES_KEPT: Final = 3 * (rounds.UPDATES_KEPT + 1)
"""Of each sync: its update, the weights after it, and a checkpoint."""

ALONE_S: Final = 1_800.0
"""An aggregator that hears of no worker for so long gives up."""

ASK_S: Final = 1.0
"""If no worker says anything for so long, all are asked after."""

ASK_MAX_S: Final = 10.0
"""The pause between questions grows to this: letters to absent workers are few."""

POLL_S: Final = 0.5
OUT: Final = "out"
CHECKPOINT: Final = "checkpoint"
"""What is in there is found by a later life of this task, wherever that runs."""

STATE: Final = "state.safetensors"


@final
class Aggregator:
    """One run of an aggregator process."""

    def __init__(
        self,
        exchange: Exchange,
        settings: TrainSettings,
        epoch: int,
        folder: Path,
        curves: RunCurves,
        workers: Sequence[str] = (),
    ) -> None:
        """Write weights below `folder`; `epoch` rises with every restart.

        If all of `workers` have ended for good, this has nothing to do any more.
        """
        self._workers = workers
        self._asked_at = time.monotonic()
        self._ask_s = ASK_S
        self._left = folder / CHECKPOINT / STATE
        left = _left(self._left)
        if left is None and settings.resume:
            self._left = folder / settings.resume
            left = _left(self._left, must=True)
        self.machine = rounds.Rounds(settings.rules(), epoch, left)
        self._exchange = exchange
        self._settings = settings
        self._folder = folder
        self._curves = curves
        self._events: queue.SimpleQueue[rounds.Event | BaseException] = (
            queue.SimpleQueue()
        )
        self._deltas: dict[tuple[str, int], bytes] = {}  # by worker and sync
        self._given_out: deque[str] = deque()  # files of the last syncs
        self._state: tensors.State | None = None
        self._stopping = threading.Event()
        self._heard_at = time.monotonic()

    def run(self) -> None:
        """Aggregate until the last round is closed and every worker knows."""
        listener = threading.Thread(target=self._listen, daemon=True)
        listener.start()
        with ThreadPoolExecutor(FETCHES_AT_ONCE) as pool:
            try:
                while not self._stopping.is_set():
                    self._turn(pool)
            finally:
                self._stopping.set()
        listener.join()

    def _turn(self, pool: ThreadPoolExecutor) -> None:
        due = self.machine.next_deadline()
        now = time.monotonic()
        wait_s = POLL_S if due is None else min(POLL_S, max(0.0, due - now))
        try:
            event = self._events.get(timeout=wait_s)
        except queue.Empty:
            now = time.monotonic()
            self._look_for_workers(now)
            if due is None or due > now:
                return
            event = rounds.RoundDeadline()
        if isinstance(event, BaseException):
            raise event
        for effect in self.machine.handle(event, time.monotonic()):
            self._perform(effect, pool)

    def _look_for_workers(self, now: float) -> None:
        """Check on silent workers; raise if none of them will ever come."""
        if now - self._heard_at > ALONE_S:
            raise ShoalError(
                "no worker has come",
                because=f"none was heard for {ALONE_S:.0f} s",
                hint="`shoal explain` says why the workers wait",
            )
        ended = [self._exchange.has_ended(name) for name in self._workers]
        if ended and all(ended):
            raise ShoalError(
                "there is nobody to train with",
                because="all workers have ended",
                hint="`shoal logs` says why they did",
            )
        if now - max(self._heard_at, self._asked_at) < self._ask_s:
            return
        self._asked_at = now
        self._ask_s = min(2 * self._ask_s, ASK_MAX_S)
        nothing = messages.encode(messages.Directive(epoch=0, seq=0))
        for name in self._workers:
            self._exchange.send(name, nothing)  # Who has ended cannot be written to.

    def _listen(self) -> None:
        while not self._stopping.is_set():
            mail = self._exchange.receive(timeout_s=POLL_S)
            if mail is not None:
                self._heard_at = time.monotonic()
                self._ask_s = ASK_S
                self._hear(mail)

    def _hear(self, mail: TaskLetter) -> None:
        try:
            status = messages.decode_status(mail.data)
        except ProtocolError as error:
            self._curves.say(f"{mail.sender} is not understood: {error}")
            return
        if status.worker != mail.sender:
            return
        if status.validation:
            self._curves.validated(status)
        self._events.put(rounds.StatusReceived(status))

    def _perform(self, effect: rounds.Effect, pool: ThreadPoolExecutor) -> None:
        match effect:
            case rounds.DirectMember():
                data = messages.encode(effect.directive)
                self._exchange.send(effect.worker, data)
            case rounds.Fetch():
                self._start(pool, lambda: self._fetch(effect))
            case rounds.LoadState():
                self._start(pool, lambda: self._load(effect))
            case rounds.Average():
                self._start(pool, lambda: self._average(effect))
            case rounds.StopTraining():
                self._stopping.set()
            case _:
                assert_never(effect)

    def _start(self, pool: ThreadPoolExecutor, act: Callable[[], rounds.Event]) -> None:
        def run() -> None:
            try:
                self._events.put(act())
            except BaseException as error:  # noqa: BLE001 - It ends the main thread.
                self._events.put(error)

        pool.submit(run)

    # Files.

    def _fetch(self, order: rounds.Fetch) -> rounds.Event:
        file, sync = order.contribution.file, order.contribution.sync
        try:
            data = self._exchange.get(file, order.worker)
        except ExchangeError as error:
            self._curves.say(f"a delta of {order.worker} cannot be had: {error}")
            time.sleep(POLL_S)  # It is asked for again at once.
            return rounds.FetchFailed(order.worker, order.contribution)
        self._deltas[order.worker, sync] = data
        return rounds.Fetched(order.worker, order.contribution)

    def _load(self, order: rounds.LoadState) -> rounds.Event:
        try:
            data = self._data(order)
            if order.kind == "checkpoint":
                state = tensors.unpack_state(data)
            else:
                layout, flat = tensors.unpack_weights(data)
                zero = np.zeros_like(flat)
                state = tensors.State(order.syncs, layout, flat, zero, zero.copy())
        except (ExchangeError, ProtocolError) as error:
            self._curves.say(f"weights of {order.worker} cannot be had: {error}")
            return rounds.LoadFailed(order.worker)
        self._state = state
        self._curves.loaded(order.kind, state)
        return rounds.Loaded(state.syncs, *self._put())

    def _data(self, order: rounds.LoadState) -> bytes:
        if not order.worker:
            return self._left.read_bytes()
        return self._exchange.get(order.file, order.worker)

    def _put(self) -> tuple[str, str]:
        """Offer the current weights and checkpoint; return their files."""
        state = self._state
        assert state is not None
        weights = self._give_out(tensors.pack_weights(state.layout, state.weights))
        checkpoint = self._give_out(tensors.pack_state(state))
        return weights, checkpoint

    def _give_out(self, data: bytes) -> str:
        """Offer a file, and forget files that are no longer referred to."""
        file = self._exchange.put(data)
        self._given_out.append(file)
        if len(self._given_out) > FILES_KEPT:
            old = self._given_out.popleft()
            if old not in self._given_out:
                self._exchange.forget(old)
        return file

    # The outer step.

    def _average(self, order: rounds.Average) -> rounds.Event:
        state, settings = self._state, self._settings
        assert state is not None
        part = state.layout.fragment(order.fragment, settings.fragments)
        size = part.stop - part.start
        deltas = [
            (tensors.unpack_fragment(self._deltas[name, c.sync], size), c.samples)
            for name, c in order.parts
        ]
        mean = outer.weighted_mean(deltas)
        add, momentum = outer.step(
            settings.outer_rule(),
            mean,
            state.momentum[part],
            rounds_done=order.sync // settings.fragments,
            workers=outer.equal_workers([samples for _, samples in deltas]),
        )
        data, read, lost = compression.with_feedback(
            add, state.lost[part], settings.compress
        )
        state.momentum[part], state.lost[part] = momentum, lost
        state.weights[part] += read
        state.syncs = order.sync + 1
        packed = tensors.pack_fragment(data, settings.compress)
        update = messages.Update(
            sync=order.sync,
            file=self._give_out(packed),
            check=tensors.check(state.weights[part]),
            bytes=len(packed),
        )
        files = self._put()
        self._save(state)
        for past in [key for key in self._deltas if key[1] <= order.sync]:
            self._deltas.pop(past, None)
        self._curves.closed(order, update, self.machine.members)
        return rounds.Averaged(update, *files)

    def _save(self, state: tensors.State) -> None:
        """Write weights to the output folder, and what a restart needs."""
        settings = self._settings
        done, rest = divmod(state.syncs, settings.fragments)
        last = done == settings.rounds
        if rest or (done % settings.checkpoint_every and not last):
            return
        weights = tensors.pack_weights(state.layout, state.weights)
        name = "model.safetensors" if last else f"round-{done}.safetensors"
        _write(self._folder / OUT / name, weights)
        whole = tensors.pack_state(state)
        if last:
            _write(self._folder / OUT / STATE, whole)
            return
        _write(self._folder / CHECKPOINT / STATE, whole)
        if os.environ.get(task_client.SOCKET_VARIABLE):
            with contextlib.suppress(ShoalError):  # Workers keep one too.
                task_client.checkpoint(self._folder / CHECKPOINT)


def _write(path: Path, data: bytes) -> None:
    """Write a file, all of it or nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}")
    draft.write_bytes(data)
    draft.replace(path)


def _left(path: Path, *, must: bool = False) -> messages.KeptState | None:
    """Return the state left by an earlier process or job, if any."""
    try:
        state = tensors.unpack_state(path.read_bytes())
    except (OSError, ProtocolError) as error:
        if not must:
            return None
        raise UsageError(
            f"the run in {path.name} cannot be gone on with",
            because=str(error),
            hint=f"name a {STATE} that a job has left, below the workdir",
        ) from error
    return messages.KeptState(state.syncs, path.name)
