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

SIDES = ("left", "right")
SUBNETS = {"left": "10.77.0", "right": "10.78.0"}
CABLE = {"left": "10.79.0.1", "right": "10.79.0.2"}
GATEWAY = "169.254.1.1"


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
    """A namespace for each node, behind a router for each side.

    Nodes are routed to and not bridged: the kernel keeps 1,024 neighbours for all its
    namespaces together, which fifty nodes that see each other are too many for.
    """

    def __init__(self, left: int, right: int) -> None:
        """Plan for so many nodes on each side; the first are on the left."""
        self._prefix = f"shoal{os.getpid()}"
        self._left = left
        self._count = left + right
        self._made: list[str] = []

    def build(self) -> None:
        """Make all namespaces, joined."""
        for side in SIDES:
            self._add(self._router(side))
            forward = "echo 1 > /proc/sys/net/ipv4/ip_forward"
            ip("netns", "exec", self._router(side), "sh", "-c", forward)
        left, right = map(self._router, SIDES)
        cable = ("cable", "type", "veth", "peer", "name", "cable", "netns", right)
        ip("-n", left, "link", "add", *cable)
        for side in SIDES:
            router = self._router(side)
            ip("-n", router, "address", "add", f"{CABLE[side]}/30", "dev", "cable")
            ip("-n", router, "link", "set", "cable", "up")
        self.heal()
        for n in range(self._count):
            self._attach(n)

    def place(self, n: int) -> tuple[str, Sequence[str]]:
        """Return the address of a node, and the command that runs it there."""
        net = SUBNETS[self._side(n)]
        return f"{net}.{n + 1}", ("ip", "netns", "exec", self._name(n))

    def split(self) -> None:
        """Cut the cable: what should go over it is dropped without a word."""
        for side, other in (SIDES, SIDES[::-1]):
            ip(*self._route(side), "replace", "blackhole", f"{SUBNETS[other]}.0/24")

    def heal(self) -> None:
        """Mend it."""
        for side, other in (SIDES, SIDES[::-1]):
            via = ("via", CABLE[other], "dev", "cable")
            ip(*self._route(side), "replace", f"{SUBNETS[other]}.0/24", *via)

    def remove(self) -> None:
        """Remove all namespaces, with all that is in them."""
        for name in reversed(self._made):
            ip("netns", "delete", name)
        self._made.clear()

    def _side(self, n: int) -> str:
        return SIDES[n >= self._left]

    def _router(self, side: str) -> str:
        return f"{self._prefix}-{side}"

    def _route(self, side: str) -> tuple[str, ...]:
        return ("-n", self._router(side), "route")

    def _name(self, n: int) -> str:
        return f"{self._prefix}-{n}"

    def _add(self, name: str) -> None:
        ip("netns", "add", name)
        self._made.append(name)
        ip("-n", name, "link", "set", "lo", "up")

    def _attach(self, n: int) -> None:
        name, router = self._name(n), self._router(self._side(n))
        address, port = f"{self.place(n)[0]}/32", f"port{n}"
        self._add(name)
        eth0 = ("peer", "name", "eth0", "netns", name)
        ip("-n", router, "link", "add", port, "type", "veth", *eth0)
        ip("-n", router, "address", "add", f"{GATEWAY}/32", "dev", port)
        ip("-n", router, "link", "set", port, "up")
        ip("-n", router, "route", "add", address, "dev", port)
        ip("-n", name, "address", "add", address, "dev", "eth0")
        ip("-n", name, "link", "set", "eth0", "up")
        ip("-n", name, "route", "add", f"{GATEWAY}/32", "dev", "eth0")
        ip("-n", name, "route", "add", "default", "via", GATEWAY)


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
