"""Find the address and the interface of this machine that lead to another one."""

from __future__ import annotations

import ipaddress
import socket
from typing import Final

import psutil

LOOPBACK: Final = "127.0.0.1"
_ANYWHERE: Final = "192.0.2.1"
"""An address of documents: a socket that is aimed at it says which way leads out."""


def is_loopback(address: str) -> bool:
    """Whether an address, or the name localhost, means the machine itself."""
    try:
        return address == "localhost" or ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def address_towards(address: str = _ANYWHERE) -> str:
    """Return the address of this machine on the way to another. Nothing is sent."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((address, 9))
        except OSError:
            return LOOPBACK
        return str(probe.getsockname()[0])


def interface_of(address: str) -> str:
    """Return the interface that has an address; empty if none has."""
    for name, addresses in psutil.net_if_addrs().items():
        if any(each.address.partition("%")[0] == address for each in addresses):
            return name
    return ""


def transport_variables(address: str) -> dict[str, str]:
    """Return variables that make torch's transports use the route to that address.

    They would look up the name of the machine, which means nothing in a sandbox, and
    then use loopback, which reaches no other machine.
    """
    name = interface_of(address)
    return {"GLOO_SOCKET_IFNAME": name, "NCCL_SOCKET_IFNAME": name} if name else {}
