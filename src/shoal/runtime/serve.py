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
from shoal.core.policies import Policies
from shoal.core.rules import Rules
from shoal.drivers import devices, environment
from shoal.drivers.container import ContainerDriver
from shoal.drivers.engines import find_engine
from shoal.drivers.process import ProcessDriver, Settings
from shoal.drivers.python import PythonDriver
from shoal.drivers.sandbox import WORK
from shoal.errors import UsageError
from shoal.model.kinds import (
    IMAGE,
    KINDS,
    RECIPE,
    Strangers,
    TaskNetwork,
    allowed,
)
from shoal.net.identity import Identity
from shoal.policy.registry import Registry
from shoal.runtime import membership
from shoal.runtime.listening import NetworkOptions
from shoal.runtime.node import Node, NodeSettings
from shoal.store.mark import Begin

if TYPE_CHECKING:
    from collections.abc import Collection

    from shoal.drivers import Driver
    from shoal.drivers.engines import Engine
    from shoal.model.resources import Capacity
    from shoal.protocol.messages import Role
    from shoal.runtime.home import Home

OTHERS_READ: Final = 0o005
SHOAL_OF_ONE: Final = "home"
ENGINE_TIMEOUT_S: Final = 3.0  # A node must not wait long for what few jobs use.
"""What a shoal is called that a node made for itself."""


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What a user may say of a node. Empty texts are "not said"."""

    worker: bool = True
    policy: str = ""
    order: str = ""  # of the queue
    network: NetworkOptions = NetworkOptions()
    metrics: str = ""  # host:port
    web: str = ""  # host:port of the page for browsers, or "off"
    api: str = ""  # host:port for clients of other machines
    gpus: str | None = None  # declared; None: look for them
    models: str = ""
    memories: str = ""
    labels: tuple[str, ...] = ()  # name=value
    sandbox: bool = True
    strangers: Strangers | None = None  # None: confined ones, if tasks are confined
    task_network: TaskNetwork = "none"  # for tasks of other owners
    cache_bytes: int = 0  # 0: a fifth of the disk
    journal: Begin = ""  # what to do with one that is not what it was
    allow: str = ""  # kinds of work; empty: all
    functions: bool = True  # whether tasks may be calls of functions
    containers: bool = True  # whether tasks may run in images, if an engine is here


async def compose(
    home: Home, options: Options, scratch: Path
) -> tuple[Node, ProcessDriver]:
    """Make a node; it does nothing before it is started. Needs a running loop.

    `scratch` is an empty folder that lasts as long as the node.
    """
    home.prepare()
    Policies(Registry(), options.policy, options.order)  # Raises if there is none.
    identity = Identity.load_or_create(home.key)
    belongs = membership.load(home)
    if belongs is None:
        belongs = membership.found(home, identity, home.net or SHOAL_OF_ONE)
    (capacity, found), engine = await asyncio.gather(
        asyncio.to_thread(detect, home.tasks, options), _engine(options)
    )
    drives = driver_settings(options, found, scratch)
    driver = ProcessDriver(home.tasks, drives)
    roles: tuple[Role, ...] = ("scheduler", "gate")
    if options.worker:
        roles = ("scheduler", "worker", "gate")
    python = PythonDriver(driver)
    runs: dict[str, Driver] = {driver.name: driver, RECIPE: driver, python.name: python}
    if engine is not None:
        runs["container"] = ContainerDriver(home.containers, engine, drives)
    rules = Rules(
        drivers=_offered(options, runs),
        own=belongs.grant.owner,
        strangers=_strangers(options),
        task_network=options.task_network,
    )
    settings = NodeSettings(
        roles=roles,
        capacity=capacity,
        rules=rules,
        policy=options.policy,
        order=options.order,
        cache_bytes=options.cache_bytes,
        journal=options.journal,
    )
    node = Node(home, identity, belongs, settings, runs)
    python.desk = node.relay.lanes
    return node, driver


def _offered(options: Options, runs: Collection[str]) -> tuple[str, ...]:
    """Return the drivers of what others may run here; raise if nothing is left."""
    left_out = () if options.functions else (PythonDriver.name,)
    drivers = [name for kind in allowed(options.allow) for name in KINDS[kind]]
    offered = tuple(each for each in drivers if each in runs and each not in left_out)
    if options.worker and not offered:
        raise UsageError(
            "there is nothing that others may run here",
            because="only images are allowed, and no docker or podman answers"
            if options.containers
            else "only images are allowed, and containers are not",
            hint="`--allow recipe,image` also lends it to built-in programs, "
            "and `--no-worker` to nobody",
        )
    return offered


def _strangers(options: Options) -> Strangers:
    """Return whose tasks run here: who switched the sandbox off knows what that is."""
    return options.strangers or ("confined" if options.sandbox else "any")


async def _engine(options: Options) -> Engine | None:
    """Return an engine for containers, if there is one and its owner lends it."""
    wanted = options.containers and IMAGE in allowed(options.allow)
    if not (options.worker and wanted):
        return None
    found = await find_engine(ENGINE_TIMEOUT_S)
    return None if isinstance(found, str) else found


def detect(folder: Path, options: Options) -> tuple[Capacity, devices.Found]:
    """Say what this machine can lend; blocks for a while."""
    if options.gpus is None:
        found = devices.detect_gpus()
    else:
        found = devices.declared_gpus(options.gpus, options.models, options.memories)
    pairs = [text.partition("=") for text in options.labels]
    labels = tuple({name: value for name, _, value in pairs}.items())
    return devices.capacity(folder, found.devices, labels), found


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
