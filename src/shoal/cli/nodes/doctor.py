"""`shoal doctor`: check this machine and suggest fixes."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import click

from shoal.api import node_file
from shoal.api.client import client as api
from shoal.api.shoal_pb2 import Gate, NodeInfo
from shoal.cli.display.printing import echo_json, size_text, span
from shoal.cli.exit_codes import ExitCode
from shoal.cli.nodes import background
from shoal.cli.options import json_option
from shoal.cli.terminal import echo
from shoal.errors import ShoalError
from shoal.model.addresses import is_direct
from shoal.runtime.home import Home

if TYPE_CHECKING:
    from shoal.api.shoal_pb2 import NodeInfo

GROUPS: Final = (
    "run the node as root, or with a cgroup of its own: "
    "systemd-run --user --scope -p Delegate=yes shoal up"
)
FIXES: Final = {
    "confined": "apt install bubblewrap, then shoal down; shoal up",
    "memory": GROUPS,
    "cpu": GROUPS,
    "processes": GROUPS,
    "disk": "nothing: use is sampled twice a second; `--strangers no` lends to nobody",
    "internet": "apt install slirp4netns, if other owners' tasks need the internet",
}
LENT: Final = {
    "no": "only your own tasks run here",
    "confined": "other owners' tasks run if confined",
    "limited": "other owners' tasks run if confined and limited",
    "any": "every member's tasks run here, confined or not",
}
REACH: Final = {
    "none": "get no network",
    "internet": "reach the internet on request, but not your own networks",
    "all": "reach everything this machine reaches, on request",
}


class PromiseCheck(NamedTuple):
    """The result of one check; `fix` says what to do if it failed."""

    what: str
    state: str  # "ok", "note" or "bad"
    said: str
    fix: str = ""


def promise_findings(info: NodeInfo) -> list[PromiseCheck]:
    """Report to whom the node lends, and which promises are weaker here."""
    node = info.node
    if not node.worker:
        return []
    lent = LENT.get(info.strangers, info.strangers)
    reach = REACH.get(info.task_network, info.task_network)
    said = lent if info.strangers == "no" else f"{lent}; they {reach}"
    fix = "shoal up --strangers no|confined|limited|any"
    state = "note" if node.terms or info.strangers == "any" else "ok"
    if node.terms:
        said = f"{said}; now: {node.terms}"
    findings = [PromiseCheck("lending", state, said, fix)]
    for text in node.weaker:
        name, _, why = text.partition(": ")
        told = f"a promise is weaker here: {why}"
        findings.append(PromiseCheck(name, "note", told, FIXES.get(name, "")))
    return findings


DISK_FREE_MIN: Final = 1 << 30
PORT: Final = 50_051
EARLIEST_S: Final = 1_735_689_600.0
"""1 January 2025: a clock that shows an earlier time was never set."""
CLOCK_OFF_S: Final = 60.0


@click.command()
@json_option
def doctor(as_json: bool) -> None:
    """Check this machine; print one line per check, with a fix if it failed."""
    home = Home.default()
    findings = [
        _home(home),
        *_node(home),
        _port(home),
        clock_finding(home),
        _sandbox(home),
        _containers(),
        _gpus(),
        _disk(home),
    ]
    is_well = all(finding.state != "bad" for finding in findings)
    if as_json:
        rows = [finding._asdict() for finding in findings]
        echo_json({"well": is_well, "findings": rows})
    else:
        for finding in findings:
            echo(f"{finding.state:<5} {finding.what:<8} {finding.said}")
            if finding.fix and finding.state != "ok":
                echo(f"               fix: {finding.fix}")
    sys.exit(ExitCode.OK if is_well else ExitCode.ERROR)


def _home(home: Home) -> PromiseCheck:
    path = home.path
    while not path.exists() and path != path.parent:
        path = path.parent
    if not (path.is_dir() and os.access(path, os.W_OK)):
        fix = "set SHOAL_HOME to a folder that you can write to"
        return PromiseCheck("home", "bad", f"{path} cannot be written to", fix)
    there = "" if home.path.exists() else " (created by the first shoal up)"
    return PromiseCheck("home", "ok", f"{home.path}{there}")


def _node(home: Home) -> list[PromiseCheck]:
    try:
        with api.connect(home=home) as client:
            info = client.info()
    except ShoalError as error:
        said = f"{error.what}: {error.because}" if error.because else error.what
        state = "bad" if home.node_info.exists() else "note"
        return [PromiseCheck("node", state, said, error.hint), *last_end(home)]
    said = f"{info.name.petname} runs as process {info.pid}, version {info.version}"
    findings = [PromiseCheck("node", "ok", said)]
    for warning in info.warnings:
        said, _, fix = warning.partition(": ")
        findings.append(PromiseCheck("warning", "note", said, fix))
    if home.log.exists():
        findings.append(PromiseCheck("log", "ok", str(home.log)))
    return [*findings, *network_findings(info), *promise_findings(info)]


def last_end(home: Home) -> list[PromiseCheck]:
    """Report why the last background node ended, if it failed."""
    if not home.log.exists():
        return []
    what, because = background.last_words(home)
    if not because:
        return []
    said = f"the last node here ended: {what}: {because}"
    return [PromiseCheck("log", "bad", said, f"{home.log} has the details")]


def network_findings(info: NodeInfo) -> list[PromiseCheck]:
    """Report how the node is connected: gates, libp2p, direct links."""
    network = info.network
    findings = [_gate(gate) for gate in network.gates]
    if network.gates and not any(gate.path for gate in network.gates):
        how = "others are still linked" if network.links else "no node is linked"
        findings = [row._replace(state="bad") for row in findings]
        findings[-1] = findings[-1]._replace(said=f"{findings[-1].said}; {how}")
    state, fix = "ok", ""
    if network.p2p.startswith("starting again"):
        state, fix = "note", "nothing: direct links keep working, and it restarts"
    elif network.p2p.startswith("not installed"):
        state = "note"
        fix = "for machines behind NAT: pip install 'shoal[p2p]', with a compiler"
    findings.append(PromiseCheck("libp2p", state, network.p2p, fix))
    places = [address for address in info.addresses if is_direct(address)]
    if not places:
        said = "others reach this node only by libp2p"
        fix = "drop `--without direct`, if it is not intended"
        findings.append(PromiseCheck("links", "note", said, fix))
    elif network.gates and all("/127." in place for place in places):
        said = "other machines cannot dial this node: it listens on loopback"
        fix = "shoal down; shoal up --listen 0.0.0.0:4001"
        findings.append(PromiseCheck("links", "note", said, fix))
    else:
        said = f"{network.links} linked, dialled at {places[0].partition('/p2p/')[0]}"
        findings.append(PromiseCheck("links", "ok", said))
    return findings


def _gate(gate: Gate) -> PromiseCheck:
    name = gate.name.petname
    if gate.path == "direct":
        return PromiseCheck(
            "gate", "ok", f"{name} is linked, {gate.rtt_us / 1000:.1f} ms"
        )
    if gate.path:
        said = f"{name} is linked by libp2p only ({gate.path})"
        fix = (
            f"open its port for direct links; last error: {gate.trouble or 'no answer'}"
        )
        return PromiseCheck("gate", "note", said, fix)
    said = f"{name} is not linked: {gate.trouble or 'not tried yet'}"
    fix = "check that it runs and its port is open; if it moved, get a new invitation"
    return PromiseCheck("gate", "note", said, fix)


def _port(home: Home) -> PromiseCheck:
    found = node_file.read(home) if home.path.is_dir() else None
    if found is not None and node_file.answers(found.socket):
        return PromiseCheck("port", "ok", f"clients reach the node at {found.api}")
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", PORT))
        except OSError as error:
            said = f"{PORT} cannot be used: {error.strerror}"
            fix = "nothing: shoal up picks another; --port chooses one"
            return PromiseCheck("port", "note", said, fix)
    return PromiseCheck("port", "ok", f"{PORT} is free")


def clock_finding(home: Home) -> PromiseCheck:
    """Check that the clock is plausible: neither ancient nor set back."""
    earliest_s, why = EARLIEST_S, "which is before shoal existed"
    if home.journal.exists() and home.journal.stat().st_mtime > earliest_s:
        earliest_s = home.journal.stat().st_mtime
        why = f"but the journal was written {span(earliest_s - time.time())} later"
    if time.time() < earliest_s - CLOCK_OFF_S:
        said = f"it reads {time.ctime()}, {why}"
        fix = "set the clock, or start a time service: grants have dates"
        return PromiseCheck("clock", "bad", said, fix)
    zone = time.strftime("%Y-%m-%d %H:%M:%S %Z")
    return PromiseCheck("clock", "ok", zone)


def _sandbox(home: Home) -> PromiseCheck:
    from shoal.drivers.sandbox import bubblewrap  # noqa: PLC0415 - Slow to import.

    folder = home.tasks if home.tasks.is_dir() else Path("/tmp")  # noqa: S108
    found = bubblewrap.find(folder)
    if isinstance(found, str):
        fix = "install bubblewrap (apt install bubblewrap), then shoal down; shoal up"
        said = f"tasks are not confined, so only your own run here: {found}"
        return PromiseCheck("sandbox", "bad", said, fix)
    return PromiseCheck("sandbox", "ok", f"bubblewrap works ({found.bwrap})")


def _containers() -> PromiseCheck:
    from shoal.drivers.container_engines import find_engine  # noqa: PLC0415 - Slow to import.

    found = asyncio.run(find_engine())
    if isinstance(found, str):
        fix = "apt install podman, to run jobs with an image here"
        return PromiseCheck(
            "images", "note", f"jobs with an image go elsewhere: {found}", fix
        )
    return PromiseCheck("images", "ok", f"{found.kind} answers ({found.path})")


def _gpus() -> PromiseCheck:
    from shoal.drivers.gpus.detection import detect_gpus  # noqa: PLC0415 - Slow to import.

    found = detect_gpus().devices
    if found:
        named = ", ".join(f"{device.model} ({device.id})" for device in found)
        return PromiseCheck("gpu", "ok", named)
    if Path("/proc/driver/nvidia").exists() or shutil.which("nvidia-smi"):
        fix = "run nvidia-smi to see why; after a driver update, reboot"
        return PromiseCheck(
            "gpu", "bad", "the driver is installed, but reports no GPU", fix
        )
    fix = "install the NVIDIA driver if there is a GPU; --gpus declares other GPUs"
    return PromiseCheck("gpu", "note", "none", fix)


def _disk(home: Home) -> PromiseCheck:
    path = home.path
    while not path.exists():
        path = path.parent
    free = shutil.disk_usage(path).free
    said = f"{size_text(free)} free at {path}"
    if free < DISK_FREE_MIN:
        return PromiseCheck(
            "disk", "bad", said, "free some space, or move SHOAL_HOME to another disk"
        )
    return PromiseCheck("disk", "ok", said)
