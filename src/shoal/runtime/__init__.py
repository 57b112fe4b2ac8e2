"""A live node: hosts that run the machines on asyncio, real sockets and real disks."""
