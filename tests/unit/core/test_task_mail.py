"""Letters between tasks of a job arrive once and in order, and nobody forges one."""

from collections import deque
from collections.abc import Callable

import pytest

from shoal.core.discovery.events import LearnAddresses
from shoal.core.durability.journal import AttemptPlace, Submitted
from shoal.core.events import (
    AddressesChanged,
    DeadlineReached,
    Effect,
    Event,
    MessageReceived,
    Send,
)
from shoal.core.mail.events import (
    ConfirmLetter,
    DeliverLetters,
    LetterPosted,
    LettersWanted,
    MailClosed,
    MailOpened,
    RefuseMail,
)
from shoal.core.mail.mailbox import LETTERS_MAX
from shoal.core.mail.task_mail import GIVE_UP_S, LINGER_S, TaskMail
from shoal.core.scheduling.job_book import JobBook
from shoal.model.ids import Attempt, GroupId, JobId, LeaseId, NodeId, OwnerId, TaskId
from shoal.model.job import Group, Job, Task
from shoal.protocol.mail import Mail, MailReceipt
from shoal.protocol.messages import AnyMessage, Outcome

OTTER, HERON, CROW = NodeId("otter"), NodeId("heron"), NodeId("crow")
JOB = JobId("j")
AGGREGATE, TRAIN = TaskId("j.aggregate.0"), TaskId("j.train.0")

Loses = Callable[[NodeId, NodeId, AnyMessage], bool]


def attempt(sequence: int) -> Attempt:
    return Attempt(OTTER, 1, sequence)


class Views:
    """Where workers can be reached."""

    def address(self, node: NodeId) -> str:
        return f"at {node}"


class Scheduler:
    """As much of a scheduler as the mail machine looks at."""

    def __init__(self) -> None:
        self.book = JobBook()
        self.views = Views()


def never(_src: NodeId, _dst: NodeId, _message: AnyMessage) -> bool:
    return False


class Shoal:
    """A scheduler and two workers; a job with a task on each worker."""

    def __init__(self) -> None:
        self.scheduler = Scheduler()
        self.now = 0.0
        self.loses: Loses = never
        self.said: list[tuple[NodeId, NodeId, AnyMessage]] = []
        self.known: dict[NodeId, tuple[str, ...]] = {}
        self.answers: dict[int, Effect] = {}
        self.token = 0
        self._wire: deque[tuple[NodeId, NodeId, AnyMessage]] = deque()
        self.machines: dict[NodeId, TaskMail] = {
            node: TaskMail(node, self.scheduler if node == OTTER else None)  # type: ignore[arg-type]
            for node in (OTTER, HERON, CROW)
        }
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
        place = AttemptPlace(task, attempt(sequence), node, LeaseId(f"l{sequence}"), 0)
        self.scheduler.book.assign((place,), 0.0)
        self.feed(node, MailOpened(attempt(sequence), task, JOB))

    def feed(self, node: NodeId, event: Event) -> list[Effect]:
        effects = self.machines[node].handle(event, self.now)
        for effect in effects:
            match effect:
                case Send():
                    if effect.peer != node:
                        self.said.append((node, effect.peer, effect.message))
                    if not self.loses(node, effect.peer, effect.message):
                        self._wire.append((node, effect.peer, effect.message))
                case LearnAddresses():
                    self.known[effect.node] = effect.addresses
                case ConfirmLetter() | DeliverLetters() | RefuseMail():
                    self.answers[effect.token] = effect
                case _:
                    raise AssertionError(effect)
        return effects

    def settle(self) -> None:
        """Bring messages to where they go, until nobody says anything."""
        while self._wire:
            src, dst, message = self._wire.popleft()
            self.feed(dst, MessageReceived(src, message))

    def wait(self, wait_s: float) -> None:
        """Let time pass; deadlines are kept."""
        self.settle()
        until = self.now + wait_s
        while True:
            due = [
                (at, node)
                for node, machine in self.machines.items()
                if (at := machine.next_deadline()) is not None and at <= until
            ]
            if not due:
                self.now = until
                return
            at, node = min(due)
            self.now = max(self.now, at)
            self.feed(node, DeadlineReached())
            self.settle()

    def send(self, node: NodeId, sequence: int, to: str, data: bytes) -> Effect:
        self.token += 1
        self.feed(node, LetterPosted(self.token, attempt(sequence), to, data))
        return self.answers[self.token]

    def ask(self, node: NodeId, sequence: int, wait_s: float = 0.0) -> int:
        self.token += 1
        self.feed(node, LettersWanted(self.token, attempt(sequence), wait_s))
        return self.token

    def read(self, node: NodeId, sequence: int) -> list[tuple[str, bytes]]:
        self.settle()
        answer = self.answers[self.ask(node, sequence)]
        assert isinstance(answer, DeliverLetters)
        return list(answer.letters)


@pytest.fixture
def shoal() -> Shoal:
    return Shoal()


def test_a_letter_goes_by_the_scheduler_and_tells_where_its_sender_is(
    shoal: Shoal,
) -> None:
    shoal.send(CROW, 2, "aggregate.0", b"hello")

    assert shoal.read(HERON, 1) == [("train.0", b"hello")]
    shoal.wait(60)
    assert [(a, b) for a, b, _ in shoal.said] == [
        (CROW, OTTER),
        (OTTER, HERON),
        (HERON, OTTER),
        (OTTER, CROW),
    ]
    assert shoal.known == {CROW: ("at crow",)}


def test_a_task_next_to_its_scheduler_is_found_by_the_addresses_of_that_node(
    shoal: Shoal,
) -> None:
    shoal.scheduler.book.put_back(shoal.scheduler.book.runs[attempt(2)], "lost")
    shoal.feed(OTTER, AddressesChanged(("10.0.0.1:4001",)))
    shoal.start(TRAIN, OTTER, 3)

    shoal.send(OTTER, 3, "aggregate.0", b"hello")

    assert shoal.read(HERON, 1) == [("train.0", b"hello")]
    assert shoal.known == {OTTER: ("10.0.0.1:4001",)}


def test_a_letter_that_got_lost_is_sent_again_and_taken_once(shoal: Shoal) -> None:
    shoal.loses = lambda *_: True
    shoal.send(CROW, 2, "aggregate.0", b"hello")
    shoal.wait(5)

    shoal.loses = never
    mail = shoal.said[0][2]
    for _ in range(3):  # The network repeats it, too.
        shoal.feed(OTTER, MessageReceived(CROW, mail))
    shoal.wait(30)

    assert shoal.read(HERON, 1) == [("train.0", b"hello")]
    assert shoal.read(HERON, 1) == []


def test_a_letter_does_not_overtake_one_that_got_lost(shoal: Shoal) -> None:
    shoal.loses = lambda *_: True
    shoal.send(CROW, 2, "aggregate.0", b"one")
    shoal.loses = never
    shoal.send(CROW, 2, "aggregate.0", b"two")
    shoal.send(CROW, 2, "aggregate.0", b"three")

    before = shoal.read(HERON, 1)
    shoal.wait(2.5)

    assert before == []
    assert [data for _, data in shoal.read(HERON, 1)] == [b"one", b"two", b"three"]
    assert shoal.read(HERON, 1) == []


def test_a_letter_that_is_given_up_holds_up_no_other(shoal: Shoal) -> None:
    shoal.loses = lambda _src, _dst, m: isinstance(m, Mail) and m.data == b"one"
    shoal.send(CROW, 2, "aggregate.0", b"one")
    shoal.wait(60)
    shoal.send(CROW, 2, "aggregate.0", b"two")
    shoal.wait(GIVE_UP_S - 60)

    before = shoal.read(HERON, 1)
    shoal.wait(25)
    late = Mail(attempt=attempt(2), seq=1, to=AGGREGATE, data=b"one")
    shoal.loses = never
    shoal.feed(OTTER, MessageReceived(CROW, late))

    assert before == []
    assert shoal.read(HERON, 1) == [("train.0", b"two")]
    assert shoal.read(HERON, 1) == []  # What comes after its successor comes too late.


def test_a_letter_to_one_task_does_not_wait_for_one_to_another(shoal: Shoal) -> None:
    shoal.loses = lambda *_: True
    shoal.send(CROW, 2, "train.0", b"to myself")
    shoal.loses = never
    shoal.send(CROW, 2, "aggregate.0", b"hello")

    assert shoal.read(HERON, 1) == [("train.0", b"hello")]


def test_a_call_for_letters_waits_for_the_first_one(shoal: Shoal) -> None:
    token = shoal.ask(HERON, 1, wait_s=20.0)
    shoal.wait(5)
    assert token not in shoal.answers

    shoal.send(CROW, 2, "aggregate.0", b"hello")
    shoal.settle()

    assert shoal.answers[token] == DeliverLetters(token, (("train.0", b"hello"),))


def test_a_call_for_letters_ends_empty_after_its_wait(shoal: Shoal) -> None:
    token = shoal.ask(HERON, 1, wait_s=20.0)

    shoal.wait(20)

    assert shoal.answers[token] == DeliverLetters(token)


def test_a_letter_waits_until_its_receiver_is_started_again(shoal: Shoal) -> None:
    book = shoal.scheduler.book
    book.put_back(book.runs[attempt(1)], "lost")
    shoal.send(CROW, 2, "aggregate.0", b"hello")
    shoal.wait(5)

    shoal.start(AGGREGATE, OTTER, 3)
    shoal.wait(20)

    assert shoal.read(OTTER, 3) == [("train.0", b"hello")]


def test_letters_that_a_lost_attempt_never_took_reach_the_next_one_in_order(
    shoal: Shoal,
) -> None:
    book = shoal.scheduler.book
    shoal.loses = lambda *_: True
    for data in (b"one", b"two"):
        shoal.send(CROW, 2, "aggregate.0", data)
    book.put_back(book.runs[attempt(1)], "lost")
    shoal.start(AGGREGATE, OTTER, 3)
    shoal.loses = never

    shoal.wait(5)

    assert [data for _, data in shoal.read(OTTER, 3)] == [b"one", b"two"]


def test_a_task_that_writes_to_one_that_has_ended_is_told_so(shoal: Shoal) -> None:
    shoal.scheduler.book.finish(
        AGGREGATE, "done", 1.0, attempt=attempt(1), outcome=Outcome("exited", 0)
    )

    shoal.send(CROW, 2, "aggregate.0", b"hello")
    shoal.settle()

    token = shoal.ask(CROW, 2)
    assert shoal.answers[token] == DeliverLetters(token, ended=("aggregate.0",))


def test_nobody_else_can_write_in_the_name_of_a_task(shoal: Shoal) -> None:
    forged = Mail(attempt=attempt(2), seq=9, to=AGGREGATE, data=b"forged")
    passed = Mail(
        attempt=attempt(2),
        seq=9,
        to=AGGREGATE,
        data=b"forged",
        sender=TRAIN,
        receiver=attempt(1),
    )

    shoal.feed(OTTER, MessageReceived(HERON, forged))  # The attempt runs elsewhere.
    shoal.feed(HERON, MessageReceived(CROW, passed))  # Not the scheduler of the job.

    assert shoal.read(HERON, 1) == []
    assert shoal.said == []


def test_the_scheduler_and_not_the_worker_says_who_a_letter_is_from(
    shoal: Shoal,
) -> None:
    lie = Mail(attempt=attempt(2), seq=1, to=AGGREGATE, data=b"x", sender=AGGREGATE)

    shoal.feed(OTTER, MessageReceived(CROW, lie))

    assert shoal.read(HERON, 1) == [("train.0", b"x")]


def test_a_receipt_of_somebody_else_settles_nothing(shoal: Shoal) -> None:
    shoal.loses = lambda *_: True
    shoal.send(CROW, 2, "aggregate.0", b"hello")
    forged = MailReceipt(attempt=attempt(2), seq=1, what="taken")

    shoal.feed(CROW, MessageReceived(HERON, forged))  # Not the scheduler.
    shoal.feed(OTTER, MessageReceived(NodeId("eve"), forged))  # Runs nothing of it.
    shoal.loses = never
    shoal.wait(5)

    assert shoal.read(HERON, 1) == [("train.0", b"hello")]


def test_a_task_of_another_job_is_as_good_as_ended(shoal: Shoal) -> None:
    other = JobId("k")
    task = Task(id=TaskId("k.main.0"), job=other, group=GroupId("k.main"))
    group = Group(id=GroupId("k.main"), tasks=(task,))
    job = Job(id=other, owner=OwnerId("ann"), groups=(group,))
    shoal.scheduler.book.submit(Submitted(job, 0.0), 0.0)
    place = AttemptPlace(task.id, attempt(3), HERON, LeaseId("l3"), 0)
    shoal.scheduler.book.assign((place,), 0.0)
    mail = Mail(attempt=attempt(2), seq=1, to=task.id, data=b"x")

    shoal.feed(OTTER, MessageReceived(CROW, mail))

    [(_, _, receipt)] = shoal.said
    assert receipt == MailReceipt(attempt=attempt(2), seq=1, what="ended")


def test_a_task_can_have_only_so_many_letters_under_way(shoal: Shoal) -> None:
    shoal.loses = lambda *_: True
    for _ in range(LETTERS_MAX):
        shoal.send(CROW, 2, "aggregate.0", b"x")

    refused = shoal.send(CROW, 2, "aggregate.0", b"x")

    assert isinstance(refused, RefuseMail)
    assert "under way" in refused.what
    shoal.wait(GIVE_UP_S + 20)  # They are given up, in the end.
    assert isinstance(shoal.send(CROW, 2, "aggregate.0", b"x"), ConfirmLetter)


def test_letters_beyond_a_full_box_are_taken_when_the_task_has_read(
    shoal: Shoal,
) -> None:
    for number in range(LETTERS_MAX + 3):
        shoal.send(CROW, 2, "aggregate.0", b"%d" % number)
        shoal.settle()

    first = shoal.read(HERON, 1)
    shoal.wait(25)
    rest = shoal.read(HERON, 1)

    assert len(first) == LETTERS_MAX
    assert [int(data) for _, data in [*first, *rest]] == [*range(LETTERS_MAX + 3)]


def test_letters_of_an_attempt_that_has_ended_are_sent_again_for_a_while(
    shoal: Shoal,
) -> None:
    shoal.loses = lambda *_: True
    shoal.send(CROW, 2, "aggregate.0", b"bye")
    shoal.feed(CROW, MailClosed(attempt(2)))
    shoal.wait(5)

    shoal.loses = never
    shoal.wait(20)

    assert shoal.read(HERON, 1) == [("train.0", b"bye")]
    assert shoal.machines[CROW].next_deadline() is None


def test_an_attempt_that_has_ended_is_forgotten_though_nobody_takes_its_letters(
    shoal: Shoal,
) -> None:
    shoal.loses = lambda *_: True
    shoal.send(CROW, 2, "aggregate.0", b"bye")
    shoal.ask(CROW, 2, wait_s=30)

    shoal.feed(CROW, MailClosed(attempt(2)))
    shoal.wait(LINGER_S + 1)

    assert shoal.machines[CROW].next_deadline() is None
    assert isinstance(shoal.send(CROW, 2, "aggregate.0", b"x"), RefuseMail)


def test_no_letter_is_taken_for_an_attempt_that_has_ended(shoal: Shoal) -> None:
    shoal.feed(HERON, MailClosed(attempt(1)))

    shoal.send(CROW, 2, "aggregate.0", b"hello")
    shoal.settle()

    assert [(a, b) for a, b, _ in shoal.said] == [(CROW, OTTER), (OTTER, HERON)]


@pytest.mark.parametrize(
    ("to", "size", "why"),
    [("a/b", 0, "no task can be called"), ("train.0", 40_000, "too long")],
)
def test_a_letter_that_cannot_be_sent_is_refused_with_the_reason(
    shoal: Shoal, to: str, size: int, why: str
) -> None:
    refused = shoal.send(CROW, 2, to, b"x" * size)

    assert isinstance(refused, RefuseMail)
    assert why in refused.what
    assert shoal.said == []
