"""Bind the sockets on which a node listens, before anything accepts on them."""

from __future__ import annotations

import asyncio
import socket


async def bound(host: str, port: int = 0) -> list[socket.socket]:
    """Return sockets bound to each address of a host; port 0 picks a free one.

    Raises `OSError` if the port is taken, or there is no such host.
    """
    loop = asyncio.get_running_loop()
    places = await loop.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    sockets: list[socket.socket] = []
    try:
        for family, kind, protocol, _, address in dict.fromkeys(places):
            sock = socket.socket(family, kind, protocol)
            sockets.append(sock)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            sock.setblocking(False)
            sock.bind(address)
    except OSError:
        for sock in sockets:
            sock.close()
        raise
    return sockets


def port_of(sock: socket.socket) -> int:
    """Return the port to which a socket is bound."""
    return int(sock.getsockname()[1])
