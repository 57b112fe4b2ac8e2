"""Two islands of network namespaces with one cable between them, which can be cut.

Packets are dropped in silence then, as when a router dies: no connection is refused
and none is closed. Needs root and `ip`; nothing outside of the namespaces changes.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

SUBNET = "10.77.0"
SIDES = ("left", "right")


def ip(*args: str) -> None:
    """Run `ip`, which must succeed."""
    done = subprocess.run(["ip", *args], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"ip {' '.join(args)}: {done.stderr}"


def missing() -> str:
    """Say why there can be no islands here; empty if there can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "there is no `ip`: install iproute2"
    name = f"shoal-probe{os.getpid()}"
    add = ["ip", "netns", "add", name]
    if subprocess.run(add, capture_output=True, check=False).returncode != 0:
        return "this kernel or container allows no network namespaces"
    ip("netns", "delete", name)
    return ""


class Islands:
    """A namespace for each node, on one of two bridges in a namespace of their own."""

    def __init__(self, left: int, right: int) -> None:
        """Plan for so many nodes on each side; the first are on the left."""
        self._prefix = f"shoal{os.getpid()}"
        self._left = left
        self._count = left + right
        self._hub = f"{self._prefix}-hub"
        self._made: list[str] = []

    def build(self) -> None:
        """Make all namespaces, joined."""
        self._add(self._hub)
        for side in SIDES:
            ip("-n", self._hub, "link", "add", side, "type", "bridge")
            ip("-n", self._hub, "link", "set", side, "up")
        cable = ("cable", "type", "veth", "peer", "name", "socket")
        ip("-n", self._hub, "link", "add", *cable)
        for end, side in zip(("cable", "socket"), SIDES, strict=True):
            ip("-n", self._hub, "link", "set", end, "master", side, "up")
        for n in range(self._count):
            self._attach(n)

    def place(self, n: int) -> tuple[str, Sequence[str]]:
        """Return the address of a node, and the command that runs it there."""
        return f"{SUBNET}.{n + 1}", ("ip", "netns", "exec", self._name(n))

    def split(self) -> None:
        """Cut the cable."""
        ip("-n", self._hub, "link", "set", "cable", "down")

    def heal(self) -> None:
        """Mend it."""
        ip("-n", self._hub, "link", "set", "cable", "up")

    def remove(self) -> None:
        """Remove all namespaces, with all that is in them."""
        for name in reversed(self._made):
            ip("netns", "delete", name)
        self._made.clear()

    def _name(self, n: int) -> str:
        return f"{self._prefix}-{n}"

    def _add(self, name: str) -> None:
        ip("netns", "add", name)
        self._made.append(name)

    def _attach(self, n: int) -> None:
        name, side = self._name(n), SIDES[n >= self._left]
        self._add(name)
        ip(
            *("-n", self._hub, "link", "add", f"port{n}", "type", "veth"),
            *("peer", "name", "eth0", "netns", name),
        )
        ip("-n", self._hub, "link", "set", f"port{n}", "master", side, "up")
        ip("-n", name, "address", "add", f"{SUBNET}.{n + 1}/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            ip("-n", name, "link", "set", device, "up")


@contextmanager
def islands(left: int, right: int) -> Iterator[Islands]:
    """Make islands, and remove them in any case; skip the test if there can be none."""
    if why := missing():
        pytest.skip(why)
    made = Islands(left, right)
    try:
        made.build()
        yield made
    finally:
        made.remove()
