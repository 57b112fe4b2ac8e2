"""Messages that measure the network between nodes: positions and probes."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from shoal.model.ids import NodeId
from shoal.model.text.bounds import Count, Milli
from shoal.protocol.limits import (
    NARROW_MAX,
    BandwidthClass,
    Microseconds,
    Offset,
    ProbeBytes,
    ProbeData,
)
from shoal.protocol.message import Message


class Position(Message, frozen=True, tag="position"):
    """Where the sender is in the network, and how much its links carry.

    Round trips between two nodes take about as long as their points are apart, plus
    both heights. Bandwidth is a class: `uplink` is the best that the sender gets from
    anybody, and `narrow` has the peers that it gets less from.
    """

    x_us: Offset = 0
    y_us: Offset = 0
    z_us: Offset = 0
    height_us: Microseconds = 0
    error_milli: Milli = 1_000  # how wrong this is, by the sender's own estimate
    uplink: BandwidthClass = 0  # 0: not measured
    narrow: Annotated[
        tuple[tuple[NodeId, BandwidthClass], ...], Meta(max_length=NARROW_MAX)
    ] = ()


class ProbeWanted(Message, frozen=True, tag="probe-wanted"):
    """Send me so many bytes of no use: I measure how long they take."""

    probe: Count
    size: ProbeBytes


class ProbePiece(Message, frozen=True, tag="probe-piece"):
    """Some of the bytes that a probe asked for."""

    probe: Count
    data: ProbeData


ToProximity = Position | ProbeWanted | ProbePiece
