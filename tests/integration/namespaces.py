"""Networks of our own: machines in network namespaces, and routers that do NAT.

Needs root, `ip` (Debian: iproute2) and `nft` (Debian: nftables). Nothing of the real
network is touched: all interfaces live in namespaces, which are removed at the end.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import SystemRandom

SLOW_LINE = Path(__file__).parent / "slow_line.py"
NAT_RULES = """
table ip nat {{
  chain after {{
    type nat hook postrouting priority srcnat;
    oifname "wan" {masquerade}
  }}
}}
table ip guard {{
  chain through {{
    type filter hook forward priority filter; policy drop;
    ct state established,related accept
    iifname "lan" oifname "wan" accept
  }}
  chain here {{
    type filter hook input priority filter; policy accept;
    iifname "wan" tcp flags & (syn | ack) == syn drop
  }}
}}
"""


def missing() -> str:
    """Say why namespaces cannot be made here; nothing if they can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    for tool, package in (("ip", "iproute2"), ("nft", "nftables")):
        if shutil.which(tool) is None:
            return f"there is no `{tool}`: install the package {package}"
    probe = f"shoal-probe-{SystemRandom().randrange(1 << 20):x}"
    made = subprocess.run(
        ["ip", "netns", "add", probe], capture_output=True, text=True, check=False
    )
    if made.returncode:
        return f"network namespaces cannot be made: {made.stderr.strip()}"
    run("ip", "netns", "del", probe)
    return ""


def run(*command: str, typed: str = "") -> None:
    """Run a command that must succeed."""
    done = subprocess.run(
        command, input=typed, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, (command, done.stderr)


def bits_per_s(rate: str) -> int:
    """Read a rate as `tc` writes it: 8mbit, 200kbit."""
    for unit, bits in (("mbit", 1_000_000), ("kbit", 1_000)):
        if rate.endswith(unit):
            return int(rate.removesuffix(unit)) * bits
    raise AssertionError(f"{rate} is neither in mbit nor in kbit")


class Internet:
    """A public network, 203.0.113.0/24, and what is connected to it."""

    def __init__(self) -> None:
        self._prefix = f"shoal-{SystemRandom().randrange(1 << 24):x}"
        self._spaces: list[str] = []
        self._wires = 0
        self._hub = self._bridge("hub")
        self._far_hub = ""
        self._line: subprocess.Popen[bytes] | None = None

    def machine(
        self, name: str, last: int, *, rate: str = "", far: bool = False
    ) -> tuple[str, tuple[str, ...]]:
        """Connect a machine with a public address; return that, and how to run there.

        The command of that prefix runs in the namespace. A `rate` such as 8mbit is
        all that its link carries, in either direction. `far` ones are at the other end
        of the line.
        """
        space = self._space(name)
        address = f"203.0.113.{last}"
        hub = self._far_hub if far else self._hub
        port = self._plug(space, "wan", address, hub)
        if rate:
            self._slow_down(space, "wan", rate)
            self._slow_down(hub, port, rate)
        return address, self.prefix(space)

    def lay_line(self, *, delay_ms: float, mbit: float) -> None:
        """Build a second site, at the other end of a long and narrow line."""
        self._far_hub, middle = self._bridge("far"), self._space("line")
        for hub, end in ((self._hub, "left"), (self._far_hub, "right")):
            self._wire(hub, "line", middle, end)
            self._ip(hub, "link", "set", "line", "master", "hub")
        command = (sys.executable, str(SLOW_LINE), "left", "right")
        self._line = subprocess.Popen(
            [*self.prefix(middle), *command, str(delay_ms), str(mbit)]
        )

    def _bridge(self, name: str) -> str:
        """Build a namespace that joins all that is plugged into it."""
        space = self._space(name)
        self._ip(space, "link", "add", "hub", "type", "bridge")
        self._ip(space, "link", "set", "hub", "up")
        return space

    def _slow_down(self, space: str, interface: str, rate: str) -> None:
        """Let an interface send no faster.

        A queue of 50 ms is all it has, or of some packets, as the narrowest link has.
        """
        packets_ms = 10 * 1_500 * 8 * 1_000 // bits_per_s(rate)
        latency = f"{max(50, packets_ms)}ms"
        limit = ("tbf", "rate", rate, "burst", "16kb", "latency", latency)
        run("tc", "-n", space, "qdisc", "add", "dev", interface, "root", *limit)

    def home(
        self, name: str, last: int, *, symmetric: bool = False
    ) -> tuple[str, tuple[str, ...]]:
        """Connect a machine behind a router that does NAT and lets nobody in.

        A symmetric one uses other ports for every connection, as some do.
        """
        router, space = self._space(f"{name}-router"), self._space(name)
        self._plug(router, "wan", f"203.0.113.{last}")
        self._wire(router, "lan", space, "eth0")
        self._ip(router, "addr", "add", f"10.{last}.0.1/24", "dev", "lan")
        self._ip(space, "addr", "add", f"10.{last}.0.2/24", "dev", "eth0")
        self._ip(space, "route", "add", "default", "via", f"10.{last}.0.1")
        run(*self.prefix(router), "sysctl", "-qw", "net.ipv4.ip_forward=1")
        masquerade = "masquerade fully-random" if symmetric else "masquerade"
        rules = NAT_RULES.format(masquerade=masquerade)
        run(*self.prefix(router), "nft", "-f", "-", typed=rules)
        return f"10.{last}.0.2", self.prefix(space)

    def prefix(self, space: str) -> tuple[str, ...]:
        """Return what runs a command in a namespace."""
        return ("ip", "netns", "exec", space)

    def close(self) -> None:
        """Remove everything."""
        if self._line is not None:
            self._line.kill()
            self._line.wait()
        for space in reversed(self._spaces):
            subprocess.run(["ip", "netns", "del", space], check=False)

    def _space(self, name: str) -> str:
        space = f"{self._prefix}-{name}"
        run("ip", "netns", "add", space)
        self._spaces.append(space)
        self._ip(space, "link", "set", "lo", "up")
        return space

    def _plug(self, space: str, interface: str, address: str, hub: str = "") -> str:
        """Connect a namespace to a hub; return its port there."""
        self._wires += 1
        port, hub = f"port{self._wires}", hub or self._hub
        self._wire(hub, port, space, interface)
        self._ip(hub, "link", "set", port, "master", "hub")
        self._ip(space, "addr", "add", f"{address}/24", "dev", interface)
        return port

    def _wire(self, one: str, end: str, other: str, other_end: str) -> None:
        """Join two namespaces by a pair of interfaces."""
        run(
            *("ip", "link", "add", end, "netns", one, "type", "veth"),
            *("peer", "name", other_end, "netns", other),
        )
        self._ip(one, "link", "set", end, "up")
        self._ip(other, "link", "set", other_end, "up")

    def _ip(self, space: str, *args: str) -> None:
        run("ip", "-n", space, *args)


@contextmanager
def internet() -> Iterator[Internet]:
    """Lend a network, and remove it in any case."""
    made = Internet()
    try:
        yield made
    finally:
        made.close()
