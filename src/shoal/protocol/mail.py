"""Letters between the tasks of one job.

They travel through the scheduler of the job, which knows where each task runs and that
both belong to the same job. A worker takes letters from that scheduler only.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from shoal.model.ids import Attempt, NodeId, TaskId
from shoal.model.text.bounds import Count
from shoal.protocol.limits import MAIL_BYTES_MAX, Addresses
from shoal.protocol.message import Message


class Mail(Message, frozen=True, tag="mail"):
    """A letter from one task to another, sent again until there is a receipt.

    A worker names attempt, number and receiver, and the letter that must be taken
    before this one: the newest earlier letter to the same receiver that had no receipt
    when this copy left (0: none). The scheduler adds the task that sent it, the attempt
    it is for, and the node of the sender with its addresses. If another scheduler took
    the job up, `origin` is the name that the sender's attempt had at first: its letters
    are numbered on.
    """

    attempt: Attempt  # of the sender
    seq: Count
    to: TaskId
    data: Annotated[bytes, Meta(max_length=MAIL_BYTES_MAX)]
    sender: TaskId = TaskId("")
    receiver: Attempt | None = None
    node: NodeId = NodeId("")
    addresses: Addresses = ()
    after: Count = 0
    origin: Attempt | None = None


class MailReceipt(Message, frozen=True, tag="mail-receipt"):
    """What became of a letter: taken, or its receiver is full, absent or has ended."""

    attempt: Attempt  # of the sender of the letter
    seq: Count
    what: Literal["taken", "full", "absent", "ended"]
