"""The standard input of a task ends when its user says so, and never otherwise."""

import asyncio
import os
from typing import cast

import pytest

from shoal.drivers.supervisor.visit_line import VisitLine
from shoal.protocol.channels import items
from shoal.protocol.channels.messages import ChannelUse
from shoal.runtime.channels.channel_ends import ChannelLine
from shoal.runtime.channels.task_visits import InputVisit


class FakeLine:
    """The worker's end of a channel."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.ready = asyncio.Event()
        self.finished = False

    def write(self, *said: bytes) -> None:
        self.written += said
        self.ready.set()

    def slow(self, *, slow: bool) -> None:
        """Say nothing: nobody sends here."""

    def finish(self) -> None:
        self.finished = True


class FakeTask:
    """A task whose input is a pipe; both its visit line and its visitor."""

    def __init__(self, both: int) -> None:
        self.both = both
        self.code: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def stdin(self) -> "FakeTask":
        return self

    def close(self) -> None:
        os.close(self.both)


@pytest.mark.parametrize("is_whole", [True, False])
def test_only_its_user_ends_the_input_of_a_task(is_whole: bool) -> None:
    async def play() -> tuple[list[str], bytes, bool]:
        read, write = os.pipe()
        line, task, lost = FakeLine(), FakeTask(write), list[str]()
        visit = InputVisit(cast("ChannelLine", line), lost.append)
        run = visit.run(cast("VisitLine", task), ChannelUse(kind="stdin"))
        serving = asyncio.create_task(run)
        await line.ready.wait()
        visit.deliver((items.DATA + b"half",))
        if is_whole:
            visit.deliver((items.EOF,))
        visit.ended("" if is_whole else "the link broke")
        found = await asyncio.to_thread(os.read, read, 10)
        os.set_blocking(read, False)
        if is_whole:
            await serving
            is_open = os.read(read, 1) != b""
        else:
            await asyncio.sleep(0)
            with pytest.raises(BlockingIOError):
                os.read(read, 1)
            is_open = True
            task.code.set_result(137)
            await serving
        os.close(read)
        return lost, found, is_open

    lost, found, is_open = asyncio.run(play())

    assert found == b"half"
    assert lost == ([] if is_whole else ["the link broke"])
    assert is_open != is_whole
