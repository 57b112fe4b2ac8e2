"""Give tasks internet access without access to the lender's local networks.

The sandbox has its own network namespace, and slirp4netns forwards its traffic through
ordinary connections of the node's user. Before the uplink exists, unreachable routes
block private, local and reserved addresses and those of the machine itself; a task has
no right to change them. Only DNS queries go to the machine's resolver, wherever that
is. There is no IPv6.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Final

import msgspec

NETWORK: Final = "192.0.2.0/24"
"""Addresses of sandbox and uplink: reserved for documentation, so never in use."""

RESOLVER: Final = "192.0.2.3"
INTERFACE: Final = "eth0"
CLOSED: Final = (
    "0.0.0.0/8",
    "10.0.0.0/8",
    "100.64.0.0/10",
    "169.254.0.0/16",
    "172.16.0.0/12",
    "192.0.0.0/24",
    "192.168.0.0/16",
    "198.18.0.0/15",
    "224.0.0.0/4",
    "240.0.0.0/4",
)
"""Blocked: private, shared, link-local, test, multicast and reserved addresses."""

SCRIPT: Final = """
PATH=/usr/sbin:/usr/bin:/sbin:/bin
ip link set lo up
while [ "$1" != -- ]; do ip route add unreachable "$1" || exit 1; shift; done
shift
tries=0
until [ -n "$(ip -4 route show default)" ]; do
  tries=$((tries + 1))
  [ $tries -lt 500 ] || { echo "slirp4netns makes no way out" >&2; exit 1; }
  sleep 0.02
done
exec "$@"
"""
"""Blocks the given addresses, waits for the uplink, and executes the sandbox."""

PROGRAMS: Final = {
    "slirp4netns": "slirp4netns",
    "ip": "iproute2",
    "unshare": "util-linux",
}
"""Required programs, and the packages that contain them."""

PATH: Final = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"


class Internet(msgspec.Struct, frozen=True):
    """Paths of the required programs."""

    slirp4netns: str
    unshare: str

    def room(self, argv: tuple[str, ...]) -> tuple[str, ...]:
        """Return the command that runs `argv` in its own network namespace."""
        own = () if os.geteuid() == 0 else ("--user", "--map-root-user")
        shut = (*CLOSED, *own_addresses())
        script = ("/bin/sh", "-c", SCRIPT, "internet", *shut)
        return (self.unshare, *own, "--net", "--", *script, "--", *argv)

    @property
    def uplink(self) -> tuple[str, ...]:
        """The command of the uplink; a supervisor replaces `{pid}`."""
        # Its own sandbox needs root: it fails in a single-user namespace.
        user: tuple[str, ...] = ("--enable-sandbox",)
        if os.geteuid() != 0:
            user = ("--userns-path=/proc/{pid}/ns/user",)
        return (
            *(self.slirp4netns, "--configure", "--mtu=65520", "--exit-fd=3"),
            *("--disable-host-loopback", f"--cidr={NETWORK}"),
            *("--enable-seccomp", *user, "--netns-type=path", "/proc/{pid}/ns/net"),
            INTERFACE,
        )


def find() -> Internet | str:
    """Return the means to give tasks internet access, or why there are none."""
    for name, package in PROGRAMS.items():
        if shutil.which(name, path=PATH) is None:
            return f"{name} is not installed (package {package})"
    if not os.access("/dev/net/tun", os.R_OK | os.W_OK):
        return "this user cannot use /dev/net/tun"
    found = [shutil.which(name, path=PATH) for name in ("slirp4netns", "unshare")]
    return Internet(*map(str, found))


def own_addresses(fib: str | None = None) -> tuple[str, ...]:
    """Return this machine's IPv4 addresses except loopback, sorted."""
    if fib is None:
        fib = Path("/proc/net/fib_trie").read_text(encoding="ascii")
    found: set[str] = set()
    last = ""
    for line in fib.splitlines():
        words = line.split()
        if words[:1] == ["|--"]:
            last = words[1]
        elif words[:3] == ["/32", "host", "LOCAL"] and not last.startswith("127."):
            found.add(last)
    return tuple(sorted(found))
