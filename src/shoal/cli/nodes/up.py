"""`shoal up`: start a node on this machine."""

from __future__ import annotations

import asyncio
import os
import sys
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, get_args

import click
from click.core import ParameterSource

from shoal.api import node_file
from shoal.api.client.client import client_of
from shoal.api.documents import node_fields
from shoal.cli.config.settings import default_of
from shoal.cli.display.printing import echo_json, info_lines
from shoal.cli.nodes import background
from shoal.cli.options import (
    check_labels,
    json_option,
    options_of,
    quiet_option,
    suggest,
    talk,
)
from shoal.errors import ShoalError, StoreError, UsageError
from shoal.model.kinds import Overlay, Strangers, TaskNetwork, allowed
from shoal.runtime.home import Home

if TYPE_CHECKING:
    from collections.abc import Callable

    from shoal.api.node_file import NodeFile
    from shoal.api.server.daemon import Ready
    from shoal.api.shoal_pb2 import NodeInfo
    from shoal.core.housekeeping.retention import KeepRule
    from shoal.runtime.node_factory import NodeOptions


listen_option = click.option(
    "--listen",
    default=default_of("listen", ""),
    metavar="HOST:PORT",
    help="Address for other nodes; by default as last time, or loopback.",
)
api_option = click.option(
    "--api",
    default=default_of("api", ""),
    metavar="HOST:PORT",
    help="TLS address for clients on other machines; off by default.",
)
sandbox_option = click.option(
    "--sandbox/--no-sandbox", default=default_of("sandbox"), help="Confine tasks."
)
gpu_options = options_of(
    (
        (
            ("--gpus",),
            {"help": "Declare GPUs by id, such as 0,1, instead of detecting them."},
        ),
        (
            ("--models",),
            {"default": "", "help": "Model of each declared GPU: A100, amd:MI300X."},
        ),
        (
            ("--memories",),
            {"default": "", "help": "Memory of each declared GPU in MB."},
        ),
    )
)


@click.command()
@click.option(
    "--background",
    "detach",
    is_flag=True,
    help="Run in the background; return when it is ready.",
)
@click.option(
    "--no-worker", is_flag=True, help="Do not lend this machine: schedule only."
)
@listen_option
@click.option(
    "--announce",
    multiple=True,
    metavar="HOST:PORT",
    help="Public address, such as that of a router; may be repeated.",
)
@click.option(
    "--gate/--no-gate",
    default=None,
    help="Relay for members that cannot be dialled; on by default for the first node.",
)
@click.option(
    "--relay",
    default="",
    metavar="LIMITS",
    help="Relay limits of a gate: members=256,circuits=32,bytes=4GB,time=12h.",
)
@click.option(
    "--without",
    multiple=True,
    metavar="WAY",
    help="Turn off gates, peers, gossip, dht, mdns, direct, or p2p as a whole.",
)
@click.option(
    "--overlay",
    type=click.Choice(get_args(Overlay)),
    default=default_of("overlay"),
    help="Which neighbours hear of free room: some drawn anew each time (random, the "
    "default), all, those of a spanning tree, or these and the nearest.",
)
@click.option(
    "--lan/--no-lan",
    default=None,
    help="Ask to join a shoal on the local network; by default you are prompted.",
)
@click.option(
    "--open-lan",
    is_flag=True,
    help="Let any machine on the local network join as a worker, without approval.",
)
@click.option(
    "--port",
    type=int,
    default=default_of("port"),
    help="Port for local clients; 50051 if it is free.",
)
@api_option
@click.option(
    "--metrics",
    default=default_of("metrics", ""),
    metavar="HOST:PORT",
    help="Serve /metrics for Prometheus; off loopback with https and the token.",
)
@click.option(
    "--web",
    default=default_of("web", ""),
    metavar="HOST:PORT",
    help="Address of the web page; by default loopback, port 7420 if it is free. Off "
    "loopback it is served with https only.",
)
@click.option("--no-web", is_flag=True, help="Do not serve the web page.")
@click.option("--policy", default=default_of("policy", ""), help="Placement policy.")
@click.option(
    "--order", default="", help="Queue order after priority and share: minnow, sjf."
)
@gpu_options
@click.option(
    "--label",
    "labels",
    multiple=True,
    default=default_of("labels", ()),
    metavar="NAME=VALUE",
    help="Label that jobs can require; leaf=NAME is the node's switch.",
)
@sandbox_option
@click.option(
    "--allow",
    default=default_of("allow", ""),
    metavar="KINDS",
    help="Kinds of tasks to run: command,image,recipe; all by default.",
)
@click.option(
    "--strangers",
    type=click.Choice(get_args(Strangers)),
    default=default_of("strangers"),
    help="When to run other owners' tasks: never, if tasks are confined (the "
    "default), if the kernel also limits them, or always.",
)
@click.option(
    "--lend",
    default=default_of("lend", ""),
    metavar="RULE",
    help="When to run other owners' tasks: always (the default), idle, away, nights, "
    "weekends, 22:00-07:00, plugged-in, or several of them: nights,idle.",
)
@click.option(
    "--owner-input",
    "owner_input",
    multiple=True,
    default=default_of("owner_input", ()),
    metavar="FILES",
    help="Files that are touched when you use the machine, or the words terminals and "
    "desktop, which are the default; for --lend idle or away.",
)
@click.option(
    "--task-network",
    type=click.Choice(get_args(TaskNetwork)),
    default=default_of("task_network"),
    help="Network access that other owners' tasks can request: none, the internet "
    "without your own networks, or all.",
)
@click.option(
    "--functions/--no-functions",
    default=default_of("functions"),
    help="Run functions sent by Python programs.",
)
@click.option(
    "--containers/--no-containers",
    default=default_of("containers"),
    help="Run tasks in containers, with docker or podman.",
)
@click.option(
    "--cache",
    default=default_of("cache", ""),
    help="Disk space for cached code and data: 20GB.",
)
@click.option(
    "--keep-for",
    default=default_of("keep_for", ""),
    metavar="TIME",
    help="Remove jobs that ended longer ago: 30d. By default the latest 1,000 stay.",
)
@click.option(
    "--keep-jobs",
    type=click.IntRange(min=0),
    default=default_of("keep_jobs"),
    metavar="N",
    help="Keep at most N ended jobs; remove older ones.",
)
@click.option(
    "--keep-size",
    default=default_of("keep_size", ""),
    metavar="SIZE",
    help="Remove ended jobs beyond so much output and results: 50GB.",
)
@click.option(
    "--forward/--no-forward",
    default=default_of("forward"),
    help="Let other nodes of yours have jobs that wait here, if they are nearer to the "
    "workers or have much less to do.",
)
@click.option(
    "--keepers",
    type=click.IntRange(0, 4),
    default=default_of("keepers"),
    metavar="N",
    help="How many other nodes of yours keep each job that is submitted here and says "
    "nothing of it, if so many are there; they go on with it if this node is gone.",
)
@click.option(
    "--share",
    "shares",
    multiple=True,
    default=default_of("shares", ()),
    metavar="[NAME=]FOLDER[:rw][:here][:all]",
    help="Folder that jobs can mount by name: read-only, for your own jobs, unless it "
    "ends in :rw, :all or :rw:all; with :here at its own path, not in /data.",
)
@click.option(
    "--python",
    "pythons",
    multiple=True,
    default=default_of("pythons", ()),
    metavar="NAME=FOLDER[:all]",
    help="Python environment that jobs can name; with :all also those of others.",
)
@click.option(
    "--environments",
    default=default_of("environments", ""),
    help="Disk space for Python environments and caches of jobs: 50GB.",
)
@click.option(
    "--time-limit",
    default="",
    metavar="TIME",
    help="How long this machine is there, such as 1h in a cluster: longer tasks are "
    "not taken, and what runs at the end goes on elsewhere.",
)
@click.option(
    "--idle-timeout",
    default="",
    metavar="TIME",
    help="Stop the node once nobody has used it for so long: 5m.",
)
@click.option(
    "--journal",
    type=click.Choice(["new", "old"]),
    help="If the journal is missing or outdated: start a new one, or continue.",
)
@click.option("--ready-fd", type=int, hidden=True)
@json_option
@quiet_option
def up(detach: bool, ready_fd: int | None, **given: Any) -> None:  # noqa: ANN401
    """Start a node that lends this machine and accepts jobs.

    The first start creates a private shoal of this machine only. Stop the node with
    Ctrl-C or `shoal down`; unfinished jobs continue at the next start.
    """
    if node_file.in_task():
        raise _inside_a_task()
    home = Home.default()
    as_json, quiet = bool(given.pop("as_json")), bool(given.pop("quiet"))
    if given.pop("no_web"):
        given["web"] = "off"
    _spell_out(given)
    found = node_file.running(home)
    if detach and found is not None:
        _say_running(found, "is running already", as_json=as_json, quiet=quiet)
        return
    if detach:
        _start_detached(home, given, as_json=as_json, quiet=quiet)
        return
    try:
        if found is not None:
            raise _second(home, found)
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
    talk("the node has stopped", quiet=quiet)


def _inside_a_task() -> UsageError:
    return UsageError(
        "this is a task of a job: it starts no node",
        because="the node would lend what the task was lent, and end with it; commands "
        "and clients here reach the shoal that runs the task",
        hint="run `shoal up` on the machine itself; to start a node in the task all "
        "the same, give it a home: SHOAL_HOME=$PWD/node shoal up",
    )


def _serve(
    home: Home,
    options: NodeOptions,
    port: int | None,
    ready: Ready,
    say: Callable[[str], None],
) -> None:
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # What matters is raised too.
    from shoal.api.server.daemon import PageHost, run_node  # noqa: PLC0415 - Slow to import.
    from shoal.net.event_loop import loop_factory  # noqa: PLC0415
    from shoal.web.page import WebPage  # noqa: PLC0415

    host = PageHost(ready=ready, say=say, make_page=partial(WebPage, where=options.web))
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(run_node(home, options, port, host))


def _options(given: dict[str, Any]) -> NodeOptions:
    from shoal.core.lending.lend_rule import parse_lend  # noqa: PLC0415
    from shoal.model.units import parse_size  # noqa: PLC0415
    from shoal.runtime.discovery.finders import finding_of  # noqa: PLC0415
    from shoal.runtime.discovery.listen_addresses import (  # noqa: PLC0415 - Slow to import.
        NetworkOptions,
        listen_address,
    )
    from shoal.runtime.discovery.relay_limits import relay_room  # noqa: PLC0415
    from shoal.runtime.environments.loans import Loans  # noqa: PLC0415
    from shoal.runtime.node_factory import NodeOptions  # noqa: PLC0415 - Slow to import.

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
    check_labels(given["labels"], "write it like --label leaf=rack7")
    Loans(given["shares"], given["pythons"])  # Raises if one is wrong.
    parse_lend(given["lend"] or "always")
    reach: dict[str, Any] = {**given, "lan": _lan(given["lan"])}
    own: dict[str, Any] = {**given, "journal": given["journal"] or ""}
    own["keepers"] = _keepers(given["keepers"] or 0)
    return NodeOptions(
        **{name: own[name] for name in NodeOptions.__struct_fields__ if name in own},
        worker=not given["no_worker"],
        network=NetworkOptions(
            **{name: reach[name] for name in NetworkOptions.__struct_fields__}
        ),
        cache_bytes=parse_size(given["cache"]) if given["cache"] else 0,
        environment_bytes=parse_size(given["environments"] or 0),
        keep=_keep_rule(given),
        time_limit_s=_duration(given, "time_limit"),
        idle_timeout_s=_duration(given, "idle_timeout"),
    )


def _duration(given: dict[str, Any], name: str) -> float | None:
    """Return how long an option says; None if it says nothing."""
    from shoal.model.units import parse_duration  # noqa: PLC0415 - Slow to import.

    if not given[name]:
        return None
    duration_s, flag = parse_duration(given[name]), f"--{name.replace('_', '-')}"
    if given["no_worker"]:
        raise UsageError(
            f"{flag} with --no-worker",
            because="only a worker ends when its time is over or nobody needs it",
            hint=f"leave {flag} out: such a node stays until `shoal down`",
        )
    if duration_s < 1:
        raise UsageError(
            f"{flag} {given[name]} is too short",
            because="the node would end before it is known to anybody",
            hint=f"give it a minute at least: {flag} 1m",
        )
    return duration_s


def _keepers(wanted: int) -> int:
    if wanted % 2:
        raise UsageError(
            f"--keepers {wanted}: a job has 0, 2 or 4 keepers",
            because="most of all that have the job must agree, this node included; an "
            "odd number of others helps no more than one less",
            hint=f"write --keepers {wanted + 1}",
        )
    return wanted


def _keep_rule(given: dict[str, Any]) -> KeepRule:
    from shoal.core.housekeeping.retention import KeepRule  # noqa: PLC0415 - Slow.
    from shoal.model.units import parse_duration, parse_size  # noqa: PLC0415

    age, size = given["keep_for"], given["keep_size"]
    return KeepRule(
        age_s=parse_duration(age) if age else None,
        jobs=given["keep_jobs"],
        size_bytes=parse_size(size) if size else None,
    )


def _spell_out(given: dict[str, Any]) -> None:
    """Give what is lent its whole path: the process in the background is elsewhere."""
    if given["owner_input"]:
        from shoal.runtime.lending import owner_signs  # noqa: PLC0415 - Slow to import.

        given["owner_input"] = owner_signs.spelled_out(given["owner_input"])
    if given["shares"] or given["pythons"]:
        from shoal.runtime.environments import loans  # noqa: PLC0415 - Slow to import.

        given["shares"] = loans.spelled_out(given["shares"], loans.SHARE)
        given["pythons"] = loans.spelled_out(given["pythons"], loans.OFFER)


def _lan(wanted: bool | None) -> Literal["off", "ask", "join"]:
    """Look for a shoal only in a terminal, where somebody can answer."""
    if wanted is None:
        return "ask" if sys.stderr.isatty() else "off"
    return "join" if wanted else "off"


def _second(home: Home, found: NodeFile) -> StoreError:
    return StoreError(
        f"the node {found.petname} is running already",
        kind="in-use",
        because=f"process {found.pid} uses the home {home.path}",
        hint="stop it with `shoal down`, or use another SHOAL_HOME for another node",
    )


def _say_running(found: NodeFile, how: str, *, as_json: bool, quiet: bool) -> None:
    """Report a node that was already running, and flags it did not get."""
    talk(f"the node {found.petname} {how} (process {found.pid})", quiet=quiet)
    if flags := _flags():
        talk(
            f"note: {flags} had no effect: flags apply when a node starts", quiet=quiet
        )
        suggest("shoal down", "this command again", quiet=quiet)
    if as_json:
        with client_of(found) as client:
            _say_ready(client.info(), False, as_json=True, quiet=quiet)


def _flags() -> str:
    """Return the flags on this command line that configure a node."""
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
        found, how = node_file.required(home), "was started by another command"
        _say_running(found, how, as_json=as_json, quiet=quiet)
        return
    _say_ready(started.info, started.port_was_taken, as_json=as_json, quiet=quiet)
    suggest(*_uses(started.info), "shoal down", quiet=quiet)


def _uses(info: NodeInfo) -> tuple[str, ...]:
    """Return suggested commands; a node that is only a worker takes no jobs."""
    if "scheduler" in info.roles:
        return "shoal run -- COMMAND", "shoal ps"
    return ("shoal nodes",)


def _arguments(given: dict[str, Any]) -> list[str]:
    """Return the same options, for the process in the background."""
    args: list[str] = []
    for param in up.params:
        value = given.get(param.name or "")
        if not isinstance(param, click.Option) or value is None:
            continue
        if isinstance(value, bool):
            args += (param.opts if value else param.secondary_opts)[:1]
        else:  # Also what is empty: it may hide a setting.
            values: tuple[object, ...] = value if param.multiple else (value,)
            for each in values:
                args += [param.opts[0], str(each)]
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
