"""Build a node from a home folder and options, ready to start."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

import shoal
from shoal.core.housekeeping.retention import KeepRule
from shoal.core.leasing.owner_rules import OwnerRules
from shoal.core.lending.lend_rule import parse_lend
from shoal.core.scheduling.policy_lookup import PolicyLookup
from shoal.core.succession.forwarding import ForwardRule
from shoal.drivers import devices, environment
from shoal.drivers.container import ContainerDriver
from shoal.drivers.container_engines import find_engine
from shoal.drivers.gpus.detection import detect_gpus
from shoal.drivers.process import ProcessDriver, ProcessSettings
from shoal.drivers.python import PythonDriver
from shoal.drivers.python_modules import missing_modules
from shoal.drivers.sandbox.bubblewrap import WORK
from shoal.errors import UsageError
from shoal.model.kinds import (
    IMAGE,
    KINDS,
    RECIPE,
    Strangers,
    TaskNetwork,
    allowed,
)
from shoal.net.identity.identity import Identity
from shoal.policy.registry import Registry
from shoal.runtime.calls.lanes import Lanes
from shoal.runtime.discovery.finders import finding_of
from shoal.runtime.discovery.listen_addresses import NetworkOptions
from shoal.runtime.environments.loans import Loans
from shoal.runtime.host import Host
from shoal.runtime.membership import shoal_membership
from shoal.runtime.node import Node, NodeSettings
from shoal.store.journal_mark import Begin

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from shoal.drivers import Driver
    from shoal.drivers.container_engines import Engine
    from shoal.drivers.gpus import FoundGpus
    from shoal.model.resources import Capacity
    from shoal.protocol.messages import Role
    from shoal.runtime.home import Home

OTHERS_READ: Final = 0o005
SHOAL_OF_ONE: Final = "home"
ENGINE_TIMEOUT_S: Final = 3.0  # Few jobs use an engine.
"""Name of a shoal that a node founds for itself."""


class NodeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Node options of the user; an empty string means unset."""

    worker: bool = True
    policy: str = ""
    order: str = ""  # queue order
    network: NetworkOptions = NetworkOptions()
    metrics: str = ""  # host:port
    web: str = ""  # host:port of the web page, or "off"
    api: str = ""  # host:port for remote clients
    gpus: str | None = None  # declared; None: detect
    models: str = ""
    memories: str = ""
    labels: tuple[str, ...] = ()  # name=value
    sandbox: bool = True
    strangers: Strangers | None = None  # None: "confined" if sandboxed, else "any"
    task_network: TaskNetwork = "none"  # for tasks of other owners
    keep: KeepRule = KeepRule()
    forward: bool = False  # whether jobs go to other schedulers of the owner
    keepers: int = 0  # of jobs that say nothing of them
    cache_bytes: int = 0  # 0: a fifth of the disk
    environment_bytes: int = 0  # 0: a fifth of the disk
    shares: tuple[str, ...] = ()  # NAME=FOLDER:rw:all
    pythons: tuple[str, ...] = ()  # NAME=FOLDER:all
    journal: Begin = ""  # how to begin if it was lost or damaged
    allow: str = ""  # allowed kinds of work; empty: all
    functions: bool = True  # whether to run function calls
    containers: bool = True  # whether to run images, if an engine exists
    lend: str = ""  # when tasks of other owners run here; empty: always
    owner_input: tuple[str, ...] = ()  # patterns of files that the owner touches
    time_limit_s: float | None = None  # how long this machine is there; None: for good
    idle_timeout_s: float | None = None  # idle for so long, the node ends


async def compose(
    home: Home, options: NodeOptions, scratch: Path, say: Callable[[str], None]
) -> tuple[Node, ProcessDriver]:
    """Build a node without starting it. Needs a running loop.

    `scratch` is an empty folder that lasts as long as the node; `say` tells its user of
    trouble.
    """
    home.prepare()
    loans = Loans(options.shares, options.pythons)
    parse_lend(options.lend or "always")  # raises if it cannot be understood
    PolicyLookup(Registry(), options.policy, options.order)  # raises if unknown
    identity = Identity.load_or_create(home.key)
    belongs = shoal_membership.load(home)
    if belongs is None:
        belongs = shoal_membership.found(home, identity, home.net or SHOAL_OF_ONE)
    drives = driver_settings(options, scratch)
    (capacity, found), engine, lacks = await asyncio.gather(
        asyncio.to_thread(detect, home.tasks, options),
        _engine(options),
        _lacks(options, drives),
    )
    capacity = msgspec.structs.replace(capacity, lacks=lacks, lends=loans.lends)
    drives = msgspec.structs.replace(drives, device_files=found.files)
    driver = ProcessDriver(home.tasks, drives)
    host = Host()
    lanes = Lanes(host)
    python = PythonDriver(driver, lanes)
    runs: dict[str, Driver] = {driver.name: driver, RECIPE: driver, python.name: python}
    if engine is not None:
        runs["container"] = ContainerDriver(home.containers, engine, drives)
    rules = OwnerRules(
        drivers=_offered(options, runs),
        own=belongs.grant.owner,
        strangers=_strangers(options),
        task_network=options.task_network,
        lent=loans.to_all,
        lend=parse_lend(options.lend or "always"),
    )
    settings = NodeSettings(
        roles=_roles(options),
        capacity=capacity,
        rules=rules,
        policy=options.policy,
        order=options.order,
        cache_bytes=options.cache_bytes,
        keep=options.keep,
        forward=ForwardRule(options.forward, takes=True, keepers=options.keepers),
        environment_bytes=options.environment_bytes,
        loans=loans,
        journal=options.journal,
        open_lan=options.network.open_lan,
        finding=finding_of(options.network.without, options.network.overlay),
        owner_input=options.owner_input,
        time_limit_s=options.time_limit_s,
        idle_timeout_s=options.idle_timeout_s,
    )
    parts = (home, identity, belongs, settings, runs)
    return Node(*parts, host=host, lanes=lanes, say=say), driver


def _roles(options: NodeOptions) -> tuple[Role, ...]:
    if options.worker:
        return "scheduler", "worker", "gate"
    return "scheduler", "gate"


def _offered(options: NodeOptions, runs: Collection[str]) -> tuple[str, ...]:
    """Return the drivers that others may use here; raise if there is none."""
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


def _strangers(options: NodeOptions) -> Strangers:
    """Return which strangers' tasks run here; any, if the user has no sandbox."""
    return options.strangers or ("confined" if options.sandbox else "any")


async def _engine(options: NodeOptions) -> Engine | None:
    """Return a container engine, if there is one and the user allows it."""
    wanted = options.containers and IMAGE in allowed(options.allow)
    if not (options.worker and wanted):
        return None
    found = await find_engine(ENGINE_TIMEOUT_S)
    return None if isinstance(found, str) else found


async def _lacks(options: NodeOptions, drives: ProcessSettings) -> tuple[str, ...]:
    """Return the modules that the Python of tasks does not have, if any run here."""
    if not options.worker:
        return ()
    return await asyncio.to_thread(missing_modules, drives.path)


def detect(folder: Path, options: NodeOptions) -> tuple[Capacity, FoundGpus]:
    """Detect what this machine can lend. Blocks."""
    if options.gpus is None:
        found = detect_gpus()
    else:
        found = devices.declared_gpus(options.gpus, options.models, options.memories)
    pairs = [text.partition("=") for text in options.labels]
    labels = tuple({name: value for name, _, value in pairs}.items())
    return devices.capacity(folder, found.devices, labels), found


def driver_settings(options: NodeOptions, scratch: Path) -> ProcessSettings:
    """Return driver settings that let tasks use this node's Python environment.

    Where tasks cannot read it, `python` is a link to the system's `python3`.
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
    return ProcessSettings(
        sandbox=options.sandbox,
        owner_first=not parse_lend(options.lend or "always").is_always,
        path=path,
        readable=tuple(each for each in readable if not each.startswith("/usr/")),
    )


def seen_by_tasks(folder: Path) -> bool:
    """Whether a task can read this folder in its sandbox.

    The task's work directory hides host folders below the same path. If this node runs
    as root, its tasks do not, and cannot read what only root can.
    """
    folder = folder.resolve()
    if folder.is_relative_to(WORK):
        return False
    return os.geteuid() != 0 or folder.stat().st_mode & OTHERS_READ == OTHERS_READ
