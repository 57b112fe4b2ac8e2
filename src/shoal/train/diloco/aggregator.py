"""The DiLoCo aggregator: runs the machine of `rounds`, and the outer step.

It needs numpy and no torch, so it runs on any node. All events go through one queue;
files are fetched and averages computed by threads, so that workers are always heard.
"""

from __future__ import annotations

import contextlib
import os
import queue
import shutil
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Final, assert_never, final

from shoal import task_client
from shoal.errors import ProtocolError, ShoalError, UsageError
from shoal.train import tensors
from shoal.train.diloco import events, messages, rounds, rules
from shoal.train.diloco.averaging import average, deltas_in, measured
from shoal.train.diloco.curves import RunCurves
from shoal.train.diloco.memory import give_back
from shoal.train.diloco.shares import coordinator
from shoal.train.diloco.shares.messages import (
    ShareReport,
    decode_from_worker,
)
from shoal.train.exchange import Exchange, ExchangeError, Kind, TaskLetter
from shoal.train.pieces import OFFERS_KEPT, LatestFiles, PieceExchange

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from shoal.train.settings import TrainSettings

FETCHES_AT_ONCE: Final = 4
DESK: Final = 4
ALONE_S: Final = 1_800.0
"""An aggregator that hears of no worker for so long gives up."""

ASK_S: Final = 1.0
"""If no worker says anything for so long, all are asked after."""

ASK_LEAVING_S: Final = 0.2
"""The same after a worker said that it leaves: it may have been the last."""

ASK_MAX_S: Final = 10.0
"""The pause between questions grows to this: letters to absent workers are few."""

POLL_S: Final = 0.5
OUT: Final = "out"
CHECKPOINT: Final = "checkpoint"
"""What is in there is found by a later life of this task, wherever that runs."""

STATE: Final = "state.safetensors"
_KINDS: Final[Mapping[str, Kind]] = {
    "initial": "weights",
    "weights": "weights",
    "checkpoint": "checkpoints",
}


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
        *,
        scheduler: str = "",
    ) -> None:
        """Write weights below `folder`; `epoch` rises with every restart.

        If all of `workers` have ended for good, this has nothing to do any more. What
        it leaves goes to the node `scheduler`.
        """
        self._workers = workers
        self._scheduler = scheduler
        self._asked_at = time.monotonic()
        self._ask_s = ASK_S
        self._left = folder / CHECKPOINT / STATE
        left = _left(self._left)
        if left is None and settings.resume:
            self._left = folder / settings.resume
            left = _resumed(self._left, settings)
        self.machine = rounds.Rounds(settings.rules(), epoch, left)
        self._coordinator = coordinator.ShareCoordinator(self.machine, epoch)
        self._exchange = exchange
        self._large = PieceExchange(exchange)
        self._settings = settings
        self._folder = folder
        self._curves = curves
        self._events: queue.SimpleQueue[coordinator.SharedEvent | BaseException] = (
            queue.SimpleQueue()
        )
        self._misunderstood: set[str] = set()  # as was said
        self._deltas: dict[tuple[str, int], Path] = {}  # by worker and sync
        self._updates = LatestFiles(exchange.forget, rules.UPDATES_KEPT + 1)
        self._published = {
            kind: LatestFiles(self._large.forget, OFFERS_KEPT)
            for kind in ("weights", "checkpoint")
        }
        self._state: tensors.State | None = None
        self._fetchers = ThreadPoolExecutor(FETCHES_AT_ONCE)
        self._desk = ThreadPoolExecutor(DESK)  # for what must not wait for a link
        self._guard = threading.Lock()  # of the state, while it changes or is written
        self._inner: Path | None = None
        self._failure = ""
        self._stopping = threading.Event()
        self._heard_at = time.monotonic()

    @property
    def traffic(self) -> Counter[str]:
        """Bytes that left a node for this run, by kind, as far as is known."""
        return Counter(self.machine.received) + self._exchange.traffic

    @property
    def _is_done(self) -> bool:
        """Whether the weights after the last round are here, whoever knows of it."""
        settings, state = self._settings, self._state
        syncs = settings.rounds * settings.fragments
        return state is not None and state.syncs >= syncs

    def run(self) -> None:
        """Aggregate until the last round is closed and every worker knows."""
        listener = threading.Thread(target=self._listen, daemon=True)
        listener.start()
        with self._fetchers, self._desk:
            try:
                while not self._stopping.is_set():
                    self._turn()
            finally:
                self._stopping.set()
        listener.join()
        if self._failure:
            self._curves.sent(self.traffic)
            raise ShoalError(
                "no contribution of this round can be used",
                because=self._failure,
                hint="look for a learning rate that is too high, or for bad data",
            )
        assert self._state is not None
        tensors.save_state(self._folder / OUT / STATE, self._state, self._inner)
        for path in (self._folder / OUT).iterdir():
            self._count("outputs", path)
        self._curves.sent(self.traffic)

    def _count(self, kind: Kind, path: Path) -> None:
        """Count a file that goes to the node that accepted the job."""
        if self._scheduler != self._exchange.node:
            self._exchange.traffic[kind] += path.stat().st_size

    def _turn(self) -> None:
        due = self._coordinator.next_deadline()
        now = time.monotonic()
        poll_s = min(POLL_S, self._ask_s)
        wait_s = poll_s if due is None else min(poll_s, max(0.0, due - now))
        try:
            event = self._events.get(timeout=wait_s)
        except queue.Empty:
            now = time.monotonic()
            self._look_for_workers(now)
            if due is None or due > now:
                return
            event = events.RoundDeadline()
        if isinstance(event, BaseException):
            raise event
        for effect in self._coordinator.handle(event, time.monotonic()):
            self._perform(effect)

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
            if self._is_done:
                self._stopping.set()  # Somebody left without a last word.
                return
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
            said = decode_from_worker(mail.data)
        except ProtocolError as error:
            if mail.sender not in self._misunderstood:
                self._misunderstood.add(mail.sender)
                self._curves.say(f"{mail.sender} is not understood: {error}")
            return
        if said.worker != mail.sender:
            return
        if isinstance(said, ShareReport):
            self._events.put(coordinator.ReportReceived(said))
            return
        if said.leaving:
            self._ask_s = ASK_LEAVING_S
        if said.validation:
            self._curves.validated(said)
        self._events.put(events.StatusReceived(said))

    def _perform(self, effect: coordinator.SharedEffect) -> None:
        match effect:
            case coordinator.DirectOwner():
                self._exchange.send(effect.worker, messages.encode(effect.duties))
            case coordinator.SaveState():
                self._start(self._desk, lambda: self._save_state(effect))
            case coordinator.NoteBegun():
                self._curves.loaded(effect.kind, effect.syncs, effect.values)
            case coordinator.NoteClosed():
                self._curves.closed(effect.order, self.traffic)
            case events.DirectMember():
                data = messages.encode(effect.directive)
                self._exchange.send(effect.worker, data)
            case events.Fetch():
                self._start(self._fetchers, lambda: self._fetch(effect))
            case events.LoadState():
                self._start(self._desk, lambda: self._load(effect))
            case events.Average():
                self._start(self._desk, lambda: self._average(effect))
            case events.PublishState():
                self._start(self._desk, lambda: self._publish(effect))
            case events.SaveInner():
                self._start(self._desk, lambda: self._save_inner(effect))
            case events.ReportMember():
                self._curves.reported(effect)
            case events.StopTraining():
                self._failure = effect.failure
                self._stopping.set()
            case _:
                assert_never(effect)

    def _start(
        self, pool: ThreadPoolExecutor, act: Callable[[], coordinator.SharedEvent]
    ) -> None:
        def run() -> None:
            try:
                self._events.put(act())
            except BaseException as error:  # noqa: BLE001 - It ends the main thread.
                self._events.put(error)

        pool.submit(run)

    # Contributions.

    def _part(self, sync: int) -> tensors.Fragment:
        assert self._state is not None
        fragments = self._settings.fragments
        return self._state.layout.fragment(sync % fragments, fragments)

    def _fetch(self, order: events.Fetch) -> events.Event:
        worker, contribution = order.worker, order.contribution
        began = time.monotonic()
        try:
            path = self._exchange.get(contribution.file, worker, "contributions")
        except ExchangeError as error:
            self._curves.say(f"a delta of {worker} cannot be had: {error}")
            time.sleep(POLL_S)  # It is asked for again at once.
            return events.FetchFailed(worker, contribution)
        took_s = time.monotonic() - began
        norm, fault = measured(path, self._part(contribution.sync))
        before = self._deltas.get((worker, contribution.sync))
        self._deltas[worker, contribution.sync] = path
        if before is not None:
            before.unlink(missing_ok=True)
        return events.Fetched(worker, contribution, norm, fault, took_s)

    def _average(self, order: events.Average) -> events.Event:
        state, settings = self._state, self._settings
        assert state is not None
        part = self._part(order.sync)
        paths = [self._deltas[each.worker, order.sync] for each in order.parts]
        deltas = deltas_in(paths, part, order.parts)
        give_back()  # What measuring took.
        with self._guard:
            chunks = average(
                state,
                part,
                deltas,
                settings.outer_rule(),
                rounds_done=order.sync // settings.fragments,
                by=settings.average,
                encoding=settings.compress,
            )
            state.syncs = order.sync + 1
            update = self._give_out(order, chunks)
            if state.syncs == settings.rounds * settings.fragments:
                path = self._folder / OUT / "model.safetensors"
                tensors.save_weights(path, state.layout, state.weights)
        for past in [key for key in self._deltas if key[1] <= order.sync]:
            self._deltas.pop(past).unlink(missing_ok=True)
        give_back()
        self._curves.closed(order, self.traffic)
        return events.Averaged(update)

    def _give_out(self, order: events.Average, chunks: list[bytes]) -> messages.Update:
        """Offer the outcome of a sync; forget outcomes that nobody needs."""
        state, part = self._state, self._part(order.sync)
        assert state is not None
        path = self._exchange.draft()
        buffers = state.weights[part.buffers]
        tensors.save_fragment(path, part, chunks, buffers, self._settings.compress)
        size = path.stat().st_size
        file = self._exchange.put(path)
        self._updates.add(file)
        check = tensors.check(state.weights, part)
        return messages.Update(order.sync, file, check, size, order.missing)

    # Weights and checkpoints.

    def _load(self, order: events.LoadState) -> events.Event:
        path = self._left
        try:
            if order.worker:
                path = self._large.get(order.file, order.worker, _KINDS[order.kind])
            loaded = tensors.load_state(path, self._settings.fragments)
        except (ExchangeError, ProtocolError, OSError) as error:
            self._curves.say(f"weights of {order.worker} cannot be had: {error}")
            return events.LoadFailed(order.worker)
        inner = "" if order.worker else self._inner_of(path)
        if order.worker:
            path.unlink()
        before = self._state
        if order.kind == "weights" and before and before.layout == loaded.layout:
            loaded.momentum = before.momentum  # As far as it could be replayed.
        loaded.syncs, loaded.fragments = order.syncs, self._settings.fragments
        self._state = loaded
        self._curves.loaded(order.kind, loaded.syncs, loaded.layout.size)
        return events.Loaded(loaded.syncs, inner)

    def _inner_of(self, path: Path) -> str:
        """Offer what a loop kept with a checkpoint; return its file, if any."""
        draft = self._exchange.draft()
        if not tensors.extract_inner(path, draft):
            return ""
        return self._large.put(draft)

    def _publish(self, order: events.PublishState) -> events.Event:
        """Offer the weights or the state: written in a moment, and put beside."""
        state = self._state
        assert state is not None
        path = self._exchange.draft()
        with self._guard:
            syncs = state.syncs
            if order.kind == "weights" and not self.machine.shares:
                tensors.save_weights(path, state.layout, state.weights)
            else:
                tensors.save_state(path, state)
            if order.kind == "checkpoint":
                self._save_round(state)
        if order.kind == "checkpoint":
            self._save_elsewhere(path)
        file = self._large.put(path)
        self._published[order.kind].add(file)
        return events.Published(order.kind, syncs, file)

    def _save_state(self, order: coordinator.SaveState) -> coordinator.SharedEvent:
        """Get all weights from a worker, since there is no centre; save them."""
        try:
            path = self._large.get(order.kept.file, order.worker, "checkpoints")
            state = tensors.load_state(path, self._settings.fragments)
        except (ExchangeError, ProtocolError, OSError) as error:
            self._curves.say(f"weights of {order.worker} cannot be had: {error}")
            time.sleep(POLL_S)
            return coordinator.StateUnsaved(order.worker)
        state.syncs, self._state = order.kept.syncs, state
        if state.syncs < self._settings.rounds * self._settings.fragments:
            self._save_round(state)
            self._save_elsewhere(path)
        else:
            weights = self._folder / OUT / "model.safetensors"
            tensors.save_weights(weights, state.layout, state.weights)
        path.unlink()
        return events.Published("checkpoint", state.syncs, order.kept.file)

    def _save_round(self, state: tensors.State) -> None:
        done, rest = divmod(state.syncs, self._settings.fragments)
        if not rest:
            path = self._folder / OUT / f"round-{done}.safetensors"
            tensors.save_weights(path, state.layout, state.weights)

    def _save_elsewhere(self, path: Path) -> None:
        """Let the node that accepted the job keep a checkpoint as well."""
        folder = self._folder / CHECKPOINT
        folder.mkdir(parents=True, exist_ok=True)
        draft = folder / f".{STATE}.draft"
        shutil.copyfile(path, draft)
        draft.replace(folder / STATE)
        self._left = folder / STATE
        if os.environ.get(task_client.SOCKET_VARIABLE):
            with contextlib.suppress(ShoalError):  # Workers keep one too.
                task_client.checkpoint(folder)
                self._count("checkpoints", path)

    def _save_inner(self, order: events.SaveInner) -> events.Event:
        with contextlib.suppress(ExchangeError, ProtocolError):
            self._inner = self._large.get(order.kept.file, order.worker, "inner")
        return events.InnerSaved()


def _left(path: Path) -> messages.KeptState | None:
    """Return the state left by an earlier life of this task, if any."""
    try:
        syncs, _ = tensors.progress_of(path)
    except (OSError, ProtocolError):
        return None
    return messages.KeptState(syncs, path.name)


def _resumed(path: Path, settings: TrainSettings) -> messages.KeptState:
    """Return the state left by an earlier job; raise if it cannot be gone on with."""
    hint = f"name a {STATE} that a job has left, below the workdir"
    try:
        syncs, fragments = tensors.progress_of(path)
    except (OSError, ProtocolError) as error:
        raise UsageError(
            f"the run in {path.name} cannot be gone on with",
            because=str(error),
            hint=hint,
        ) from error
    done, rest = divmod(syncs, fragments)
    if rest and fragments != settings.fragments:
        raise UsageError(
            f"the run in {path.name} cannot be gone on with",
            because=f"it ended within round {done + 1}, of {fragments} fragments",
            hint=f"write `fragments: {fragments}`",
        )
    if done >= settings.rounds:
        raise UsageError(
            f"the run in {path.name} cannot be gone on with",
            because=f"it has done {done} rounds, and this job asks for"
            f" {settings.rounds} in all",
            hint=f"write more, such as `rounds: {done + settings.rounds}`",
        )
    if fragments == settings.fragments:
        return messages.KeptState(syncs, path.name)
    return messages.KeptState(done * settings.fragments, path.name)
