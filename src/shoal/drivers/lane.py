"""The program of a lane: an interpreter that stays and runs one call after another.

It runs where a task runs, so it may import nothing but the standard library and the
two files of `shoal.protocol` that the driver puts beside it. What it is told comes from
the same user whose functions it runs.

The first thread runs calls. The second one listens, so that calls which have not begun
can be taken back while one runs, and passes results on when a call after them is slow.
Only the second thread takes calls from the end of the queue, only the first from its
beginning, and a deque lets both do so without a lock.
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

from shoal.protocol import call_items, payloads

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
"""Starts a lane: arguments are the folder of these files and the socket to the node.

The packages above are empty, because an interpreter may lack the real ones; they are
gone before a call runs, so that a function which imports shoal gets the real one.
"""

LENGTH: Final = struct.Struct("<I")
READ_BYTES: Final = 1 << 18
FLUSH_BYTES: Final = 1 << 16
FLUSH_S: Final = 0.002
"""Results of quick calls wait so long for others to go with them."""

LOOK_S: Final = 0.02
"""How soon a result is passed on that a slow call keeps waiting."""


class _Waiting(NamedTuple):
    number: int
    function: int
    payload: bytes | bytearray


class _StoppedError(BaseException):
    """The client does not want the result of the call that runs."""


@final
class Lane:
    """Runs calls until it is told to leave, or the node is gone."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line
        self._sending = threading.Lock()
        self._waiting: deque[_Waiting] = deque()
        self._more = threading.Lock()  # Held while there is nothing to do.
        self._more.acquire()
        self._functions: dict[int, Callable[..., Any] | bytes | bytearray] = {}
        self._parts: dict[int, bytearray] = {}
        self._results: deque[bytes] = deque()
        self._results_bytes = 0
        self._flushed_at = time.monotonic()
        self._running: int | None = None
        self._stopped: int | None = None
        self._leaving = False
        self._idle = False
        self._signals = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)

    def serve(self) -> None:
        """Run calls; return when there is nothing more to do."""
        signal.set_wakeup_fd(self._signals[1], warn_on_full_buffer=False)
        signal.signal(signal.SIGTERM, lambda *_: None)  # The listener hears of it.
        signal.signal(signal.SIGINT, self._on_interrupt)
        version = ".".join(map(str, sys.version_info[:3]))
        ready = json.dumps({"python": version, "pid": os.getpid()}).encode()
        self._send([call_items.item(call_items.READY, 0, ready)])
        threading.Thread(target=self._listen, daemon=True).start()
        while True:
            try:
                call = self._waiting.popleft()
            except IndexError:
                if not self._rest():
                    return
                continue
            self._run(call)
            if (
                self._results_bytes > FLUSH_BYTES
                or time.monotonic() - self._flushed_at > FLUSH_S
            ):
                self._flush()

    def _rest(self) -> bool:
        """Wait for calls; return whether there can be any."""
        self._idle = True
        self._flush()
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
        if self._leaving and not self._waiting:
            return False
        self._more.acquire()
        self._idle = False
        self._flushed_at = time.monotonic()
        return True

    # Running.

    def _run(self, call: _Waiting) -> None:
        self._running = call.number
        try:
            pieces = payloads.dumps(self._value_of(call))
        except BaseException as error:  # noqa: BLE001 - Whatever a function may raise.
            self._running = None
            self._add(call_items.item(call_items.RAISED, call.number, _packed(error)))
            return
        self._running = None
        if len(pieces) == 1 and len(pieces[0]) <= call_items.PART_BYTES:
            head = call_items.HEAD.pack(call_items.VALUE, call.number)
            self._add(head + bytes(pieces[0]))
            return
        *first, last = payloads.parts_of(pieces, call_items.PART_BYTES)
        for part in first:
            self._add(call_items.item(call_items.VALUE_PART, call.number, part))
            if self._results_bytes > FLUSH_BYTES:
                self._flush()
        self._add(call_items.item(call_items.VALUE, call.number, last))

    def _value_of(self, call: _Waiting) -> object:
        told: Any = payloads.loads(call.payload)
        function: Any
        if call.function:
            args, kwargs = told
            function = self._functions[call.function]
            if isinstance(function, bytes | bytearray):
                function = self._functions[call.function] = payloads.loads(function)
        else:
            function, args, kwargs = told
        if kwargs is None:  # Many calls in one.
            return [function(*each) for each in args]
        return function(*args, **kwargs)

    def _on_interrupt(self, _number: int, _frame: object) -> None:
        """Stop the call that runs, unless it has ended since that was asked."""
        if self._running is not None and self._running == self._stopped:
            self._stopped = None
            raise _StoppedError

    # Telling.

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
            pieces = [each for data in ready for each in (LENGTH.pack(len(data)), data)]
            self._line.sendall(b"".join(pieces))

    # Listening, in the second thread.

    def _listen(self) -> None:
        try:
            self._hear()
        except OSError:
            pass
        finally:
            os._exit(0)  # The node is gone, and with it whoever wants a result.

    def _hear(self) -> None:
        poll = select.poll()
        poll.register(self._line, select.POLLIN)
        poll.register(self._signals[0], select.POLLIN)
        unread = bytearray()
        while True:
            ready = poll.poll(None if self._idle else LOOK_S * 1_000)
            if not ready and self._results:
                self._send([])  # They wait behind a slow call.
            for fd, _ in ready:
                if fd == self._signals[0]:
                    if signal.SIGTERM in os.read(fd, 512):
                        self._leave()
                    continue
                data = self._line.recv(READ_BYTES)
                if not data:
                    return
                unread += data
                self._take(unread)

    def _take(self, unread: bytearray) -> None:
        start, end = 0, len(unread)
        with memoryview(unread) as view:
            while end - start >= LENGTH.size:
                size = LENGTH.unpack_from(view, start)[0]
                after = start + LENGTH.size + size
                if after > end:
                    break
                self._on_item(bytes(view[start + LENGTH.size : after]))
                start = after
        del unread[:start]
        if self._waiting and self._more.locked():
            self._more.release()

    def _on_item(self, data: bytes) -> None:
        kind, number = call_items.HEAD.unpack_from(data)
        if kind == call_items.CALL:
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
            return
        body = data[call_items.HEAD_BYTES :]
        if kind == call_items.PART:
            self._parts.setdefault(number, bytearray()).extend(body)
        elif kind == call_items.FUNCTION:
            # In parts too: all of them come before the first call that needs it.
            known = self._functions.get(number, b"")
            assert isinstance(known, bytes | bytearray)
            self._functions[number] = known + body
        elif kind == call_items.RECALL:
            self._give_back(number)
        elif kind == call_items.STOP:
            self._stop(number)
        elif kind == call_items.LEAVE:
            self._leave()

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
                with contextlib.suppress(ValueError):  # Unless it began just now.
                    self._waiting.remove(call)
                    raised = _packed(_StoppedError())
                    self._send([call_items.item(call_items.RAISED, number, raised)])
                    return
        self._stopped = number
        if self._running == number:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    def _leave(self) -> None:
        self._leaving = True
        self._give_back(len(self._waiting))
        self._send([call_items.item(call_items.GOING, call_items.NUMBER_MAX)])
        if self._more.locked():
            self._more.release()


def _packed(error: BaseException) -> bytes:
    """Return an exception as bytes: its traceback in words, and itself if it can be."""
    if isinstance(error, _StoppedError):
        return pickle.dumps(("", b""))
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next  # Our own part of the way is of no interest.
    text = "".join(traceback.format_exception(type(error), error, trace))
    try:
        data = b"".join(payloads.dumps(error.with_traceback(None)))
    except Exception:  # noqa: BLE001 - Pickling may raise anything.
        data = b""
    whole = pickle.dumps((text, data))
    if len(whole) <= call_items.PART_BYTES:
        return whole
    return pickle.dumps((text[-call_items.PART_BYTES // 4 :], b""))


def main() -> NoReturn:
    """Serve the node at the socket that the arguments name."""
    here, path = os.path.abspath(sys.argv[1]), sys.argv[2]  # noqa: PTH100
    sys.path.append(f"{here}/packages")
    sys.argv[:] = [""]
    line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    line.connect(path)
    with contextlib.suppress(OSError):
        Lane(line).serve()
    sys.stdout.flush()
    os._exit(0)  # A function may have left threads that never end.
