"""Pool the machines people have and run training, inference and batch jobs on them.

The packages form layers; CONTRIBUTING.md lists them. Importing `shoal` alone loads
nothing else, so that every command starts at once.
"""

__version__ = "0.1.0"

TYPE_CHECKING = False  # Importing `typing` for this would cost more than all the rest.
if TYPE_CHECKING:
    from shoal.asking import checkpoint as checkpoint
    from shoal.asking import get as get
    from shoal.asking import put as put
    from shoal.client.aio import AsyncClient as AsyncClient
    from shoal.client.client import Client as Client
    from shoal.client.executor import Executor as Executor
    from shoal.client.futures import Future as Future
    from shoal.client.jobs import Job as Job
    from shoal.client.tasks import task as task
    from shoal.reporting import log as log

_LAZY = {
    "AsyncClient": "shoal.client.aio",
    "Client": "shoal.client.client",
    "Executor": "shoal.client.executor",
    "Future": "shoal.client.futures",
    "Job": "shoal.client.jobs",
    "task": "shoal.client.tasks",
    "checkpoint": "shoal.asking",
    "get": "shoal.asking",
    "log": "shoal.reporting",
    "put": "shoal.asking",
}


def __getattr__(name: str) -> object:
    """Load what `shoal` offers when it is first asked for."""
    if name not in _LAZY:
        raise AttributeError(f"module 'shoal' has no attribute '{name}'")
    from importlib import import_module  # noqa: PLC0415 - Only here it is needed.

    return getattr(import_module(_LAZY[name]), name)
