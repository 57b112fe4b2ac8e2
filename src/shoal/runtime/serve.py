"""Make a whole node out of a home folder and a few options, ready to be started."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

import msgspec

import shoal
from shoal.core.rules import Rules
from shoal.drivers import devices, environment
from shoal.drivers.process import ProcessDriver, Settings
from shoal.drivers.sandbox import WORK
from shoal.errors import ShoalError
from shoal.net.direct import DirectLinks
from shoal.net.identity import Identity
from shoal.policy.registry import Registry
from shoal.runtime import membership
from shoal.runtime.node import Node, NodeSettings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shoal.model.resources import Capacity
    from shoal.net.base import Finder, Links
    from shoal.protocol.messages import AnyMessage, Role
    from shoal.runtime.home import Home

SHOAL_OF_ONE: Final = "home"
"""What a shoal is called that a node made for itself."""


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What a user may say of a node. Empty texts are "not said"."""

    worker: bool = True
    policy: str = ""
    listen: str = "127.0.0.1"
    listen_port: int = 0
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
    runs as root, its tasks do not, and cannot go where only root can.
    """
    folder = folder.resolve()
    if folder.is_relative_to(WORK):
        return False
    if os.geteuid() != 0:
        return True
    return all(each.stat().st_mode & 0o001 for each in (folder, *folder.parents))


async def make_network(node: Node, options: Options) -> tuple[Links, Finder]:
    """Return the ways of this node to others, listening already."""
    links = DirectLinks(
        node.identity,
        node.membership.grant,
        admit=node.admit,
        listener=node.listener,
    )
    try:
        await links.listen(options.listen, options.listen_port)
    except OSError as error:
        await links.close()
        raise ShoalError(
            f"cannot listen on {options.listen}:{options.listen_port}",
            because=error.strerror or str(error),
            hint="name another address with --listen HOST:PORT",
        ) from error
    return links, NoFinder(node)


@final
class NoFinder:
    """Finds nobody and tells nobody: a node that waits for others to dial it."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def publish(self, message: AnyMessage) -> None:
        """Tell nobody."""

    def spread(self, message: AnyMessage) -> None:
        """Tell nobody."""

    def look_up(self, lookup: int, key: str, limit: int) -> None:
        """Find nobody."""
        self._node.listener.looked_up(lookup, ())

    def provide(self, keys: Sequence[str]) -> None:
        """Provide to nobody."""

    async def close(self) -> None:
        """Leave nothing."""
