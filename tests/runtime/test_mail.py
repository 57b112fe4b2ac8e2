"""Letters between tasks of a job arrive once, and nobody else's are passed on."""

import asyncio
import base64
from collections.abc import Coroutine, Sequence
from typing import Any

import pytest
from tests.runtime import virtual_time

from shoal.core.jobs import JobBook
from shoal.core.journal import Place, Submitted
from shoal.errors import ShoalError
from shoal.model.ids import Attempt, GroupId, JobId, LeaseId, NodeId, OwnerId, TaskId
from shoal.model.job import Group, Job, Task
from shoal.protocol.mail import Mail, MailReceipt
from shoal.protocol.messages import AnyMessage, Outcome
from shoal.runtime.mail import LETTERS_MAX, Post

OTTER, HERON, CROW = NodeId("otter"), NodeId("heron"), NodeId("crow")
JOB = JobId("j")
AGGREGATE, TRAIN = TaskId("j.aggregate.0"), TaskId("j.train.0")


def attempt(sequence: int) -> Attempt:
    return Attempt(OTTER, 1, sequence)


class Views:
    """Where workers can be reached."""

    def address(self, node: NodeId) -> str:
        return f"at {node}"


class Scheduler:
    """As much of a scheduler as the post looks at."""

    def __init__(self) -> None:
        self.book = JobBook()
        self.views = Views()


class Wire:
    """Brings messages from one node to the others; it may be cut."""

    def __init__(self, shoal: "Shoal", node: NodeId) -> None:
        self.shoal = shoal
        self.node = node

    @property
    def addresses(self) -> tuple[str, ...]:
        return (f"at {self.node}",)

    def send(self, peer: NodeId, message: AnyMessage) -> None:
        assert isinstance(message, Mail | MailReceipt)
        self.shoal.said.append((self.node, peer, message))
        if not self.shoal.cut:
            loop = asyncio.get_running_loop()
            loop.call_soon(self.shoal.posts[peer].received, self.node, message)

    def know(self, peer: NodeId, addresses: Sequence[str]) -> None: ...

    def disconnect(self, peer: NodeId, reason: str) -> None: ...

    async def close(self) -> None: ...


class Shoal:
    """A scheduler and two workers; a job with a task on each worker."""

    def __init__(self) -> None:
        self.scheduler = Scheduler()
        self.said: list[tuple[NodeId, NodeId, AnyMessage]] = []
        self.known: dict[NodeId, tuple[str, ...]] = {}
        self.cut = False
        self.posts: dict[NodeId, Post] = {}
        for node in (OTTER, HERON, CROW):
            machine = self.scheduler if node == OTTER else None
            post = Post(node, lambda m=machine: m, self.known.__setitem__)  # type: ignore[misc]
            post.start(Wire(self, node))
            self.posts[node] = post
        groups = tuple(
            Group(
                id=GroupId(task.rpartition(".")[0]),
                tasks=(Task(id=task, job=JOB, group=GroupId(task.rpartition(".")[0])),),
            )
            for task in (AGGREGATE, TRAIN)
        )
        job = Job(id=JOB, owner=OwnerId("ann"), groups=groups)
        self.scheduler.book.submit(Submitted(job, 0.0), 0.0)
        self.start(AGGREGATE, HERON, 1)
        self.start(TRAIN, CROW, 2)

    def start(self, task: TaskId, node: NodeId, sequence: int) -> None:
        place = Place(task, attempt(sequence), node, LeaseId(f"l{sequence}"), 0)
        self.scheduler.book.assign((place,), 0.0)
        record = self.scheduler.book.tasks[task]
        self.posts[node].open(attempt(sequence), record.task)

    async def send(self, node: NodeId, sequence: int, to: str, data: bytes) -> None:
        text = base64.b64encode(data).decode()
        call = {"call": "send", "to": to, "data": text}
        await self.posts[node].call(attempt(sequence), call)

    async def receive(
        self, node: NodeId, sequence: int, wait_s: float = 5.0
    ) -> list[tuple[str, bytes]]:
        call = {"call": "receive", "wait_s": wait_s}
        answer = await self.posts[node].call(attempt(sequence), call)
        letters: Any = answer["mail"]
        return [(each["from"], base64.b64decode(each["data"])) for each in letters]


def in_virtual_time(test: Coroutine[Any, Any, None]) -> None:
    virtual_time.run(test)


def test_a_letter_goes_by_the_scheduler_and_tells_where_its_sender_is() -> None:
    async def story() -> None:
        shoal = Shoal()

        await shoal.send(CROW, 2, "aggregate.0", b"hello")

        assert await shoal.receive(HERON, 1) == [("train.0", b"hello")]
        await asyncio.sleep(60)
        assert [(a, b) for a, b, _ in shoal.said] == [
            (CROW, OTTER),
            (OTTER, HERON),
            (HERON, OTTER),
            (OTTER, CROW),
        ]
        assert shoal.known == {CROW: ("at crow",)}

    in_virtual_time(story())


def test_a_letter_that_got_lost_is_said_again_and_taken_once() -> None:
    async def story() -> None:
        shoal = Shoal()
        shoal.cut = True
        await shoal.send(CROW, 2, "aggregate.0", b"hello")
        await asyncio.sleep(5)

        shoal.cut = False
        for _ in range(3):  # The network repeats it, too.
            shoal.posts[OTTER].received(CROW, _first(shoal))
        await asyncio.sleep(30)

        assert await shoal.receive(HERON, 1) == [("train.0", b"hello")]
        assert await shoal.receive(HERON, 1) == []

    in_virtual_time(story())


def _first(shoal: Shoal) -> Mail:
    message = shoal.said[0][2]
    assert isinstance(message, Mail)
    return message


def test_a_letter_waits_until_its_receiver_is_started_again() -> None:
    async def story() -> None:
        shoal = Shoal()
        book = shoal.scheduler.book
        book.put_back(book.runs[attempt(1)], "lost")
        await shoal.send(CROW, 2, "aggregate.0", b"hello")
        await asyncio.sleep(5)

        shoal.start(AGGREGATE, OTTER, 3)

        assert await shoal.receive(OTTER, 3, wait_s=20) == [("train.0", b"hello")]

    in_virtual_time(story())


def test_whoever_writes_to_a_task_that_has_ended_is_told_so() -> None:
    async def story() -> None:
        shoal = Shoal()
        shoal.scheduler.book.finish(
            AGGREGATE, "done", 1.0, attempt=attempt(1), outcome=Outcome("exited", 0)
        )

        await shoal.send(CROW, 2, "aggregate.0", b"hello")
        call = {"call": "receive", "wait_s": 5.0}
        answer = await shoal.posts[CROW].call(attempt(2), call)

        assert answer == {"mail": [], "ended": ["aggregate.0"]}

    in_virtual_time(story())


def test_nobody_else_can_write_in_the_name_of_a_task() -> None:
    async def story() -> None:
        shoal = Shoal()
        forged = Mail(attempt=attempt(2), seq=9, to=AGGREGATE, data=b"forged")
        passed = Mail(
            attempt=attempt(2),
            seq=9,
            to=AGGREGATE,
            data=b"forged",
            sender=TRAIN,
            receiver=attempt(1),
        )

        shoal.posts[OTTER].received(HERON, forged)  # Not where that attempt runs.
        shoal.posts[HERON].received(CROW, passed)  # Not the scheduler of the job.

        assert await shoal.receive(HERON, 1) == []
        assert shoal.said == []

    in_virtual_time(story())


def test_a_task_of_another_job_is_as_good_as_ended() -> None:
    async def story() -> None:
        shoal = Shoal()
        other = JobId("k")
        task = Task(id=TaskId("k.main.0"), job=other, group=GroupId("k.main"))
        group = Group(id=GroupId("k.main"), tasks=(task,))
        job = Job(id=other, owner=OwnerId("ann"), groups=(group,))
        shoal.scheduler.book.submit(Submitted(job, 0.0), 0.0)
        mail = Mail(attempt=attempt(2), seq=1, to=task.id, data=b"x")

        shoal.posts[OTTER].received(CROW, mail)

        [(_, _, receipt)] = shoal.said
        assert receipt == MailReceipt(attempt=attempt(2), seq=1, what="ended")

    in_virtual_time(story())


def test_a_task_can_have_only_so_many_letters_under_way() -> None:
    async def story() -> None:
        shoal = Shoal()
        shoal.cut = True
        for _ in range(LETTERS_MAX):
            await shoal.send(CROW, 2, "aggregate.0", b"x")

        with pytest.raises(ShoalError, match="under way"):
            await shoal.send(CROW, 2, "aggregate.0", b"x")

        await asyncio.sleep(300)  # They are given up, in the end.
        await shoal.send(CROW, 2, "aggregate.0", b"x")

    in_virtual_time(story())


@pytest.mark.parametrize(
    ("call", "why"),
    [
        ({"call": "send", "to": 3, "data": ""}, "must be texts"),
        ({"call": "send", "to": "train.0", "data": "!"}, "not base64"),
        ({"call": "send", "to": "a", "data": "A" * 60_000}, "too long"),
        ({"call": "receive", "wait_s": "long"}, "not a number"),
    ],
)
def test_nonsense_is_answered_with_what_is_wrong(
    call: dict[str, object], why: str
) -> None:
    async def story() -> None:
        shoal = Shoal()

        with pytest.raises(ShoalError, match=why):
            await shoal.posts[CROW].call(attempt(2), call)

    in_virtual_time(story())
