"""`@shoal.task`: a function that knows what it needs when it runs in the shoal."""

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
from shoal.client.options import ClientOptions, Options

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from shoal.client.futures import Future

P = ParamSpec("P")
T = TypeVar("T")

_lock = threading.Lock()
_default: list[Client] = []


def default_client() -> Client:
    """Return the client of tasks that name none; it is made when first needed."""
    with _lock:
        if not _default or _default[0].closed:
            _default[:] = [Client()]
        return _default[0]


@final
class Task(Generic[P, T]):
    """A function that can be called here, or submitted with what it needs.

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
        Options.made(**options)  # Raises if one is wrong.
        self._function = function
        self._options = options
        self._client = client
        functools.update_wrapper(self, function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call the function in this process, like any other."""
        return self._function(*args, **kwargs)

    def submit(self, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Call the function in the shoal."""
        client = self._client or default_client()
        options = client.defaults.changed(**self._options)
        return client.call_with(options, self._function, args, kwargs)

    remote = submit
    """The same, for those who know it by this name."""

    def map(
        self, *iterables: Iterable[Any], chunksize: int | None = None
    ) -> Iterator[T]:
        """Call the function for each element; return the results in order."""
        client = self._client or default_client()
        executor = client.executor(**self._options)
        return executor.map(self._function, *iterables, chunksize=chunksize)

    def on(self, client: Client) -> Task[P, T]:
        """Return the same task, submitted by this client."""
        return Task(self._function, self._options, client)

    def with_options(self, **options: Unpack[ClientOptions]) -> Task[P, T]:
        """Return the same function, with other needs."""
        both: ClientOptions = {**self._options, **options}
        return Task(self._function, both, self._client)

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel without the client: inside a task the function is just called."""
        return (Task, (self._function, self._options))


@overload
def task(function: Callable[P, T], /) -> Task[P, T]: ...


@overload
def task(
    **options: Unpack[ClientOptions],
) -> Callable[[Callable[P, T]], Task[P, T]]: ...


def task(function: Any = None, /, **options: Unpack[ClientOptions]) -> Any:
    """Make a function a task; options are those of `shoal.Client`.

    `cpu`, `gpu` and `ram` are what it needs, in the words of a job spec; `retries` is
    how often it is run again if its interpreter is lost; `lanes` and `idle_s` are how
    many interpreters it gets at most, and how long they stay without work.
    """
    if function is not None:
        return Task(function, options)

    def wrap(wrapped: Callable[P, T]) -> Task[P, T]:
        return Task(wrapped, options)

    return wrap
