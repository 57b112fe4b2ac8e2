"""Whether this machine lets programs talk by multicast, as mDNS does."""

import socket

GROUP = "224.0.0.251"


def multicast_works() -> bool:
    """Say whether what is sent to the address of mDNS comes back to its members."""
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as ear,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as mouth,
    ):
        try:
            ear.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            ear.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            ear.bind(("", 0))
            group = socket.inet_aton(GROUP) + socket.inet_aton("0.0.0.0")
            ear.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, group)
            ear.settimeout(1.0)
            mouth.sendto(b"shoal", (GROUP, ear.getsockname()[1]))
            return ear.recv(16) == b"shoal"
        except OSError:
            return False
