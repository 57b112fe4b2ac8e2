"""Check promises about letters between tasks: M1, M2 and M3.

The processes report which letters they wrote and read. The machines are asked only how
much they store.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, final

import msgspec

from shoal.core.events import Effect, MessageReceived
from shoal.core.mail.mailbox import LETTERS_MAX
from shoal.core.mail.task_mail import TaskMail
from shoal.core.peer import Peer
from shoal.model.ids import Attempt, NodeId, TaskId
from shoal.protocol.mail import MailReceipt
from shoal.sim.agenda import Agenda
from shoal.sim.checkers.strangers import done_for_forger, largest_container
from shoal.sim.checkers.violations import Violations
from shoal.sim.node.driver import SimProcess
from shoal.sim.node.host import SimHost

TAKEN_S: Final = 15.0
"""Time after its node's receipt by which a reading task has a letter."""

ARRIVES_S: Final = 45.0
"""Time after the last fault by which letters of running tasks have arrived."""


class Letter(msgspec.Struct, frozen=True):
    """A letter's true origin and target, encoded in its data."""

    sender: TaskId
    attempt: Attempt
    to: TaskId
    number: int  # of this attempt's letters to this task, from 1

    @property
    def data(self) -> bytes:
        """The content of the letter."""
        return msgspec.msgpack.encode(self)


class _Posted(msgspec.Struct):
    letter: Letter
    at: float
    process: SimProcess
    taken_at: float | None = None
    delivered: bool = False


@final
class Letters:
    """Follows every letter from its writer to its readers."""

    def __init__(self, agenda: Agenda, violations: Violations, heal_s: float) -> None:
        """Expect letters to arrive from `heal_s` on."""
        self._agenda = agenda
        self._violations = violations
        self._heal_s = heal_s
        self._posted: dict[tuple[Attempt, int], _Posted] = {}  # by the node's number
        self._known: dict[Letter, _Posted] = {}
        self._last: dict[tuple[Attempt, Attempt], int] = {}  # by sender and receiver

    @property
    def arrived(self) -> int:
        """Number of letters read."""
        return sum(posted.delivered for posted in self._posted.values())

    def posted(
        self, _host: SimHost, process: SimProcess, letter: Letter, seq: int
    ) -> None:
        """Note a letter that a node accepted from its process."""
        posted = _Posted(letter, self._agenda.now, process)
        self._posted[letter.attempt, seq] = posted
        self._known[letter] = posted

    def taken(self, host: SimHost, _peer: NodeId, message: object) -> None:
        """Note a receiving node's receipt for a letter."""
        assert isinstance(message, MailReceipt)
        posted = self._posted.get((message.attempt, message.seq))
        is_relay = host.id == message.attempt.scheduler
        if posted is None or is_relay or message.what != "taken" or not host.spec.roles:
            return
        if posted.taken_at is None:
            posted.taken_at = self._agenda.now

    def told(
        self, host: SimHost, event: MessageReceived, effects: list[Effect]
    ) -> None:
        """Check that nobody acts on the forger's letters or receipts."""
        for what in done_for_forger(host, event, effects):
            self._violations.report("M2", what)

    def delivered(
        self,
        host: SimHost,
        process: SimProcess,
        letters: Iterable[tuple[str, bytes]],
    ) -> None:
        """Check letters as a process reads them."""
        for name, data in letters:
            try:
                letter = msgspec.msgpack.decode(data, type=Letter)
            except msgspec.DecodeError:
                task = process.start.task.id
                self._violations.report("M2", f"{task} got a letter that nobody wrote")
                continue
            self._check_right(host, process, name, letter)
            self._check_order(process, letter)

    def sweep(self, hosts: Iterable[SimHost]) -> None:
        """Check that letters arrive in time and mailboxes stay bounded."""
        running = {
            process.start.task.id: process
            for host in hosts
            if host.up
            for process in host.driver.processes.values()
            if process.exit_code is None and process.behaviour.mail is not None
        }
        for posted in self._posted.values():
            if not posted.delivered:
                self._check_arrival(posted, running)
        for host in hosts:
            mail = (
                host.machine.find(TaskMail) if isinstance(host.machine, Peer) else None
            )
            for box in mail.boxes.values() if mail is not None else ():
                path, size = largest_container(box)
                if size > LETTERS_MAX:
                    what = f"{host.id} keeps {size} items in {path}"
                    self._violations.report("M3", what)

    def _check_right(
        self, host: SimHost, process: SimProcess, name: str, letter: Letter
    ) -> None:
        task = process.start.task
        told = f"{host.id} gave {task.id} a letter of {letter.sender} to {letter.to}"
        posted = self._known.get(letter)
        if posted is None:
            self._violations.report("M2", f"{told} that was never sent")
        elif letter.to != task.id or not letter.sender.startswith(f"{task.job}."):
            self._violations.report("M2", told)
        elif letter.sender != f"{task.job}.{name}":
            self._violations.report("M2", f"{told} as one of {name}")
        else:
            posted.delivered = True

    def _check_order(self, process: SimProcess, letter: Letter) -> None:
        pair = (letter.attempt, process.start.attempt)
        last = self._last.get(pair, 0)
        if letter.number <= last:
            what = f"{letter.to} read letter {letter.number} of {letter.sender}"
            self._violations.report("M1", f"{what} after letter {last}")
        self._last[pair] = letter.number

    def _check_arrival(
        self, posted: _Posted, running: dict[TaskId, SimProcess]
    ) -> None:
        """Report a late letter if both tasks have run all along."""
        letter, now = posted.letter, self._agenda.now
        receiver = running.get(letter.to)
        if receiver is None or receiver.behaviour.mail is None:
            return
        if receiver.began > posted.at or not receiver.behaviour.mail.reads:
            return
        what = f"letter {letter.number} of {letter.sender} to {letter.to}"
        if posted.taken_at is not None and now - posted.taken_at > TAKEN_S:
            self._violations.report("M1", f"{what} was taken and not delivered")
        since = max(posted.at, self._heal_s)
        sends = running.get(letter.sender) is posted.process
        if sends and now - since > ARRIVES_S:
            self._violations.report("M1", f"{what} does not arrive")
