"""Messages by which the tasks of one job speak to each other.

They go by the scheduler of the job, which knows where each task runs and that both are
of the same job; a worker takes mail from that scheduler only.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from shoal.model.bounds import Count
from shoal.model.ids import Attempt, NodeId, TaskId
from shoal.protocol.limits import MAIL_BYTES_MAX, Addresses
from shoal.protocol.message import Message


class Mail(Message, frozen=True, tag="mail"):
    """A letter of one task to another. Said again until there is a receipt.

    A worker names attempt, number and receiver. The scheduler adds who the sender is,
    the attempt that it is for, and where the sender's node can be reached.
    """

    attempt: Attempt  # of the sender
    seq: Count
    to: TaskId
    data: Annotated[bytes, Meta(max_length=MAIL_BYTES_MAX)]
    sender: TaskId = TaskId("")
    receiver: Attempt | None = None
    node: NodeId = NodeId("")
    addresses: Addresses = ()


class MailReceipt(Message, frozen=True, tag="mail-receipt"):
    """What became of a letter: taken, or the receiver is full, absent or has ended."""

    attempt: Attempt  # of the sender of the letter
    seq: Count
    what: Literal["taken", "full", "absent", "ended"]
