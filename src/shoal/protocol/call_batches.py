"""Messages that carry calls to an interpreter on another node, and results from it."""

from __future__ import annotations

from shoal.model.ids import Attempt, TaskId
from shoal.model.text.bounds import Count
from shoal.protocol.limits import Items
from shoal.protocol.message import Message


class CallBatch(Message, frozen=True, tag="call-batch"):
    """Items for the interpreter that runs as this attempt, numbered from `first`.

    `taken` acknowledges items of the other side; they are never sent again. A side that
    is not `open` accepts nothing new for now; `turn` counts how often that has changed,
    so a late batch changes nothing. A `probe` asks for an answer.
    """

    attempt: Attempt
    first: Count
    taken: Count
    items: Items = ()
    open: bool = True
    probe: bool = False
    turn: Count = 0


class ResultBatch(Message, frozen=True, tag="result-batch"):
    """Items from the interpreter of this attempt; fields as in `CallBatch`."""

    task: TaskId
    attempt: Attempt
    first: Count
    taken: Count
    items: Items = ()
    open: bool = True
    probe: bool = False
    turn: Count = 0


ToLanes = CallBatch | ResultBatch
