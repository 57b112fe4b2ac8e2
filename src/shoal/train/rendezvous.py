"""How the tasks of a gang find each other: the first says where, by mail.

The first task of the gang takes a free port and tells it to whoever asks. So two gangs
on one machine never want the same port, and nobody waits at an address of yesterday.
"""

from __future__ import annotations

import socket
import threading
import time
from typing import TYPE_CHECKING, Final, final

import psutil

from shoal.errors import ShoalError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shoal.train.exchange import Exchange

LOOPBACK: Final = "127.0.0.1"
ASK: Final = b"where?"
HERE: Final = b"here:"
ASK_AGAIN_S: Final = 1.0
GIVE_UP_S: Final = 300.0


def free_port(host: str) -> int:
    """Return a port that nobody uses now."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def own_address(environment: Mapping[str, str]) -> str:
    """Return where the others reach this node, as the scheduler told it."""
    addresses = environment.get("NODE_IPS", LOOPBACK).split("\n")
    rank = int(environment.get("NODE_RANK", "0"))
    return addresses[min(rank, len(addresses) - 1)] or LOOPBACK


def transport_variables(address: str) -> dict[str, str]:
    """Return variables by which torch's transports use the way to that address.

    They would look up the name of the machine, which means nothing in a sandbox, and
    then use loopback, which reaches nobody.
    """
    for name, addresses in psutil.net_if_addrs().items():
        if any(each.address.partition("%")[0] == address for each in addresses):
            return {"GLOO_SOCKET_IFNAME": name, "NCCL_SOCKET_IFNAME": name}
    return {}


@final
class Host:
    """Answers whoever asks where the gang meets, until it is closed."""

    def __init__(self, exchange: Exchange, host: str, port: int) -> None:
        self._exchange = exchange
        self._said = HERE + f"{host} {port}".encode()
        self._ended = threading.Event()
        threading.Thread(target=self._answer, daemon=True).start()

    def close(self) -> None:
        """Answer nobody any more."""
        self._ended.set()

    def _answer(self) -> None:
        while not self._ended.is_set():
            mail = self._exchange.receive(timeout_s=ASK_AGAIN_S)
            if mail is not None and mail.data == ASK:
                self._exchange.send(mail.sender, self._said)


def find(exchange: Exchange, first: str) -> tuple[str, int]:
    """Ask the first task of the gang where to meet; raise if it does not answer."""
    until = time.monotonic() + GIVE_UP_S
    while time.monotonic() < until:
        exchange.send(first, ASK)
        mail = exchange.receive(timeout_s=ASK_AGAIN_S)
        if mail is not None and mail.sender == first and mail.data.startswith(HERE):
            host, _, port = mail.data.removeprefix(HERE).decode().partition(" ")
            return host, int(port)
    raise ShoalError(
        f"{first} does not say where the gang meets",
        because=f"it did not answer for {GIVE_UP_S:.0f} s",
        hint="`shoal show` says whether it runs",
    )
