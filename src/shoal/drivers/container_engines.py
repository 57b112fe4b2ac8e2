"""Find a working container engine, and the user and environment to run it with.

The node must be able to read and remove what a container writes. So a node without
root runs containers as itself: under its own uid, or as root of a rootless engine,
where root is the node's user. A root node can read everything, so it leaves the user
to the image.
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
"""Commands that show that an engine works. Podman has no daemon to be down."""

INITS: Final = ("/usr/libexec/podman/catatonit", "/usr/bin/catatonit")
DOCKER_SOCKET: Final = "/var/run/docker.sock"
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
"""Variables of the node that configure an engine's client."""


class Engine(msgspec.Struct, frozen=True):
    """A working container engine."""

    kind: Kind
    path: str
    init: bool = True  # whether it provides an init that reaps and forwards signals
    user: str = ""  # UID:GID of containers; empty: as the image says
    labelled: bool = False  # whether SELinux blocks containers from our sockets
    limits: bool = True  # whether it can limit CPU and memory


def client_env(ours: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the environment of an engine's client, taken from the node, not a job.

    With HOME in a work directory, the client would read settings written by a job,
    and docker would run plug-ins found there outside of any container.
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
        if kind == "docker" and (nobody := no_daemon(client_env())):
            why = nobody
            continue
        code, said = await call([path, *probe], timeout_s)
        if code == 0:
            return engine_of(kind, path, said, os.geteuid(), os.getegid())
        why = f"{kind} does not answer: {said}"
    return why


def no_daemon(env: Mapping[str, str], usual: str = DOCKER_SOCKET) -> str:
    """Say that nobody serves docker, if that is certain; to ask its client costs more.

    It is where it is told to be: by a variable, by a context, or at its usual sockets.
    """
    if env.keys() & {"DOCKER_HOST", "DOCKER_CONTEXT"}:
        return ""
    settings = Path(env.get("DOCKER_CONFIG") or f"{env['HOME']}/.docker")
    ours = env.get("XDG_RUNTIME_DIR", "/nonexistent")
    places = (settings / "contexts", Path(usual), Path(ours) / "docker.sock")
    if any(place.exists() for place in places):
        return ""
    return f"docker does not answer: there is no {usual}"


def engine_of(
    kind: Kind,
    path: str,
    said: str,
    uid: int,
    gid: int,
    *,
    cgroups: str = CGROUP_V2,
) -> Engine:
    """Describe an engine that answered `said`, for a node that runs as `uid`.

    Rootless engines can set limits only with cgroups v2, where file `cgroups` exists.
    """
    if kind == "podman":  # Its containers' root is the calling user.
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
    """Run a short engine command; return its exit code and last line of output."""
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
