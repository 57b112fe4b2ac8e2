"""A joblib backend: `import shoal.joblib`, then `joblib.parallel_config("shoal")`.

```python
import joblib
import shoal.joblib

with joblib.parallel_config("shoal"):
    joblib.Parallel()(joblib.delayed(f)(x) for x in xs)
```

Options of `shoal.Client` such as `cpu` and `gpu` go to `parallel_config` as well, and
`client` is the client to use. Calls travel without joblib's own classes, so workers
need joblib only if the functions do. Calls inside of calls run one after another.
"""

# joblib has no types.
# pyright: reportMissingTypeStubs=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportIncompatibleMethodOverride=false

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from joblib import register_parallel_backend
from joblib.parallel import ParallelBackendBase

from shoal.client.tasks import default_client

if TYPE_CHECKING:
    from collections.abc import Callable

    from shoal.client.client import Client
    from shoal.client.executor import Executor
    from shoal.client.futures import Future


class ShoalBackend(ParallelBackendBase):
    """Runs what joblib runs in parallel in the shoal."""

    supports_retrieve_callback = True
    default_n_jobs = -1

    def __init__(
        self,
        nesting_level: int | None = None,
        inner_max_num_threads: int | None = None,
        client: Client | None = None,
        **options: Any,  # noqa: ANN401 - Those of `ClientOptions`.
    ) -> None:
        super().__init__(nesting_level, inner_max_num_threads)
        self._client = client
        self._options = options
        self._executor: Executor | None = None
        self._open: set[Future[Any]] = set()

    def effective_n_jobs(self, n_jobs: int | None) -> int:
        """Return how many calls run at once: all CPUs of the shoal for -1."""
        if n_jobs == 0:
            raise ValueError("n_jobs == 0 in Parallel has no meaning")
        if n_jobs is None or n_jobs < 0:
            return self._shoal.slots
        return n_jobs

    def configure(
        self,
        n_jobs: int = 1,
        parallel: Any = None,  # noqa: ANN401 - joblib's own.
        **_: Any,  # noqa: ANN401
    ) -> int:
        """Begin to run calls for one `Parallel`; return how many run at once."""
        self.parallel = parallel
        self._executor = self._shoal.executor(**self._options)
        return self.effective_n_jobs(n_jobs)

    def submit(
        self,
        func: Any,  # noqa: ANN401 - joblib's own.
        callback: Callable[[object], None] | None = None,
    ) -> Future[Any]:
        """Run a batch of calls."""
        assert self._executor is not None
        future = self._executor.submit(_run, func.items)
        self._open.add(future)
        future.add_done_callback(self._open.discard)
        if callback is not None:
            future.add_done_callback(callback)
        return future

    def retrieve_result_callback(self, out: Future[Any]) -> Any:  # noqa: ANN401
        """Return the results of a batch, or raise what it raised."""
        return out.result()

    def abort_everything(self, ensure_ready: bool = True) -> None:
        """Stop all calls: one has failed."""
        for future in list(self._open):
            future.stop()

    @property
    def _shoal(self) -> Client:
        return self._client or default_client()


def _run(items: list[tuple[Callable[..., Any], Any, Any]]) -> list[Any]:
    return [function(*args, **kwargs) for function, args, kwargs in items]


register_parallel_backend("shoal", ShoalBackend)
