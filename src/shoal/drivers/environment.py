"""Build the environment variables of a task; none come from the node's own."""

from __future__ import annotations

import json
import zlib
from typing import TYPE_CHECKING, Final

from shoal.drivers.supervisor.leftovers import ATTEMPT_VARIABLE, VARIABLE

if TYPE_CHECKING:
    from shoal.drivers import RunOrder

PATH_DEFAULT: Final = "/usr/local/bin:/usr/bin:/bin"
PORT_FIRST: Final = 20_000
PORTS: Final = 12_000
"""Gang ports stay below 32,768, where the kernel's ephemeral ports begin."""

SOCKET: Final = "SHOAL_SOCKET"
CHECKPOINT: Final = "SHOAL_CHECKPOINT"
HERE: Final = "127.0.0.1"


def variables(
    order: RunOrder,
    *,
    mark: str,
    home: str,
    socket: str,
    path: str = PATH_DEFAULT,
    renumbered: bool = False,
) -> dict[str, str]:
    """Return all variables of a task; ours override those of the job.

    Set `renumbered` if the task can open only its own devices, which CUDA then
    numbers from 0.
    """
    task = order.task
    return {
        "PATH": path,
        "HOME": home,
        "LANG": "C.UTF-8",
        "OMP_NUM_THREADS": str(max(1, order.allocation.cpu_milli // 1_000)),
        **task.work.env,
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
        **_places(order),
        **_devices(order, renumbered=renumbered),
    }


def gang_port(group: str) -> int:
    """Return the port where rank 0 of a gang listens, the same for all members."""
    return PORT_FIRST + zlib.crc32(group.encode()) % PORTS


def _places(order: RunOrder) -> dict[str, str]:
    """Return the variables that give a task its rank in its gang."""
    addresses = order.addresses or (HERE,)
    rank = order.task.index if order.addresses else 0
    world = len(addresses)
    return {
        "NODE_RANK": str(rank),
        "NUM_NODES": str(world),
        "NODE_IPS": "\n".join(addresses),
        "GPUS_PER_NODE": str(len(order.allocation.shares)),
        "MASTER_ADDR": addresses[0],
        "MASTER_PORT": str(gang_port(order.task.group)),
        "RANK": str(rank),
        "WORLD_SIZE": str(world),
    }


def _devices(order: RunOrder, *, renumbered: bool) -> dict[str, str]:
    ids = [share.device for share in order.allocation.shares]
    seen = [str(number) for number in range(len(ids))] if renumbered else ids
    return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": ",".join(seen)}
