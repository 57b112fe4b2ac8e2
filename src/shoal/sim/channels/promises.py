"""Check promises about channels to tasks, the jobs and the input of tasks: H1 to H7."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import final

from shoal.core.channels.channels import CHANNELS_MAX, OPENED_MAX, WINDOW_BYTES
from shoal.core.channels.channels import Channels as ChannelMachine
from shoal.core.peer import Peer
from shoal.core.records.records import JobRecord
from shoal.core.scheduling.job_book import JobBook
from shoal.model.ids import Attempt, JobId, NodeId
from shoal.model.job import Job, Task
from shoal.protocol.channels.items import ITEM_BYTES_MAX
from shoal.protocol.channels.messages import ChannelOpen
from shoal.protocol.messages import Report
from shoal.sim.checkers.revocations import KnownRevocations
from shoal.sim.checkers.violations import Violations
from shoal.sim.node.host import SimHost


@final
class ChannelPromises:
    """Checks what comes out of channels, who opened them, and what they hold."""

    def __init__(
        self,
        violations: Violations,
        revocations: KnownRevocations,
        hosts: Mapping[NodeId, SimHost],
    ) -> None:
        self._violations = violations
        self._hosts = hosts
        self._opened: dict[tuple[NodeId, object], int] = {}
        self._revocations = revocations
        self._children: dict[JobId, tuple[Job, bool]] = {}  # with the job of a parent
        self._cut: set[Attempt] = set()  # whose standard input was cut off

    # H1: items arrive once and in order, or the channel ends with an error.

    def delivered(self, what: str, number: int, expected: int) -> None:
        """Check the number of an item against the next that must come."""
        if number != expected:
            text = f"{what} gets item {number} instead of {expected}"
            self._violations.report("H1", text)

    def ended_well(self, what: str, *, is_whole: bool) -> None:
        """Check a channel that ended as it should: nothing of it may be missing."""
        if not is_whole:
            self._violations.report("H1", f"{what} ends well, but not whole")

    def check_over(self, what: str, *, is_over: bool) -> None:
        """Check that a channel has ended by now."""
        if not is_over:
            self._violations.report("H1", f"{what} neither ends nor goes on")

    # H2: only the scheduler of an attempt opens a channel to it, and each opens once.

    def served(self, host: SimHost, peer: NodeId, asked: ChannelOpen) -> None:
        """Check a channel that a worker serves."""
        attempt = asked.attempt
        if asked.use.kind == "api":
            self.called(host, peer, attempt)
            return
        if not self._is_for(host, peer, attempt):
            text = f"{host.id} serves {peer} a channel to {attempt}, which is not its"
            self._violations.report("H2", text)
        runs = [p.start.attempt for p in host.driver.processes.values()]
        if attempt is not None and attempt not in runs:
            text = f"{host.id} serves a channel to {attempt}, which does not run there"
            self._violations.report("H2", text)
        if self._revocations.knows(host, peer):
            text = f"{host.id} serves {peer}, which it knows to be revoked"
            self._violations.report("H3", text)
        key = (host.id, (host.life, peer, asked.channel))
        self._opened[key] = self._opened.get(key, 0) + 1
        if self._opened[key] > 1:
            self._violations.report("H2", f"{host.id} opens {asked.channel} twice")

    def _is_for(self, host: SimHost, peer: NodeId, attempt: Attempt | None) -> bool:
        if attempt is not None:
            return attempt.scheduler == peer
        return self._hosts[peer].spec.owner == host.spec.owner

    # H3: a node that is known to be revoked gets nothing.

    def sent(self, host: SimHost, peer: NodeId, message: object) -> None:
        """Check items that a node sends."""
        if self._revocations.knows(host, peer):
            text = f"{host.id} sends {type(message).__name__} to {peer}, revoked"
            self._violations.report("H3", text)

    # H4: a node keeps three windows for each channel, and no more channels than it may.

    def sweep(self, hosts: Iterable[SimHost]) -> None:
        """Check what nodes keep now."""
        for host in hosts:
            if not isinstance(host.machine, Peer):
                continue
            machine = host.machine.find(ChannelMachine)
            if machine is None:
                continue
            channels = machine.open
            # A host that is paused may have to pass on what it was given at once, and
            # what was under way when it said that it is slow.
            most = 3 * (WINDOW_BYTES + ITEM_BYTES_MAX) * channels
            if machine.waiting_bytes > most:
                text = f"{host.id} keeps {machine.waiting_bytes} bytes of {channels}"
                self._violations.report("H4", text)
            if channels > CHANNELS_MAX + OPENED_MAX:
                self._violations.report("H4", f"{host.id} has {channels} channels")

    # H5: a task calls while its attempt is live, by the worker that runs it, if that
    # belongs to its owner.

    def called(self, host: SimHost, peer: NodeId, attempt: Attempt | None) -> None:
        """Check that a scheduler may take calls of a task."""
        run = None if attempt is None else _book_of(host).runs.get(attempt)
        if run is None or run.worker != peer:
            text = f"{host.id} takes calls of {peer} for {attempt}, which is not there"
            self._violations.report("H5", text)
            return
        owner = _book_of(host).job_of(run.task).job.owner
        if self._hosts[peer].spec.owner != owner:
            text = f"{host.id} takes calls of {peer} for {attempt}, which is of {owner}"
            self._violations.report("H5", text)

    def job_of(self, host: SimHost, attempt: Attempt | None) -> tuple[Job, Task] | None:
        """Return the job and the task of a live attempt."""
        book = _book_of(host)
        run = None if attempt is None else book.runs.get(attempt)
        if run is None:
            return None
        return book.job_of(run.task).job, book.tasks[run.task].task

    # H6: the job of a task belongs to its owner, has no better a rank, and ends with
    # it unless it is detached.

    def submitted(self, child: JobId, parent: Job, *, detached: bool) -> None:
        """Note that a task submits a job."""
        self._children[child] = (parent, detached)

    def check_children(self, hosts: Iterable[SimHost]) -> None:
        """Check the jobs of tasks at nodes that are up."""
        for host in hosts:
            machine = host.machine
            if not isinstance(machine, Peer) or machine.scheduler is None:
                continue
            book = machine.scheduler.book
            for record in book.jobs.values():
                if record.job.id in self._children:
                    self._check_child(host, record, book)

    def _check_child(self, host: SimHost, record: JobRecord, book: JobBook) -> None:
        parent, detached = self._children[record.job.id]
        job, line = record.job, record.parent.line if record.parent else ()
        if job.owner != parent.owner or job.priority > parent.priority:
            text = f"{job.id} at {host.id} has more than {parent.id}"
            self._violations.report("H6", text)
        is_left = not line or line[-1] not in book.runs
        if record.state == "active" and is_left and not detached:
            text = f"{job.id} at {host.id} outlives the task that submitted it"
            self._violations.report("H6", text)

    # H7: a task whose standard input was cut off is never taken for done.

    def cut(self, attempt: Attempt) -> None:
        """Note that a running task got less than its whole input."""
        self._cut.add(attempt)

    def reported(self, host: SimHost, _peer: NodeId, message: object) -> None:
        """Check the outcome that a worker reports."""
        assert isinstance(message, Report)
        is_done = message.outcome.kind == "exited" and message.outcome.exit_code == 0
        if message.attempt in self._cut and is_done:
            text = f"{host.id} says that {message.attempt} is done, with half its input"
            self._violations.report("H7", text)


def _book_of(host: SimHost) -> JobBook:
    assert isinstance(host.machine, Peer)
    assert host.machine.scheduler is not None
    return host.machine.scheduler.book
