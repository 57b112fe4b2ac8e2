"""`@shoal.task`: functions that carry their own options for running in the shoal."""

from __future__ import annotations

import functools
import threading
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    ParamSpec,
    TypeVar,
    Unpack,
    final,
    overload,
)

from shoal.client.client import Client
from shoal.client.options import CallOptions, ClientOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from shoal.client.futures import Future

P = ParamSpec("P")
T = TypeVar("T")

_lock = threading.Lock()
_default: list[Client] = []


def default_client() -> Client:
    """Return the client of tasks without one; it is created on first use."""
    with _lock:
        if not _default or _default[0].closed:
            _default[:] = [Client()]
        return _default[0]


@final
class Task(Generic[P, T]):
    """A function to call locally, or to submit with its own options.

    ```python
    @shoal.task(gpu="24GB", retries=1)
    def train(lr: float) -> float: ...


    train(0.1)  # here and now
    train.submit(0.1).result()  # in the shoal
    ```
    """

    def __init__(
        self,
        function: Callable[P, T],
        options: ClientOptions,
        client: Client | None = None,
    ) -> None:
        CallOptions.made(**options)  # Raises if one is invalid.
        self._function = function
        self._options = options
        self._client = client
        functools.update_wrapper(self, function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call the function in this process."""
        return self._function(*args, **kwargs)

    def submit(self, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Call the function in the shoal."""
        client = self._client or default_client()
        options = client.defaults.changed(**self._options)
        return client.call_with(options, self._function, args, kwargs)

    remote = submit
    """An alias of `submit`, familiar from other libraries."""

    def map(
        self, *iterables: Iterable[Any], chunksize: int | None = None
    ) -> Iterator[T]:
        """Call the function for each element; return the results in order."""
        client = self._client or default_client()
        executor = client.executor(**self._options)
        return executor.map(self._function, *iterables, chunksize=chunksize)

    def on(self, client: Client) -> Task[P, T]:
        """Return the same task, bound to a client."""
        return Task(self._function, self._options, client)

    def with_options(self, **options: Unpack[ClientOptions]) -> Task[P, T]:
        """Return the same task with some options replaced."""
        both: ClientOptions = {**self._options, **options}
        return Task(self._function, both, self._client)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle without the client: inside the shoal, the function is just called."""
        return (Task, (self._function, self._options))


@overload
def task(function: Callable[P, T], /) -> Task[P, T]: ...


@overload
def task(
    **options: Unpack[ClientOptions],
) -> Callable[[Callable[P, T]], Task[P, T]]: ...


def task(function: Any = None, /, **options: Unpack[ClientOptions]) -> Any:
    """Turn a function into a task; options are those of `shoal.Client`.

    `cpu`, `gpu` and `ram` are its needs, written as in a job spec; `retries` is how
    often a call is rerun if its interpreter is lost; `lanes` is the maximum number of
    interpreters, and `idle_s` how long an idle one is kept.
    """
    if function is not None:
        return Task(function, options)

    def wrap(wrapped: Callable[P, T]) -> Task[P, T]:
        return Task(wrapped, options)

    return wrap
