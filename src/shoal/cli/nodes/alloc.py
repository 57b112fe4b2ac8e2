"""`shoal alloc`: let a cluster's own scheduler lend workers while jobs wait."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from shoal.api.client import client as api
from shoal.api.documents import fields_of
from shoal.cli.display.printing import echo_json
from shoal.cli.options import json_option, node_option, quiet_option, suggest, talk
from shoal.cli.terminal import echo
from shoal.errors import ShoalError

if TYPE_CHECKING:
    from collections.abc import Callable

    from shoal.api import shoal_pb2 as pb


@click.group()
def alloc() -> None:
    """Let a cluster lend workers to this node while jobs wait that nobody can run.

    The node submits jobs to the cluster in your name. Each is a worker that joins the
    shoal, runs tasks of yours only, and leaves when it is idle or its time is over.
    """


def _terms(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that say what may be asked for."""
    for option in reversed(
        [
            click.argument("engine", metavar="ENGINE"),
            click.argument("arguments", nargs=-1, metavar="[-- OPTIONS...]"),
            click.option("--name", default="", help="Its name, if not the engine's."),
            click.option(
                "--time-limit",
                default="1h",
                show_default=True,
                help="How long one worker lives.",
            ),
            click.option(
                "--max",
                "most",
                type=click.IntRange(min=1),
                default=1,
                show_default=True,
                help="Most workers at one time.",
            ),
            click.option(
                "--backlog",
                type=click.IntRange(min=1),
                default=1,
                show_default=True,
                help="Most of these that wait in the queue or start.",
            ),
            click.option(
                "--idle",
                default="5m",
                show_default=True,
                help="A worker without tasks leaves after this.",
            ),
            click.option(
                "--shoal",
                default="",
                metavar="COMMAND",
                help="How to call shoal on the cluster's machines, if not as here.",
            ),
        ]
    ):
        command = option(command)
    return command


def _fields(given: dict[str, Any]) -> dict[str, Any]:
    from shoal.model.units import parse_duration  # noqa: PLC0415 - Slow to import.

    return {
        "engine": given["engine"],
        "arguments": given["arguments"],
        "name": given["name"],
        "time_limit_s": parse_duration(given["time_limit"]),
        "idle_s": parse_duration(given["idle"]),
        "max": given["most"],
        "backlog": given["backlog"],
        "shoal": given["shoal"],
    }


@alloc.command("add")
@_terms
@node_option
@json_option
@quiet_option
def add(node: str | None, as_json: bool, quiet: bool, **given: Any) -> None:  # noqa: ANN401
    """Let ENGINE (slurm) lend workers; OPTIONS go to it as they are.

    Example: shoal alloc add slurm --time-limit 1h --max 8 --idle 5m -- -p gpu
    """
    with api.connect(node) as client:
        reply = client.allocations("add", **_fields(given))
    [made] = reply.allocations
    if as_json:
        echo_json({**_document(made), "refused": reply.refused})
    if reply.refused:
        raise _paused(made.name, reply.refused)
    if as_json:
        return
    talk(f"{made.name}: {made.engine} lends up to {made.max} workers", quiet=quiet)
    if reply.only_here:
        talk("note: workers on other machines cannot join, because the", quiet=quiet)
        talk("      node listens on loopback; shoal up --listen opens it", quiet=quiet)
    suggest("shoal alloc list", f"shoal alloc log {made.name}", quiet=quiet)


@alloc.command("dry-run")
@_terms
@node_option
@json_option
def dry_run(node: str | None, as_json: bool, **given: Any) -> None:  # noqa: ANN401
    """Show what would be submitted, and ask ENGINE if it would take that."""
    with api.connect(node) as client:
        reply = client.allocations("dry-run", **_fields(given))
    if as_json:
        document = {"command": reply.command, "script": reply.script}
        echo_json({**document, "refused": reply.refused})
    else:
        echo(f"{reply.command} <<'SCRIPT'\n{reply.script}SCRIPT")
    if reply.refused:
        raise ShoalError(
            f"{given['engine']} would not take it",
            because=reply.refused,
            hint="mend the options after `--`, and try again",
        )
    talk(f"{given['engine']} would take it; nothing was submitted", quiet=as_json)


@alloc.command("list")
@node_option
@json_option
def list_allocations(node: str | None, as_json: bool) -> None:
    """List what may be asked of clusters, and what was."""
    with api.connect(node) as client:
        found = client.allocations("list").allocations
    if as_json:
        echo_json({"allocations": [_document(each) for each in found]})
        return
    if not found:
        talk("no cluster lends workers to this node")
        suggest("shoal alloc add slurm -- -p PARTITION")
        return
    echo(f"{'NAME':<16} {'ENGINE':<10} {'STATE':<8} {'WORKERS':<9} {'WAITING':<8} WHY")
    for each in found:
        joined = sum(pilot.state == "joined" for pilot in each.pilots)
        workers = f"{joined}/{each.max}"
        waiting = len(each.pilots) - joined
        row = f"{each.name:<16} {each.engine:<10} {each.state:<8} {workers:<9}"
        echo(f"{row} {waiting:<8} {each.paused}".rstrip())


@alloc.command("log")
@click.argument("name")
@node_option
@json_option
def log(name: str, node: str | None, as_json: bool) -> None:
    """Show what was asked of a cluster of late, and what came of it."""
    with api.connect(node) as client:
        [found] = client.allocations("list", name=name).allocations
    if as_json:
        echo_json({"log": _document(found)["log"]})
        return
    for note in found.log:
        at = datetime.fromtimestamp(note.at).astimezone()
        echo(f"{at:%Y-%m-%d %H:%M:%S}  {note.text}")


def _change(verb: str, done: str) -> click.Command:
    @click.argument("name")
    @node_option
    @json_option
    @quiet_option
    def change(name: str, node: str | None, as_json: bool, quiet: bool) -> None:
        with api.connect(node) as client:
            reply = client.allocations(verb, name=name)
        if as_json:
            echo_json({"name": name, "refused": reply.refused})
        if reply.refused:
            raise _paused(name, reply.refused)
        talk(f"{name} {done}", quiet=quiet or as_json)
        if not as_json:
            suggest("shoal alloc list", quiet=quiet)

    change.__doc__ = {
        "pause": "Submit no more workers; those that are there go on.",
        "resume": "Ask the cluster again, after a pause.",
        "remove": "Cancel all its workers, and forget the allocation NAME.",
    }[verb]
    return alloc.command(verb)(change)


pause = _change("pause", "is paused")
resume = _change("resume", "goes on")
remove = _change("remove", "is removed; its workers end")


def _paused(name: str, refused: str) -> ShoalError:
    return ShoalError(
        f"the allocation '{name}' is paused",
        because=refused,
        hint=f"`shoal alloc remove {name}`, and add it with other options; "
        f"or `shoal alloc resume {name}` once it may work",
    )


def _document(view: pb.AllocationView) -> dict[str, Any]:
    document = fields_of(view)
    for key in ("arguments", "pilots", "log"):
        document.setdefault(key, [])
    return document
