"""Give tasks the internet without the networks of whoever lends the machine.

Such a sandbox has a network of its own, and slirp4netns carries what goes out of it: it
is a program of the node's user and opens connections as any other would. Before there
is a way out, routes inside say that private, local and reserved addresses cannot be
reached, nor those of the machine itself; a task has no right to change that. Only
names are looked up at the resolver of the machine, wherever that is. There is no IPv6.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Final

import msgspec

NETWORK: Final = "192.0.2.0/24"
"""Addresses for documents, which no network has: of the sandbox and its way out."""

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
"""Private, shared, local to a link, of tests, for many, and reserved."""

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
"""Shuts what is to be shut, waits for the way out, and becomes the sandbox."""

PROGRAMS: Final = {
    "slirp4netns": "slirp4netns",
    "ip": "iproute2",
    "unshare": "util-linux",
}
"""What it takes, and which packages have it."""

PATH: Final = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"


class Internet(msgspec.Struct, frozen=True):
    """The programs that it takes."""

    slirp4netns: str
    unshare: str

    def room(self, argv: tuple[str, ...]) -> tuple[str, ...]:
        """Return the command that runs `argv` with a network of its own."""
        own = () if os.geteuid() == 0 else ("--user", "--map-root-user")
        shut = (*CLOSED, *own_addresses())
        script = ("/bin/sh", "-c", SCRIPT, "internet", *shut)
        return (self.unshare, *own, "--net", "--", *script, "--", *argv)

    @property
    def uplink(self) -> tuple[str, ...]:
        """The command that carries what goes out; a warden knows the process."""
        # Its own sandbox is for root: in a namespace with a single user it fails.
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
    """Return what gives tasks the internet alone, or why nothing does."""
    for name, package in PROGRAMS.items():
        if shutil.which(name, path=PATH) is None:
            return f"{name} is not installed (package {package})"
    if not os.access("/dev/net/tun", os.R_OK | os.W_OK):
        return "this user cannot use /dev/net/tun"
    found = [shutil.which(name, path=PATH) for name in ("slirp4netns", "unshare")]
    return Internet(*map(str, found))


def own_addresses(fib: str | None = None) -> tuple[str, ...]:
    """Return the addresses of this machine beyond loopback, sorted."""
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


def write_resolver(folder: Path) -> Path:
    """Write the file that tells tasks who knows names; return where it is."""
    path = folder / "resolv.conf"
    path.write_text(f"nameserver {RESOLVER}\n", encoding="ascii")
    path.chmod(0o644)
    return path
