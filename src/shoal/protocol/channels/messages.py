"""Messages of channels: streams of bytes between a user's command and a task.

A channel has two ends, on two nodes. Both number their items, repeat them until the
other end has taken them, and say when they can take no more (`core.channels`).
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from shoal.model.ids import Attempt
from shoal.model.text.bounds import Arguments, Count, Name, Text
from shoal.protocol.channels.items import ITEM_BYTES_MAX
from shoal.protocol.limits import ITEMS_MAX, PORT_MAX, SIDE_MAX, SLOTS_MAX
from shoal.protocol.message import Message

UseKind = Literal["port", "program", "stdin", "api"]
Slot = Annotated[int, Meta(ge=0, le=SLOTS_MAX - 1)]
Port = Annotated[int, Meta(ge=0, le=PORT_MAX)]
Side = Annotated[int, Meta(ge=0, le=SIDE_MAX)]
ChannelItems = Annotated[
    tuple[Annotated[bytes, Meta(min_length=1, max_length=ITEM_BYTES_MAX)], ...],
    Meta(max_length=ITEMS_MAX),
]


class ChannelId(msgspec.Struct, frozen=True, array_like=True, order=True):
    """One channel of a node: of two in the same slot, the larger is the later.

    A life begins with each start of the node. `use` rises with each channel of a life.
    """

    life: Count
    use: Count
    slot: Slot


class ChannelUse(msgspec.Struct, frozen=True, kw_only=True):
    """What a channel is for: a TCP port, a new program, or the task's own input.

    `api` is the other way: a task calls the API of the scheduler of its job.
    """

    kind: UseKind
    port: Port = 0
    argv: Arguments = ()
    terminal: bool = False
    rows: Side = 0
    columns: Side = 0
    terminal_type: Name = ""


class ChannelOpen(Message, frozen=True, tag="channel-open"):
    """Open a channel to a task, repeated until something is heard of it.

    A worker is told the attempt, by its scheduler. A scheduler of the same owner is
    told job and task as its user calls them. For `api` a worker tells the scheduler
    which attempt it speaks for.
    """

    channel: ChannelId
    use: ChannelUse
    attempt: Attempt | None = None
    job: Name = ""
    task: Name = ""


class ChannelBatch(Message, frozen=True, tag="channel-batch"):
    """Items of one end, numbered from `first`; fields as in `CallBatch`."""

    channel: ChannelId
    by_opener: bool
    first: Count
    taken: Count
    items: ChannelItems = ()
    open: bool = True
    probe: bool = False
    turn: Count = 0


class ChannelEnd(Message, frozen=True, tag="channel-end"):
    """The sender's end is closed, or was never there; the receiver's is of no use."""

    channel: ChannelId
    by_opener: bool
    reason: Text = ""  # empty: it said all that it had to say, and it was taken


ToChannels = ChannelOpen | ChannelBatch | ChannelEnd
