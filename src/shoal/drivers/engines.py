"""Which engine of containers answers here, whom it runs them as, and how it is called.

What a container writes must be the node's to read and to remove. So a node that is not
root runs them as itself: under its own uid, or as the root of an engine whose root it
is. For a root node it does not matter, and the image says who its program is.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping

Kind = Literal["docker", "podman"]

PROBE_TIMEOUT_S: Final = 10.0
PROBES: Final[dict[Kind, tuple[str, ...]]] = {
    "docker": ("info", "--format", "{{json .SecurityOptions}}"),
    "podman": ("--version",),
}
"""What shows that an engine works. Podman has no daemon that could be down."""

INITS: Final = ("/usr/libexec/podman/catatonit", "/usr/bin/catatonit")
SELINUX: Final = "/sys/fs/selinux/enforce"
CGROUP_V2: Final = "/sys/fs/cgroup/cgroup.controllers"
ROOT: Final = "0:0"
CLIENT_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
CLIENT_VARIABLES: Final = (
    "CONTAINER_HOST",
    "CONTAINERS_CONF",
    "CONTAINERS_STORAGE_CONF",
    "DBUS_SESSION_BUS_ADDRESS",
    "DOCKER_CONFIG",
    "DOCKER_CONTEXT",
    "DOCKER_HOST",
    "REGISTRY_AUTH_FILE",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "XDG_RUNTIME_DIR",
)
"""By which the owner of the node tells an engine's client where things are."""


class Engine(msgspec.Struct, frozen=True):
    """An engine that answers."""

    kind: Kind
    path: str
    init: bool = True  # whether it has a first process that reaps and passes signals
    user: str = ""  # as whom containers run, as UID:GID; empty: as their image says
    labelled: bool = False  # whether SELinux keeps containers from our sockets
    limits: bool = True  # whether it can limit the CPU and memory of containers


def client_env(ours: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the environment of an engine's client: the node's, never a job's.

    With a HOME in a work directory it would read settings that a job has written,
    and a docker that finds plug-ins there runs them outside of any container.
    """
    given = {name: ours[name] for name in CLIENT_VARIABLES if name in ours}
    return {"PATH": CLIENT_PATH, "HOME": ours.get("HOME") or str(Path.home()), **given}


async def find_engine(timeout_s: float = PROBE_TIMEOUT_S) -> Engine | str:
    """Return an engine that answers in time, or why there is none."""
    why = "neither docker nor podman is installed"
    for kind, probe in PROBES.items():
        path = shutil.which(kind)
        if path is None:
            continue
        code, said = await call([path, *probe], timeout_s)
        if code == 0:
            return engine_of(kind, path, said, os.geteuid(), os.getegid())
        why = f"{kind} does not answer: {said}"
    return why


def engine_of(
    kind: Kind,
    path: str,
    said: str,
    uid: int,
    gid: int,
    *,
    cgroups: str = CGROUP_V2,
) -> Engine:
    """Return what an engine is that answered so, to a node of this user.

    Without root limits need cgroups of the second kind, which have a file `cgroups`.
    """
    if kind == "podman":  # Who calls it is the root of its containers.
        rootless, labelled = True, Path(SELINUX).is_file()
    else:
        rootless, labelled = "name=rootless" in said, "name=selinux" in said
    itself = ROOT if rootless else f"{uid}:{gid}"
    return Engine(
        kind,
        path,
        init=kind == "docker" or any(Path(each).is_file() for each in INITS),
        user=itself if uid else "",
        labelled=labelled,
        limits=not (uid and rootless) or Path(cgroups).is_file(),
    )


async def call(argv: list[str], timeout_s: float) -> tuple[int, str]:
    """Run a short command of an engine; return its code and its last line."""
    process = await asyncio.create_subprocess_exec(
        *argv,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env=client_env(),
    )
    try:
        async with asyncio.timeout(timeout_s):
            output, _ = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        return -1, f"no answer in {timeout_s:g} s"
    lines = output.decode(errors="replace").strip().splitlines()
    return process.returncode or 0, lines[-1] if lines else ""
