"""`shoal nodes`: list this node and the workers it knows."""

from __future__ import annotations

from typing import NamedTuple

import click

from shoal.api.client import client as api
from shoal.api.documents import name_fields, node_fields
from shoal.api.shoal_pb2 import Node
from shoal.cli.display.printing import (
    age,
    echo_json,
    echo_table,
    gib,
    gpus_text,
    short_id,
)
from shoal.cli.options import json_option, node_option, quiet_option, talk
from shoal.cli.terminal import echo

HEADINGS = ("NODE", "ID", "PATH", "CPU", "MEMORY", "GPU", "TASKS", "STATE")
PLACE_HEADINGS = ("SITE", "LINK")
"""Added where there are several sites."""


@click.command()
@click.option("--forget", metavar="NODE", help="Take a node that is away off the list.")
@node_option
@json_option
@quiet_option
def nodes(node: str | None, forget: str | None, as_json: bool, quiet: bool) -> None:
    """List this node, the workers it knows, and nodes that are away.

    CPU, memory and GPUs are shown as lent/total, as in `shoal top`. A percentage is
    what the machine really uses, by whatever program; only your own nodes tell it.
    """
    with api.connect(node) as client:
        if forget:
            forgotten = client.forget(forget).node
            if as_json:
                echo_json({"forgotten": name_fields(forgotten)})
            else:
                talk(f"{forgotten.petname} is forgotten", quiet=quiet)
            return
        reply = client.nodes()
    found = reply.nodes
    if as_json:
        echo_json({"nodes": [node_fields(each) for each in found]})
        return
    if quiet:
        for each in found:
            if each.path or not each.away:
                echo(each.name.id)
        return
    if len({each.site for each in found if each.site}) > 1:
        rows = [_with_place(row(each), each) for each in found]
        echo_table((*HEADINGS, *PLACE_HEADINGS), rows)
    else:
        echo_table(HEADINGS, [row(each) for each in found])
    for warning in reply.warnings:
        talk(f"warning: {warning}")
    for each in found:
        if _is_closed(each):
            talk(f"{each.name.petname}: {each.lending or each.terms}", quiet=False)
        if each.taken:
            talk(f"{each.name.petname}: {each.taken}", quiet=False)


def path_text(node: Node) -> str:
    """Format the path to a node and its round-trip time."""
    if node.self:
        return "self"
    rtt = f" {node.rtt_us / 1000:.1f} ms" if node.path and node.rtt_us else ""
    return f"{node.path or '-'}{rtt}"


def _with_place(cells: tuple[str, ...], node: Node) -> tuple[str, ...]:
    """Add in which site a node is, and what the link to it carries."""
    return (*cells, node.site or "-", bits_text(node.bandwidth_bits_s))


def bits_text(bits_s: int) -> str:
    """Format a bandwidth."""
    if not bits_s:
        return "-"
    megabits = bits_s // 1_000_000
    return f"{megabits} Mbit/s" if megabits < 1_024 else f"{megabits >> 10} Gbit/s"


def row(node: Node) -> tuple[str, ...]:
    """Return a table row for a node, under `HEADINGS`."""
    state = "draining" if node.draining else "up"
    if _is_closed(node):
        state += ", own tasks only" if node.self else ", not for you"
    if node.HasField("standing"):
        state += f", {node.standing.text}"
    ident = (node.name.petname, short_id(node.name.id), path_text(node))
    if not node.worker:
        used = Shares.of(node)
        known = (used.cpu or "-", used.memory or "-", used.gpu or "-")
        return (*ident, *known, "-", idle_state(node))
    free, total = node.free, node.total
    cpu_milli = total.cpu_milli - free.cpu_milli
    memory_bytes = lent_memory(node)
    used = Shares.of(node)
    return (
        *ident,
        _both(f"{cpu_milli / 1000:g}/{total.cpu_milli / 1000:g}", used.cpu),
        _both(f"{memory_bytes / (1 << 30):.3g}/{gib(total.memory_bytes)}", used.memory),
        _both(_gpus(node), used.gpu),
        str(node.active),
        state,
    )


def idle_state(node: Node, *, brief: bool = False) -> str:
    """Say what a node is that lends nothing, as far as is known."""
    if node.away:
        since = f"away {age(node.away_since_s)}"
        return since if brief else f"{since}: {node.away}"
    return "lends nothing" if node.self else "linked"


def lent_memory(node: Node) -> int:
    """Return what tasks hold; what other programs take is neither lent nor free."""
    kept = node.free.memory_bytes + node.withheld.memory_bytes
    return max(0, node.total.memory_bytes - kept)


class Shares(NamedTuple):
    """Measured use of a machine, as shares; empty if it was not reported."""

    cpu: str = ""
    memory: str = ""
    gpu: str = ""

    @classmethod
    def of(cls, node: Node) -> Shares:
        """Return the shares that a node tells."""
        used, machine = node.used, node.machine
        busy = sum(device.busy_milli for device in used.devices)
        return cls(
            _share(used.cpu_milli, machine.cpu_milli),
            _share(used.memory_bytes, machine.memory_bytes),
            _share(busy, 1_000 * len(used.devices)),
        )


def _share(used: int, total: int) -> str:
    return f"{used / total:.0%}" if total > 0 else ""


def _both(lent: str, used: str) -> str:
    return f"{lent} {used}".rstrip()


def _is_closed(node: Node) -> bool:
    """Whether a node does not lend to others, or not to this one."""
    return bool(node.terms) and (node.self or not node.drivers)


def _gpus(node: Node) -> str:
    kinds, count = gpus_text(node.devices), len(node.devices)
    used = count - node.free.gpu_milli / 1_000
    return f"{used:g}/{count} {kinds}" if count else kinds
