"""Connect all checkers of one world to its events."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, final

from shoal.core.artifacts.events import OutputsFetched, OutputsLost
from shoal.core.durability.journal import Entry
from shoal.core.environments.events import RemoveEnvironment
from shoal.core.events import (
    Answer,
    DoubtOutput,
    DrainEnded,
    DrainRequested,
    Effect,
    MakeEnvironment,
    MessageReceived,
    TaskWrote,
)
from shoal.model.ids import JobId, NodeId
from shoal.model.job import Job
from shoal.protocol.blobs import BlobPiece, PieceWanted
from shoal.protocol.call_batches import CallBatch, ResultBatch
from shoal.protocol.mail import Mail, MailReceipt
from shoal.protocol.messages import (
    Acknowledgement,
    Announcement,
    Assignment,
    Commit,
    Committed,
    Demand,
    Offer,
    Output,
    Preemption,
    Refusal,
    Renew,
    Report,
    Revocation,
)
from shoal.sim.agenda import Agenda
from shoal.sim.artifacts.outputs import Outputs
from shoal.sim.artifacts.transfers import BlobPromises
from shoal.sim.calls.promises import CallPromises
from shoal.sim.checkers.journals import Journals
from shoal.sim.checkers.logs import Logs
from shoal.sim.checkers.processes import Processes
from shoal.sim.checkers.quotas import Quotas
from shoal.sim.checkers.revocations import KnownRevocations
from shoal.sim.checkers.strangers import Strangers
from shoal.sim.checkers.verification import Verification
from shoal.sim.checkers.violations import Violations
from shoal.sim.clients import SimClients
from shoal.sim.discovery.promises import AnnouncementPromises
from shoal.sim.environments.promises import EnvironmentPromises
from shoal.sim.housekeeping.promises import HousePromises
from shoal.sim.lending.promises import LendingPromises
from shoal.sim.mail.promises import Letters
from shoal.sim.node.driver import SimProcess
from shoal.sim.node.host import HostWatch, SentHook, SimHost
from shoal.sim.opinions import Opinions

SWEEP_S: Final = 1.0
POISON_DOWN_S: Final = 2.0
"""Time until a worker that a task crashed boots again."""

ReadSafe = Callable[[SimHost, Sequence[Entry]], None]


@final
class Suite(HostWatch):
    """Passes events of a world to the checkers concerned."""

    def __init__(
        self, agenda: Agenda, jobs: dict[JobId, Job], opinions: Opinions
    ) -> None:
        super().__init__()
        self.violations = Violations(agenda)
        self.revocations = KnownRevocations(agenda)
        self.journals = Journals(self.violations)
        self.processes = Processes(self.violations, self.journals, jobs)
        self.outputs = Outputs(self.violations, self.journals, jobs)
        self.transfers = BlobPromises(self.violations, agenda, self.revocations)
        self.environments = EnvironmentPromises(self.violations)
        self.house = HousePromises(self.violations, self.journals)
        self.strangers = Strangers(self.violations)
        self.quotas = Quotas(self.violations, opinions)
        self.announcements = AnnouncementPromises(self.violations)
        self.clients: SimClients | None = None
        self.hosts: dict[NodeId, SimHost] = {}
        self.logs = Logs(self.violations)
        self.verification: Verification | None = None  # set if workers lie
        self.readers: list[ReadSafe] = []  # readers of journals, for extra traffic
        self.letters: Letters | None = None  # set if tasks write letters
        self.calls: CallPromises | None = None  # set if a client calls functions
        self.lending: LendingPromises | None = None  # set if owners come and go
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
                BlobPiece: self.transfers.sent,
                PieceWanted: self.transfers.asked,
            }
        )
        self.told.update(
            {
                Demand: self._demanded,
                Commit: self.processes.extended,
                Renew: self.processes.extended,
                Report: self.journals.reported,
                Revocation: self.strangers.revoked,
                Announcement: self.announcements.told,
                PieceWanted: self.transfers.told,
            }
        )
        self.facts.update(
            dict.fromkeys((OutputsFetched, OutputsLost), self.outputs.settled)
        )
        self.facts.update(
            dict.fromkeys((DrainRequested, DrainEnded), self.house.drained)
        )
        agenda.after(SWEEP_S, self._sweep)

    def booted(self, host: SimHost) -> None:
        """Check what a new life knows of earlier ones."""
        self.house.booted(host)

    def also_sent(self, kind: type, hook: SentHook) -> None:
        """Let a further check see messages of this kind; none of hostile nodes."""
        before, further = self.sent[kind], _if_honest(hook)

        def both(host: SimHost, peer: NodeId, message: object) -> None:
            before(host, peer, message)
            further(host, peer, message)

        self.sent[kind] = both

    def suspect(self, node: NodeId, *, revoked: bool = False) -> None:
        """Check from now on that this node's messages have no effect.

        If it is `revoked`, nodes that have not heard so may still believe it.
        """
        strangers = self.strangers
        self.suspects[node] = strangers.told_by_revoked if revoked else strangers.told

    def follow_letters(self, heal_s: float) -> Letters:
        """Check letters between tasks from now on."""
        self.letters = letters = Letters(self._agenda, self.violations, heal_s)
        self.sent[MailReceipt] = letters.taken
        self.told.update({Mail: letters.told, MailReceipt: letters.told})
        return letters

    def follow_calls(self, heal_s: float) -> CallPromises:
        """Check calls of functions from now on."""
        self.calls = calls = CallPromises(self._agenda, self.violations, heal_s)
        self.told.update({CallBatch: calls.told, ResultBatch: calls.told})
        return calls

    def started(self, host: SimHost, process: SimProcess) -> None:
        """Check a process that just started."""
        self.processes.started(host, process)
        self.outputs.started(host, process)
        self.environments.started(host, process)
        self.house.started(host, process)
        if self.lending is not None:
            self.lending.started(host, process)

    def reaped(self, host: SimHost, process: SimProcess) -> None:
        """Note that a process ended."""
        self.journals.reaped(host, process)
        self.processes.reaped(host, process)

    def crashed(self, host: SimHost) -> None:
        """Note that a node crashed."""
        self.journals.crashed(host)

    def poisoned(self, host: SimHost, process: SimProcess) -> None:
        """Let a task crash its worker."""
        self.journals.poisoned(host, process)
        if host.up:
            host.crash(power=True)
            self._agenda.after(POISON_DOWN_S, _boot, host, host.life)

    def wrote(self, piece: TaskWrote) -> None:
        """Note output of a process."""
        self.logs.wrote(piece)

    def shown(self, host: SimHost, output: Output) -> None:
        """Check what is added to a log."""
        self.logs.shown(host, output)

    def doubted(self, host: SimHost, effect: DoubtOutput) -> None:
        """Note whether a log may lack lines."""
        self.logs.doubted(effect)

    def reads(self, host: SimHost, count: int) -> None:
        """Check how much a node reads for its peers."""
        self.transfers.reads(host, count)

    def making(self, host: SimHost, effect: MakeEnvironment) -> None:
        """Check an environment that a worker begins to make."""
        self.environments.making(host, effect)

    def removing(self, host: SimHost, effect: RemoveEnvironment) -> None:
        """Check an environment that a worker removes."""
        self.environments.removing(host, effect)

    def safe(self, host: SimHost, entries: Sequence[Entry]) -> None:
        """Check entries that are now safe on disk."""
        self.revocations.note(host, entries)
        self.house.safe(host, entries)
        for entry in entries:
            self.journals.safe(host, entry)
            self.outputs.safe(host, entry)
            self.logs.safe(entry)
            self.strangers.safe(host, entry)
            if self.verification is not None:
                self.verification.safe(host, entry)
        for read in self.readers:
            read(host, entries)

    def answered(self, host: SimHost, answer: Answer) -> None:
        """Check an answer to a client."""
        if answer.token < 0:
            self.house.answered(host, answer)
            return
        assert self.clients is not None
        request = self.clients.on_answer(answer)
        if request is not None:
            self.journals.answered(host, answer, request)

    def _demanded(
        self, host: SimHost, event: MessageReceived, effects: list[Effect]
    ) -> None:
        self.quotas.demanded(host, effects, self.hosts)

    def _assigned(self, host: SimHost, peer: NodeId, message: object) -> None:
        self.journals.assigned(host, peer, message)
        self.processes.assigned(host, peer, message)

    def _sweep(self) -> None:
        self.processes.sweep(list(self.hosts.values()), self._opinions)
        self.quotas.sweep(self.hosts)
        self.transfers.sweep(self.hosts.values())
        if self.calls is not None:
            self.calls.sweep()
        if self.letters is not None:
            self.letters.sweep(self.hosts.values())
        self._agenda.after(SWEEP_S, self._sweep)


def _if_honest(hook: SentHook) -> SentHook:
    """Restrict a check to nodes with a role; hostile nodes promise nothing."""

    def honest(host: SimHost, peer: NodeId, message: object) -> None:
        if host.spec.roles:
            hook(host, peer, message)

    return honest


def _boot(host: SimHost, life: int) -> None:
    if not host.up and host.life == life and not host.left:
        host.boot()
