"""Messages that carry calls to an interpreter on another node, and results from it."""

from __future__ import annotations

from shoal.model.bounds import Count
from shoal.model.ids import Attempt, TaskId
from shoal.protocol.limits import Items
from shoal.protocol.message import Message


class CallBatch(Message, frozen=True, tag="call-batch"):
    """Items for the interpreter that this attempt is, numbered from `first`.

    `taken` is how many items of the other side have come; these are never sent again.
    A side that is not `open` wants nothing new for now, and a `probe` is answered.
    """

    attempt: Attempt
    first: Count
    taken: Count
    items: Items = ()
    open: bool = True
    probe: bool = False


class ResultBatch(Message, frozen=True, tag="result-batch"):
    """Items from the interpreter that this attempt is; otherwise as in `CallBatch`."""

    task: TaskId
    attempt: Attempt
    first: Count
    taken: Count
    items: Items = ()
    open: bool = True
    probe: bool = False


ToLanes = CallBatch | ResultBatch
