import asyncio
from typing import Any, cast

import pytest
from tests.unit.core.builders import job

from shoal.blobs import trees
from shoal.blobs.trees import TreeEntry
from shoal.core.artifacts.events import (
    DropOutputs,
    FetchOutputs,
    OutputsFetched,
    OutputsLost,
)
from shoal.core.events import Event
from shoal.errors import ShoalError
from shoal.model.ids import Attempt, NodeId
from shoal.protocol.messages import Outcome
from shoal.runtime.artifacts.blob_exchange import BlobExchange
from shoal.runtime.artifacts.output_fetch import (
    DROPPED,
    OutputFetch,
    _refuse_other_files,
)
from shoal.runtime.verification.result_check import ResultCheck

BLOB = f"{'0' * 64}-1"


def test_a_worker_that_returns_what_is_no_output_is_not_believed() -> None:
    kept = [TreeEntry("out/model", "file", BLOB), TreeEntry("out/empty", "folder")]
    foisted = [*kept, TreeEntry("train.py", "file", BLOB)]

    _refuse_other_files(trees.make(b"", kept), ("out/",))
    with pytest.raises(ShoalError, match=r"returns 'train\.py'"):
        _refuse_other_files(trees.make(b"", foisted), ("out/",))


class SilentWorker:
    """An exchange whose fetches get nothing; it notes which were given up."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.given_up = asyncio.Event()

    async def fetch_tree(self, *_: Any, **__: Any) -> None:  # noqa: ANN401
        self.asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.given_up.set()

    async def digest(self, _: FetchOutputs) -> str:
        return ""


def _wanted(number: int, outputs: dict[str, str]) -> FetchOutputs:
    task = job().groups[0].tasks[0]
    outcome = Outcome("exited", exit_code=0, outputs=outputs)
    return FetchOutputs(Attempt(NodeId("s"), 1, number), NodeId("w"), task, outcome)


async def _told_after_a_drop() -> list[Event]:
    told: asyncio.Queue[Event] = asyncio.Queue()
    blobs = SilentWorker()
    fetch = OutputFetch(
        NodeId("s"),
        cast("BlobExchange", blobs),
        told.put_nowait,
        lambda *_: None,
        cast("ResultCheck", blobs),
    )
    dropped, other = _wanted(1, {".": BLOB}), _wanted(2, {})
    async with asyncio.timeout(60):
        fetch.start(dropped)
        await blobs.asked.wait()
        fetch.drop(DropOutputs(dropped.attempt))
        fetch.drop(DropOutputs(dropped.attempt))
        await blobs.given_up.wait()
        fetch.start(other)
        answers = [await told.get(), await told.get()]
        fetch.drop(DropOutputs(other.attempt))  # It is too late: this is no harm.
    await fetch.close()
    return answers + [told.get_nowait() for _ in range(told.qsize())]


def test_what_is_dropped_is_fetched_no_longer_and_answered_once() -> None:
    told = asyncio.run(_told_after_a_drop())

    lost, fetched = (Attempt(NodeId("s"), 1, number) for number in (1, 2))
    assert told == [OutputsLost(lost, DROPPED), OutputsFetched(fetched)]
