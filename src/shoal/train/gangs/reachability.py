"""Check that gang tasks can dial each other, before torch needs it.

torch's transports wait for minutes and then name a socket. So each side opens a door,
a port that says whose it is, and dials the other's: behind NAT another machine may
answer at the same address, or none.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Final, Self, final

DIAL_S: Final = 5.0
NAME_BYTES_MAX: Final = 256


@final
class ReachabilityDoor:
    """A port on all interfaces that tells every caller a name."""

    def __init__(self, name: str) -> None:
        self._name = name.encode()[:NAME_BYTES_MAX]
        both = socket.has_dualstack_ipv6()
        self._server = socket.create_server(
            ("", 0),
            family=socket.AF_INET6 if both else socket.AF_INET,
            dualstack_ipv6=both,
        )
        self.port = int(self._server.getsockname()[1])
        threading.Thread(target=self._answer, daemon=True).start()

    def _answer(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return  # It was closed.
            with connection, contextlib.suppress(OSError):
                connection.sendall(self._name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)  # It wakes who accepts.
        self._server.close()


def why_not(address: str, port: int, name: str, timeout_s: float = DIAL_S) -> str:
    """Dial a port; say why it does not belong to `name`, or nothing if it does."""
    try:
        with socket.create_connection((address, port), timeout_s) as connection:
            connection.settimeout(timeout_s)
            said = b""
            while part := connection.recv(NAME_BYTES_MAX):
                said += part
                if len(said) > NAME_BYTES_MAX:
                    break
    except OSError as error:
        return str(error) or type(error).__name__
    return "" if said == name.encode() else "somebody else answers there"
