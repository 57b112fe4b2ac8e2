"""Simulate tasks that write letters to each other and read them.

Each letter's data name its sender, receiver and number, so that a checker knows the
truth whatever a machine believes. Some workers lie: they write to another job in the
name of an attempt that they run.
"""

from __future__ import annotations

from random import Random
from typing import Final, final

import msgspec

from shoal.core.events import Event
from shoal.core.mail.events import (
    ConfirmLetter,
    DeliverLetters,
    LetterPosted,
    LettersWanted,
    MailClosed,
    MailEffect,
    MailOpened,
    RefuseMail,
)
from shoal.model.ids import Attempt, JobId, NodeId, TaskId
from shoal.model.job import Job, Retry
from shoal.model.resources import Profile
from shoal.protocol.mail import Mail
from shoal.sim.agenda import Agenda
from shoal.sim.mail.promises import Letter, Letters
from shoal.sim.network import SimNetwork
from shoal.sim.node.driver import Behaviour, MailHabit, Plans, SimProcess
from shoal.sim.node.host import PerformAt, SimHost
from shoal.sim.workload import OWNERS, Errand, Workload, make_group

MAIL_SHARE: Final = 0.12  # share of worlds with letters
FLOOD_SHARE: Final = 0.3  # share of those with a task that never reads
FLOOD: Final = 400
LIE_SHARE: Final = 0.2  # share of a lying worker's letters that are forged
LIE_SEQ: Final = 1_000_000
AFTER_HEALING_S: Final = 60.0
"""How long tasks that write letters run after the last fault."""

READ_WAIT_S: Final = 4.0
READ_PAUSE_S: Final = (0.0, 0.3)
SMALL: Final = Profile(cpu_milli=100)


def draw_mail(
    rng: Random, workload: Workload, schedulers: list[NodeId], heal_s: float
) -> Workload:
    """Add two jobs whose tasks write letters, in some worlds."""
    if rng.random() >= MAIL_SHARE:
        return workload
    scheduler = rng.choice(schedulers)
    plans: Plans = dict(workload.plans)
    errands = list(workload.errands)
    jobs = [_draw_job(rng, name) for name in ("m0", "m1")]
    for job, other in zip(jobs, reversed(jobs), strict=True):
        at_s = rng.uniform(0.5, heal_s * 0.6)
        errands.append(Errand(job=job, scheduler=scheduler, at_s=at_s))
        run_s = heal_s - at_s + AFTER_HEALING_S
        lies_to = tuple(task.id for task in other.tasks())
        for task in job.tasks():
            others = [each.id for each in job.tasks() if each.id != task.id]
            habit = MailHabit(
                to=tuple(each.removeprefix(f"{job.id}.") for each in others),
                pause_s=rng.uniform(1.0, 5.0),
                lies_to=lies_to if rng.random() < 0.3 else (),
            )
            plans[task.id] = Behaviour(run_s=run_s, mail=habit)
    if rng.random() < FLOOD_SHARE:
        job = Job(
            id=JobId("m2"),
            owner=rng.choice(OWNERS),
            groups=(make_group("m2", "main", 2, (SMALL,)),),
        )
        writes, hoards = job.tasks()
        errands.append(Errand(job=job, scheduler=scheduler, at_s=heal_s * 0.5))
        flood = MailHabit(to=("main.1",), pause_s=2.0, burst=FLOOD, reads=False)
        plans[writes.id] = Behaviour(run_s=5.0, mail=flood)
        idle = MailHabit(to=(), pause_s=1.0, reads=False)
        plans[hoards.id] = Behaviour(run_s=20.0, mail=idle)
    return Workload(errands=tuple(errands), plans=plans)


def _draw_job(rng: Random, name: str) -> Job:
    return Job(
        id=JobId(name),
        owner=rng.choice(OWNERS),
        groups=(make_group(name, "main", rng.randint(2, 3), (SMALL,)),),
        retry=Retry(max=3, on=("worker-lost",)),
    )


class _Asked(msgspec.Struct, frozen=True):
    """A process's request to its node."""

    process: SimProcess
    letter: Letter | None = None  # None: it wants to read


@final
class SimTaskMail:
    """Lets processes write and read letters as planned."""

    def __init__(
        self, agenda: Agenda, network: SimNetwork, letters: Letters, rng: Random
    ) -> None:
        """Report each posted or delivered letter to `letters`."""
        self._agenda = agenda
        self._network = network
        self._letters = letters
        self._rng = rng
        self._token = 0
        self._asked: dict[int, _Asked] = {}
        self._numbers: dict[tuple[Attempt, TaskId], int] = {}

    @property
    def performers(self) -> dict[type, PerformAt]:
        """The performer of each effect of the mail machine."""
        return {
            ConfirmLetter: self.answered,
            DeliverLetters: self.answered,
            RefuseMail: self.answered,
        }

    def started(self, host: SimHost, process: SimProcess) -> None:
        """Open a process's mail, if it writes or reads letters."""
        habit = process.behaviour.mail
        if habit is None:
            return
        start = process.start
        opened = MailOpened(start.attempt, start.task.id, start.task.job)
        self._agenda.after(0.0, self._tell, host, host.life, process, opened)
        if habit.to:
            self._agenda.after(habit.pause_s, self._write, host, host.life, process)
        if habit.reads:
            self._agenda.after(0.0, self._read, host, host.life, process)

    def reaped(self, host: SimHost, process: SimProcess) -> None:
        """Close a process's mail."""
        if process.behaviour.mail is not None:
            host.feed(MailClosed(process.start.attempt))

    def answered(self, host: SimHost, answer: MailEffect) -> None:
        """Handle a node's answer to one of its processes."""
        asked = self._asked.pop(answer.token)
        match answer:
            case ConfirmLetter():
                assert asked.letter is not None
                self._letters.posted(host, asked.process, asked.letter, answer.seq)
            case DeliverLetters():
                self._letters.delivered(host, asked.process, answer.letters)
                delay_s = self._rng.uniform(*READ_PAUSE_S)
                process = asked.process
                self._agenda.after(delay_s, self._read, host, host.life, process)
            case RefuseMail():
                pass

    def _write(self, host: SimHost, life: int, process: SimProcess) -> None:
        habit = process.behaviour.mail
        if habit is None or not _talks(host, life, process):
            return
        start = process.start
        for _ in range(habit.burst):
            to = self._rng.choice(habit.to)
            receiver = TaskId(f"{start.task.job}.{to}")
            letter = self._next_letter(start.attempt, start.task.id, receiver)
            asked = self._ask(_Asked(process, letter))
            host.feed(LetterPosted(asked, start.attempt, to, letter.data))
        if habit.lies_to and self._rng.random() < LIE_SHARE:
            self._lie(host, start.attempt, self._rng.choice(habit.lies_to))
        delay_s = habit.pause_s * self._rng.uniform(0.5, 1.5)
        self._agenda.after(delay_s, self._write, host, life, process)

    def _lie(self, host: SimHost, attempt: Attempt, to: TaskId) -> None:
        """Let a worker forge an attempt's letter to another job's task."""
        self._token += 1
        lie = Mail(attempt=attempt, seq=LIE_SEQ + self._token, to=to, data=b"a lie")
        self._network.send(host, attempt.scheduler, lie)

    def _next_letter(self, attempt: Attempt, task: TaskId, to: TaskId) -> Letter:
        number = self._numbers.get((attempt, to), 0) + 1
        self._numbers[attempt, to] = number
        return Letter(sender=task, attempt=attempt, to=to, number=number)

    def _read(self, host: SimHost, life: int, process: SimProcess) -> None:
        if _talks(host, life, process):
            asked = self._ask(_Asked(process))
            host.feed(LettersWanted(asked, process.start.attempt, READ_WAIT_S))

    def _ask(self, asked: _Asked) -> int:
        self._token += 1
        self._asked[self._token] = asked
        return self._token

    def _tell(
        self, host: SimHost, life: int, process: SimProcess, event: Event
    ) -> None:
        if _talks(host, life, process):
            host.feed(event)


def _talks(host: SimHost, life: int, process: SimProcess) -> bool:
    """Whether a process runs and its node is up."""
    return (
        host.up
        and host.life == life
        and process.exit_code is None
        and process.pid in host.driver.processes
    )
