"""Build the environment variables of a task; none come from the node's own."""

from __future__ import annotations

import json
import zlib
from typing import TYPE_CHECKING, Final

from shoal.drivers.supervisor.leftovers import ATTEMPT_VARIABLE, VARIABLE
from shoal.interfaces import address_towards, is_loopback, transport_variables

if TYPE_CHECKING:
    from shoal.drivers import RunOrder

AMD: Final = "amd"  # how the ids of AMD's GPUs begin
PATH_DEFAULT: Final = "/usr/local/bin:/usr/bin:/bin"
PORT_FIRST: Final = 20_000
PORTS: Final = 12_000
"""Gang ports stay below 32,768, where the kernel's ephemeral ports begin."""

TERMINAL_TYPE: Final = "xterm-256color"
SOCKET: Final = "SHOAL_SOCKET"
MODULES: Final = "PYTHONPATH"
CHECKPOINT: Final = "SHOAL_CHECKPOINT"
HERE: Final = "127.0.0.1"
TORCHRUN: Final = {
    "PET_NNODES": "NUM_NODES",
    "PET_NODE_RANK": "NODE_RANK",
    "PET_MASTER_ADDR": "MASTER_ADDR",
    "PET_MASTER_PORT": "MASTER_PORT",
}
"""The variables of torchrun's flags, and ours that have the same values."""

USER: Final = "shoal"
"""What tasks are told they run as: the uid of a sandbox has no name to look up."""


def variables(
    order: RunOrder,
    *,
    mark: str,
    home: str,
    socket: str,
    path: str = PATH_DEFAULT,
    renumbered: bool = False,
    mounted: bool = False,
) -> dict[str, str]:
    """Return all variables of a task.

    Those of the job override defaults: who they are, how torch starts and connects.
    Ours override those of the job: what the task was given, and its place.

    Set `renumbered` if the task can open only its own devices, which CUDA then
    numbers from 0, and `mounted` if it sees its mounts at their places.
    """
    task, places = order.task, _places(order)
    return {
        "PATH": search_path(order, path, mounted=mounted),
        "HOME": home,
        "USER": USER,
        "LOGNAME": USER,
        "LANG": "C.UTF-8",
        "OMP_NUM_THREADS": str(max(1, order.allocation.cpu_milli // 1_000)),
        **_launch(order, places),
        **_transports(order),
        **{
            each.variable: each.seen_at(mounted=mounted)
            for each in order.mounts
            if each.variable
        },
        **({"TERM": TERMINAL_TYPE} if task.work.stdin == "terminal" else {}),
        **task.work.env,
        **_modules(order, mounted=mounted),
        **{name: order.secrets[name] for name in task.work.secrets},
        **({"SHOAL_PARAMS": json.dumps(task.params)} if task.params else {}),
        **({"SHOAL_RECIPE": task.work.recipe} if task.work.recipe else {}),
        "SHOAL_JOB_ID": task.job,
        "SHOAL_TASK_ID": task.id,
        "SHOAL_TASK_INDEX": str(task.index),
        "SHOAL_WORKDIR": home,
        **({CHECKPOINT: f"{home}/{order.checkpoint}"} if order.checkpoint else {}),
        SOCKET: socket,
        ATTEMPT_VARIABLE: str(order.attempt),
        VARIABLE: mark,
        **places,
        **_devices(order, renumbered=renumbered),
    }


def search_path(order: RunOrder, path: str, *, mounted: bool) -> str:
    """Return where a task's programs are looked for: in its environment first."""
    own = [
        f"{each.seen_at(mounted=mounted)}/bin" for each in order.mounts if each.programs
    ]
    return ":".join((*own, path))


def _modules(order: RunOrder, *, mounted: bool) -> dict[str, str]:
    """Return where Python looks for modules, if the mounts bring any: there last."""
    places = [each.seen_at(mounted=mounted) for each in order.mounts if each.module]
    if not places:
        return {}
    own = order.task.work.env.get(MODULES, "")
    found = [own] if own else []
    return {MODULES: ":".join((*found, *(path.rpartition("/")[0] for path in places)))}


def _places(order: RunOrder) -> dict[str, str]:
    """Return the variables that give a task its rank in its gang.

    Rank 0 of a gang listens at one port for all members. Tasks that are no gang get
    different ones, as several may run on one machine.
    """
    addresses = order.addresses or (HERE,)
    rank = str(order.task.index if order.addresses else 0)
    listening = order.task.group if order.addresses else order.task.id
    return {
        "NODE_RANK": rank,
        "NUM_NODES": str(len(addresses)),
        "NODE_IPS": "\n".join(addresses),
        "GPUS_PER_NODE": str(len(order.allocation.shares)),
        "MASTER_ADDR": addresses[0],
        "MASTER_PORT": str(PORT_FIRST + zlib.crc32(listening.encode()) % PORTS),
        "RANK": rank,
        "WORLD_SIZE": str(len(addresses)),
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
    }


def _launch(order: RunOrder, places: dict[str, str]) -> dict[str, str]:
    """Return the defaults of torchrun's flags, so that a plain `torchrun` fits."""
    processes = str(max(1, len(order.allocation.shares)))
    flags = {flag: places[name] for flag, name in TORCHRUN.items()}
    return {**flags, "PET_NPROC_PER_NODE": processes}


def _transports(order: RunOrder) -> dict[str, str]:
    """Return which interface torch uses between the machines of a gang."""
    if len(order.addresses) < 2:
        return {}
    own, first = order.addresses[order.task.index], order.addresses[0]
    found = {} if not own or is_loopback(own) else transport_variables(own)
    # Otherwise it is told by others, or the address of a router.
    return found or transport_variables(address_towards(first))


def _devices(order: RunOrder, *, renumbered: bool) -> dict[str, str]:
    ids = [share.device for share in order.allocation.shares]
    amd = [id_.removeprefix(AMD) for id_ in ids if id_.startswith(AMD)]
    cuda = [id_ for id_ in ids if not id_.startswith(AMD)]
    found = {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": _numbers(cuda, renumbered=renumbered),
    }
    if amd:  # ROCm takes CUDA's variable, too, where its own is not set.
        found["HIP_VISIBLE_DEVICES"] = _numbers(amd, renumbered=renumbered)
    return found


def _numbers(ids: list[str], *, renumbered: bool) -> str:
    return ",".join(map(str, range(len(ids))) if renumbered else ids)
