"""`shoal up`: run a node here."""

from __future__ import annotations

import asyncio
import os
import sys
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, get_args

import click
from click.core import ParameterSource

from shoal.api import whereabouts
from shoal.api.client import client_of
from shoal.api.documents import node_fields
from shoal.cli import background
from shoal.cli.options import json_option, quiet_option, suggest, talk
from shoal.cli.printing import echo_json, info_lines
from shoal.cli.settings import default_of
from shoal.errors import ShoalError, UsageError
from shoal.model.kinds import Strangers, TaskNetwork, allowed
from shoal.runtime.home import Home

if TYPE_CHECKING:
    from collections.abc import Callable

    from shoal.api.daemon import Ready
    from shoal.api.shoal_pb2 import NodeInfo
    from shoal.api.whereabouts import Whereabouts
    from shoal.runtime.serve import Options


@click.command()
@click.option("--background", "detach", is_flag=True, help="Return when it is ready.")
@click.option("--no-worker", is_flag=True, help="Lend nothing of this machine.")
@click.option(
    "--listen",
    default=default_of("listen", ""),
    metavar="HOST:PORT",
    help="Where other nodes reach this one; else as the last time, or on loopback.",
)
@click.option(
    "--announce",
    multiple=True,
    metavar="HOST:PORT",
    help="Where others reach it instead, such as a router in front; may be repeated.",
)
@click.option(
    "--gate/--no-gate",
    default=None,
    help="Relay for members that cannot be dialled; else only who made the shoal does.",
)
@click.option(
    "--relay",
    default="",
    metavar="LIMITS",
    help="What a gate relays at most: members=256,circuits=32,bytes=4GB,time=12h.",
)
@click.option(
    "--without",
    multiple=True,
    metavar="WAY",
    help="Find others without gates, peers, gossip, dht, mdns, direct, or p2p at all.",
)
@click.option(
    "--lan/--no-lan",
    default=None,
    help="Join the shoal that is near, if somebody there says yes; else you are asked.",
)
@click.option(
    "--open-lan",
    is_flag=True,
    help="Let whoever is on the local network join as a worker, without being asked.",
)
@click.option(
    "--port",
    type=int,
    default=default_of("port"),
    help="Where clients reach it; 50051 if it is free.",
)
@click.option(
    "--api",
    default=default_of("api", ""),
    metavar="HOST:PORT",
    help="Where clients on other machines reach it, by TLS; else they do not.",
)
@click.option(
    "--metrics",
    default=default_of("metrics", ""),
    metavar="HOST:PORT",
    help="Serve /metrics for Prometheus there; off loopback by https, for the token.",
)
@click.option(
    "--web",
    default=default_of("web", ""),
    metavar="HOST:PORT",
    help="Where the page for browsers is; on loopback, port 7420 if it is free. Off "
    "loopback it is served by https only.",
)
@click.option("--no-web", is_flag=True, help="Serve no page.")
@click.option(
    "--policy", default=default_of("policy", ""), help="How workers are ranked."
)
@click.option(
    "--order", default="", help="Who is next, after priority and share: minnow, sjf."
)
@click.option("--gpus", help="Declare GPUs by id, such as 0,1; else they are detected.")
@click.option("--models", default="", help="The model of each declared GPU.")
@click.option("--memories", default="", help="The MB of each declared GPU.")
@click.option(
    "--label",
    "labels",
    multiple=True,
    default=default_of("labels", ()),
    metavar="NAME=VALUE",
    help="What jobs may ask for; leaf=NAME is the switch it hangs from.",
)
@click.option(
    "--sandbox/--no-sandbox", default=default_of("sandbox"), help="Confine tasks."
)
@click.option(
    "--allow",
    default=default_of("allow", ""),
    metavar="KINDS",
    help="What may run here, of command,image,recipe; all of them if nothing is set.",
)
@click.option(
    "--strangers",
    type=click.Choice(get_args(Strangers)),
    default=default_of("strangers"),
    help="Run tasks of other owners: not at all, only where tasks are confined (as it "
    "is without this option), where the kernel limits them too, or in any case.",
)
@click.option(
    "--task-network",
    type=click.Choice(get_args(TaskNetwork)),
    default=default_of("task_network"),
    help="What tasks of other owners reach if they ask: nothing, the internet without "
    "your own networks, or all.",
)
@click.option(
    "--functions/--no-functions",
    default=default_of("functions"),
    help="Run functions of Python programs.",
)
@click.option(
    "--containers/--no-containers",
    default=default_of("containers"),
    help="Run tasks in images, by docker or podman.",
)
@click.option(
    "--cache",
    default=default_of("cache", ""),
    help="Most that code and data may take: 20GB.",
)
@click.option(
    "--journal",
    type=click.Choice(["new", "old"]),
    help="If the journal is gone or older than it was: begin a new one, or go on.",
)
@click.option("--ready-fd", type=int, hidden=True)
@json_option
@quiet_option
def up(detach: bool, ready_fd: int | None, **given: Any) -> None:  # noqa: ANN401
    """Run a node: it lends this machine, and takes jobs.

    The first time, it makes a private shoal that consists of this machine only. Ctrl-C
    or `shoal down` ends it; jobs that have not ended go on the next time.
    """
    home = Home.default()
    as_json, quiet = bool(given.pop("as_json")), bool(given.pop("quiet"))
    if given.pop("no_web"):
        given["web"] = "off"
    if (found := whereabouts.running(home)) is not None:
        if not detach:
            raise _second(home, found)
        _say_running(found, "is running already", as_json=as_json, quiet=quiet)
        return
    if detach:
        _start_detached(home, given, as_json=as_json, quiet=quiet)
        return
    try:
        options, port = _options(given), given["port"]

        def ready(info: NodeInfo, port_was_taken: bool) -> None:
            _say_ready(info, port_was_taken, as_json=as_json, quiet=quiet)
            nonlocal ready_fd
            if ready_fd is not None:
                taken = port_was_taken
                background.report_ready(ready_fd, info, port_was_taken=taken)
                ready_fd = None  # It is closed, and its number may be another file's.
            else:
                suggest(*_uses(info), "Ctrl-C ends", quiet=quiet)

        _serve(home, options, port, ready, partial(talk, quiet=quiet))
    except ShoalError as error:
        if ready_fd is not None:
            background.report_failure(ready_fd, error)
        raise
    talk("the node has ended", quiet=quiet)


def _serve(
    home: Home,
    options: Options,
    port: int | None,
    ready: Ready,
    say: Callable[[str], None],
) -> None:
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # What matters is raised too.
    from shoal.api.daemon import Host, run_node  # noqa: PLC0415 - Slow to import.
    from shoal.net.loops import loop_factory  # noqa: PLC0415
    from shoal.web.listening import WebPage  # noqa: PLC0415

    host = Host(ready=ready, say=say, make_page=partial(WebPage, where=options.web))
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(run_node(home, options, port, host))


def _options(given: dict[str, Any]) -> Options:
    from shoal.model.units import parse_size  # noqa: PLC0415
    from shoal.runtime.listening import (  # noqa: PLC0415 - Slow to import.
        NetworkOptions,
        listen_address,
    )
    from shoal.runtime.network import finding_of  # noqa: PLC0415
    from shoal.runtime.relaying import relay_room  # noqa: PLC0415
    from shoal.runtime.serve import Options  # noqa: PLC0415 - Slow to import.

    web = given["web"].removeprefix("off")
    hosts = (given["listen"], given["api"], given["metrics"], web)
    for text in (*hosts, *given["announce"]):
        if text:
            listen_address(text)  # Raises if it is none.
    finding_of(given["without"])
    allowed(given["allow"])
    relay_room(given["relay"])
    declares = given["gpus"] is not None
    if not declares and (given["models"] or given["memories"]):
        raise UsageError(
            "--models and --memories without --gpus",
            because="they describe the GPUs that --gpus lists",
            hint="write it like --gpus 0,1 --models RTX3090,RTX3090",
        )
    _check_labels(given["labels"])
    return Options(
        worker=not given["no_worker"],
        policy=given["policy"],
        order=given["order"],
        network=NetworkOptions(
            listen=given["listen"],
            announce=given["announce"],
            gate=given["gate"],
            without=given["without"],
            lan=_lan(given["lan"]),
            open_lan=given["open_lan"],
            relay=given["relay"],
        ),
        metrics=given["metrics"],
        web=given["web"],
        api=given["api"],
        gpus=given["gpus"],
        models=given["models"],
        memories=given["memories"],
        labels=given["labels"],
        sandbox=given["sandbox"],
        allow=given["allow"],
        strangers=given["strangers"],
        task_network=given["task_network"],
        functions=given["functions"],
        containers=given["containers"],
        journal=given["journal"] or "",
        cache_bytes=parse_size(given["cache"]) if given["cache"] else 0,
    )


def _check_labels(labels: tuple[str, ...]) -> None:
    for text in labels:
        if not all(text.partition("=")):
            raise UsageError(
                f"'{text}' is not a label",
                because="a label is a name, an equals sign and a value",
                hint="write it like --label leaf=rack7",
            )


def _lan(wanted: bool | None) -> Literal["off", "ask", "join"]:
    """Look for a shoal only if somebody sits there to read what is found."""
    if wanted is None:
        return "ask" if sys.stderr.isatty() else "off"
    return "join" if wanted else "off"


def _second(home: Home, found: Whereabouts) -> ShoalError:
    return ShoalError(
        f"the node {found.petname} is running already",
        because=f"process {found.pid} has the home {home.path}",
        hint="`shoal down` ends it; another SHOAL_HOME is another node",
    )


def _say_running(found: Whereabouts, how: str, *, as_json: bool, quiet: bool) -> None:
    """Tell of a node that this command did not start, and what it did not get."""
    talk(f"the node {found.petname} {how} (process {found.pid})", quiet=quiet)
    if flags := _flags():
        talk(f"note: {flags} did not reach it, but would from its start", quiet=quiet)
        suggest("shoal down", "the same command again", quiet=quiet)
    if as_json:
        with client_of(found) as client:
            _say_ready(client.info(), False, as_json=True, quiet=quiet)


def _flags() -> str:
    """Name the flags of this command line that say how a node should be."""
    context = click.get_current_context()
    told = ("detach", "as_json", "quiet")
    return ", ".join(
        param.opts[-1]
        for param in context.command.params
        if param.name not in told
        and context.get_parameter_source(param.name) is ParameterSource.COMMANDLINE
    )


def _start_detached(
    home: Home, given: dict[str, Any], *, as_json: bool, quiet: bool
) -> None:
    started = background.start(home, _arguments(given))
    if started is None:
        found, how = whereabouts.required(home), "was started by another command"
        _say_running(found, how, as_json=as_json, quiet=quiet)
        return
    _say_ready(started.info, started.port_was_taken, as_json=as_json, quiet=quiet)
    suggest(*_uses(started.info), "shoal down", quiet=quiet)


def _uses(info: NodeInfo) -> tuple[str, ...]:
    """Return what can be done with a node: one that only works takes no jobs."""
    if "scheduler" in info.roles:
        return "shoal run -- COMMAND", "shoal ps"
    return ("shoal nodes",)


def _arguments(given: dict[str, Any]) -> list[str]:
    """Return the same options, for the process in the background."""
    args: list[str] = ["--no-worker"] if given["no_worker"] else []
    args += ["--open-lan"] if given["open_lan"] else []
    args += [
        f"--{name}" if given[name] else f"--no-{name}"
        for name in ("sandbox", "functions", "containers", "gate", "lan")
        if given[name] is not None
    ]
    for name in ("announce", "without", "labels"):
        for each in given[name]:
            args += [f"--{name.removesuffix('s')}", each]
    names = ("listen", "port", "api", "metrics", "policy", "gpus", "models", "memories")
    rest = ("web", "cache", "order", "relay", "allow", "strangers", "task_network")
    for name in (*names, *rest, "journal"):
        if given[name] is not None:  # Also what is empty: it may hide a setting.
            args += [f"--{name.replace('_', '-')}", str(given[name])]
    return args


def _say_ready(
    info: NodeInfo, port_was_taken: bool, *, as_json: bool, quiet: bool
) -> None:
    if as_json:
        fields = {
            "pid": info.pid,
            "shoal": info.shoal,
            "api": info.api_address,
            "web": info.web_address,
            "addresses": list(info.addresses),
            "home": info.home,
            "sandboxed": info.sandboxed,
            "node": node_fields(info.node),
        }
        echo_json(fields)
        return
    for line in info_lines(info, port_was_taken=port_was_taken):
        talk(line, quiet=quiet)
    if info.node.worker and not info.sandboxed:
        why = next((s for s in info.not_isolated if s.startswith("no sandbox")), "")
        talk(f"  note  tasks are not confined: {why}", quiet=quiet)
    if info.node.terms:
        talk(f"  note  {info.node.terms}", quiet=quiet)
