"""`shoal nodes`: list this node and the workers it knows."""

from __future__ import annotations

import click

from shoal.api.client import client as api
from shoal.api.documents import node_fields
from shoal.api.shoal_pb2 import Node
from shoal.cli.display.printing import echo_json, echo_table, gib, gpus_text, short_id
from shoal.cli.options import json_option, node_option, quiet_option, talk
from shoal.cli.terminal import echo

HEADINGS = ("NODE", "ID", "PATH", "CPU", "MEMORY", "GPU", "TASKS", "STATE")


@click.command()
@node_option
@json_option
@quiet_option
def nodes(node: str | None, as_json: bool, quiet: bool) -> None:
    """List this node and the workers it knows.

    CPU, memory and GPUs are shown as used/total, as in `shoal top`.
    """
    with api.connect(node) as client:
        reply = client.nodes()
    found = reply.nodes
    if as_json:
        echo_json({"nodes": [node_fields(each) for each in found]})
        return
    if quiet:
        for each in found:
            echo(each.name.id)
        return
    echo_table(HEADINGS, [row(each) for each in found])
    for warning in reply.warnings:
        talk(f"warning: {warning}")
    for each in found:
        if _is_closed(each):
            talk(f"{each.name.petname}: {each.terms}", quiet=False)


def path_text(node: Node) -> str:
    """Format the path to a node and its round-trip time."""
    if node.self:
        return "self"
    rtt = f" {node.rtt_us / 1000:.1f} ms" if node.path and node.rtt_us else ""
    return f"{node.path or '-'}{rtt}"


def row(node: Node) -> tuple[str, ...]:
    """Return a table row for a node, under `HEADINGS`."""
    state = "draining" if node.draining else "up"
    if _is_closed(node):
        state += ", own tasks only" if node.self else ", not for you"
    if node.HasField("standing"):
        state += f", {node.standing.text}"
    ident = (node.name.petname, short_id(node.name.id), path_text(node))
    if not node.worker:
        state = "lends nothing" if node.self else "linked"
        return (*ident, "-", "-", "-", "-", state)
    free, total = node.free, node.total
    cpu_milli = total.cpu_milli - free.cpu_milli
    memory_bytes = total.memory_bytes - free.memory_bytes
    return (
        *ident,
        f"{cpu_milli / 1000:g}/{total.cpu_milli / 1000:g}",
        f"{memory_bytes / (1 << 30):.3g}/{gib(total.memory_bytes)}",
        _gpus(node),
        str(node.active),
        state,
    )


def _is_closed(node: Node) -> bool:
    """Whether a node does not lend to others, or not to this one."""
    return bool(node.terms) and (node.self or not node.drivers)


def _gpus(node: Node) -> str:
    kinds, count = gpus_text(node.devices), len(node.devices)
    used = count - node.free.gpu_milli / 1_000
    return f"{used:g}/{count} {kinds}" if count else kinds
