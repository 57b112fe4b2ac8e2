"""The program of a lane: a long-lived interpreter that runs one call after another.

It runs where a task runs, so it may import only the standard library, `shoal.framing`
and the three files of `shoal.protocol` that the driver copies beside it. Its input
comes from the user whose functions it runs, so it may unpickle it.

The main thread reads calls and runs them. While a call takes longer than `LOOK_S`, a
second thread reads in its place, so that waiting calls can be taken back, and sends
finished results. The reading thread holds a lock. The queue is a deque: the main thread
pops its left end and the second its right end, without a lock.

After SIGTERM or LEAVE, waiting calls are given back and the running one finishes.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import select
import signal
import socket
import struct
import sys
import threading
import time
import traceback
from collections import deque
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn, final

from shoal.framing import FrameBuffer, FramingError, framed
from shoal.protocol import call_items, payloads, plain_values

if TYPE_CHECKING:
    from collections.abc import Callable

BOOT: Final = """
import sys
here = sys.argv[1]
for name in ("shoal", "shoal.protocol", "shoal.drivers"):
    sys.modules[name] = type(sys)(name)
    sys.modules[name].__path__ = [here]
from shoal.drivers.lane import main
for name in [name for name in sys.modules if name.partition(".")[0] == "shoal"]:
    del sys.modules[name]
main()
"""
"""Starts a lane; arguments: the folder of these files, the socket to the node, and
the format of results, `PLAIN` or `PICKLED`.

The packages above are stubs, because the interpreter may lack the real ones. They are
removed before a call runs, so that a function that imports shoal gets the real one.
"""

PLAIN: Final = "plain"
PICKLED: Final = "pickled"
WHY_BYTES_MAX: Final = 500
SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
READ_BYTES: Final = 1 << 18
FLUSH_BYTES: Final = 1 << 16
FLUSH_S: Final = 0.002
"""How long results of quick calls wait to be sent together."""

GOING_S: Final = 5.0
"""How long a leaving lane waits for the node's word that no more calls will come."""

LOOK_S: Final = 0.02
"""A call that takes longer is slow, and the second thread takes over reading."""

LOOKS_MAX: Final = 50
"""Checks without a call after which the second thread goes to sleep."""


class _Waiting(NamedTuple):
    number: int
    function: int
    payload: bytes | bytearray


class ItemError(ValueError):
    """The node sent an item that a lane does not understand."""


class _StoppedError(BaseException):
    """The client has cancelled the running call."""


@final
class LaneProgram:
    """Runs calls until told to leave or the node is gone."""

    def __init__(self, line: socket.socket, *, plain: bool = False) -> None:
        """Serve the node at `line`; with `plain`, avoid pickles where possible."""
        self._line = line
        self._dumps, self._packed = (
            (_plain, _packed_plain) if plain else (payloads.dumps, _packed)
        )
        self._sending = threading.Lock()
        self._waiting: deque[_Waiting] = deque()
        self._reading = threading.Lock()
        self._calls = 0  # finished calls
        self._wants_to_read = True  # the main thread is idle
        self._asleep = threading.Event()  # whether the second thread sleeps
        self._woken = threading.Event()
        self._poll = select.poll()
        # `recv` would map and unmap that much memory for each call.
        self._space = memoryview(bytearray(READ_BYTES))
        self._buffer = item_buffer()
        self._functions: dict[int, Callable[..., Any] | bytes | bytearray] = {}
        self._parts: dict[int, bytearray] = {}
        self._results: deque[bytes] = deque()
        self._results_bytes = 0
        self._flushed_at = time.monotonic()
        self._running: int | None = None
        self._stopped: int | None = None
        self._leaving = False  # give back new calls
        self._leave_by = 0.0
        self._dismissed = False  # the node sends no more calls
        self._signals = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)

    def serve(self) -> None:
        """Run calls until the lane may end."""
        signal.set_wakeup_fd(self._signals[1], warn_on_full_buffer=False)
        signal.signal(signal.SIGTERM, _on_notice)
        signal.signal(signal.SIGINT, self._on_interrupt)
        os.register_at_fork(
            before=_hold_signals,
            after_in_parent=_let_signals_through,
            after_in_child=_stop_listening,
        )
        version = ".".join(map(str, sys.version_info[:3]))
        ready = json.dumps({"python": version, "pid": os.getpid()}).encode()
        self._send([call_items.item(call_items.READY, 0, ready)])
        self._poll.register(self._line, select.POLLIN)
        self._poll.register(self._signals[0], select.POLLIN)
        threading.Thread(target=self._watch, daemon=True).start()
        while True:
            try:
                call = self._waiting.popleft()
            except IndexError:
                if not self._rest():
                    return
                continue
            self._run(call)
            self._calls += 1
            if (
                self._results_bytes > FLUSH_BYTES
                or time.monotonic() - self._flushed_at > FLUSH_S
            ):
                self._flush()

    def _rest(self) -> bool:
        """Wait for calls; return False when the lane may end."""
        self._wants_to_read = True
        self._flush()
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
        if not self._reading.acquire(blocking=False):
            os.write(self._signals[1], b"\0")  # Make the second thread yield.
            self._reading.acquire()
        try:
            if not self._waiting and not self._is_over():
                self._read(GOING_S if self._leaving else None)
        finally:
            self._reading.release()
        if self._is_over() and not self._waiting:
            return False
        self._wants_to_read = False
        self._flushed_at = time.monotonic()
        if self._asleep.is_set():
            self._asleep.clear()
            self._woken.set()
        return True

    def _is_over(self) -> bool:
        """Whether no call can arrive any more, or the node has not said so in time."""
        late = self._leaving and time.monotonic() > self._leave_by
        return self._dismissed or late

    # Running.

    def _run(self, call: _Waiting) -> None:
        self._running = call.number
        try:
            pieces = self._dumps(self._value_of(call))
        except BaseException as error:  # noqa: BLE001 - Functions raise anything.
            self._running = None
            packed = self._packed(error)
            self._add(call_items.item(call_items.RAISED, call.number, packed))
            return
        self._running = None
        if len(pieces) == 1 and len(pieces[0]) <= call_items.PART_BYTES:
            head = call_items.HEAD.pack(call_items.VALUE, call.number)
            self._add(head + bytes(pieces[0]))
            return
        last = b""
        for place, part in enumerate(payloads.parts_of(pieces, call_items.PART_BYTES)):
            if place:
                self._add(call_items.item(call_items.VALUE_PART, call.number, last))
            if self._results_bytes > FLUSH_BYTES:
                self._flush()
            last = part
        self._add(call_items.item(call_items.VALUE, call.number, last))

    def _value_of(self, call: _Waiting) -> object:
        function: Any
        if call.function:
            # It comes first: it may bring modules that the arguments are of.
            function = self._functions[call.function]
            if isinstance(function, bytes | bytearray):
                function = self._functions[call.function] = payloads.loads(function)
            args, kwargs = payloads.loads(call.payload)
        else:
            function, args, kwargs = payloads.loads(call.payload)
        if kwargs is None:  # A batch of calls.
            return [function(*each) for each in args]
        return function(*args, **kwargs)

    def _on_interrupt(self, _number: int, _frame: object) -> None:
        """Interrupt the running call if it is the one to stop."""
        if self._running is not None and self._running == self._stopped:
            self._stopped = None
            raise _StoppedError

    # Sending.

    def _add(self, data: bytes) -> None:
        self._results.append(data)
        self._results_bytes += len(data)

    def _flush(self) -> None:
        self._results_bytes = 0
        self._flushed_at = time.monotonic()
        if self._results:
            self._send([])

    def _send(self, items: list[bytes]) -> None:
        """Send all results and then these items."""
        with self._sending:
            ready: list[bytes] = []
            with contextlib.suppress(IndexError):
                while True:
                    ready.append(self._results.popleft())
            ready += items
            self._line.sendall(framed(*ready))

    # Reading, by the thread that holds the lock.

    def _read(self, timeout_s: float | None) -> None:
        """Process input and signals that arrive within `timeout_s`."""
        for fd, _ in self._poll.poll(None if timeout_s is None else timeout_s * 1_000):
            if fd == self._signals[0]:
                if signal.SIGTERM in os.read(fd, 512):
                    self._leave()
                continue
            try:
                count = self._line.recv_into(self._space)
            except OSError:
                count = 0
            if not count:
                os._exit(0)  # The node is gone, so nobody wants the results.
            try:
                self._take(self._space[:count])
            except (FramingError, ItemError) as error:
                os.write(2, f"this lane was told nonsense: {error}\n".encode())
                os._exit(1)

    # The second thread.

    def _watch(self) -> None:
        """Check every `LOOK_S` whether a call is slow; if so, read while it runs."""
        looks = 0
        while True:
            before = self._calls
            time.sleep(LOOK_S)
            if self._wants_to_read:
                looks += 1
                if looks > LOOKS_MAX:
                    looks = 0
                    self._woken.clear()
                    self._asleep.set()
                    if self._wants_to_read:  # Otherwise a call has just begun.
                        self._woken.wait()
            elif self._calls == before:
                self._stand_in()

    def _stand_in(self) -> None:
        try:
            with self._reading:
                while not self._wants_to_read:
                    if self._results:
                        self._send([])
                    self._read(LOOK_S)
        except OSError:
            os._exit(0)

    def _take(self, data: bytes | memoryview) -> None:
        """Handle all complete items; keep an incomplete rest."""
        for item in self._buffer.feed(data):
            self._on_item(item)

    def _on_item(self, data: bytes) -> None:
        kind, number = call_items.head(data)
        body = data[call_items.HEAD_BYTES :]
        if kind == call_items.CALL:
            self._on_call(number, data)
        elif kind == call_items.PART:
            part = self._parts.setdefault(number, bytearray())
            part += body
            if len(part) > call_items.PAYLOAD_BYTES_MAX:
                raise ItemError(f"call {number} is too large")
        elif kind == call_items.FUNCTION:
            # May come in parts, all before the first call that needs it.
            known = self._functions.get(number, b"")
            if not isinstance(known, bytes | bytearray):
                raise ItemError(f"function {number} has been called already")
            self._functions[number] = known + body
        elif kind == call_items.RECALL:
            self._give_back(number)
        elif kind == call_items.STOP:
            self._stop(number)
        elif kind == call_items.LEAVE:
            self._dismissed = True
            self._leave()
        else:
            raise ItemError(f"an item of the kind {kind}")

    def _on_call(self, number: int, data: bytes) -> None:
        if len(data) < call_items.CALL_HEAD_BYTES:
            raise ItemError(f"a call of {len(data)} bytes")
        function = call_items.CALL_HEAD.unpack_from(data)[2]
        rest = data[call_items.CALL_HEAD_BYTES :]
        began = self._parts.pop(number, None) if self._parts else None
        if began is not None:
            began += rest
        call = _Waiting(number, function, rest if began is None else began)
        if self._leaving:
            self._send([call_items.item(call_items.BACK, number)])
        else:
            self._waiting.append(call)

    def _give_back(self, count: int) -> None:
        items: list[bytes] = []
        with contextlib.suppress(IndexError):
            for _ in range(count):
                call = self._waiting.pop()
                items.append(call_items.item(call_items.BACK, call.number))
        if items:
            self._send(items)

    def _stop(self, number: int) -> None:
        for call in list(self._waiting):
            if call.number == number:
                with contextlib.suppress(ValueError):  # The call may have just begun.
                    self._waiting.remove(call)
                    raised = self._packed(_StoppedError())
                    self._send([call_items.item(call_items.RAISED, number, raised)])
                    return
        self._stopped = number
        if self._running == number:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    def _leave(self) -> None:
        if self._leaving:
            return
        self._leave_by = time.monotonic() + GOING_S
        self._leaving = True
        self._give_back(len(self._waiting))
        self._send([call_items.item(call_items.GOING, call_items.NUMBER_MAX)])


def item_buffer() -> FrameBuffer:
    """Return a buffer that splits the stream between node and lane into items."""
    return FrameBuffer(call_items.ITEM_BYTES_MAX, call_items.HEAD_BYTES)


def _on_notice(_number: int, _frame: object) -> None:
    """Do nothing: the reading thread gets the signal by the wakeup descriptor."""


def _hold_signals() -> None:
    """Block signals while a function forks, so that the child handles none as ours."""
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)


def _let_signals_through() -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)


def _stop_listening() -> None:
    """Restore default signal handling in a process that a function forked."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    _let_signals_through()


def _plain(value: object) -> list[bytes | memoryview]:
    """Encode a value as plain data; else as a pickle, marked with the reason."""
    try:
        return plain_values.dumps(value)
    except plain_values.NotPlainError as error:
        why = str(error).encode(errors="replace")[:WHY_BYTES_MAX]
        head = struct.pack("<BH", plain_values.NOT_PLAIN, len(why)) + why
        return [head, *payloads.dumps(value)]


def _packed(error: BaseException) -> bytes:
    """Pickle an exception: its traceback as text, and itself if possible."""
    if isinstance(error, _StoppedError):
        return pickle.dumps(("", b""))
    text, data = _traceback(error), _pickled(error)
    whole = pickle.dumps((text, data))
    if len(whole) <= call_items.PART_BYTES:
        return whole
    return pickle.dumps((text[-call_items.PART_BYTES // 4 :], b""))


def _packed_plain(error: BaseException) -> bytes:
    """Encode an exception as plain data: name, arguments, traceback and a pickle."""
    if isinstance(error, _StoppedError):
        return b"".join(plain_values.dumps(("", "", (), "", b"")))
    kind = type(error)
    name, text = (kind.__module__, kind.__qualname__), _traceback(error)
    try:
        whole = b"".join(plain_values.dumps((*name, error.args, text, _pickled(error))))
        if len(whole) <= call_items.PART_BYTES:
            return whole
    except plain_values.NotPlainError:
        pass
    text = text[-call_items.PART_BYTES // 8 :].encode(errors="replace").decode()
    return b"".join(plain_values.dumps((*name, None, text, b"")))


def _traceback(error: BaseException) -> str:
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next  # Skip frames of this file.
    return "".join(traceback.format_exception(type(error), error, trace))


def _pickled(error: BaseException) -> bytes:
    try:
        return b"".join(payloads.dumps(error.with_traceback(None)))
    except Exception:  # noqa: BLE001 - Pickling may raise anything.
        return b""


def main() -> NoReturn:
    """Serve the node at the socket named by the arguments."""
    here, path = os.path.abspath(sys.argv[1]), sys.argv[2]  # noqa: PTH100
    plain = sys.argv[3] == PLAIN
    sys.path.append(f"{here}/packages")
    sys.argv[:] = [""]
    line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    line.connect(path)
    with contextlib.suppress(OSError):
        LaneProgram(line, plain=plain).serve()
    sys.stdout.flush()
    os._exit(0)  # Do not wait for threads of functions.
