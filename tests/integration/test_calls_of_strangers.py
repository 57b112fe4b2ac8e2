"""Functions that run on machines of other owners: what comes back harms nobody."""

import asyncio
import builtins
import os
import pickle
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.integration.hostile_lanes import HostileDriver
from tests.integration.pool_nodes import Reef
from tests.unit.client.test_plain_results import HOSTILE

from shoal.api.service.function_calls import CallServer
from shoal.client.code.functions import send_along
from shoal.client.futures import Future
from shoal.client.options import CallOptions
from shoal.client.results import Results
from shoal.client.stream import CallStream, Pending, PoolQueue, parts_of
from shoal.client.wires import SocketWire
from shoal.drivers import Driver
from shoal.drivers.python import LaneDesk
from shoal.errors import ProtocolError, RemoteError, ResultRefusedError
from shoal.model.ids import OwnerId
from shoal.protocol import call_items, payloads, plain_values
from shoal.runtime.calls.sessions import CallSession, CallSessions
from shoal.runtime.clients import Submitter

pytestmark = pytest.mark.integration

WAIT_S = 30.0


class Caller:
    """Calls functions by the door of a node."""

    def __init__(self, path: Path) -> None:
        self.stream = CallStream(lambda: SocketWire(path))
        self._pools: dict[Results, PoolQueue] = {}

    async def call(
        self, function: Callable[..., Any], *args: object, results: Results = "auto"
    ) -> Any:  # noqa: ANN401 - Whatever it returns.
        """Return what a function returns over there, or raise what it raises."""
        if results not in self._pools:
            options = CallOptions.made(cpu=0.1, results=results, python=sys.executable)
            self._pools[results] = self.stream.pool(options.spec(), 1, 60.0)
        send_along(function)
        parts = parts_of(payloads.dumps((function, args, {})))
        future: Future[Any] = Future()
        self.stream.put(Pending(self._pools[results], 0, parts, 0, future, results))
        async with asyncio.timeout(WAIT_S):
            return await future


@asynccontextmanager
async def caller(
    reef: Reef, *, worker: str, lanes: Callable[[LaneDesk], Driver] | None = None
) -> AsyncIterator[Caller]:
    """Run a node of the lab, which calls, and a worker of this owner."""
    try:
        boss = await reef.join("boss", "scheduler")
        await reef.join("worker", "worker", owner=worker, lane_driver=lanes)
        door = CallServer(boss.calls, reef.folder / "s")
        await door.open()
        made = Caller(door.path)
        try:
            yield made
        finally:
            await asyncio.to_thread(made.stream.close)
            door.close()
    finally:
        await reef.close()


class Evil:
    """Makes a folder where it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.mark),)


def evil_answers(mark: Path) -> dict[str, tuple[int, bytes]]:
    """Return what a hostile worker says, by name."""
    bomb = pickle.dumps(Evil(mark))
    whole = b"\0" + bomb
    sizes = (1).to_bytes(4, "little") + len(bomb).to_bytes(8, "little")
    excuse = bytes([plain_values.NOT_PLAIN]) + b"\3\0why"
    raised = b"".join(
        plain_values.dumps(("builtins", "SystemExit", (0,), "Trace\nx", whole))
    )
    named = b"".join(
        plain_values.dumps(
            ("builtins", "exec", (f"open({str(mark)!r}, 'w')",), "x", b"")
        )
    )
    value, error = call_items.VALUE, call_items.RAISED
    return {
        "a pickle": (value, whole),
        "a pickle with buffers": (value, b"\1" + sizes + bomb),
        "a pickle with an excuse": (value, excuse + whole),
        "a pickle as an exception": (error, pickle.dumps(("text", whole))),
        "a bare bomb as an exception": (error, bomb),
        "an exception with a pickle": (error, raised),
        "an exception that is a function": (error, named),
        "no exception": (error, b""),
        **{name: (value, data) for name, data in HOSTILE.items()},
    }


def test_a_hostile_worker_runs_nothing_in_whoever_called(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    answers = evil_answers(mark)
    texts = list(answers)

    def answer(number: int) -> list[bytes]:
        kind, data = answers[texts[number - 1]]
        size = call_items.PART_BYTES
        *first, last = [data[n : n + size] for n in range(0, max(1, len(data)), size)]
        parts = [call_items.item(call_items.VALUE_PART, number, each) for each in first]
        return [*parts, call_items.item(kind, number, last)]

    async def story() -> None:
        hostile = partial(HostileDriver, tmp_path, answer)
        async with caller(Reef(tmp_path), worker="mallory", lanes=hostile) as calls:
            for name in texts:
                with pytest.raises((ResultRefusedError, ProtocolError, RemoteError)):
                    await calls.call(abs, 1)
                assert not mark.exists(), name

    asyncio.run(story())


class Point:
    """Nothing plain."""

    def __init__(self, x: int) -> None:
        self.x = x

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Point) and other.x == self.x

    __hash__ = None  # type: ignore[assignment]


class OddError(Exception):
    """Nobody else has it."""


def echo(value: object) -> object:
    return value


def arrays(count: int) -> Any:  # noqa: ANN401 - Whatever is sent.
    return {"x": np.arange(count).reshape(2, -1), "text": ("a", None, 1.5)}


def fail(kind: type[Exception], *args: object) -> None:
    raise kind(*args)


def test_a_foreign_worker_sends_plain_data_and_an_own_one_all(tmp_path: Path) -> None:
    async def foreign(calls: Caller) -> None:
        assert await calls.call(echo, 7) == 7
        found = await calls.call(arrays, 100_000)
        assert (found["x"] == np.arange(100_000).reshape(2, -1)).all()
        assert found["text"] == ("a", None, 1.5)
        with pytest.raises(ResultRefusedError, match=r"Point.*another owner"):
            await calls.call(echo, Point(1))
        with pytest.raises(FileNotFoundError) as caught:
            await calls.call(fail, FileNotFoundError, 2, "no such file")
        assert "in fail" in str(caught.value.__cause__)
        with pytest.raises(RemoteError, match="OddError: what"):
            await calls.call(fail, OddError, "what\x1b[2J")
        with pytest.raises(RemoteError, match="SystemExit"):
            await calls.call(fail, SystemExit, 3)
        assert await calls.call(echo, Point(1), results="pickle") == Point(1)

    async def own(calls: Caller) -> None:
        assert await calls.call(echo, Point(1)) == Point(1)
        with pytest.raises(OddError):
            await calls.call(fail, OddError, "what")
        with pytest.raises(ResultRefusedError):
            await calls.call(echo, Point(1), results="plain")
        assert await calls.call(echo, (1, "x"), results="plain") == (1, "x")

    async def story() -> None:
        for owner, told in (("mallory", foreign), ("lab", own)):
            folder = tmp_path / owner
            folder.mkdir()
            async with caller(Reef(folder), worker=owner) as calls:
                await told(calls)

    asyncio.run(story())


class OneCaller:
    """The calls of a node, all in the name of one submitter."""

    def __init__(self, calls: CallSessions, submitter: Submitter) -> None:
        self._calls = calls
        self._submitter = submitter

    def open(self, name: str, on_news: Callable[[], None]) -> CallSession:
        return self._calls.open(name, on_news, self._submitter)


def remember(word: str) -> tuple[str | None, int]:
    """Leave a word in the interpreter; return what was left before, and where."""
    before = getattr(builtins, "left_behind", None)
    builtins.left_behind = word  # type: ignore[attr-defined]
    return before, os.getpid()


def test_an_interpreter_that_served_one_owner_never_serves_another(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        reef = Reef(tmp_path)
        async with caller(reef, worker="lab") as ours:
            boss = reef.plaza.nodes[0]
            member = await reef.join("member", "scheduler", owner="mallory")
            submitter = Submitter(
                owner=OwnerId("mallory"),
                grant=member.membership.grant,
                uses_secrets=False,
            )
            calls: Any = OneCaller(boss.calls, submitter)
            door = CallServer(calls, tmp_path / "t")
            await door.open()
            theirs = Caller(door.path)
            try:
                first, lane = await ours.call(remember, "ours")
                assert await ours.call(remember, "ours") == ("ours", lane)

                before, other = await theirs.call(remember, "theirs")

                assert (first, before) == (None, None)
                assert other != lane
                assert await ours.call(remember, "ours") == ("ours", lane)
                with pytest.raises(ResultRefusedError):
                    await theirs.call(echo, Point(1))
            finally:
                await asyncio.to_thread(theirs.stream.close)
                door.close()

    asyncio.run(story())
