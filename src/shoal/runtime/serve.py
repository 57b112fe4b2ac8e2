"""Make a whole node out of a home folder and a few options, ready to be started."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

import shoal
from shoal.core.rules import Rules
from shoal.drivers import devices, environment
from shoal.drivers.process import ProcessDriver, Settings
from shoal.drivers.sandbox import WORK
from shoal.errors import ShoalError, UsageError
from shoal.net import multiaddr
from shoal.net.direct import DirectLinks
from shoal.net.identity import Identity
from shoal.policy.registry import Registry
from shoal.runtime import membership
from shoal.runtime.membership import write_private
from shoal.runtime.neighbours import Neighbours
from shoal.runtime.node import Node, NodeSettings

if TYPE_CHECKING:
    from shoal.model.resources import Capacity
    from shoal.net.base import Finder
    from shoal.protocol.messages import Role
    from shoal.runtime.home import Home
    from shoal.runtime.reception import Reception

LISTEN: Final = "127.0.0.1:0"
OTHERS_READ: Final = 0o005
SHOAL_OF_ONE: Final = "home"
"""What a shoal is called that a node made for itself."""


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What a user may say of a node. Empty texts are "not said"."""

    worker: bool = True
    policy: str = ""
    listen: str = ""  # host:port
    gpus: str | None = None  # declared; None: look for them
    models: str = ""
    memories: str = ""
    sandbox: bool = True


async def compose(
    home: Home, options: Options, scratch: Path
) -> tuple[Node, ProcessDriver]:
    """Make a node; it does nothing before it is started. Needs a running loop.

    `scratch` is an empty folder that lasts as long as the node.
    """
    home.prepare()
    Registry().get(options.policy)  # Raises if there is no such policy.
    identity = Identity.load_or_create(home.key)
    belongs = membership.load(home)
    if belongs is None:
        belongs = membership.found(home, identity, SHOAL_OF_ONE)
    capacity, found = await asyncio.to_thread(detect, home.tasks, options)
    driver = ProcessDriver(home.tasks, driver_settings(options, found, scratch))
    roles: tuple[Role, ...] = ("scheduler", "gate")
    if options.worker:
        roles = ("scheduler", "worker", "gate")
    settings = NodeSettings(
        roles=roles, capacity=capacity, rules=Rules(), policy=options.policy
    )
    return Node(home, identity, belongs, settings, {driver.name: driver}), driver


def detect(folder: Path, options: Options) -> tuple[Capacity, devices.Found]:
    """Say what this machine can lend; blocks for a while."""
    if options.gpus is None:
        found = devices.detect_gpus()
    else:
        found = devices.declared_gpus(options.gpus, options.models, options.memories)
    return devices.capacity(folder, found.devices), found


def driver_settings(options: Options, found: devices.Found, scratch: Path) -> Settings:
    """Let tasks use the Python of this node, with what is installed for it.

    Where tasks cannot see that, `python` is that of the system, whatever its name.
    """
    library = Path(shoal.__file__).parents[1]
    own = [Path(sys.prefix), Path(sys.base_prefix), library]
    if all(map(seen_by_tasks, own)):
        path = f"{Path(sys.executable).parent}:{environment.PATH_DEFAULT}"
    else:
        own = []
        path = f"{environment.PATH_DEFAULT}:{scratch}"
        system = shutil.which("python3", path=environment.PATH_DEFAULT)
        if system is not None:
            scratch.chmod(0o755)
            (scratch / "python").symlink_to(system)
            own = [scratch]
    readable = dict.fromkeys(str(each) for each in own)
    return Settings(
        sandbox=options.sandbox,
        path=path,
        readable=tuple(each for each in readable if not each.startswith("/usr/")),
        device_files=found.files,
    )


def seen_by_tasks(folder: Path) -> bool:
    """Whether a task finds this folder in its sandbox.

    Its work directory hides what is below a path of that name outside. If this node
    runs as root, its tasks do not, and cannot read what only root can.
    """
    folder = folder.resolve()
    if folder.is_relative_to(WORK):
        return False
    return os.geteuid() != 0 or folder.stat().st_mode & OTHERS_READ == OTHERS_READ


async def make_network(
    node: Node, options: Options, desk: Reception
) -> tuple[DirectLinks, Finder]:
    """Return the ways of this node to others, listening already.

    The port of its last life is taken again, if it is free: others know it.
    """
    links = DirectLinks(
        node.identity,
        node.membership.grant,
        admit=node.admit,
        listener=node.listener,
        desk=desk,
    )
    finder = Neighbours(links, node.listener, node.membership.gates)
    try:
        await _listen(links, node.home, options)
    except OSError as error:
        await links.close()
        raise ShoalError(
            f"cannot listen on {options.listen}",
            because=error.strerror or str(error),
            hint="name another address with --listen HOST:PORT",
        ) from error
    finder.start()
    return links, finder


async def _listen(links: DirectLinks, home: Home, options: Options) -> None:
    """Listen where the user says; else where the last life did, or on loopback."""
    record = home.path / "listen"
    text = options.listen
    if not text:
        try:
            text = record.read_text(encoding="utf-8").strip()
        except FileNotFoundError:
            text = LISTEN
    host, port = listen_address(text)
    try:
        await links.listen(host, port)
    except OSError:
        if options.listen:
            raise
        await links.listen(host, 0)
    bound = multiaddr.parse(links.addresses[0]).port if links.addresses else port
    write_private(record, f"{host}:{bound}\n".encode())


def listen_address(text: str) -> tuple[str, int]:
    """Return host and port of `0.0.0.0:4001` or `[::]:4001`."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or int(port) > multiaddr.PORT_MAX:
        raise UsageError(
            f"'{text}' is not a host and a port",
            because="a port is a number up to 65535, after a colon",
            hint="write it like --listen 0.0.0.0:4001",
        )
    return host.strip("[]"), int(port)
