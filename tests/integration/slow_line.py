"""A long, narrow line between two networks, as one process.

It forwards frames from one interface to another, late, and no faster than the line
carries; what does not fit into its queue is lost. The kernels of test machines have no
`netem`. Large frames are passed on whole, with the header that says how to part them.

Run: python -m tests.integration.slow_line LEFT RIGHT DELAY_MS MBIT
"""

import heapq
import select
import socket
import struct
import sys
import time
from contextlib import suppress
from itertools import count

SOL_PACKET = 263
PACKET_ADD_MEMBERSHIP = 1
PACKET_IGNORE_OUTGOING = 23
PACKET_VNET_HDR = 15
PACKET_MR_PROMISC = 1
ETH_P_ALL = 3
FRAME_BYTES_MAX = 70_000
QUEUE_S = 0.2
"""What waits longer for the line is lost."""


def opened(interface: str) -> socket.socket:
    """Return a socket that takes and gives whole frames of an interface."""
    line = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    line.setsockopt(SOL_PACKET, PACKET_VNET_HDR, 1)
    line.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
    line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
    line.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8 << 20)
    line.bind((interface, ETH_P_ALL))
    index = socket.if_nametoindex(interface)
    wish = struct.pack("iHH8s", index, PACKET_MR_PROMISC, 0, b"")
    line.setsockopt(SOL_PACKET, PACKET_ADD_MEMBERSHIP, wish)
    line.setblocking(False)
    return line


def carry(
    left: socket.socket, right: socket.socket, delay_s: float, bps: float
) -> None:
    """Forward frames both ways, until this process is killed."""
    across = {left: right, right: left}
    free_at = {left: 0.0, right: 0.0}
    under_way: list[tuple[float, int, socket.socket, bytes]] = []
    numbers = count()
    while True:
        now = time.monotonic()
        while under_way and under_way[0][0] <= now:
            _, _, out, frame = heapq.heappop(under_way)
            with suppress(OSError):  # As on any line, what does not fit is lost.
                out.send(frame)
        wait_s = max(0.0, under_way[0][0] - time.monotonic()) if under_way else 1.0
        readable, _, _ = select.select([left, right], [], [], wait_s)
        for line in readable:
            try:
                frame = line.recv(FRAME_BYTES_MAX)
            except OSError:
                continue
            now = time.monotonic()
            if free_at[line] - now > QUEUE_S:
                continue
            free_at[line] = max(now, free_at[line]) + 8 * len(frame) / bps
            due = free_at[line] + delay_s
            heapq.heappush(under_way, (due, next(numbers), across[line], frame))


if __name__ == "__main__":
    one, other, delay_ms, mbit = sys.argv[1:]
    carry(opened(one), opened(other), float(delay_ms) / 1e3, float(mbit) * 1e6)
