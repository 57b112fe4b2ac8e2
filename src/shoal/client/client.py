"""The client: submits jobs and calls functions through one node.

Theory of operation. Function calls go through one `CallStream`, which opens on the
first call and reconnects by itself. Calls whose options need the same interpreters
share a `PoolQueue`. The local node is reached over its Unix socket, any other node
over gRPC. Each question about a job uses a short connection of its own.

A client works from many threads, but not after a fork. `close` waits for all calls
unless told not to; clients still open when the program exits are closed and waited for.
"""

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

from shoal.api import node_file
from shoal.api.call_frames import calls_socket
from shoal.api.client import client as api
from shoal.api.job_ids import new_job_id
from shoal.api.shoal_pb2 import SubmitRequest
from shoal.client.code.functions import Functions, carried
from shoal.client.futures import Future
from shoal.client.jobs import Job, spec_fields
from shoal.client.notebook import table
from shoal.client.options import CallOptions, ClientOptions
from shoal.client.stream import CallStream, Pending, PoolQueue, parts_of
from shoal.client.wires import GrpcWire, SocketWire, StreamWire
from shoal.errors import ShoalError, UsageError
from shoal.protocol import payloads
from shoal.protocol.call_items import PART_BYTES, PAYLOAD_BYTES_MAX
from shoal.runtime.home import Home
from shoal.task_client import Scattered

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from types import TracebackType

    from shoal.client.executor import Executor
    from shoal.client.wires import Wire
    from shoal.model.spec.spec import JobSpec

P = ParamSpec("P")
T = TypeVar("T")

START_TIMEOUT_S: Final = 60.0
PATIENCE_S: Final = 10.0
"""Warn the user if no interpreter has come up after this time."""

RENEW_S: Final = 300.0
"""How often the node is reminded of scattered values."""

PARTS_MAX: Final = PAYLOAD_BYTES_MAX // PART_BYTES

_log = logging.getLogger("shoal")
_clients: weakref.WeakSet[Client] = weakref.WeakSet()


@final
class Client:
    """A client of a node: submits jobs and calls functions in the shoal.

    ```python
    with shoal.Client() as client:
        future = client.submit(pow, 2, 10)
        print(future.result())
    ```

    Without `node`, use the node of this machine, and start it if it is not running.
    Inside a task, use the shoal that runs it: what is submitted there belongs to the
    owner of the task, and ends with it.
    Functions run in interpreters that are kept while there is work. Options are those
    of `ClientOptions`; they are the defaults of every call. Threads may share a client;
    a forked process must make its own.
    """

    def __init__(
        self,
        node: str | None = None,
        *,
        start: bool = True,
        **options: Unpack[ClientOptions],
    ) -> None:
        """Find the node, or start one unless `start` is false.

        Raises `UnreachableError` if no node answers, and `UsageError` if an option is
        invalid.
        """
        self._node = node
        self._home = Home.default()
        self._pid = os.getpid()
        self._defaults = CallOptions.made(**options)
        self._in_task = node is None and node_file.in_task()
        is_found = self._in_task or node_file.running(self._home) is not None
        if node is None and start and not is_found:
            node_file.refuse_start_in_task()
            start_node(self._home)
        with self._connected() as client:
            client.info()  # Raises if no node answers.
        self._functions = Functions()
        self._stream = CallStream(self._wire)
        self._pools: dict[CallOptions, PoolQueue] = {}
        self._scattered: set[str] = set()
        self._lock = threading.Lock()
        self._closed = False
        _clients.add(self)

    # Functions.

    @overload
    def submit(
        self,
        work: Callable[..., T],
        /,
        *args: Any,  # noqa: ANN401 - Arguments of any function, and options.
        **kwargs: Any,  # noqa: ANN401
    ) -> Future[T]: ...

    @overload
    def submit(
        self, work: str | Path | Mapping[str, Any] | JobSpec, /, *, detached: bool = ...
    ) -> Job: ...

    def submit(
        self,
        work: Callable[..., Any] | str | Path | Mapping[str, Any] | JobSpec,
        /,
        *args: Any,
        **kwargs: Any,
    ) -> Future[Any] | Job:
        """Call a function somewhere in the shoal, or submit a job.

        The remaining arguments go to the function, except `cpu`, `gpu`, `ram`,
        `priority`, `retries` and `results`, which are options of the call. If the
        function has such parameters itself, use `client.executor(...).submit(...)`.

        A job is a `JobSpec`, a mapping, a YAML or JSON file, or a command line.
        Its `workdir`, relative to the current directory, is uploaded first. Inside a
        task a job ends with the task, unless it is `detached`.
        """
        if callable(work):
            names = CallOptions.NAMES & kwargs.keys()
            asked = cast("ClientOptions", {name: kwargs.pop(name) for name in names})
            options = self._defaults.changed(**asked) if asked else self._defaults
            return self.call_with(options, work, args, kwargs)
        detached = bool(kwargs.pop("detached", False))
        if args or kwargs:
            raise UsageError(
                "a job takes no arguments",
                because="they belong to functions",
                hint="put params into the spec",
            )
        return self._submit_job(work, detached=detached)

    def call_with(
        self,
        options: CallOptions,
        function: Callable[..., T],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Future[T]:
        """Call a function with given options; pass it all arguments unchanged."""
        return self._call(options, function, (args, kwargs), at_once=False)

    def map(
        self,
        function: Callable[..., T],
        *iterables: Iterable[Any],
        chunksize: int | None = None,
        timeout: float | None = None,
    ) -> Iterator[T]:
        """Call a function for each element; return the results in order.

        Each call handles `chunksize` elements; the default gives each interpreter
        about four calls. Calls start immediately, and iterating waits for each result.
        As in the standard library, `timeout` counts from the call to `map`.
        """
        executor = self.executor()
        return executor.map(function, *iterables, chunksize=chunksize, timeout=timeout)

    def executor(
        self,
        *,
        initializer: Callable[..., object] | None = None,
        initargs: tuple[Any, ...] = (),
        **options: Unpack[ClientOptions],
    ) -> Executor:
        """Return a `concurrent.futures.Executor` that runs functions in the shoal.

        Options are those of `Client`. Leaving its `with` block waits for its calls.
        Each interpreter runs `initializer(*initargs)` before its first call; if that
        raises, calls raise `concurrent.futures.BrokenExecutor`.
        """
        from shoal.client.executor import Executor  # noqa: PLC0415 - Import cycle.

        changed = self._defaults.changed(**options)
        return Executor(self, changed, initializer, initargs)

    def call_many(
        self,
        options: CallOptions,
        function: Callable[..., T],
        rows: list[tuple[Any, ...]],
    ) -> Future[list[T]]:
        """Run a function for each row of arguments, batched into one call."""
        return self._call(options, function, (rows, None), at_once=True)

    def _call(
        self,
        options: CallOptions,
        function: Callable[..., Any],
        given: tuple[Any, ...],
        *,
        at_once: bool,
    ) -> Future[Any]:
        number, code = self._functions.number(function, at_once=at_once, given=given)
        if code is not None:
            self._stream.define(number, code)
        if not number:
            given = (carried(function, given), *given)
        name = getattr(function, "__qualname__", type(function).__name__)
        return self._send(options, number, payloads.dumps(given), name)

    def _send(
        self,
        options: CallOptions,
        function: int,
        pieces: list[bytes | memoryview],
        name: str,
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
                hint="send what is large once, by client.scatter(value)",
            )
        future: Future[Any] = Future()
        pool = self._pools.get(options) or self._pool(options)
        call = Pending(pool, function, parts, options.retries, future, options.results)
        stream = self._stream
        future.bind(lambda: stream.drop(call), lambda: stream.stop(call), name)
        stream.put(call)
        return future

    def _pool(self, options: CallOptions) -> PoolQueue:
        with self._lock:
            kind = options.kind()
            found = self._pools.get(kind)
            if found is None:
                lanes = options.lanes or 0
                spec = self._shipped(options)
                found = self._stream.pool(spec, lanes, options.idle_s, options.never_s)
                self._pools[kind] = found
                self._look_after(found)
            self._pools[options] = found
            return found

    def _shipped(self, options: CallOptions) -> str:
        """Return the spec of one interpreter; the files of its environment are sent."""
        spec = options.spec()
        if not options.environment:
            return spec
        from shoal.api.client.shipping import ship_all  # noqa: PLC0415 - Slow.

        document = json.loads(spec)
        with self._connected() as client:
            ship_all(client, document)
        return json.dumps(document)

    def scatter(self, value: object) -> Scattered:
        """Send a large array or object once; return what stands for it in calls.

        A function that is given the result gets the value. It is stored under its hash
        and travels once to each worker. Arrays of numpy in it are read-only, and read
        from disk as they are used. It is kept while this client is open.
        """
        from shoal.client.scattering import send  # noqa: PLC0415 - Rarely needed.

        with self._connected() as client:
            found = send(client, value)
        with self._lock:
            if not self._scattered:
                self._renew_later()
            self._scattered.add(found.blob)
        return found

    def _renew_later(self) -> None:
        """Keep the node from dropping scattered values while the client is open."""

        def renew() -> None:
            if self._closed:
                return
            with contextlib.suppress(ShoalError), self._connected() as client:
                client.missing_blobs(sorted(self._scattered))
            self._renew_later()

        timer = threading.Timer(RENEW_S, renew)
        timer.daemon = True
        timer.start()

    def _look_after(self, pool: PoolQueue) -> None:
        """Log a warning if calls wait and no interpreter comes up in `PATIENCE_S`."""

        def look() -> None:
            if not pool.lanes and (pool.out or pool.waiting) and not self._closed:
                _log.warning(
                    "no interpreter has come up after %.0f s; `shoal ps --all` has "
                    "their job, `shoal explain JOB` what it waits for",
                    PATIENCE_S,
                )

        timer = threading.Timer(PATIENCE_S, look)
        timer.daemon = True
        timer.start()

    @property
    def lanes(self) -> int:
        """Number of interpreters that take calls of this client now."""
        return sum(pool.lanes for pool in set(self._pools.values()))

    @property
    def slots(self) -> int:
        """CPUs of all known nodes that run tasks: how many calls may run at once."""
        with self._connected() as client:
            nodes = client.nodes().nodes
        return max(1, sum(node.total.cpu_milli for node in nodes) // 1_000)

    @property
    def defaults(self) -> CallOptions:
        """Options used by calls that set none."""
        return self._defaults

    @property
    def closed(self) -> bool:
        """Whether the client was closed and refuses calls."""
        return self._closed

    # Jobs.

    def job(self, id_: str) -> Job:
        """Return a job by its id, a prefix of the id, or `last`."""
        with self._connected() as client:
            return Job(self._connected, client.get(id_, tasks_max=1).id)

    def jobs(self, *, active_only: bool = False) -> list[Job]:
        """Return the jobs that the node knows, newest last."""
        with self._connected() as client:
            found = client.jobs(active_only=active_only).jobs
        return [Job(self._connected, each.id) for each in found]

    def _submit_job(
        self, work: str | Path | Mapping[str, Any] | JobSpec, *, detached: bool
    ) -> Job:
        document = spec_fields(work)
        with self._connected() as client:
            text = json.dumps(document)
            if "workdir" in text or "python" in text:
                from shoal.api.client.shipping import ship_all  # noqa: PLC0415 - Slow.

                ship_all(client, document)
            text = json.dumps(document)
            request = SubmitRequest(job_id=new_job_id(), json=text, detached=detached)
            return Job(self._connected, client.submit(request).job.id)

    # For people.

    def __repr__(self) -> str:
        """Show the node, the interpreters and the open calls."""
        pools = set(self._pools.values())
        calls = sum(pool.out + len(pool.waiting) for pool in pools)
        here = "the shoal of this task" if self._in_task else "the node of this machine"
        where = self._node or here
        state = ", closed" if self._closed else ""
        return f"<Client of {where}: {self.lanes} interpreters, {calls} calls{state}>"

    def _repr_html_(self) -> str:
        """Show the nodes of the shoal as a table in a notebook."""
        try:
            with self._connected() as client:
                nodes = client.nodes().nodes
        except ShoalError as error:
            return table(repr(self), [(error,)])
        rows = [
            (
                node.name.petname,
                f"{node.free.cpu_milli / 1_000:g} of {node.total.cpu_milli / 1_000:g}",
                f"{node.free.gpu_milli / 1_000:g} of {node.total.gpu_milli / 1_000:g}",
                node.path,
            )
            for node in nodes
        ]
        return table(repr(self), rows, ("node", "CPUs free", "GPUs free", "path"))

    # Closing.

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until every call has a result; return False on timeout."""
        return self._stream.wait(timeout)

    def close(self, *, wait: bool = True) -> None:
        """End the interpreters, after waiting for all calls if `wait` is true."""
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
        """Close the client; wait for all calls unless the block raised."""
        self.close(wait=error is None)

    def __reduce__(self) -> str:
        """Refuse to be pickled: connections cannot be copied."""
        raise TypeError("a Client cannot be pickled: make one where it is needed")

    def _wire(self) -> Wire:
        if self._in_task:
            return StreamWire(self._connected().calls_stream())
        if self._node is not None:
            return GrpcWire(self._connected())
        found = node_file.required(self._home)
        return SocketWire(calls_socket(found.socket))

    def _connected(self) -> api.Client:
        return api.connect(self._node, self._home)


def start_node(home: Home) -> None:
    """Start a node in the background and wait until it is ready."""
    done = subprocess.run(
        [sys.executable, "-m", "shoal.cli", "up", "--background", "--quiet"],
        check=False,
        capture_output=True,
        text=True,
        timeout=START_TIMEOUT_S,
        env={**os.environ, "SHOAL_HOME": str(home.path)},
    )
    if done.returncode and node_file.running(home) is None:
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
            client.close()  # Waits, as executors of the standard library do.
