"""The client: jobs and functions, on the node of this machine and all its shoal."""

from __future__ import annotations

import atexit
import contextlib
import json
import logging
import os
import subprocess
import sys
import threading
import weakref
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    ParamSpec,
    Self,
    TypeVar,
    Unpack,
    cast,
    final,
    overload,
)

from shoal.api import client as api
from shoal.api import whereabouts
from shoal.api.call_frames import calls_socket
from shoal.api.job_ids import new_job_id
from shoal.api.shoal_pb2 import SubmitRequest
from shoal.client.functions import Functions, send_along
from shoal.client.futures import Future
from shoal.client.jobs import Job, spec_fields
from shoal.client.options import ClientOptions, Options
from shoal.client.stream import Pending, PoolQueue, Stream, parts_of
from shoal.client.wires import GrpcWire, SocketWire
from shoal.errors import ShoalError, UsageError
from shoal.protocol import payloads
from shoal.protocol.call_items import PART_BYTES, PAYLOAD_BYTES_MAX
from shoal.runtime.home import Home

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from types import TracebackType

    from shoal.client.executor import Executor
    from shoal.client.wires import Wire
    from shoal.model.spec import JobSpec

P = ParamSpec("P")
T = TypeVar("T")

START_TIMEOUT_S: Final = 60.0
PATIENCE_S: Final = 10.0
"""After this a user is told that calls still wait."""

PARTS_MAX: Final = PAYLOAD_BYTES_MAX // PART_BYTES

_log = logging.getLogger("shoal")
_clients: weakref.WeakSet[Client] = weakref.WeakSet()


@final
class Client:
    """A client of a node: it submits jobs, and calls functions all over the shoal.

    ```python
    with shoal.Client() as client:
        future = client.submit(pow, 2, 10)
        print(future.result())
    ```

    Without `node` it is the node of this machine, which is started if it does not
    run. Functions run in interpreters that stay while there is work. The options are
    those of `ClientOptions`, and hold for all calls that do not say otherwise.
    A client may be used by many threads, but not by a process that was forked.
    """

    def __init__(
        self,
        node: str | None = None,
        *,
        start: bool = True,
        **options: Unpack[ClientOptions],
    ) -> None:
        """Find the node, or start one unless `start` is false.

        Raises `UnreachableError` if there is none, and `UsageError` if an option is
        wrong.
        """
        self._node = node
        self._home = Home.default()
        self._pid = os.getpid()
        self._defaults = Options.made(**options)
        if node is None and start and whereabouts.running(self._home) is None:
            start_node(self._home)
        with self._connected() as client:
            client.info()  # Raises if nobody answers.
        self._functions = Functions()
        self._stream = Stream(self._wire)
        self._pools: dict[Options, PoolQueue] = {}
        self._lock = threading.Lock()
        self._closed = False
        _clients.add(self)

    # Functions.

    @overload
    def submit(
        self,
        work: Callable[..., T],
        /,
        *args: Any,  # noqa: ANN401 - Whatever the function takes, and options.
        **kwargs: Any,  # noqa: ANN401
    ) -> Future[T]: ...

    @overload
    def submit(self, work: str | Path | Mapping[str, Any] | JobSpec, /) -> Job: ...

    def submit(
        self,
        work: Callable[..., Any] | str | Path | Mapping[str, Any] | JobSpec,
        /,
        *args: Any,
        **kwargs: Any,
    ) -> Future[Any] | Job:
        """Call a function somewhere in the shoal, or hand in a job.

        A function gets the arguments that follow, except `cpu`, `gpu`, `ram`,
        `priority`, `retries` and `results`, which say what the call needs; for a
        function that has such parameters, use `client.executor(...).submit(...)`.

        A job is a spec: a mapping, a file in YAML or JSON, or a command line as text.
        The folder that it names as `workdir`, seen from here, is sent along.
        """
        if callable(work):
            names = Options.NAMES & kwargs.keys()
            asked = cast("ClientOptions", {name: kwargs.pop(name) for name in names})
            options = self._defaults.changed(**asked) if asked else self._defaults
            return self.call_with(options, work, args, kwargs)
        if args or kwargs:
            raise UsageError(
                "a job takes no arguments",
                because="they belong to functions",
                hint="put params into the spec",
            )
        return self._submit_job(work)

    def call_with(
        self,
        options: Options,
        function: Callable[..., T],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Future[T]:
        """Call a function under given options; all arguments are its own."""
        number = self._number(function, at_once=False)
        if number:
            pieces = payloads.dumps((args, kwargs))
        else:
            send_along(function)
            pieces = payloads.dumps((function, args, kwargs))
        return self._send(options, number, pieces)

    def map(
        self,
        function: Callable[..., T],
        *iterables: Iterable[Any],
        chunksize: int | None = None,
        timeout: float | None = None,
    ) -> Iterator[T]:
        """Call a function for each element; return the results in order.

        Several elements go into one call: `chunksize`, or as many as give each
        interpreter four calls. The calls begin at once; taking a result waits for
        it. As with the standard library, a `timeout` counts from now.
        """
        executor = self.executor()
        return executor.map(function, *iterables, chunksize=chunksize, timeout=timeout)

    def executor(self, **options: Unpack[ClientOptions]) -> Executor:
        """Return a `concurrent.futures.Executor` that runs functions in the shoal.

        Options are those of `Client`. To leave its `with` block waits for its calls.
        """
        from shoal.client.executor import Executor  # noqa: PLC0415 - They need us.

        return Executor(self, self._defaults.changed(**options))

    def call_many(
        self, options: Options, function: Callable[..., T], rows: list[tuple[Any, ...]]
    ) -> Future[list[T]]:
        """Call a function once for each row of arguments, all in one call."""
        number = self._number(function, at_once=True)
        if number:
            pieces = payloads.dumps((rows, None))
        else:
            send_along(function)
            pieces = payloads.dumps((function, rows, None))
        return self._send(options, number, pieces)

    def _number(self, function: Callable[..., Any], *, at_once: bool) -> int:
        number, code = self._functions.number(function, at_once=at_once)
        if code is not None:
            self._stream.define(number, code)
        return number

    def _send(
        self, options: Options, function: int, pieces: list[bytes | memoryview]
    ) -> Future[Any]:
        if os.getpid() != self._pid:
            raise UsageError(
                "this client belongs to another process",
                because="its connection did not survive the fork",
                hint="make a new Client in this process",
            )
        parts = parts_of(pieces)
        if len(parts) > PARTS_MAX:
            raise UsageError(
                "the arguments of this call are too large",
                because=f"pickled they are over {PAYLOAD_BYTES_MAX >> 30} GiB",
                hint="write them to a file that the function reads",
            )
        future: Future[Any] = Future()
        pool = self._pools.get(options) or self._pool(options)
        call = Pending(pool, function, parts, options.retries, future, options.results)
        stream = self._stream
        future.bind(lambda: stream.drop(call), lambda: stream.stop(call))
        stream.put(call)
        return future

    def _pool(self, options: Options) -> PoolQueue:
        with self._lock:
            kind = options.kind()
            found = self._pools.get(kind)
            if found is None:
                lanes = options.lanes or 0
                found = self._stream.pool(options.spec(), lanes, options.idle_s)
                self._pools[kind] = found
                self._look_after(found)
            self._pools[options] = found
            return found

    def _look_after(self, pool: PoolQueue) -> None:
        """Say so if no interpreter comes up for long: who waits wants to know why."""

        def look() -> None:
            if not pool.lanes and (pool.out or pool.waiting) and not self._closed:
                _log.warning(
                    "no interpreter has come up after %.0f s; "
                    "`shoal explain last` says what it waits for",
                    PATIENCE_S,
                )

        timer = threading.Timer(PATIENCE_S, look)
        timer.daemon = True
        timer.start()

    @property
    def lanes(self) -> int:
        """How many interpreters take calls of this client now."""
        return sum(pool.lanes for pool in set(self._pools.values()))

    @property
    def defaults(self) -> Options:
        """The options of calls that say nothing else."""
        return self._defaults

    @property
    def closed(self) -> bool:
        """Whether it takes no more calls."""
        return self._closed

    # Jobs.

    def job(self, id_: str) -> Job:
        """Return a job by its id, the beginning of it, or `last`."""
        with self._connected() as client:
            return Job(self._connected, client.get(id_, tasks_max=1).id)

    def jobs(self, *, active_only: bool = False) -> list[Job]:
        """Return the jobs that this node knows, the latest last."""
        with self._connected() as client:
            found = client.jobs(active_only=active_only).jobs
        return [Job(self._connected, each.id) for each in found]

    def _submit_job(self, work: str | Path | Mapping[str, Any] | JobSpec) -> Job:
        document = spec_fields(work)
        with self._connected() as client:
            if "workdir" in json.dumps(document):
                from shoal.api.shipping import ship_all  # noqa: PLC0415 - Slow.

                ship_all(client, document)
            request = SubmitRequest(job_id=new_job_id(), json=json.dumps(document))
            return Job(self._connected, client.submit(request).job.id)

    # The end.

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until no call is without a result; return whether that is so."""
        return self._stream.wait(timeout)

    def close(self, *, wait: bool = True) -> None:
        """Wait for all calls, unless told not to, and end the interpreters."""
        if self._closed:
            return
        if wait:
            self._stream.wait()
        self._closed = True
        self._stream.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Wait for all calls; after an error wait for none."""
        self.close(wait=error is None)

    def __reduce__(self) -> str:
        """Refuse to be pickled: a connection cannot travel."""
        raise TypeError("a Client cannot be pickled: make one where it is needed")

    def _wire(self) -> Wire:
        if self._node is not None:
            return GrpcWire(self._connected())
        found = whereabouts.required(self._home)
        return SocketWire(calls_socket(found.socket))

    def _connected(self) -> api.Client:
        return api.connect(self._node, self._home)


def start_node(home: Home) -> None:
    """Start a node in the background, and wait until it is ready."""
    done = subprocess.run(
        [sys.executable, "-m", "shoal.cli", "up", "--background", "--quiet"],
        check=False,
        capture_output=True,
        text=True,
        timeout=START_TIMEOUT_S,
        env={**os.environ, "SHOAL_HOME": str(home.path)},
    )
    if done.returncode and whereabouts.running(home) is None:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        raise ShoalError(
            "no node could be started",
            because=lines[0] if lines else f"`shoal up` exited with {done.returncode}",
            hint="`shoal doctor` looks for the cause",
        )


@atexit.register
def _finish() -> None:
    for client in list(_clients):
        with contextlib.suppress(Exception):
            client.close()  # It waits, as the executors of the standard library do.
