"""All checkers of one world, told of everything they need and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

from shoal.core.events import Answer, Effect, MessageReceived
from shoal.core.journal import Entry
from shoal.model.ids import JobId, NodeId
from shoal.model.job import Job
from shoal.protocol.messages import (
    Acknowledgement,
    Assignment,
    Commit,
    Committed,
    Demand,
    Offer,
    Preemption,
    Refusal,
    Renew,
    Report,
    Revocation,
)
from shoal.sim.agenda import Agenda
from shoal.sim.checkers.journals import Journals
from shoal.sim.checkers.processes import Processes
from shoal.sim.checkers.quotas import Quotas
from shoal.sim.checkers.strangers import Strangers
from shoal.sim.checkers.verification import Verification
from shoal.sim.checkers.violations import Violations
from shoal.sim.clients import Clients
from shoal.sim.driver import Process
from shoal.sim.host import Host, SentHook, Watch
from shoal.sim.opinions import Opinions

SWEEP_S: Final = 1.0
POISON_DOWN_S: Final = 2.0
"""A worker that a task took down boots again after this."""


@final
class Suite(Watch):
    """Hands on what happens to the checkers that care."""

    def __init__(
        self, agenda: Agenda, jobs: dict[JobId, Job], opinions: Opinions
    ) -> None:
        super().__init__()
        self.violations = Violations(agenda)
        self.journals = Journals(self.violations)
        self.processes = Processes(self.violations, self.journals, jobs)
        self.strangers = Strangers(self.violations)
        self.quotas = Quotas(self.violations, opinions)
        self.clients: Clients | None = None
        self.hosts: dict[NodeId, Host] = {}
        self.verification: Verification | None = None  # if anybody lies
        self._agenda = agenda
        self._opinions = opinions
        self.sent.update(
            {
                Offer: _if_honest(self.processes.offered),
                Committed: _if_honest(self.processes.committed),
                Preemption: _if_honest(self.processes.preempted),
                Assignment: _if_honest(self._assigned),
                Acknowledgement: _if_honest(self.journals.acknowledged),
                Report: _if_honest(self.processes.said_over),
                Refusal: _if_honest(self.processes.said_over),
            }
        )
        self.told.update(
            {
                Demand: self._demanded,
                Commit: self.processes.extended,
                Renew: self.processes.extended,
                Report: self.journals.reported,
                Revocation: self.strangers.revoked,
            }
        )
        agenda.after(SWEEP_S, self._sweep)

    def suspect(self, node: NodeId, *, revoked: bool = False) -> None:
        """Check from now on that what this node says changes nothing.

        If it is only `revoked`, those who have not heard of that may believe it.
        """
        strangers = self.strangers
        self.suspects[node] = strangers.told_by_revoked if revoked else strangers.told

    def started(self, host: Host, process: Process) -> None:
        """Check a process that runs now."""
        self.processes.started(host, process)

    def reaped(self, host: Host, process: Process) -> None:
        """Note a process that is gone."""
        self.journals.reaped(host, process)
        self.processes.reaped(host, process)

    def crashed(self, host: Host) -> None:
        """Note that a node lost its memory."""
        self.journals.crashed(host)

    def poisoned(self, host: Host, process: Process) -> None:
        """Let a task take its worker down."""
        self.journals.poisoned(host, process)
        if host.up:
            host.crash(power=True)
            self._agenda.after(POISON_DOWN_S, _boot, host, host.life)

    def safe(self, host: Host, entries: Sequence[Entry]) -> None:
        """Read what is safe on disk now."""
        for entry in entries:
            self.journals.safe(host, entry)
            self.strangers.safe(host, entry)
            if self.verification is not None:
                self.verification.safe(host, entry)

    def answered(self, host: Host, answer: Answer) -> None:
        """Check what a client was told."""
        assert self.clients is not None
        request = self.clients.on_answer(answer)
        if request is not None:
            self.journals.answered(host, answer, request)

    def _demanded(
        self, host: Host, event: MessageReceived, effects: list[Effect]
    ) -> None:
        self.quotas.demanded(host, effects, self.hosts)

    def _assigned(self, host: Host, peer: NodeId, message: object) -> None:
        self.journals.assigned(host, peer, message)
        self.processes.assigned(host, peer, message)

    def _sweep(self) -> None:
        self.processes.sweep(list(self.hosts.values()), self._opinions)
        self.quotas.sweep(self.hosts)
        self._agenda.after(SWEEP_S, self._sweep)


def _if_honest(hook: SentHook) -> SentHook:
    """Check only nodes that play a role: a hostile one makes no promises."""

    def honest(host: Host, peer: NodeId, message: object) -> None:
        if host.spec.roles:
            hook(host, peer, message)

    return honest


def _boot(host: Host, life: int) -> None:
    if not host.up and host.life == life and not host.left:
        host.boot()
