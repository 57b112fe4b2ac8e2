"""A scheduler for Dask's collections: `dask.compute(..., scheduler=shoal.dask.get)`.

Tasks of the graph run as calls in the shoal, and their results come back to the
client, which hands them on: it is Dask's scheduler for processes with other processes.
Workers need Dask, and what the tasks import. Options of `shoal.Client`, and `client`,
go to `dask.compute` as well.
"""

# Dask has no types, and need not be installed.
# pyright: reportMissingImports=false, reportMissingTypeStubs=false
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dask import multiprocessing

from shoal.client.options import CallOptions
from shoal.client.tasks import default_client

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shoal.client.client import Client
    from shoal.client.executor import Executor


class _Pool:
    """An executor as Dask wants it."""

    def __init__(self, executor: Executor, slots: int) -> None:
        self.submit = executor.submit
        self._max_workers = slots


def get(
    dsk: Mapping[Any, Any],
    keys: Any,  # noqa: ANN401 - One key, or nested lists of them.
    client: Client | None = None,
    num_workers: int | None = None,
    **options: Any,  # noqa: ANN401 - Of a client, and of Dask.
) -> Any:  # noqa: ANN401 - What the keys stand for.
    """Return the values of keys of a graph, computed in the shoal."""
    shoal = client or default_client()
    own = {k: options.pop(k) for k in list(options) if k in CallOptions.NAMES}
    pool = _Pool(shoal.executor(**own), num_workers or shoal.slots)
    options.setdefault("chunksize", 1)  # A task is often long.
    return multiprocessing.get(dsk, keys, pool=pool, **options)
