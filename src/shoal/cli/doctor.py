"""`shoal doctor`: look for what could be wrong here, and say how to mend it."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import sys
import time
from pathlib import Path
from typing import Final

import click

from shoal.api import client as api
from shoal.api import whereabouts
from shoal.api.shoal_pb2 import Gate, NodeInfo
from shoal.cli import background
from shoal.cli.exit_codes import ExitCode
from shoal.cli.options import json_option
from shoal.cli.printing import echo_json, size_text, span
from shoal.cli.promises import Finding, promise_findings
from shoal.cli.terminal import echo
from shoal.errors import ShoalError
from shoal.model.addresses import is_direct
from shoal.runtime.home import Home

DISK_FREE_MIN: Final = 1 << 30
PORT: Final = 50_051
EARLIEST_S: Final = 1_735_689_600.0
"""1 January 2025: a clock that reads less was never set."""
CLOCK_OFF_S: Final = 60.0


@click.command()
@json_option
def doctor(as_json: bool) -> None:
    """Check this machine, one line for each thing, with the fix if it needs one."""
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


def _home(home: Home) -> Finding:
    path = home.path
    while not path.exists() and path != path.parent:
        path = path.parent
    if not (path.is_dir() and os.access(path, os.W_OK)):
        fix = "set SHOAL_HOME to a folder that you can write to"
        return Finding("home", "bad", f"{path} cannot be written to", fix)
    there = "" if home.path.exists() else " (made by the first shoal up)"
    return Finding("home", "ok", f"{home.path}{there}")


def _node(home: Home) -> list[Finding]:
    try:
        with api.connect(home=home) as client:
            info = client.info()
    except ShoalError as error:
        said = f"{error.what}: {error.because}" if error.because else error.what
        state = "bad" if home.node_info.exists() else "note"
        return [Finding("node", state, said, error.hint), *last_end(home)]
    said = f"{info.name.petname} runs as process {info.pid}, version {info.version}"
    findings = [Finding("node", "ok", said)]
    for warning in info.warnings:
        said, _, fix = warning.partition(": ")
        findings.append(Finding("warning", "note", said, fix))
    if home.log.exists():
        findings.append(Finding("log", "ok", str(home.log)))
    return [*findings, *network_findings(info), *promise_findings(info)]


def last_end(home: Home) -> list[Finding]:
    """Say why the last node in the background ended, if it did not mean to."""
    if not home.log.exists():
        return []
    what, because = background.last_words(home)
    if not because:
        return []
    said = f"the last node here ended: {what}: {because}"
    return [Finding("log", "bad", said, f"{home.log} has the whole story")]


def network_findings(info: NodeInfo) -> list[Finding]:
    """Say how the node is connected to others: gates, libp2p, directly or not."""
    network = info.network
    findings = [_gate(gate) for gate in network.gates]
    if network.gates and not any(gate.path for gate in network.gates):
        how = "others are still linked" if network.links else "nobody is linked"
        findings = [row._replace(state="bad") for row in findings]
        findings[-1] = findings[-1]._replace(said=f"{findings[-1].said}; {how}")
    state = "note" if network.p2p.startswith("starting again") else "ok"
    fix = "nothing: direct links work on, and it is started by itself"
    findings.append(Finding("libp2p", state, network.p2p, fix))
    places = [address for address in info.addresses if is_direct(address)]
    if not places:
        said = "others reach this node by libp2p only"
        fix = "do without `--without direct`, if that is not meant"
        findings.append(Finding("links", "note", said, fix))
    elif network.gates and all("/127." in place for place in places):
        said = "other machines cannot dial this node: it listens on loopback"
        fix = "shoal down; shoal up --listen 0.0.0.0:4001"
        findings.append(Finding("links", "note", said, fix))
    else:
        said = f"{network.links} linked, dialled at {places[0].partition('/p2p/')[0]}"
        findings.append(Finding("links", "ok", said))
    return findings


def _gate(gate: Gate) -> Finding:
    name = gate.name.petname
    if gate.path == "direct":
        return Finding("gate", "ok", f"{name} is linked, {gate.rtt_us / 1000:.1f} ms")
    if gate.path:
        said = f"{name} is linked by libp2p only ({gate.path})"
        fix = f"open its port for direct links; there was: {gate.trouble or 'silence'}"
        return Finding("gate", "note", said, fix)
    said = f"{name} is not linked: {gate.trouble or 'it was not tried yet'}"
    fix = "see that it is up and its port open; ask for a new invitation if it moved"
    return Finding("gate", "note", said, fix)


def _port(home: Home) -> Finding:
    found = whereabouts.read(home) if home.path.is_dir() else None
    if found is not None and whereabouts.answers(found.socket):
        return Finding("port", "ok", f"clients reach the node at {found.api}")
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", PORT))
        except OSError as error:
            said = f"{PORT} cannot be used: {error.strerror}"
            fix = "nothing: shoal up takes another; --port names one"
            return Finding("port", "note", said, fix)
    return Finding("port", "ok", f"{PORT} is free")


def clock_finding(home: Home) -> Finding:
    """Say whether the clock can be right: neither ancient, nor set back."""
    earliest_s, why = EARLIEST_S, "which was before shoal"
    if home.journal.exists() and home.journal.stat().st_mtime > earliest_s:
        earliest_s = home.journal.stat().st_mtime
        why = f"but the journal was written {span(earliest_s - time.time())} later"
    if time.time() < earliest_s - CLOCK_OFF_S:
        said = f"it reads {time.ctime()}, {why}"
        fix = "set it, or start a time service: grants have dates"
        return Finding("clock", "bad", said, fix)
    zone = time.strftime("%Y-%m-%d %H:%M:%S %Z")
    return Finding("clock", "ok", zone)


def _sandbox(home: Home) -> Finding:
    from shoal.drivers import sandbox  # noqa: PLC0415 - Slow to import.

    folder = home.tasks if home.tasks.is_dir() else Path("/tmp")  # noqa: S108
    found = sandbox.find(folder)
    if isinstance(found, str):
        fix = "install bubblewrap (apt install bubblewrap), then shoal down; shoal up"
        said = f"tasks are not confined, so only your own run here: {found}"
        return Finding("sandbox", "bad", said, fix)
    return Finding("sandbox", "ok", f"bubblewrap works ({found.bwrap})")


def _containers() -> Finding:
    from shoal.drivers.engines import find_engine  # noqa: PLC0415 - Slow to import.

    found = asyncio.run(find_engine())
    if isinstance(found, str):
        fix = "apt install podman, if jobs with an image are to run here"
        return Finding(
            "images", "note", f"jobs with an image go elsewhere: {found}", fix
        )
    return Finding("images", "ok", f"{found.kind} answers ({found.path})")


def _gpus() -> Finding:
    from shoal.drivers.devices import detect_gpus  # noqa: PLC0415 - Slow to import.

    found = detect_gpus().devices
    if found:
        named = ", ".join(f"{device.model} ({device.id})" for device in found)
        return Finding("gpu", "ok", named)
    if Path("/proc/driver/nvidia").exists() or shutil.which("nvidia-smi"):
        fix = "nvidia-smi should say why; a reboot loads a driver that was updated"
        return Finding("gpu", "bad", "there is a driver, but it shows no GPU", fix)
    fix = "install the driver of NVIDIA, if there is a GPU; --gpus declares others"
    return Finding("gpu", "note", "none", fix)


def _disk(home: Home) -> Finding:
    path = home.path
    while not path.exists():
        path = path.parent
    free = shutil.disk_usage(path).free
    said = f"{size_text(free)} free at {path}"
    if free < DISK_FREE_MIN:
        return Finding("disk", "bad", said, "make room, or set SHOAL_HOME elsewhere")
    return Finding("disk", "ok", said)
