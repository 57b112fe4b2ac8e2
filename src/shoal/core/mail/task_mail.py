"""The mail of one node: letters between the tasks of one job.

Theory of operation. A letter takes two hops: from the node of its sender to the
scheduler of the job, and from there to the node of its receiver. A node plays each of
three parts:

- *Sender.* `LetterPosted` puts a letter under way in the mailbox of its attempt and
  sends `Mail` to the scheduler that the attempt belongs to. It is sent again with a
  growing pause (2 s to 10 s) until a receipt settles it. `absent` and `full` settle
  nothing: the receiver may start, or read, later. `ended` settles it, and the task is
  told with its next letters. After 120 s without a settling receipt the letter is
  given up. Letters of an attempt that has ended are sent again for another 30 s.
- *Relay.* The scheduler passes a letter on to the worker that runs its receiver, and a
  receipt back to the worker that runs its sender. It keeps nothing: what is lost on
  the way is sent again by the sender, so the relay may crash at any time.
- *Receiver.* The node keeps letters in the mailbox of the attempt until the task asks
  for them, each once and in the order of its sender (see `mailbox`), and says `taken`
  when a letter is in the box and not before.

Who is believed. The relay takes a letter from the worker that runs the sending attempt
only, puts the name of the sending task on it itself, and passes it to tasks of the same
job only. It takes receipts from workers that run something of that job. A worker takes
letters and receipts for an attempt from the scheduler of that attempt only. When
another scheduler takes the job up (`AttemptAdopted`), the attempt has a new name and is
that one's: letters that have no receipt go to it at once.

Nothing is durable. A mailbox lives as long as its attempt; a worker that crashes loses
both. Everything is bounded by the constants here and in `mailbox`.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, final

import msgspec

from shoal.core.deadlines import DeadlineHeap, Deadlines
from shoal.core.discovery.events import LearnAddresses
from shoal.core.events import (
    AddressesChanged,
    AttemptAdopted,
    DeadlineReached,
    MessageReceived,
    Send,
)
from shoal.core.machine import Mount
from shoal.core.mail.events import (
    ConfirmLetter,
    LetterPosted,
    LettersWanted,
    MailClosed,
    MailOpened,
    RefuseMail,
)
from shoal.core.mail.mailbox import LETTERS_MAX, READS_MAX, Mailbox
from shoal.model.backoff import Backoff
from shoal.model.ids import Attempt, NodeId, TaskId
from shoal.model.text.bounds import ID_LENGTH_MAX
from shoal.model.text.grammar import is_key
from shoal.model.text.texts import cleaned
from shoal.protocol.limits import MAIL_BYTES_MAX
from shoal.protocol.mail import Mail, MailReceipt

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Literal

    from shoal.core.dispatch.run_states import TaskRun
    from shoal.core.events import Effect, Event
    from shoal.core.records.records import TaskRecord
    from shoal.core.scheduling.job_book import JobBook
    from shoal.core.scheduling.scheduler import Scheduler

RESEND: Final = Backoff(2.0, 10.0)
GIVE_UP_S: Final = 120.0
"""A letter that nobody takes is dropped after this long."""

LINGER_S: Final = 30.0
"""How long letters of an attempt are sent again after its end."""

WAIT_MAX_S: Final = 30.0
"""The longest that a call for letters waits."""


@final
class TaskMail:
    """Decides what becomes of every letter that this node sends, passes or takes."""

    mount = Mount(
        takes={Mail: None, MailReceipt: None},
        hears=(MailOpened, MailClosed, LetterPosted, LettersWanted, AttemptAdopted),
    )

    def __init__(self, node: NodeId, scheduler: Scheduler | None) -> None:
        """Relay the letters of the jobs of `scheduler`, if this node has one."""
        self.counts: Counter[str] = Counter()
        self._node = node
        self._scheduler = scheduler
        self._addresses: tuple[str, ...] = ()
        self._boxes: dict[Attempt, Mailbox] = {}  # by the names that the host knows
        self._names: dict[Attempt, Attempt] = {}  # those names, by newer ones
        heap = DeadlineHeap()
        self._resends: Deadlines[tuple[Attempt, int]] = Deadlines(heap)
        self._waits: Deadlines[tuple[Attempt, int]] = Deadlines(heap)
        self._lingering: Deadlines[Attempt] = Deadlines(heap)

    @property
    def boxes(self) -> Mapping[Attempt, Mailbox]:
        """The mailboxes of attempts that run here, or have just ended."""
        return self._boxes

    def handle(self, event: Event, now: float) -> list[Effect]:
        """Take in one fact; return what to do about it. Raising is a bug."""
        match event:
            case MessageReceived(message=Mail() as mail):
                if mail.receiver is None:
                    return self._relay(event.peer, mail)
                return self._on_mail(event.peer, mail, mail.receiver)
            case MessageReceived(message=MailReceipt() as receipt):
                return self._on_receipt(event.peer, receipt)
            case LetterPosted():
                return self._on_posted(event, now)
            case LettersWanted():
                return self._on_wanted(event, now)
            case MailOpened():
                box = Mailbox(event.attempt, event.job)
                self._boxes[event.attempt] = box
            case AttemptAdopted():
                self._on_adopted(event, now)
            case MailClosed():
                self._on_closed(event.attempt, now)
            case DeadlineReached():
                return self._on_deadline(now)
            case AddressesChanged():
                self._addresses = event.addresses
            case _:
                pass
        return []

    def next_deadline(self) -> float | None:
        """When to deliver `DeadlineReached`, if ever."""
        return self._resends.next()

    # Tasks that run here.

    def _on_posted(self, event: LetterPosted, now: float) -> list[Effect]:
        box = self._boxes.get(event.attempt)
        if box is None or box.closed:
            return [_no_mail(event.token)]
        to = TaskId(f"{box.job}.{event.to}")
        if refusal := _refusal(box, to, event):
            return [refusal]
        seq = box.post(to, event.data, now)
        self._resends.set((box.name, seq), now + RESEND.pause_s(0))
        return [ConfirmLetter(event.token, seq), self._copy(box, seq)]

    def _on_wanted(self, event: LettersWanted, now: float) -> list[Effect]:
        box, token = self._boxes.get(event.attempt), event.token
        if box is None or box.closed or len(box.reads) >= READS_MAX:
            return [_no_mail(token)]
        if box.has_news or not event.wait_s > 0.0:
            return [box.hand_out(token)]
        box.reads[token] = None
        self._waits.set((box.name, token), now + min(WAIT_MAX_S, event.wait_s))
        return []

    def _answer_read(self, box: Mailbox) -> list[Effect]:
        """Answer the call for letters that has waited longest, if there is one."""
        token = next(iter(box.reads), None)
        if token is None or not box.has_news:
            return []
        self._waits.drop((box.name, token))
        return [box.hand_out(token)]

    def _on_closed(self, attempt: Attempt, now: float) -> None:
        box = self._boxes.get(attempt)
        if box is None or box.closed:
            return
        for token in box.reads:
            self._waits.drop((attempt, token))
        box.close()
        self._lingering.set(attempt, now + LINGER_S)
        self._forget_if_done(box)

    def _on_adopted(self, event: AttemptAdopted, now: float) -> None:
        """Write under the new name of an attempt, to its new scheduler."""
        box = self._boxes.get(event.name)
        if box is None:
            return
        self._names.pop(box.attempt, None)
        self._names[event.attempt] = box.name
        box.attempt = event.attempt
        for seq in box.under_way:
            self._resends.set((box.name, seq), now)

    def _box(self, attempt: Attempt) -> Mailbox | None:
        """Return the mailbox of an attempt that has this name now."""
        box = self._boxes.get(self._names.get(attempt, attempt))
        return box if box is not None and box.attempt == attempt else None

    # Messages of other nodes.

    def _on_mail(self, peer: NodeId, mail: Mail, receiver: Attempt) -> list[Effect]:
        """Put a letter into the box of a task that runs here."""
        box = self._box(receiver)
        if box is None or receiver.scheduler != peer or box.closed:
            self.counts["for nobody here"] += 1
            return []
        effects: list[Effect] = []
        if mail.node and mail.node != self._node:
            effects.append(LearnAddresses(mail.node, mail.addresses))
        letter: Mail | None = mail
        while letter is not None:
            what = box.receive(letter)
            if what == "early":
                self.counts["early"] += 1
                break
            effects.append(Send(peer, _receipt(letter, what)))
            letter = box.next_held(mail) if what == "taken" else None
        return effects + self._answer_read(box)

    def _on_receipt(self, peer: NodeId, receipt: MailReceipt) -> list[Effect]:
        """Settle a letter of a task here, or pass the receipt on to where it runs."""
        box = self._box(receipt.attempt)
        if box is not None and receipt.attempt.scheduler == peer:
            if receipt.what in ("absent", "full"):
                return []
            box.settle(receipt.seq, ended=receipt.what == "ended")
            self._resends.drop((box.name, receipt.seq))
            self._forget_if_done(box)
            return self._answer_read(box)
        run = self._run(receipt.attempt)
        if run is None or not self._works_for(peer, run):
            self.counts["receipts of no task of ours"] += 1
            return []
        return [Send(run.worker, receipt)]

    def _relay(self, peer: NodeId, mail: Mail) -> list[Effect]:
        """Pass a letter on to where its receiver runs, as the scheduler of the job."""
        run = self._run(mail.attempt)
        if run is None or not _runs(peer, run):
            self.counts["of no task of ours"] += 1
            return []
        record = self._receiver(run, mail.to)
        if record is None:
            return [Send(peer, _receipt(mail, "ended"))]
        there = next((r for r in record.live.values() if not r.lost), None)
        if there is None:
            return [Send(peer, _receipt(mail, "absent"))]
        passed = msgspec.structs.replace(
            mail,
            sender=run.task,
            receiver=there.attempt,
            node=run.worker,
            addresses=self._addresses_of(run.worker),
        )
        return [Send(there.worker, passed)]

    def _receiver(self, run: TaskRun, to: TaskId) -> TaskRecord | None:
        """Return a task that the task of `run` may write to and that has not ended."""
        assert self._scheduler is not None
        book = self._scheduler.book
        record = book.tasks.get(to)
        if record is None or not _same_job(book, run, record):
            return None
        return None if record.ended or to in book.group_of(to).exited else record

    def _run(self, attempt: Attempt) -> TaskRun | None:
        """Return a live attempt of one of our jobs."""
        if self._scheduler is None or attempt.scheduler != self._node:
            return None
        return self._scheduler.book.runs.get(attempt)

    def _works_for(self, peer: NodeId, run: TaskRun) -> bool:
        """Whether a peer runs something of the job that an attempt is of."""
        assert self._scheduler is not None
        book = self._scheduler.book
        job = book.tasks[run.task].task.job
        groups = (book.groups[group.id] for group in book.jobs[job].job.groups)
        runs = (each for group in groups for each in book.live_in(group))
        return any(each.worker == peer for each in runs)

    def _addresses_of(self, node: NodeId) -> tuple[str, ...]:
        """Return where a node can be reached, if we know."""
        if node == self._node:
            return self._addresses
        assert self._scheduler is not None
        address = self._scheduler.views.address(node)
        return (address,) if address else ()

    # Time.

    def _on_deadline(self, now: float) -> list[Effect]:
        """Send letters again, answer calls that waited long enough, forget boxes."""
        effects: list[Effect] = []
        for attempt, token in self._waits.pop_due(now):
            effects.append(self._boxes[attempt].hand_out(token))
        for attempt, seq in self._resends.pop_due(now):
            effects += self._resend(self._boxes[attempt], seq, now)
        for attempt in self._lingering.pop_due(now):
            self._forget(self._boxes[attempt])
        return effects

    def _resend(self, box: Mailbox, seq: int, now: float) -> list[Effect]:
        letter = box.under_way[seq]
        if now - letter.since > GIVE_UP_S:
            self.counts["given up"] += 1
            box.settle(seq, ended=False)
            self._forget_if_done(box)
            return []
        letter.tries += 1
        self._resends.set((box.name, seq), now + RESEND.pause_s(letter.tries))
        return [self._copy(box, seq)]

    def _copy(self, box: Mailbox, seq: int) -> Send:
        return Send(box.attempt.scheduler, box.copy_of(seq))

    def _forget_if_done(self, box: Mailbox) -> None:
        if box.closed and not box.under_way:
            self._forget(box)

    def _forget(self, box: Mailbox) -> None:
        for seq in box.under_way:
            self._resends.drop((box.name, seq))
        self._lingering.drop(box.name)
        self._names.pop(box.attempt, None)
        del self._boxes[box.name]


def _runs(peer: NodeId, run: TaskRun) -> bool:
    """Whether an attempt is where a peer says that it is."""
    return run.worker == peer


def _same_job(book: JobBook, run: TaskRun, record: TaskRecord) -> bool:
    return record.task.job == book.tasks[run.task].task.job


def _receipt(
    mail: Mail, what: Literal["taken", "full", "absent", "ended"]
) -> MailReceipt:
    return MailReceipt(attempt=mail.attempt, seq=mail.seq, what=what)


def _no_mail(token: int) -> RefuseMail:
    return RefuseMail(token, "this attempt has no mail")


def _refusal(box: Mailbox, to: TaskId, event: LetterPosted) -> RefuseMail | None:
    """Say why a letter cannot be sent, if it cannot."""
    if len(to) > ID_LENGTH_MAX or not is_key(to):
        return RefuseMail(
            event.token,
            f"no task can be called '{cleaned(event.to[:80])}'",
            hint="name its step and its number, like main.0",
        )
    if len(event.data) > MAIL_BYTES_MAX:
        return RefuseMail(
            event.token,
            f"a letter of {len(event.data)} bytes is too long",
            because=f"the most is {MAIL_BYTES_MAX}",
            hint="put it as a file, and send its name",
        )
    if not box.can_send():
        return RefuseMail(
            event.token,
            f"{LETTERS_MAX} letters are under way",
            because="they are not taken",
            hint="wait, and send again",
        )
    return None
