"""The rows of `sinfo`: the nodes of the shoal that run tasks, in the words of Slurm."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from shoal.cli.slurm.batch import PARTITION
from shoal.model.resources import GIB

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from shoal.api.shoal_pb2 import Node

MIB: Final = GIB >> 10
_SHORT: Final = {
    "allocated": "alloc",
    "down": "down",
    "drained": "drain",
    "draining": "drng",
    "idle": "idle",
    "mixed": "mix",
}


class PoolRow(NamedTuple):
    """One line: nodes that are alike, or one node."""

    nodes: tuple[Node, ...]
    state: str


def state_of_node(node: Node) -> str:
    """Return what Slurm would call the state of a node."""
    if node.away_since_s:
        return "down"
    if node.draining:
        return "draining" if node.active else "drained"
    if not node.active:
        return "idle"
    return "mixed" if node.free.cpu_milli >= 1_000 else "allocated"


def rows_of(nodes: Iterable[Node], *, each: bool) -> list[PoolRow]:
    """Group workers by their state, or list each of them."""
    workers = [node for node in nodes if node.worker]
    if each:
        return [PoolRow((node,), state_of_node(node)) for node in workers]
    states = sorted({state_of_node(node) for node in workers})
    return [
        PoolRow(tuple(node for node in workers if state_of_node(node) == state), state)
        for state in states
    ]


def _least(row: PoolRow, amount: Callable[[Node], int]) -> str:
    """Write an amount as Slurm does where nodes differ: the least of it, and a plus."""
    values = [amount(node) for node in row.nodes]
    return f"{min(values)}{'+' if max(values) > min(values) else ''}"


def _cpus(row: PoolRow) -> str:
    total = sum(node.total.cpu_milli for node in row.nodes) // 1_000
    free = sum(node.free.cpu_milli for node in row.nodes) // 1_000
    if row.state in ("down", "drained"):
        return f"0/0/{total}/{total}"
    return f"{total - free}/{free}/0/{total}"


def _gpus(row: PoolRow) -> str:
    names = {
        f"gpu:{node.devices[0].model.replace(' ', '-') or 'gpu'}:{len(node.devices)}"
        for node in row.nodes
        if node.devices
    }
    return ",".join(sorted(names)) or "(null)"


FIELDS: Final[Mapping[str, tuple[str, Callable[[PoolRow], str]]]] = {
    "C": ("CPUS(A/I/O/T)", _cpus),
    "D": ("NODES", lambda row: str(len(row.nodes))),
    "G": ("GRES", _gpus),
    "N": ("NODELIST", lambda row: ",".join(n.name.petname for n in row.nodes)),
    "P": ("PARTITION", lambda _: f"{PARTITION}*"),
    "R": ("PARTITION", lambda _: PARTITION),
    "T": ("STATE", lambda row: row.state),
    "a": ("AVAIL", lambda _: "up"),
    "c": ("CPUS", lambda row: _least(row, lambda n: n.total.cpu_milli // 1_000)),
    "e": ("FREE_MEM", lambda row: _least(row, lambda n: n.free.memory_bytes // MIB)),
    "l": ("TIMELIMIT", lambda _: "infinite"),
    "m": ("MEMORY", lambda row: _least(row, lambda n: n.total.memory_bytes // MIB)),
    "n": ("HOSTNAMES", lambda row: ",".join(n.name.petname for n in row.nodes)),
    "t": ("STATE", lambda row: _SHORT[row.state]),
}
USUAL: Final = "%9P %5a %10l %6D %6t %N"
BY_NODE: Final = "%N %6D %9P %6t"
LONG: Final = "%9P %5a %10l %6D %11T %8c %10m %N"
