"""Pool machines and run training and batch jobs on them, without a central server.

The packages form layers; docs/architecture.md lists them. Importing `shoal` alone loads
nothing else, so that every command starts fast.
"""

__version__ = "0.1.0"

TYPE_CHECKING = False  # Importing `typing` for this would cost more than all the rest.
if TYPE_CHECKING:
    from shoal.client.aio import AsyncClient as AsyncClient
    from shoal.client.client import Client as Client
    from shoal.client.executor import Executor as Executor
    from shoal.client.futures import Future as Future
    from shoal.client.jobs import Job as Job
    from shoal.client.tasks import task as task
    from shoal.task_client import checkpoint as checkpoint
    from shoal.task_client import get as get
    from shoal.task_client import put as put
    from shoal.task_metrics import log as log

_LAZY = {
    "AsyncClient": "shoal.client.aio",
    "Client": "shoal.client.client",
    "Executor": "shoal.client.executor",
    "Future": "shoal.client.futures",
    "Job": "shoal.client.jobs",
    "task": "shoal.client.tasks",
    "checkpoint": "shoal.task_client",
    "get": "shoal.task_client",
    "log": "shoal.task_metrics",
    "put": "shoal.task_client",
}


def __dir__() -> list[str]:
    """List public names, imported or not."""
    own = (name for name in globals() if name.startswith("__"))
    return sorted({*own, *_LAZY})


def __getattr__(name: str) -> object:
    """Import public names on first use."""
    if name not in _LAZY:
        raise AttributeError(f"module 'shoal' has no attribute '{name}'")
    from importlib import import_module  # noqa: PLC0415 - Only here it is needed.

    if _LAZY[name].startswith("shoal.client") and (lacking := _lacking()):
        raise ImportError(
            f"shoal.{name} needs packages that this Python environment does not have; "
            f"add them to those of the job: {lacking}"
        )
    return getattr(import_module(_LAZY[name]), name)


_CLIENT_NEEDS = {
    "cloudpickle": "cloudpickle",
    "google.protobuf": "protobuf>=6.33.5,<7",
    "msgspec": "msgspec",
    "pathspec": "pathspec",
}
"""Modules that a client in a task loads, and the packages that have them.

A worker gives each task shoal itself, but a Python environment that was made for the
task has the packages that its job names and no others.
"""


def _lacking() -> str:
    """Return the packages that a client needs and this Python has not."""
    from importlib.util import find_spec  # noqa: PLC0415

    def is_there(module: str) -> bool:
        try:
            return find_spec(module) is not None
        except ModuleNotFoundError:  # Of `google.protobuf`, not even `google` is.
            return False

    return ", ".join(
        f"'{package}'"
        for module, package in _CLIENT_NEEDS.items()
        if not is_there(module)
    )
