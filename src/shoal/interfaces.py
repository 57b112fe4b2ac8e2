"""Find the address and the interface of this machine that lead to another one."""

from __future__ import annotations

import ipaddress
import socket
from pathlib import Path
from typing import Final

import psutil

LOOPBACK: Final = "127.0.0.1"
LOOPBACK_6: Final = "::1"
ANYWHERE: Final = "192.0.2.1"
ANYWHERE_6: Final = "2001:db8::1"
"""Addresses of documents: a socket that is aimed at one says which way leads out."""

_HARDWARE: Final = Path("/sys/class/net")


def is_loopback(address: str) -> bool:
    """Whether an address, or the name localhost, means the machine itself."""
    try:
        return address == "localhost" or ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def address_towards(address: str = ANYWHERE) -> str:
    """Return the address of this machine on the way to another. Nothing is sent.

    Loopback only if the machine has no other address. A network without a router is
    one, too: there no way leads out, and others are reached all the same.
    """
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((address, 9))
        except OSError:
            return _address_of_an_interface(family)
        return str(probe.getsockname()[0])


def _address_of_an_interface(family: socket.AddressFamily) -> str:
    """Return an address that others may reach, first that of a network card."""
    found = [
        (not (_HARDWARE / name / "device").exists(), name, each.address)
        for name, addresses in psutil.net_if_addrs().items()
        for each in addresses
        if each.family == family and _may_be_reached(each.address)
    ]
    own = LOOPBACK if family == socket.AF_INET else LOOPBACK_6
    return min(found)[2] if found else own


def _may_be_reached(text: str) -> bool:
    """Whether others may reach an address; those of one cable alone are left out."""
    address = ipaddress.ip_address(text.partition("%")[0])
    return not (address.is_loopback or address.is_link_local)


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
