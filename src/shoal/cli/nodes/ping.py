"""`shoal ping`: measure round-trip times over the links that carry jobs."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any, Final, final

import click

from shoal.api.client import client as api
from shoal.api.documents import name_fields
from shoal.api.node_names import nodes_called
from shoal.cli.display.printing import echo_json, echo_table
from shoal.cli.exit_codes import ExitCode
from shoal.cli.job_input.completion_types import NODE
from shoal.cli.options import json_option, node_option, quiet_option, suggest, talk
from shoal.errors import NotFoundError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from shoal.api.shoal_pb2 import Node, NodeName, PingReply

PAUSE_S: Final = 0.2
HEADINGS: Final = ("NODE", "PATH", "SENT", "LOST", "LEAST", "MEAN", "MOST")


@click.command()
@click.argument("names", nargs=-1, type=NODE, metavar="[NODE]...")
@click.option(
    "-c",
    "--count",
    type=click.IntRange(min=1),
    default=3,
    show_default=True,
    help="Number of pings per node.",
)
@click.option(
    "--timeout", default="5s", show_default=True, help="Time to wait for each answer."
)
@node_option
@json_option
@quiet_option
def ping(
    names: tuple[str, ...],
    count: int,
    timeout: str,
    node: str | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Measure round-trip times to NODEs, by id or name; by default to all known nodes.

    Pings use the link that also carries jobs, and open one if there is none. Exits
    with 105 if a node did not answer at all.
    """
    from shoal.model.units import parse_duration  # noqa: PLC0415 - Slow to import.

    timeout_s = parse_duration(timeout)
    with api.connect(node) as client:
        known = client.nodes().nodes
        asked = [PingTarget(each) for each in chosen(known, names)]
        for turn in range(count):
            for each in asked:
                reply = client.ping(each.name.id, timeout_s)
                each.note(reply)
                if not as_json:
                    talk(_line(reply), quiet=quiet)
            if turn + 1 < count and asked:
                time.sleep(PAUSE_S)
    if as_json:
        echo_json({"nodes": [each.fields() for each in asked]})
    elif asked:
        echo_table(HEADINGS, [each.row() for each in asked])
    else:
        talk("there is no other node", quiet=quiet)
        suggest("shoal invite", quiet=quiet)
    if any(not each.rtts_s for each in asked):
        sys.exit(ExitCode.UNREACHABLE)


@final
class PingTarget:
    """One node and its answers."""

    def __init__(self, name: NodeName) -> None:
        self.name = name
        self.rtts_s: list[float] = []
        self._sent = 0
        self._path = ""
        self._trouble = ""

    def note(self, reply: PingReply) -> None:
        """Add an answer, or its absence."""
        self._sent += 1
        self._path, self._trouble = reply.path or self._path, reply.trouble
        if reply.HasField("rtt_s"):
            self.rtts_s.append(reply.rtt_s)

    def row(self) -> tuple[str, ...]:
        """Return a table row, under `HEADINGS`."""
        lost = f"{self._sent - len(self.rtts_s)}"
        figures = ("-", "-", "-")
        if self.rtts_s:
            mean_s = sum(self.rtts_s) / len(self.rtts_s)
            all_s = (min(self.rtts_s), mean_s, max(self.rtts_s))
            figures = (_ms(all_s[0]), _ms(all_s[1]), _ms(all_s[2]))
        return (self.name.petname, self._path or "-", str(self._sent), lost, *figures)

    def fields(self) -> dict[str, Any]:
        """Return the fields for JSON."""
        return {
            "node": name_fields(self.name),
            "path": self._path,
            "sent": self._sent,
            "lost": self._sent - len(self.rtts_s),
            "rtts_s": self.rtts_s,
            "trouble": self._trouble,
        }


def chosen(known: Iterable[Node], names: Sequence[str]) -> list[NodeName]:
    """Return the named nodes, or all others if none is named."""
    if not names:
        return [node.name for node in known if not node.self]
    return list({(name := _found(known, each)).id: name for each in names}.values())


def _found(known: Iterable[Node], text: str) -> NodeName:
    names = {node.name.id: node.name for node in known}
    petnames = {id_: name.petname for id_, name in names.items()}
    found = [names[id_] for id_ in nodes_called(text, petnames)]
    if len(found) > 1:
        raise UsageError(
            f"'{text}' matches {len(found)} nodes",
            because=f"{found[0].petname} and {found[1].petname} are among them",
            hint="use a name from `shoal nodes`, or more of its id",
        )
    if not found:
        raise NotFoundError(
            f"there is no node '{text}'",
            because="no known node has a name or an id that begins so",
            hint="`shoal nodes` lists the known nodes",
        )
    return found[0]


def _line(reply: PingReply) -> str:
    if reply.HasField("rtt_s"):
        return f"{reply.node.petname}  {reply.path}  {_ms(reply.rtt_s)}"
    why = f": {reply.trouble}" if reply.trouble else ""
    return f"{reply.node.petname}  no answer{why}"


def _ms(duration_s: float) -> str:
    return f"{duration_s * 1e3:.2f} ms"
