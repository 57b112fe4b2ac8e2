"""Every limit on messages and frames, each with a name.

The limits of the values inside, such as amounts, names and devices, are in
`model.text.bounds`. Whatever is beyond a limit is refused when it is decoded, so that a
machine never meets it; docs/protocol.md has all of them in a table.
"""

from typing import Annotated, Final

from msgspec import Meta

from shoal.model.ids import LeaseId, NodeId, RequestId
from shoal.model.job import PRIORITY_MAX, PRIORITY_MIN
from shoal.model.text.bounds import ADDRESS, GRAMMAR, Name, Text
from shoal.protocol.call_items import HEAD_BYTES

FRAME_BYTES_MAX: Final = 1 << 20
"""A frame, and so a message. No stream writes more than this at a time."""

BATCH_BYTES_MAX: Final = 60_000
"""Several messages in one frame: what goes through every kind of stream in one go."""

MESSAGES_MAX: Final = 1_024
"""Messages in one frame."""

GOSSIP_BYTES_MAX: Final = 16_384
"""One message of gossip: everybody pays for it, so it is small."""

ADMINS_MAX: Final = 8  # that are named to one who needs a new grant
DELEGATIONS_MAX: Final = 3
"""Admins between the root and a node: each shows its own grant inside the next."""

RUMOURS_MAX: Final = 128
"""Workers that one message of gossip tells of."""

HOPS_MAX: Final = 32
"""Nodes that may pass on what one node says of its room."""

VERSION_MAX: Final = 65_535
SIGNATURE_BYTES_MAX: Final = 128
SECRET_BYTES_MAX: Final = 64
WALL_MAX_S: Final = 1e11
ROLES_MAX: Final = 8
USES_MAX: Final = 1_000  # of an invitation
LEASES_MAX: Final = 4_096
"""Leases, or attempts, that one message names."""

GANG_MAX: Final = 4_096
WANTS_MAX: Final = 16
ADDRESSES_MAX: Final = 16
ADDRESS_LENGTH_MAX: Final = 512
PEERS_MAX: Final = 64
DRIVERS_MAX: Final = 16
WARM_MAX: Final = 256
GANGS_MAX: Final = 16  # that a worker tells of
WEAKNESSES_MAX: Final = 16
METRICS_MAX: Final = 256
OUTPUT_BYTES_MAX: Final = 32_768
"""A piece of what a task wrote, in one message."""

PIECE_BYTES_MAX: Final = 49_152
"""A piece of a blob: what is verified at once, and fits into one frame with others."""

LEVEL_MAX: Final = 2
"""Levels of hashes above the bytes of a blob: enough for 48 GiB."""

PIECES_MAX: Final = 64
"""Pieces that are asked for in one message."""

HOLDERS_MAX: Final = 8
NARROW_MAX: Final = 32
"""Peers of whose narrow links a node tells."""

NEIGHBOURHOOD_MAX: Final = 64
"""Links that a node tells its neighbours of."""

FARNESS_MAX: Final = 15
MARK_MAX: Final = (1 << 32) - 1

DISTANCE_US_MAX: Final = 10_000_000
"""The farthest that a node can be: a round trip of ten seconds."""

BANDWIDTH_CLASS_MAX: Final = 20
"""The widest class of links that is told apart: 512 Gbit/s."""

PROBE_BYTES_MAX: Final = 229_376
"""Bytes that one question of a probe may ask for."""

PROBE_PIECE_BYTES_MAX: Final = 32_768
SEALED_BYTES_MAX: Final = 70_000
"""A secret, sealed: no longer than a variable may be, and what sealing adds."""

MAIL_BYTES_MAX: Final = 32_768
"""What one task says to another in one message."""

API_REQUEST_BYTES_MAX: Final = 262_144
"""The request of a call that one node makes at another for its user."""

KEPT_BYTES_MAX: Final = 524_288
"""One entry of the log of a job that is kept; the longest is the job itself."""

KEPT_ENTRIES_MAX: Final = 256
"""Entries of such a log in one message."""

ITEMS_MAX: Final = 1_024
"""Items for an interpreter, or from it, in one message."""

ITEM_BYTES_MAX: Final = 262_144
SLOTS_MAX: Final = 64
"""Channels that a node may have open at one other node."""

PORT_MAX: Final = 65_535
SIDE_MAX: Final = 4_096  # rows or columns of a terminal
VALUES_MAX: Final = 256
AHEAD_MAX: Final = 4
"""Demands for which room is kept that a worker tells of."""

LOSSES_MAX: Final = PRIORITY_MAX - PRIORITY_MIN + 1
"""A loss for each priority."""

EXIT_CODE_MAX: Final = (1 << 32) - 1

Hops = Annotated[int, Meta(ge=0, le=HOPS_MAX)]
Version = Annotated[int, Meta(ge=0, le=VERSION_MAX)]
Priority = Annotated[int, Meta(ge=PRIORITY_MIN, le=PRIORITY_MAX)]
WallSeconds = Annotated[float, Meta(ge=0, le=WALL_MAX_S)]
Fraction = Annotated[float, Meta(ge=0, le=1)]
ExitCode = Annotated[int, Meta(ge=-EXIT_CODE_MAX, le=EXIT_CODE_MAX)]
Signature = Annotated[bytes, Meta(max_length=SIGNATURE_BYTES_MAX)]
Secret = Annotated[bytes, Meta(max_length=SECRET_BYTES_MAX)]
Piece = Annotated[bytes, Meta(max_length=OUTPUT_BYTES_MAX)]
PieceData = Annotated[bytes, Meta(max_length=PIECE_BYTES_MAX)]
Offset = Annotated[int, Meta(ge=-DISTANCE_US_MAX, le=DISTANCE_US_MAX)]
Mark = Annotated[int, Meta(ge=0, le=MARK_MAX)]
Farness = Annotated[int, Meta(ge=0, le=FARNESS_MAX)]
Microseconds = Annotated[int, Meta(ge=0, le=DISTANCE_US_MAX)]
BandwidthClass = Annotated[int, Meta(ge=0, le=BANDWIDTH_CLASS_MAX)]
ProbeBytes = Annotated[int, Meta(ge=1, le=PROBE_BYTES_MAX)]
ProbeData = Annotated[bytes, Meta(max_length=PROBE_PIECE_BYTES_MAX)]
Level = Annotated[int, Meta(ge=0, le=LEVEL_MAX)]
Sealed = Annotated[bytes, Meta(max_length=SEALED_BYTES_MAX)]
Items = Annotated[
    tuple[
        Annotated[bytes, Meta(min_length=HEAD_BYTES, max_length=ITEM_BYTES_MAX)], ...
    ],
    Meta(max_length=ITEMS_MAX),
]
Leases = Annotated[tuple[LeaseId, ...], Meta(max_length=LEASES_MAX)]
Requests = Annotated[tuple[RequestId, ...], Meta(max_length=LEASES_MAX)]
Address = Annotated[str, Meta(max_length=ADDRESS_LENGTH_MAX, extra={GRAMMAR: ADDRESS})]
Places = Annotated[tuple[Address, ...], Meta(max_length=GANG_MAX)]
Gang = Annotated[tuple[NodeId, ...], Meta(max_length=GANG_MAX)]
Drivers = Annotated[tuple[Name, ...], Meta(max_length=DRIVERS_MAX)]
Weaknesses = Annotated[tuple[Text, ...], Meta(max_length=WEAKNESSES_MAX)]
Hashes = Annotated[tuple[Name, ...], Meta(max_length=WARM_MAX)]
GangMarks = Annotated[tuple[Name, ...], Meta(max_length=GANGS_MAX)]
Addresses = Annotated[tuple[Address, ...], Meta(max_length=ADDRESSES_MAX)]
