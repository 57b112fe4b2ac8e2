"""A live node: the machine and everything around it, started and closed in order.

`__init__` replays the journal and builds the machine. `start` opens drivers and
artifacts, runs the machine on a network and feeds `Booted`. Clients hear of changes
only once these are on disk. A failure of the disk or the machine ends the node: `ended`
gets the exception. `close` ends tasks first, then links, then the journal.
"""

from __future__ import annotations

import asyncio
import time
import traceback
from random import Random, SystemRandom
from typing import TYPE_CHECKING, Final, final

import msgspec

from shoal import failpoints
from shoal.core.admission.admission_control import AdmissionControl
from shoal.core.allocation.allocator import Allocator
from shoal.core.artifacts.blob_transfers import BlobTransfers
from shoal.core.calls.call_exchange import CallExchange
from shoal.core.channels.channels import Channels
from shoal.core.discovery.gate import Gate
from shoal.core.discovery.gossip_overlay import GossipOverlay
from shoal.core.discovery.known_members import KnownMembers
from shoal.core.discovery.load_gossip import LoadGossip
from shoal.core.discovery.neighbours import Neighbours
from shoal.core.durability.journal import Cancelled, DrainSet, Incarnated, Revoked
from shoal.core.durability.journal_repair import active_of, weeded
from shoal.core.events import (
    AddressesChanged,
    Booted,
    DepartureNear,
    DrainEnded,
    DrainRequested,
    DriverOpened,
    Event,
)
from shoal.core.forwarding.forwarded_calls import CallForwarding
from shoal.core.housekeeping.past_needs import PastNeeds
from shoal.core.housekeeping.retention import KeepRule
from shoal.core.housekeeping.usage_ledger import UsageLedger
from shoal.core.leasing.owner_rules import OwnerRules
from shoal.core.leasing.worker import Worker
from shoal.core.lending.lifetime import Lifetime
from shoal.core.mail.task_mail import TaskMail
from shoal.core.membership.membership import Membership
from shoal.core.membership.roster import Roster
from shoal.core.peer import Peer
from shoal.core.proximity.proximity import Proximity
from shoal.core.scheduling.policy_lookup import PolicyLookup
from shoal.core.scheduling.scheduler import Scheduler
from shoal.core.succession.forwarding import STAY, ForwardRule
from shoal.drivers.supervisor.leftovers import worker_mark
from shoal.model.resources import Capacity
from shoal.net.base import LEFT
from shoal.net.identity.identity import verify
from shoal.policy.registry import Registry
from shoal.protocol.messages import Role
from shoal.runtime.admission.admission_desk import TOOLS, load_invitations
from shoal.runtime.artifacts.artifacts import Artifacts, default_cache_bytes
from shoal.runtime.calls.sessions import CallSessions
from shoal.runtime.channels.channel_ends import ChannelEnds
from shoal.runtime.channels.task_api import TaskApi
from shoal.runtime.channels.task_visits import TaskVisits
from shoal.runtime.clients import WaitingClients
from shoal.runtime.discovery.finders import Finding
from shoal.runtime.discovery.known_members import MEMBERS_FILE, load_members
from shoal.runtime.durability.audit_log import AuditLog, down, revoked, up
from shoal.runtime.durability.crash_notes import CrashNotes, subject_of
from shoal.runtime.durability.node_journal import NodeJournal
from shoal.runtime.environments.loans import Loans
from shoal.runtime.forwarding.call_runner import CallRunner
from shoal.runtime.host import Host
from shoal.runtime.housekeeping.end_callers import EndCallers
from shoal.runtime.housekeeping.job_files import JobFiles
from shoal.runtime.leasing.task_faults import TaskFaults
from shoal.runtime.leasing.task_runner import TaskRunner
from shoal.runtime.lending.lending_watch import LendingWatch
from shoal.runtime.mail.mail_calls import MailCalls
from shoal.runtime.membership.grant_renewal import GrantRenewals
from shoal.runtime.membership.grant_signing import GrantSigner
from shoal.runtime.membership.shoal_membership import next_epoch
from shoal.runtime.monitoring.change_signal import ChangeSignal
from shoal.runtime.monitoring.event_file import EventFile
from shoal.runtime.monitoring.event_log import EventLog
from shoal.runtime.monitoring.machine_use import MachineWatch
from shoal.runtime.monitoring.output_log import OutputLog
from shoal.runtime.monitoring.seen_members import SeenMembers
from shoal.runtime.performer import NetworkListener, Performer
from shoal.runtime.wall_clock import WallClock, zone_of
from shoal.store.journal import Journal
from shoal.store.journal_mark import Begin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from shoal.core.durability.journal import Entry
    from shoal.core.events import Effect
    from shoal.core.machine import Machine
    from shoal.core.membership.members import Admission
    from shoal.core.proximity.network_map import Path
    from shoal.drivers import Driver
    from shoal.errors import StoreError
    from shoal.model.ids import Attempt, JobId, NodeId, OwnerId, TaskId
    from shoal.model.job import JobState
    from shoal.net.base import Finder, Links, Listener
    from shoal.net.identity.identity import Identity
    from shoal.protocol.messages import Grant
    from shoal.runtime.calls.lanes import Lanes
    from shoal.runtime.home import Home
    from shoal.runtime.membership.shoal_membership import ShoalMembership
    from shoal.runtime.monitoring.seen_members import How


class NodeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """A node's configuration, apart from its identity."""

    roles: tuple[Role, ...] = ("scheduler", "worker", "gate")
    capacity: Capacity = Capacity()
    rules: OwnerRules = OwnerRules()
    policy: str = ""
    order: str = ""  # queue order, besides priority, share and age
    keep: KeepRule = KeepRule()  # how much of ended jobs stays
    cache_bytes: int = 0  # blob cache; 0: a fifth of the disk
    environment_bytes: int = 0  # environments and caches; 0: a fifth of the disk
    loans: Loans = msgspec.field(default_factory=Loans)
    forward: ForwardRule = STAY  # which jobs go to other schedulers of the owner
    journal: Begin = ""  # how to begin if it was lost or damaged
    open_lan: bool = False  # whether LAN machines join without asking
    finding: Finding = Finding()  # means of finding members that are on
    owner_input: tuple[str, ...] = ()  # files that tell of the owner; none: terminals
    time_limit_s: float | None = None  # how long the machine is there
    idle_timeout_s: float | None = None  # idle for so long, the node ends


HAND_OVER_S: Final = 5.0
HAND_OVER_LOOK_S: Final = 0.05
"""How long a node that ends waits until keepers have its jobs; how often it looks."""


@final
class Node:
    """One running node. Call `start`, then wait for `ended`."""

    def __init__(
        self,
        home: Home,
        identity: Identity,
        membership: ShoalMembership,
        settings: NodeSettings,
        drivers: Mapping[str, Driver],
        *,
        host: Host,
        lanes: Lanes,
        say: Callable[[str], None],
    ) -> None:
        """Replay the journal; nothing runs before `start`.

        `drivers` and `lanes` report to `host`; `say` tells the user of trouble.
        """
        self.home, self.identity = home, identity
        self.membership, self.settings = membership, settings
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.news = ChangeSignal()
        self._awaited: dict[JobId, ChangeSignal] = {}  # jobs with waiting clients
        self.event_log = EventLog(EventFile(home.events))
        self.audit = AuditLog(home, say=say)
        self.feed, self.feed_now = host.feed, host.feed_now
        self._host, self._lanes = host, lanes
        self.calls = CallSessions(self)
        self.outputs = OutputLog(home.outputs)
        self._sweeping: asyncio.Task[None] | None = None
        self.artifacts = self._make_artifacts(drivers.get("process"))
        files = JobFiles(self.outputs, self.artifacts, self.feed)
        self._job_files, self._end_callers = files, EndCallers(self.feed)
        self.mail, self.visits = MailCalls(self.feed), TaskVisits(self.feed)
        self.api_calls = CallRunner(self.feed)
        self.channels = ChannelEnds(host, self.visits.serve)
        self.visits.calls = TaskApi(self.channels)
        self.seen, self.machine = SeenMembers(home.members), MachineWatch(home.path)
        self.listener: Listener = self._make_listener()
        self.clients = WaitingClients(self.feed, self._is_behind, self.news)
        self.task_faults = faults = TaskFaults(self.event_log)
        self.handling = notes = CrashNotes(home)
        self.tasks = TaskRunner(
            drivers, host, self.artifacts, self.mail, self.visits, notes, faults
        )
        self._lending = LendingWatch(
            self.feed, home.tasks, settings.owner_input, self.tasks.measured
        )
        self._drivers = drivers
        self._unlike = tuple(dict.fromkeys(drivers.values()))  # without aliases
        begin, mark = settings.journal, home.journal_mark
        self._journal = Journal.open(home.journal, mark=mark, begin=begin)
        self._records = NodeJournal(self._journal)
        self._rng = Random(SystemRandom().getrandbits(64))
        self._links: Links | None = None
        self._finder: Finder | None = None
        self._is_up = False
        self._wall_clock = WallClock(self.feed)
        self.set_aside: dict[JobId, str] = {}  # our jobs that were ended, and why
        self.peer = self._revived(self._records.entries())
        failpoints.reach("boot.replayed")

    @property
    def id(self) -> NodeId:
        """The node's id."""
        return self.identity.node

    @property
    def scheduler(self) -> Scheduler | None:
        """The machine that takes jobs, if this node has that role."""
        return self.peer.scheduler

    @property
    def owner(self) -> OwnerId:
        """The default owner of jobs submitted here."""
        return self.membership.grant.owner

    def admit(self, peer: NodeId, grant: Grant | None) -> str | None:
        """Return why a peer with this grant is no member; None if it is one."""
        admission = self.verified(peer, grant)
        return admission if isinstance(admission, str) else None

    def verified(self, peer: NodeId, grant: Grant | None) -> Admission | str:
        """Return the rights a peer's grant gives it now, or why none."""
        now = asyncio.get_running_loop().time()
        return self.roster.verify(peer, grant, now)

    def admission(self, peer: NodeId) -> Admission | None:
        """Return the current rights of a member met before."""
        return self.roster.get(peer, asyncio.get_running_loop().time())

    def _make_artifacts(self, process: Driver | None) -> Artifacts:
        return Artifacts(
            self.home,
            self.identity,
            self.outputs,
            owner=self.owner,
            cache_bytes=self.settings.cache_bytes
            or default_cache_bytes(self.home.path),
            environment_bytes=self._environment_bytes,
            process=process,
            loans=self.settings.loans,
            feed=self.feed,
            scheduler=lambda: self.scheduler,
            on_failure=self._fail,
        )

    @property
    def _environment_bytes(self) -> int:
        """How much environments and caches may take here."""
        return self.settings.environment_bytes or default_cache_bytes(self.home.path)

    def _make_listener(self) -> NetworkListener:
        return NetworkListener(
            self.feed, self._know, self.event_log, self.seen, self._parting
        )

    async def start(
        self,
        links: Links,
        finder: Finder,
        performers: Mapping[type[Effect], Callable[..., None]] | None = None,
        *,
        shows_grant: Sequence[Callable[[Grant], None]] = (),
    ) -> None:
        """Open drivers, which end an earlier run's processes; run the machine.

        `performers` perform effects about joining and finding members. Each of
        `shows_grant` presents a new grant of this node from then on.
        """
        self._links, self._finder = links, finder
        await self.event_log.load()
        for driver in self._unlike:
            await driver.open()
        await self.artifacts.start()
        if (environments := self.artifacts.environments) is not None:
            await environments.open()
        failpoints.reach("boot.opened")
        performer = Performer(
            links=links,
            finder=finder,
            tasks=self.tasks,
            outputs=self.outputs,
            clients=self.clients,
            artifacts=self.artifacts,
            task_faults=self.task_faults,
            others={
                **GrantRenewals(self, shows_grant).performers,
                **self.artifacts.blobs.performers,
                **self.api_calls.performers,
                **self.mail.performers,
                **self._job_files.performers,
                **self.channels.performers,
                **self._end_callers.performers,
                **(performers or {}),
                **self.calls.performers,
                **self._lanes.performers,
            },
        )
        loop = asyncio.get_running_loop()
        self._journal.start(
            loop.call_soon_threadsafe, on_synced=self._synced, on_failed=self._fail
        )
        self.audit.start(loop)
        self.audit.note(up(self.settings.roles, self._unconfined()))
        self._is_up = True
        parts, first = (self.peer, self._records), self._first_facts(links.addresses)
        perform, fail = performer.perform, self._fail_at
        self._host.start(*parts, perform, on_failure=fail, first=first)
        self._wall_clock.start()
        self._job_files.start()
        if self.scheduler is not None:
            self._measure(self.scheduler.book.ended)
        self._watch_machine()
        await self.calls.clear()
        self._sweep_outputs()

    def _first_facts(self, addresses: tuple[str, ...]) -> Iterator[Event]:
        """Yield what the machine must know at `Booted`, and `Booted` itself."""
        yield AddressesChanged(addresses)
        for name, driver in self._drivers.items():
            held = driver.promises
            yield DriverOpened(
                name, held.confined, held.unlimited, held.internet, held.weaker
            )
        yield from self.artifacts.checkpoints.known()
        if (environments := self.artifacts.environments) is not None:
            yield environments.known
        yield Booted()

    def _watch_machine(self) -> None:
        """Begin to measure this machine, and to look for its owner."""
        self.machine.start()
        if self.peer.worker is not None:
            has_engine = "container" in self._drivers
            mark = worker_mark(self.home.containers) if has_engine else ""
            self._lending.start(self.peer.worker, mark)

    def _unconfined(self) -> list[str]:
        """Return, for each driver that does not confine tasks, the reason."""
        reasons = (each.promises.confined for each in self._unlike)
        return [reason for reason in dict.fromkeys(reasons) if reason]

    def state_of(self, job: JobId) -> JobState | None:
        """Return a job's state as clients may see it; None if it is unknown.

        An end that is not on disk yet counts as active: a crash could undo it.
        """
        scheduler = self.peer.scheduler
        record = scheduler.book.jobs.get(job) if scheduler is not None else None
        if record is None or record.state == "active":
            return None if record is None else "active"
        return record.state if self._records.is_safe(record) else "active"

    async def end_of(self, job: JobId) -> JobState | None:
        """Wait for a job's durable end; None if it is unknown."""
        while (state := self.state_of(job)) == "active":
            end = self._awaited.setdefault(job, ChangeSignal())
            await end.wait()
        return state

    def drain(self, grace_s: float | None, *, lasts: bool = False) -> None:
        """Take no new work; let running tasks end within `grace_s`, if it is set."""
        self.feed(DrainRequested(grace_s, lasts))

    async def hand_over(self, *, for_good: bool = False) -> None:
        """Let keepers have the jobs of this node, if they can within `HAND_OVER_S`.

        If the node leaves for good, other schedulers may have what nobody keeps.
        """
        if self.scheduler is None:
            return
        self.feed(DepartureNear(for_good))
        if for_good:
            await asyncio.sleep(HAND_OVER_LOOK_S)  # It decides what may go.
        until = asyncio.get_running_loop().time() + HAND_OVER_S
        while self.scheduler.succession.may_hand_over:
            if asyncio.get_running_loop().time() > until:
                return
            await asyncio.sleep(HAND_OVER_LOOK_S)

    async def leave(self, because: str) -> list[JobId]:
        """Hand over what others take, and cancel all other jobs; return those."""
        if self.scheduler is None or not because:
            return []
        await self.hand_over(for_good=True)
        records = self.scheduler.book.jobs.values()
        left = [each.job.id for each in records if each.state == "active"]
        for job in left:
            await self.clients.cancel(job, because)
        return left

    def end_drain(self) -> None:
        """Take new work again."""
        self.feed(DrainEnded())

    async def close(self) -> None:
        """Close in order: tasks, then links, then the journal."""
        if self._sweeping is not None:
            await asyncio.gather(self._sweeping, return_exceptions=True)
        self._wall_clock.stop()
        await self.machine.close()
        await self._lending.close()
        await self.seen.close()
        await self.api_calls.close()
        await self.calls.close()
        self.channels.close()
        await self.visits.close()
        if (environments := self.artifacts.environments) is not None:
            await environments.close()
        await self.tasks.close()
        await self._end_callers.close()
        await self._job_files.close()
        await self.artifacts.close()
        self._host.close()
        for driver in self._unlike:
            await driver.close()
        if self._finder is not None:
            await self._finder.close()
        if self._links is not None:
            await self._links.close()
        self.outputs.close()
        await self.event_log.close()
        if self._is_up:
            self.audit.note(down())
        self.audit.close()
        self.handling.close()
        await asyncio.to_thread(self._journal.close)
        if not self.ended.done():
            self.ended.set_result(None)

    def _assemble(self, entries: list[Entry]) -> Peer:
        settings, grant = self.settings, self.membership.grant
        now = asyncio.get_running_loop().time()
        self.roster = roster = Roster(self.membership.members(), time.time() - now)
        worker = scheduler = None
        gossip = LoadGossip(self.id, self._rng, sign=self.identity.sign, verify=verify)
        epoch = next_epoch(self.home)
        failpoints.reach("boot.epoch")
        if "worker" in settings.roles:
            worker = Worker(
                self.id,
                settings.capacity,
                roster,
                rules=settings.rules,
                epoch=epoch,
                rng=self._rng,
                journal=entries,
                environment_bytes=self._environment_bytes,
            )
        if "scheduler" in settings.roles:
            roster.meet(self.id, grant, now)
            scheduler = self._make_scheduler(entries, gossip, now)
        more = (self._make_gate(), self._make_lifetime(worker))
        self.forwarded_calls = CallForwarding(roster, grant.owner)
        roles = [m for m in (worker, scheduler, *more) if m is not None]
        self.granting = GrantSigner(self.home, self.identity, self.membership, roster)
        self.admission_control: AdmissionControl = AdmissionControl(
            self.id,
            roster,
            grant,
            TOOLS,
            kept=load_invitations(self.home),
            may_sign=self.granting.is_allowed,
            open_lan=settings.open_lan,
        )
        self.neighbours = Neighbours(
            self.id, self._known_members(), self._rng, asks=settings.finding.peers
        )
        sums = self._make_sums(entries)
        calls, mail = CallExchange(roster, scheduler), TaskMail(self.id, scheduler)
        blobs = BlobTransfers(self.id, roster, scheduler, self._path)
        channels = Channels(roster, grant.owner, epoch, scheduler)
        self.proximity = self._make_proximity(worker, blobs)
        others = (self.forwarded_calls, mail, calls, blobs, channels)
        overlay = self._make_overlay()
        finding = (self.neighbours, self.proximity, overlay, self.admission_control)
        machines: list[Machine] = [gossip, *roles, *others, *finding, *sums]
        self.allocator = None
        if scheduler is not None:
            self.allocator = self._make_allocator(scheduler, entries, now)
            machines.append(self.allocator)
        return Peer(Membership(self.id, roster, grant, entries), machines)

    def _make_scheduler(
        self, entries: list[Entry], gossip: LoadGossip, now: float
    ) -> Scheduler:
        settings = self.settings
        return Scheduler(
            self.id,
            self.roster,
            journal=entries,
            grant=self.membership.grant,
            policies=PolicyLookup(Registry(), settings.policy, settings.order),
            heard=gossip.known,
            seal=self.artifacts.secrets.seal_for,
            keep=settings.keep,
            zone=zone_of,
            forward=settings.forward,
            rng=self._rng,
            now=now,
        )

    def _make_allocator(
        self, scheduler: Scheduler, entries: list[Entry], now: float
    ) -> Allocator:
        return Allocator(
            self.id,
            self.roster,
            journal=entries,
            own_demand=lambda: scheduler.unmet,
            now=now,
        )

    def _make_gate(self) -> Gate | None:
        if "gate" not in self.settings.roles:
            return None
        return Gate(self.id, rng=self._rng)

    def _make_lifetime(self, worker: Worker | None) -> Lifetime | None:
        """Return the machine that ends this node in time, if it is to end."""
        limits = (self.settings.time_limit_s, self.settings.idle_timeout_s)
        if worker is None or limits == (None, None):
            return None
        return Lifetime(worker, *limits)

    def _path(self, one: NodeId, other: NodeId) -> Path | None:
        return self.proximity.map.between(one, other)

    def _make_sums(self, entries: list[Entry]) -> tuple[UsageLedger, PastNeeds]:
        """Return the machines that sum up what was used."""
        self.usage = UsageLedger(entries, self.roster.wall_s(0.0))
        self.past_needs = PastNeeds(self.id, self.roster, entries)
        return self.usage, self.past_needs

    def _make_proximity(self, worker: Worker | None, blobs: BlobTransfers) -> Proximity:
        """Return the machine that measures the network, but not while it is needed."""

        def is_busy() -> bool:
            return blobs.is_busy or (worker is not None and worker.load.active > 0)

        probes = self.settings.finding.probes
        return Proximity(self.id, self._rng, is_busy=is_busy, probes=probes)

    def _make_overlay(self) -> GossipOverlay:
        rtts_us = self.proximity.map.rtts_us
        return GossipOverlay(self.id, rtts_us, self.settings.finding.overlay)

    def _known_members(self) -> KnownMembers:
        """Return the members that this node contacts at start."""
        if not self.settings.finding.gates:
            return KnownMembers()
        return load_members(self.home.path / MEMBERS_FILE, self.membership.gates)

    def _revived(self, entries: list[Entry]) -> Peer:
        """Return the machine rebuilt from the journal.

        Jobs that crashed this node, or that cannot be replayed, are cancelled.
        """
        aside = self.handling.set_aside_now
        for each in aside:
            self.event_log.set_aside(each.job, each.reason)
        if self.settings.journal:
            # Attempt numbers of the lost journal must not be reused.
            floor = Incarnated(int(time.time()))
            entries.append(floor)
            self._records.append(floor, durable=True)
        mine = {each.job: each.reason for each in aside if each.scheduler == self.id}
        bad = {job: mine[job] for job in active_of(entries, mine)}
        entries += [Cancelled(job, why, time.time()) for job, why in bad.items()]
        try:
            peer = self._assemble(entries)
        except Exception as error:
            entries, unsound = weeded(entries)
            if not unsound:
                raise
            traceback.print_exception(error)  # to the node's log
            bad.update(unsound)
            peer = self._assemble(entries)
        for job, why in bad.items():
            self.set_aside[job] = why
            self._records.append(Cancelled(job, why, time.time()), durable=True)
        return peer

    def _is_behind(self) -> bool:
        return self._journal.behind

    def _synced(self, number: int) -> None:
        self._records.reach_kept(number)
        self._host.synced(number)
        ended = self._records.synced(number)
        for entry in self._records.kept(number):
            self.event_log.note(entry)
            if isinstance(entry, Revoked):
                self.audit.note(revoked(entry.revocation))
        self.news.tell()  # Only now: a crash can no longer undo it.
        for job in ended & self._awaited.keys():
            if self.state_of(job) != "active":
                self._awaited.pop(job).tell()
        self._measure(ended)
        self.calls.synced()
        if self._records.has_grown and self.peer.scheduler is not None:
            book = self.peer.scheduler.book
            self._records.compact(book, self.roster.revocations, self._others_kept())
            self._sweep_outputs()

    def _measure(self, jobs: Iterable[JobId]) -> None:
        """Find out how large jobs are that have ended, if it matters."""
        if self.settings.keep.size_bytes is None or self.scheduler is None:
            return
        records = (self.scheduler.book.jobs.get(job) for job in jobs)
        ended = (r for r in records if r is not None and r.state != "active")
        self._job_files.measure(record.job for record in ended)

    def _others_kept(self) -> Iterator[Entry]:
        """Yield the entries of machines that share the scheduler's journal."""
        yield from self.usage.kept()
        yield from self.past_needs.kept()
        if self.peer.worker is not None and self.peer.worker.drains:
            yield DrainSet(on=True)
        if self.peer.scheduler is not None:
            yield from self.peer.scheduler.succession.others.entries()
        if self.allocator is not None:
            yield from self.allocator.entries()

    def _sweep_outputs(self) -> None:
        """Remove the output of forgotten jobs in the background."""
        if self.peer.scheduler is not None:
            jobs = self.peer.scheduler.book.jobs
            sweep = self.outputs.sweep(lambda: frozenset(jobs))
            self._sweeping = asyncio.get_running_loop().create_task(sweep)

    def _fail(self, error: BaseException | StoreError) -> None:
        """End the node, since it could acknowledge what it cannot store."""
        if not self.ended.done():
            self.handling.blame(None)
            self.ended.set_exception(error)

    def _fail_at(self, error: BaseException) -> None:
        """End the node because of the current event, and record its subject."""
        if self._host.handling is not None:
            self.handling.blame(subject_of(self._host.handling, self._task_of))
        self._fail(error)

    def _task_of(self, attempt: Attempt) -> TaskId | None:
        scheduler = self.peer.scheduler
        run = None if scheduler is None else scheduler.book.runs.get(attempt)
        return self.tasks.task_of(attempt) if run is None else run.task

    def _parting(self, peer: NodeId) -> How:
        """Return how a member goes whose link is lost now."""
        if self.admission(peer) is None:
            return "revoked" if self.roster.revoked_up_to(peer) >= 0 else "lost"
        said = "" if self._links is None else self._links.trouble(peer)
        return "stopped" if said == LEFT else "lost"

    def _know(self, peer: NodeId, addresses: Sequence[str]) -> None:
        if self._links is not None and peer != self.id:
            self._links.know(peer, addresses)
