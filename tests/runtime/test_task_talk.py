"""Whatever a task says at its socket: an answer, and never a message others refuse."""

import asyncio
import base64
import json
import socket
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from shoal.blobs.store import BlobStore
from shoal.core.artifacts.blob_transfers import BlobTransfers
from shoal.core.events import Event, MessageReceived, Send, TaskSaved
from shoal.core.mail.events import ConfirmLetter, DeliverLetters, RefuseMail
from shoal.core.mail.mailbox import ENDED_MAX
from shoal.core.mail.task_mail import TaskMail
from shoal.core.membership.roster import Roster
from shoal.drivers.task_socket import LINE_BYTES_MAX, TaskSocket
from shoal.model.ids import Attempt, BlobId, GroupId, JobId, NodeId, TaskId
from shoal.model.job import Task
from shoal.protocol.codec import decode, encode
from shoal.protocol.mail import MailReceipt
from shoal.protocol.messages import AnyMessage, Checkpoint, Progress
from shoal.runtime.artifacts.blob_exchange import BlobExchange
from shoal.runtime.leasing import task_calls
from shoal.runtime.leasing.task_calls import TaskCalls
from shoal.runtime.mail.mail_calls import MailCalls
from shoal.sim.node import trust

OTTER, HERON = NodeId("otter"), NodeId("heron")
ATTEMPT = Attempt(HERON, 1, 1)
TASK = Task(id=TaskId("j.main.0"), job=JobId("j"), group=GroupId("j.main"))
BLOB = f"{'a' * 64}-5"


class Links:
    """Sends each message as a real link does, and sees whether it can be read."""

    addresses = ("127.0.0.1:4001",)

    def __init__(self) -> None:
        self.sent: list[AnyMessage] = []

    def send(self, peer: NodeId, message: AnyMessage) -> None:
        del peer
        for frame in encode([message]):
            self.sent += decode(frame)

    def know(self, peer: NodeId, addresses: Sequence[str]) -> None: ...

    def trouble(self, peer: NodeId) -> str:
        return ""

    def disconnect(self, peer: NodeId, reason: str) -> None: ...

    async def close(self) -> None: ...


class Talk:
    """A task at its socket, and all that its worker has behind it."""

    def __init__(self, root: Path) -> None:
        self.links = Links()
        self.failures: list[BaseException] = []
        self.work = root / "work"
        self.work.mkdir()
        self.store = BlobStore(root / "cache", 1 << 20)
        self.store.open()
        self.blobs = BlobExchange(self.store, self.feed, self.failures.append)
        roster = Roster(trust.members(), trust.WALL_AT_START_S)
        self.machines = (TaskMail(OTTER, None), BlobTransfers(OTTER, roster, None))
        self.post = MailCalls(self.feed)
        calls = TaskCalls(
            self.blobs,
            OTTER,
            "task",
            (HERON,),
            lambda: self.work,
            self._save,
            self.post.calls_of(ATTEMPT),
        )
        self.post.open(ATTEMPT, TASK)
        self.socket = TaskSocket(root / "s")
        self.socket.open()
        self.socket.begin(self._progressed, calls)

    def feed(self, event: Event) -> None:
        """Tell the machines a fact, and perform what they ask for."""
        now = asyncio.get_running_loop().time()
        for effect in [e for m in self.machines for e in m.handle(event, now)]:
            if isinstance(effect, Send):
                self.links.send(effect.peer, effect.message)
            elif (perform := self.blobs.performers.get(type(effect))) is not None:
                perform(effect)
            else:
                assert isinstance(effect, ConfirmLetter | DeliverLetters | RefuseMail)
                self.post.answer(effect)

    async def _save(self, path: str, directory: Path) -> BlobId:
        del directory
        saved = TaskSaved(ATTEMPT, BlobId(BLOB), path)
        told = Checkpoint(attempt=ATTEMPT, seq=1, tree=saved.tree, path=saved.path)
        self.links.send(HERON, told)
        return saved.tree

    def _progressed(
        self,
        fraction: float | None,
        metrics: dict[str, float],
        _lines: tuple[bytes, ...],
    ) -> None:
        told = Progress(attempt=ATTEMPT, seq=1, fraction=fraction, metrics=metrics)
        self.links.send(HERON, told)

    async def close(self) -> None:
        self.socket.end()
        self.socket.close()
        await self.blobs.close()


def talked(story: Callable[[Talk], Awaitable[None]]) -> Talk:
    async def main(root: Path) -> Talk:
        talk = Talk(root)
        try:
            async with asyncio.timeout(20):
                await story(talk)
        finally:
            await talk.close()
        return talk

    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(main(Path(folder)))


def connected(talk: Talk) -> socket.socket:
    line = socket.socket(socket.AF_UNIX)
    line.connect(str(talk.socket.path))
    line.setblocking(False)
    return line


async def asked(talk: Talk, call: dict[str, Any]) -> dict[str, Any]:
    loop = asyncio.get_running_loop()
    with connected(talk) as line:
        await loop.sock_sendall(line, json.dumps(call).encode() + b"\n")
        data = b""
        while not data.endswith(b"\n"):
            data += await loop.sock_recv(line, LINE_BYTES_MAX)
    answer: dict[str, Any] = json.loads(data)
    return answer


ANYTHING = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=300)
    | st.sampled_from(
        ["main.0", "x" * 5_000, "\ud800", "../x", "a\nb", "\x1b[2J", BLOB]
    )
)
CALLS = st.fixed_dictionaries(
    {
        "call": st.sampled_from(
            ["put", "get", "forget", "checkpoint", "send", "receive"]
        )
    },
    optional={
        "path": ANYTHING,
        "blob": ANYTHING,
        "nodes": st.lists(ANYTHING, max_size=4) | ANYTHING,
        "to": ANYTHING,
        "data": ANYTHING
        | st.binary(max_size=9).map(lambda b: base64.b64encode(b).decode()),
        "wait_s": st.sampled_from([0, -1, "x", None]),
    },
)
REPORTS = st.fixed_dictionaries(
    {},
    optional={
        "metrics": st.dictionaries(
            ANYTHING.map(str), st.floats() | ANYTHING, max_size=3
        ),
        "progress": ANYTHING,
        "step": ANYTHING,
    },
)


@settings(max_examples=60)
@given(
    st.lists(CALLS | REPORTS | ANYTHING, max_size=8),
    st.lists(st.binary(max_size=99), max_size=3),
)
@example([{"call": "send", "to": "x" * 9_000, "data": ""}], [])
@example([{"call": "send", "to": "main.0", "data": "\xe9"}], [b'{"call": "se'])
@example(
    [{"call": "checkpoint", "path": "\ud800"}, {"call": "put", "path": "\ud800"}], []
)
def test_nothing_that_a_task_says_becomes_what_its_receiver_refuses(
    said: list[object], noise: list[bytes]
) -> None:
    async def story(talk: Talk) -> None:
        with connected(talk) as line:
            loop = asyncio.get_running_loop()
            for each in said:
                await loop.sock_sendall(line, json.dumps(each).encode() + b"\n")
            for data in noise:
                await loop.sock_sendall(line, data)
            for _ in range(5):
                await asyncio.sleep(0)
        assert (await asked(talk, {"call": "receive"})).keys() == {"mail", "ended"}

    talk = talked(story)  # `Links.send` raises if a message does not survive.

    assert talk.socket.counts["calls that raised"] == 0
    assert talk.failures == []


def test_a_recipient_that_nobody_can_be_is_an_error_to_the_task_alone() -> None:
    async def story(talk: Talk) -> None:
        for to in ("x" * 200, "a/b", "a\0b", "\ud800", ""):
            answer = await asked(talk, {"call": "send", "to": to, "data": ""})
            assert "error" in answer or to == "", to

    assert len(talked(story).links.sent) <= 1


def test_what_is_no_name_of_a_blob_is_not_kept() -> None:
    async def story(talk: Talk) -> None:
        for blob in ("x" * 60_000, "", "a", f"{BLOB}0000000000000000"):
            answer = await asked(talk, {"call": "get", "blob": blob, "path": "x"})
            assert "is not the name of a blob" in answer["error"]
        for nodes in ("x", ["x" * 500], [1], ["a b"]):
            call = {"call": "get", "blob": BLOB, "path": "x", "nodes": nodes}
            assert "error" in await asked(talk, call)
        assert talk.store.held("task") == (0, 0)

    talked(story)


def test_what_a_task_has_put_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_calls, "HELD_MAX", 3)

    async def story(talk: Talk) -> None:
        for number in range(3):
            (talk.work / "file").write_bytes(b"%d" % number)
            assert "blob" in await asked(talk, {"call": "put", "path": "file"})
        (talk.work / "file").write_bytes(b"more")
        answer = await asked(talk, {"call": "put", "path": "file"})
        assert "the worker keeps 3 files" in answer["error"]
        assert talk.store.held("task")[0] == 3

    talked(story)


def test_who_writes_to_nobody_and_never_reads_fills_nothing() -> None:
    async def story(talk: Talk) -> None:
        for number in range(1, ENDED_MAX + 50):
            call = {"call": "send", "to": f"gone.{number}", "data": ""}
            await talk.post.call(ATTEMPT, call)
            receipt = MailReceipt(attempt=ATTEMPT, seq=number, what="ended")
            talk.feed(MessageReceived(HERON, receipt))
        answer = await talk.post.call(ATTEMPT, {"call": "receive"})
        assert isinstance(answer["ended"], list)
        assert len(answer["ended"]) == ENDED_MAX

    talked(story)
