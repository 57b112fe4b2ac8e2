"""The stream of calls between a client and its node, and the queues in front of it.

Theory of operation. Callers append calls to a queue. A sender thread takes as many as
the credit allows and sends them in one request: thousands, if the client does not wait
for each. If nothing is in flight, the calling thread sends a small call itself. A
receiver thread reads results and sets futures.

A call is kept until its result arrives. If the stream breaks, the receiver opens
another, to the same node or to its restarted self, and resends all calls without a
result, except those without retries, which fail. After `RECONNECT_S` without a node,
all calls fail; the next call tries again.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Final, final

from shoal.api import shoal_pb2 as pb
from shoal.client.results import exception_of, reads_pickles, value_of
from shoal.errors import (
    CallLostError,
    CallRefusedError,
    CallStoppedError,
    ShoalError,
    UnreachableError,
)
from shoal.protocol import payloads
from shoal.protocol.call_items import PART_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from shoal.client.futures import Future
    from shoal.client.results import Results
    from shoal.client.wires import Wire

CREDIT_AT_FIRST: Final = 4
"""Calls that a client may have in flight before the node grants more."""

CALLS_PER_REQUEST_MAX: Final = 2_048
REQUEST_BYTES: Final = 4 << 20
SMALL_BYTES: Final = 1 << 16
"""Largest call that the calling thread sends itself."""

UNANSWERED_BYTES_MAX: Final = 64 << 20
"""Most argument bytes in flight; a larger single call is sent alone."""

RECONNECT_S: Final = 60.0
RETRY_S: Final = 0.2
STOPPED: Final = "it was stopped before it began"


@final
class Pending:
    """A call without a result."""

    __slots__ = (
        "came",
        "dropped",
        "function",
        "future",
        "id",
        "parts",
        "pool",
        "results",
        "retries",
        "running",
        "size",
    )

    def __init__(
        self,
        pool: PoolQueue,
        function: int,
        parts: tuple[bytes, ...],
        retries: int,
        future: Future[Any],
        results: Results = "auto",
    ) -> None:
        self.id = 0
        self.pool = pool
        self.function = function
        self.parts = parts
        self.size = sum(map(len, parts))
        self.retries = retries
        self.future = future
        self.results: Results = results
        self.running = False  # sent at least once
        self.dropped = False  # cancelled; ignore it
        self.came = bytearray()  # of the result so far


@final
class PoolQueue:
    """Waiting calls, credit and lanes for one kind of interpreter."""

    def __init__(
        self, id_: int, spec: str, lanes_max: int, idle_s: float, never_s: float
    ) -> None:
        self.id = id_
        self.message = pb.CallPool(
            id=id_, spec=spec, lanes_max=lanes_max, idle_s=idle_s, never_s=never_s
        )
        self.waiting: deque[Pending] = deque()
        self.credit = CREDIT_AT_FIRST
        self.out = 0
        self.told = 0  # backlog last reported to the node
        self.lanes = 0


@final
class CallStream:
    """All calls of one client. Thread-safe."""

    def __init__(self, dial: Callable[[], Wire]) -> None:
        """Connect by `dial`, which raises `ShoalError` if no node answers."""
        self._dial = dial
        self._lock = threading.Lock()
        self._wake = threading.Condition(self._lock)
        self._idle = threading.Condition(self._lock)
        self._pools: dict[int, PoolQueue] = {}
        self._pools_sent = 0
        self._functions: dict[int, bytes] = {}
        self._functions_unsent: list[int] = []
        self._sent: dict[int, Pending] = {}  # in flight
        self._sent_bytes = 0
        self._stops: list[int] = []
        self._ids = 0
        self._unfinished = 0
        self._wire: Wire | None = None
        self._sending = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closed = False

    # For callers.

    def pool(
        self, spec: str, lanes_max: int, idle_s: float, never_s: float = 0.0
    ) -> PoolQueue:
        """Add a pool of interpreters; return its queue. No `never_s`: the default."""
        with self._lock:
            id_ = len(self._pools) + 1
            self._pools[id_] = PoolQueue(id_, spec, lanes_max, idle_s, never_s)
            return self._pools[id_]

    def define(self, number: int, code: bytes) -> None:
        """Queue a function's code, to be sent before the next call."""
        with self._lock:
            self._functions[number] = code
            self._functions_unsent.append(number)

    def put(self, call: Pending) -> None:
        """Queue a call, to be sent as soon as there is credit."""
        with self._lock:
            if self._closed:
                raise RuntimeError("cannot schedule new futures after shutdown")
            self._ids += 1
            call.id = self._ids
            self._unfinished += 1
            call.pool.waiting.append(call)
            if self._thread is None:
                self._start()
            wire = self._wire
            at_once = wire is not None and not self._sent and call.size <= SMALL_BYTES
            if not at_once or not self._sending.acquire(blocking=False):
                self._wake.notify()
                return
            request, calls = self._gather()
        assert wire is not None
        try:
            _send(wire, request, calls)
        finally:
            self._sending.release()

    def drop(self, call: Pending) -> None:
        """Forget a cancelled call and notify those waiting for its future."""
        with self._lock:
            if call.running or call.dropped or not call.id:
                return
            call.dropped = True
            self._finished(1)
        call.future.set_running_or_notify_cancel()

    def stop(self, call: Pending) -> None:
        """Interrupt a call that was sent."""
        with self._lock:
            if call.id in self._sent:
                self._stops.append(call.id)
                self._wake.notify()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until every call has a result; return False on timeout."""
        with self._lock:
            return self._idle.wait_for(lambda: not self._unfinished, timeout_s)

    def close(self) -> None:
        """Close the stream; cancel unsent calls, and fail sent ones as lost."""
        with self._lock:
            self._closed = True
            waiting = [c for pool in self._pools.values() for c in pool.waiting]
            for pool in self._pools.values():
                pool.waiting.clear()
            sent, self._sent = list(self._sent.values()), {}
            self._wake.notify_all()
            thread, wire = self._thread, self._wire
        if wire is not None:
            wire.close()
        for call in waiting:
            if call.running:
                sent.append(call)
            else:
                call.future.cancel()
        because = "the client was closed before the result came"
        self._fail(sent, CallLostError("the call is lost", because=because))
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    # Sending.

    def _send_all(self, wire: Wire) -> None:
        """Send whatever is due, until the wire is replaced (sender thread)."""
        while True:
            with self._wake:
                while not self._has_something(wire):
                    self._wake.wait()
                if self._closed or wire is not self._wire:
                    return
            with self._sending:
                with self._lock:
                    if wire is not self._wire:
                        return
                    request, calls = self._gather()
                _send(wire, request, calls)

    def _has_something(self, wire: Wire) -> bool:
        if self._closed or wire is not self._wire or self._stops:
            return True
        if self._pools_sent < len(self._pools):
            return True
        return any(
            self._next_of(pool) is not None or self._untold(pool)
            for pool in self._pools.values()
        )

    def _next_of(self, pool: PoolQueue) -> Pending | None:
        """Return the next call of a pool if it may be sent now."""
        while pool.waiting and pool.waiting[0].dropped:
            pool.waiting.popleft()
        if not pool.waiting or pool.out >= pool.credit:
            return None
        call = pool.waiting[0]
        if self._sent and self._sent_bytes + call.size > UNANSWERED_BYTES_MAX:
            return None
        return call

    def _untold(self, pool: PoolQueue) -> bool:
        """Return whether to report the backlog, by which the node hires lanes."""
        waiting = len(pool.waiting)
        return waiting > 2 * pool.told or waiting * 2 < pool.told

    def _gather(self) -> tuple[pb.CallsRequest, list[Pending]]:
        """Collect everything that may be sent now; the caller holds the lock."""
        request = pb.CallsRequest(stops=self._stops)
        self._stops = []
        for id_ in range(self._pools_sent + 1, len(self._pools) + 1):
            request.pools.append(self._pools[id_].message)
        self._pools_sent = len(self._pools)
        for number in self._functions_unsent:
            code = self._functions[number]
            request.functions.append(pb.CallFunction(id=number, code=code))
        self._functions_unsent = []
        calls: list[Pending] = []
        size = 0
        for pool in self._pools.values():
            while (call := self._next_of(pool)) is not None:
                if len(calls) >= CALLS_PER_REQUEST_MAX or size > REQUEST_BYTES:
                    break
                pool.waiting.popleft()
                if not call.running and not call.future.set_running_or_notify_cancel():
                    call.dropped = True  # Cancelled, but `drop` has not run yet.
                    self._finished(1)
                    continue
                call.running = True
                calls.append(call)
                size += call.size
                pool.out += 1
                self._sent[call.id] = call
                self._sent_bytes += call.size
            if self._untold(pool):
                pool.told = len(pool.waiting)
                request.backlogs.append(pb.CallBacklog(pool=pool.id, waiting=pool.told))
        return request, calls

    # Receiving, in a thread.

    def _start(self) -> None:
        self._thread = threading.Thread(
            target=self._serve, name="shoal-calls", daemon=True
        )
        self._thread.start()

    def _serve(self) -> None:
        """Keep a wire to the node until the client closes or the node is gone."""
        gone_since: float | None = None
        while True:
            error: ShoalError = UnreachableError("the node ended the stream")
            try:
                with self._connected() as wire:
                    for reply in wire.replies():
                        gone_since = None
                        self._on_reply(reply, believed=wire.believed)
            except UnreachableError as caught:
                error = caught
            except ShoalError as caught:
                self._give_up(caught)
                return
            with self._wake:
                once = self._again()
                self._wake.wait_for(lambda: self._closed, RETRY_S)
                if self._closed:
                    return
            self._fail(once, _lost_with_stream())
            gone_since = gone_since or time.monotonic()
            if time.monotonic() - gone_since > RECONNECT_S:
                self._give_up(error)
                return

    @contextlib.contextmanager
    def _connected(self) -> Generator[Wire]:
        """Open a wire and run a sender thread for it."""
        wire = self._dial()
        with self._lock:
            self._wire = wire
            if self._closed:
                wire.close()  # `close` ran before there was a wire.
        sender = threading.Thread(
            target=self._send_all, args=(wire,), name="shoal-calls-out", daemon=True
        )
        sender.start()
        try:
            yield wire
        finally:
            with self._lock:
                self._wire = None
                self._wake.notify_all()
            wire.close()
            sender.join()

    def _again(self) -> list[Pending]:
        """Requeue unanswered calls; return those that must not run twice."""
        self._pools_sent = 0
        self._functions_unsent = list(self._functions)
        self._sent_bytes = 0
        sent, self._sent = self._sent, {}
        for pool in self._pools.values():
            pool.credit, pool.out, pool.told = CREDIT_AT_FIRST, 0, 0
        once: list[Pending] = []
        for call in reversed(sent.values()):
            call.came.clear()
            if call.retries:
                call.pool.waiting.appendleft(call)
            else:
                once.append(call)
        return once

    def _give_up(self, error: ShoalError) -> None:
        """Fail all calls; the next call connects again."""
        with self._lock:
            self._thread = None
            calls = list(self._sent.values())
            self._sent = {}
            for pool in self._pools.values():
                calls += pool.waiting
                pool.waiting.clear()
                pool.out = pool.told = 0
            self._again()
        self._fail([call for call in calls if self._begins(call)], error)

    def _begins(self, call: Pending) -> bool:
        """Mark a call as running, so it can fail; return False if cancelled."""
        with self._lock:
            if call.dropped or call.running:
                return call.running
            call.running = call.future.set_running_or_notify_cancel()
            if not call.running:
                call.dropped = True
                self._finished(1)
            return call.running

    def _on_reply(self, reply: pb.CallsReply, *, believed: bool) -> None:
        ended: list[tuple[Pending, pb.CallResult]] = []
        with self._lock:
            for state in reply.pools:
                pool = self._pools.get(state.id)
                if pool is not None:
                    pool.credit, pool.lanes = state.credit, state.lanes
            for result in reply.results:
                call = self._sent.get(result.id)
                if call is None:
                    continue
                if result.more:
                    if result.part == 0:
                        call.came.clear()
                    call.came += result.payload
                    continue
                del self._sent[result.id]
                self._sent_bytes -= call.size
                call.pool.out -= 1
                ended.append((call, result))
            self._wake.notify()
        for call, result in ended:
            _settle(call, result, own=believed and result.own)
        if ended:
            with self._lock:
                self._finished(len(ended))

    def _fail(self, calls: list[Pending], error: BaseException) -> None:
        for call in calls:
            if not call.future.done():
                call.future.set_exception(error)
        if calls:
            with self._lock:
                self._finished(len(calls))

    def _finished(self, count: int) -> None:
        self._unfinished -= count
        if not self._unfinished:
            self._idle.notify_all()


def _send(wire: Wire, request: pb.CallsRequest, calls: list[Pending]) -> None:
    """Send a request with calls, split into several messages if they are large.

    Ignores a broken wire: its reader notices.
    """
    size = 0
    with contextlib.suppress(OSError):
        for call in calls:
            last = len(call.parts) - 1
            for place, part in enumerate(call.parts):
                if size > REQUEST_BYTES:
                    wire.send(request)
                    request, size = pb.CallsRequest(), 0
                size += len(part)
                request.calls.append(
                    pb.Call(
                        id=call.id,
                        pool=call.pool.id,
                        function=call.function,
                        payload=part,
                        more=place < last,
                        retries=call.retries,
                    )
                )
        wire.send(request)


def _settle(call: Pending, result: pb.CallResult, *, own: bool) -> None:
    """Set the future of an ended call; `own` if its machine has the same owner."""
    future = call.future
    kind, payload = result.kind, result.payload
    pickles = reads_pickles(call.results, own=own)
    if kind == pb.CallResult.KIND_VALUE:
        data: bytes | bytearray = payload
        if call.came and result.part:
            call.came += payload
            data, call.came = call.came, bytearray()
        try:
            value = value_of(data, pickles=pickles)
        except BaseException as error:  # noqa: BLE001 - Unpickling may run user code.
            future.set_exception(error)
        else:
            future.set_result(value)
    elif kind == pb.CallResult.KIND_RAISED:
        future.set_exception(exception_of(payload, pickles=pickles))
    elif kind == pb.CallResult.KIND_LOST:
        future.set_exception(_lost(payload.decode(errors="replace")))
    else:
        why = payload.decode(errors="replace")
        if why == STOPPED:
            future.set_exception(CallStoppedError("the call was stopped", because=why))
        else:
            hint = "`shoal explain last` says what its interpreters wait for"
            future.set_exception(
                CallRefusedError("the call cannot run", because=why, hint=hint)
            )


def _lost(because: str) -> CallLostError:
    return CallLostError(
        "the call is lost",
        because=because,
        hint="a function that crashes its interpreter has output in `shoal logs last`",
    )


def _lost_with_stream() -> CallLostError:
    return CallLostError(
        "the call is lost",
        because="the node went away before the result came, and it may run only once",
        hint="with retries=1 or more it would have been run again",
    )


def parts_of(pieces: list[bytes | memoryview]) -> tuple[bytes, ...]:
    """Split a payload into parts that fit into messages."""
    return tuple(payloads.parts_of(pieces, PART_BYTES))
