"""Finding peers, and reaching peers without a direct link, by libp2p.

libp2p runs in a thread of its own under trio, because its Python library knows no
asyncio. The node sees only `port.Libp2p`, which obeys `Finder` and `Links`, and loads
neither trio nor libp2p until it is started: that takes a second and 84 MB. Two
bounded lanes connect the threads. If the host in the thread dies, it is started
again, and the node notices nothing but a counter.

`adapter` is the one module that imports the library, and works around its traps, each
with a comment on why. docs/decisions/0008-libp2p.md lists them.
"""
