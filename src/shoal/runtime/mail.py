"""The post between the tasks of one job: letters, receipts, and where each task is.

A node plays up to three parts. The node of the sender keeps a letter and says it again
until there is a receipt. The scheduler of the job passes letters and receipts on, if
they are between tasks of one job, and says who is absent or has ended. The node of the
receiver keeps letters until the task fetches them. Everything is bounded; whoever
writes to somebody who does not read is told so.
"""

from __future__ import annotations

import asyncio
import base64
from collections import Counter, OrderedDict, deque
from typing import TYPE_CHECKING, Final, final

import msgspec

from shoal.errors import ShoalError
from shoal.model.bounds import ID_LENGTH_MAX
from shoal.model.grammar import is_key
from shoal.model.ids import Attempt, NodeId, TaskId
from shoal.model.texts import cleaned
from shoal.protocol.limits import MAIL_BYTES_MAX
from shoal.protocol.mail import Mail, MailReceipt

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from shoal.core.jobs import Run
    from shoal.core.scheduler import Scheduler
    from shoal.drivers import Order
    from shoal.model.job import Task
    from shoal.net.base import Links
    from shoal.protocol.messages import AnyMessage

CALLS: Final = ("send", "receive")
LETTERS_MAX: Final = 256
"""Letters that one task may have under way, and as many that wait for it."""

SEEN_MAX: Final = 4_096
ENDED_MAX: Final = 1_024
"""Tasks of which one that does not ask is told later that they have ended."""

TICK_S: Final = 0.5
AGAIN_S: Final = 2.0
AGAIN_MAX_S: Final = 10.0
GIVE_UP_S: Final = 120.0
"""A letter that nobody took for so long is dropped."""

LINGER_S: Final = 30.0
"""How long letters of a task are said again after its end."""

WAIT_MAX_S: Final = 30.0
ANSWER_BYTES_MAX: Final = 32_768
"""Letters that a task gets in one answer, beyond the first."""


class _Letter(msgspec.Struct):
    """A letter under way."""

    mail: Mail
    since: float
    said_at: float
    tries: int = 1


@final
class _Box:
    """What one attempt on this node has sent and will receive."""

    def __init__(self, attempt: Attempt, task: Task) -> None:
        self.attempt = attempt
        self.task = task
        self.seq = 0
        self.letters: dict[int, _Letter] = {}
        self.inbox: deque[tuple[TaskId, bytes]] = deque()
        self.seen: OrderedDict[tuple[Attempt, int], None] = OrderedDict()
        self.ended: dict[str, None] = {}  # tasks that will never read anything
        self.news = asyncio.Event()
        self.closed_at: float | None = None

    def name_of(self, task: TaskId) -> str:
        """Return what a task of this job is called within the job."""
        return task.removeprefix(f"{self.task.job}.")


@final
class Post:
    """The post of one node."""

    def __init__(
        self,
        node: NodeId,
        scheduler: Callable[[], Scheduler | None],
        know: Callable[[NodeId, tuple[str, ...]], None],
    ) -> None:
        """Tell by `know` where the nodes of those who write can be reached."""
        self.counts: Counter[str] = Counter()
        self._node = node
        self._scheduler = scheduler
        self._know = know
        self._loop = asyncio.get_running_loop()
        self._links: Links | None = None
        self._boxes: dict[Attempt, _Box] = {}
        self._timer: asyncio.TimerHandle | None = None

    def start(self, links: Links) -> None:
        """Begin to say things to others."""
        self._links = links

    def close(self) -> None:
        """Say nothing more."""
        self._boxes.clear()
        if self._timer is not None:
            self._timer.cancel()

    # Tasks that run here.

    def open(self, attempt: Attempt, task: Task) -> None:
        """Let an attempt send and receive."""
        self._boxes[attempt] = _Box(attempt, task)

    def end(self, attempt: Attempt) -> None:
        """Receive nothing more for an attempt; what it sent is still said again."""
        if (box := self._boxes.get(attempt)) is not None:
            box.closed_at = self._loop.time()
            self._tick_later()

    def joined(self, order: Order) -> Order:
        """Return an order whose task can send and receive, until `end`."""
        self.open(order.attempt, order.task)
        others = order.calls

        async def calls(call: Mapping[str, object]) -> dict[str, object]:
            if call.get("call") not in CALLS and others is not None:
                return await others(call)
            try:
                return await self.call(order.attempt, call)
            except ShoalError as error:
                return {"error": str(error)}

        return msgspec.structs.replace(order, calls=calls)

    async def call(
        self, attempt: Attempt, call: Mapping[str, object]
    ) -> dict[str, object]:
        """Answer a call of a task: `send` or `receive`; raise `ShoalError` if wrong."""
        box = self._boxes.get(attempt)
        if box is None:
            raise ShoalError("this attempt has no mail")
        if call.get("call") == "send":
            return self._send_for(box, call)
        wait_s = call.get("wait_s", 0.0)
        if not isinstance(wait_s, int | float):
            raise ShoalError("'wait_s' is not a number")
        return await self._receive_for(box, min(WAIT_MAX_S, max(0.0, wait_s)))

    def _send_for(self, box: _Box, call: Mapping[str, object]) -> dict[str, object]:
        to, text = call.get("to"), call.get("data")
        if not isinstance(to, str) or not isinstance(text, str):
            raise ShoalError("'to' and 'data' must be texts")
        receiver = TaskId(f"{box.task.job}.{to}")
        if len(receiver) > ID_LENGTH_MAX or not is_key(receiver):
            raise ShoalError(
                f"no task can be called '{cleaned(to[:80])}'",
                hint="name its step and its number, like main.0",
            )
        try:
            data = base64.b64decode(text, validate=True)
        except ValueError as error:  # Of base64, or a letter beyond ASCII.
            raise ShoalError("'data' is not base64", because=str(error)) from error
        if len(data) > MAIL_BYTES_MAX:
            raise ShoalError(
                f"a letter of {len(data)} bytes is too long",
                because=f"the most is {MAIL_BYTES_MAX}",
                hint="put it as a file, and send its name",
            )
        if len(box.letters) >= LETTERS_MAX:
            raise ShoalError(
                f"{LETTERS_MAX} letters are under way",
                because="they are not taken",
                hint="wait, and send again",
            )
        box.seq += 1
        now = self._loop.time()
        mail = Mail(attempt=box.attempt, seq=box.seq, to=receiver, data=data)
        box.letters[box.seq] = _Letter(mail, since=now, said_at=now)
        self._say(box.attempt.scheduler, mail)
        self._tick_later()
        return {"sent": box.seq}

    async def _receive_for(self, box: _Box, wait_s: float) -> dict[str, object]:
        if not box.inbox and not box.ended:
            box.news.clear()
            try:
                async with asyncio.timeout(wait_s):
                    await box.news.wait()
            except TimeoutError:
                pass
        letters: list[dict[str, str]] = []
        size = 0
        while box.inbox and (not letters or size < ANSWER_BYTES_MAX):
            sender, data = box.inbox.popleft()
            size += len(data)
            text = base64.b64encode(data).decode()
            letters.append({"from": box.name_of(sender), "data": text})
        ended, box.ended = list(box.ended), {}
        return {"mail": letters, "ended": ended}

    # Other nodes.

    def received(self, peer: NodeId, message: Mail | MailReceipt) -> None:
        """Take in what another node says, or this one itself."""
        if isinstance(message, MailReceipt):
            self._on_receipt(peer, message)
        elif message.receiver is None:
            self._pass_on(peer, message)
        else:
            self._on_mail(peer, message, message.receiver)

    def _on_mail(self, peer: NodeId, mail: Mail, receiver: Attempt) -> None:
        """Keep a letter for a task that runs here."""
        box = self._boxes.get(receiver)
        if box is None or receiver.scheduler != peer or box.closed_at is not None:
            self.counts["for nobody here"] += 1
            return
        key = (mail.attempt, mail.seq)
        what: MailReceipt
        if key in box.seen:
            self.counts["again"] += 1
            what = MailReceipt(attempt=mail.attempt, seq=mail.seq, what="taken")
        elif len(box.inbox) >= LETTERS_MAX:
            what = MailReceipt(attempt=mail.attempt, seq=mail.seq, what="full")
        else:
            if mail.node and mail.node != self._node:
                self._know(mail.node, mail.addresses)
            box.seen[key] = None
            if len(box.seen) > SEEN_MAX:
                box.seen.popitem(last=False)
            box.inbox.append((mail.sender, mail.data))
            box.news.set()
            what = MailReceipt(attempt=mail.attempt, seq=mail.seq, what="taken")
        self._say(peer, what)

    def _on_receipt(self, peer: NodeId, receipt: MailReceipt) -> None:
        """End a letter of a task here, or pass the receipt on to where it runs."""
        box = self._boxes.get(receipt.attempt)
        if box is not None and receipt.attempt.scheduler == peer:
            letter = box.letters.get(receipt.seq)
            if letter is None or receipt.what in ("absent", "full"):
                return
            del box.letters[receipt.seq]
            if receipt.what == "ended":
                box.ended[box.name_of(letter.mail.to)] = None
                if len(box.ended) > ENDED_MAX:
                    del box.ended[next(iter(box.ended))]
                box.news.set()
            return
        run = self._run(receipt.attempt)
        if run is not None and self._works_for(peer, run):
            self._say(run.worker, receipt)

    def _pass_on(self, peer: NodeId, mail: Mail) -> None:
        """Bring a letter to where its receiver runs, as the scheduler of the job."""
        run = self._run(mail.attempt)
        scheduler = self._scheduler()
        if run is None or run.worker != peer or scheduler is None:
            self.counts["of no task of ours"] += 1
            return
        book = scheduler.book
        record = book.tasks.get(mail.to)
        same_job = (
            record is not None and record.task.job == book.tasks[run.task].task.job
        )
        if record is None or not same_job or record.ended:
            self._answer(peer, mail, "ended")
            return
        if mail.to in book.group_of(mail.to).exited:
            self._answer(peer, mail, "ended")
            return
        there = next((r for r in record.live.values() if not r.lost), None)
        if there is None:
            self._answer(peer, mail, "absent")
            return
        at = self._where(run.worker)
        passed = msgspec.structs.replace(
            mail,
            sender=run.task,
            receiver=there.attempt,
            node=run.worker,
            addresses=at,
        )
        self._say(there.worker, passed)

    def _answer(self, peer: NodeId, mail: Mail, what: str) -> None:
        receipt = MailReceipt(
            attempt=mail.attempt,
            seq=mail.seq,
            what="ended" if what == "ended" else "absent",
        )
        self._say(peer, receipt)

    def _run(self, attempt: Attempt) -> Run | None:
        """Return a live attempt of one of our jobs."""
        scheduler = self._scheduler()
        if scheduler is None or attempt.scheduler != self._node:
            return None
        return scheduler.book.runs.get(attempt)

    def _works_for(self, peer: NodeId, run: Run) -> bool:
        """Whether a peer runs something of the job that an attempt is of."""
        scheduler = self._scheduler()
        assert scheduler is not None
        book = scheduler.book
        job = book.tasks[run.task].task.job
        tasks = book.jobs[job].job.tasks()
        runs = (each for task in tasks for each in book.tasks[task.id].live.values())
        return any(each.worker == peer for each in runs)

    def _where(self, node: NodeId) -> tuple[str, ...]:
        """Return where a node can be reached, if we know."""
        if node == self._node:
            return self._links.addresses if self._links is not None else ()
        scheduler = self._scheduler()
        at = scheduler.views.address(node) if scheduler is not None else ""
        return (at,) if at else ()

    def _say(self, peer: NodeId, message: AnyMessage) -> None:
        if peer == self._node:
            assert isinstance(message, Mail | MailReceipt)
            self._loop.call_soon(self.received, peer, message)
        elif self._links is not None:
            self._links.send(peer, message)

    # Time.

    def _tick_later(self) -> None:
        if self._timer is None:
            self._timer = self._loop.call_later(TICK_S, self._tick)

    def _tick(self) -> None:
        """Say letters again that nobody has taken; forget those who ended."""
        self._timer = None
        now = self._loop.time()
        for attempt, box in list(self._boxes.items()):
            for seq, letter in list(box.letters.items()):
                wait_s = min(AGAIN_MAX_S, AGAIN_S * 2 ** (letter.tries - 1))
                if now - letter.since > GIVE_UP_S:
                    self.counts["given up"] += 1
                    del box.letters[seq]
                elif now - letter.said_at >= wait_s:
                    letter.said_at = now
                    letter.tries += 1
                    self._say(attempt.scheduler, letter.mail)
            if box.closed_at is not None and (
                not box.letters or now - box.closed_at > LINGER_S
            ):
                del self._boxes[attempt]
        if any(box.letters or box.closed_at for box in self._boxes.values()):
            self._tick_later()
