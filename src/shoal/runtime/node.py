"""A live node: everything a machine needs around it, started and ended in order."""

from __future__ import annotations

import asyncio
import time
import traceback
from random import Random, SystemRandom
from typing import TYPE_CHECKING, Final, final

import msgspec

from shoal import failpoints
from shoal.core.events import (
    AddressesChanged,
    Booted,
    DrainRequested,
    DriverOpened,
    Event,
)
from shoal.core.gate import Gate
from shoal.core.gossip import Gossip
from shoal.core.journal import Cancelled, Incarnated, Revoked
from shoal.core.peer import Peer
from shoal.core.policies import Policies
from shoal.core.roster import Roster
from shoal.core.rules import Rules
from shoal.core.scheduler import Scheduler
from shoal.core.weeding import active_of, weeded
from shoal.core.worker import Worker
from shoal.model.resources import Capacity
from shoal.net.identity import verify
from shoal.policy.registry import Registry
from shoal.protocol.messages import Role
from shoal.runtime.api_calls import ApiCalls
from shoal.runtime.audit import Audit, down, revoked, up
from shoal.runtime.cargo import Cargo, default_cache_bytes
from shoal.runtime.clients import Clients
from shoal.runtime.comparing import Comparing
from shoal.runtime.effects import Ears, Performer
from shoal.runtime.handling import Handling, subject_of
from shoal.runtime.happenings import Happenings
from shoal.runtime.host import Host
from shoal.runtime.journalling import NodeJournal
from shoal.runtime.mail import Post
from shoal.runtime.membership import next_epoch
from shoal.runtime.mishaps import Mishaps
from shoal.runtime.news import News
from shoal.runtime.outputs import Outputs
from shoal.runtime.relay import Relay
from shoal.runtime.renewals import Renewals
from shoal.runtime.tasks import Tasks
from shoal.runtime.wall_clock import WallClock
from shoal.store.journal import Journal
from shoal.store.mark import Begin

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from shoal.core.journal import Entry
    from shoal.core.membership import Admission
    from shoal.drivers import Driver
    from shoal.errors import StoreError
    from shoal.model.ids import Attempt, JobId, NodeId, OwnerId, TaskId
    from shoal.model.job import JobState
    from shoal.net.base import Finder, Links, Listener
    from shoal.net.identity import Identity
    from shoal.protocol.messages import Grant
    from shoal.runtime.home import Home
    from shoal.runtime.membership import Membership


EARLY_MAX: Final = 10_000
"""Facts that are kept until the machine runs; later ones are dropped."""


class NodeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What a node is to be, besides who it is."""

    roles: tuple[Role, ...] = ("scheduler", "worker", "gate")
    capacity: Capacity = Capacity()
    rules: Rules = Rules()
    policy: str = ""
    order: str = ""  # of the queue, besides priority, share and age
    cache_bytes: int = 0  # of blobs; 0: a fifth of the disk
    journal: Begin = ""  # what to do with one that is not what it was


@final
class Node:
    """One running node. Make it with `start`, and wait for `ended`."""

    def __init__(
        self,
        home: Home,
        identity: Identity,
        membership: Membership,
        settings: NodeSettings,
        drivers: Mapping[str, Driver],
    ) -> None:
        """Prepare; nothing happens before `start`."""
        self.home = home
        self.identity = identity
        self.membership = membership
        self.settings = settings
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.news = News()
        self._awaited: dict[JobId, News] = {}  # jobs whose end somebody waits for
        self.happenings = Happenings()
        self.audit = Audit(home)
        self.renewals = Renewals(self)
        self.relay = Relay(self)
        self.outputs = Outputs(home.outputs)
        self._sweeping: asyncio.Task[None] | None = None
        self.cargo = self._make_cargo()
        self.post = Post(identity.node, lambda: self.scheduler, self._know)
        self.api_calls = ApiCalls(self.verified)
        self.listener: Listener = Ears(
            self.feed,
            self._know,
            self.relay,
            self.cargo,
            self.post,
            self.api_calls,
            self.happenings,
        )
        self.clients = Clients(self.feed, self._is_behind, self.news)
        self.mishaps = Mishaps(self.happenings)
        self.handling = Handling(home)
        self.tasks = Tasks(
            drivers, self.feed, self.cargo, self.post, self.handling, self.mishaps
        )
        if (process := drivers.get("process")) is not None:
            compares = Comparing(process, self.cargo.blobs, self.outputs)
            self.cargo.checking.comparing = compares
        self._drivers = drivers
        self._unlike = tuple(dict.fromkeys(drivers.values()))  # One may have two names.
        begin, mark = settings.journal, home.journal_mark
        self._journal = Journal.open(home.journal, mark=mark, begin=begin)
        self._records = NodeJournal(self._journal)
        self._rng = Random(SystemRandom().getrandbits(64))
        self._links: Links | None = None
        self._finder: Finder | None = None
        self._host: Host | None = None
        self._wall_clock = WallClock(self.feed)
        self._early: list[Event] = []  # peers may come before the drivers are open
        self.set_aside: dict[JobId, str] = {}  # jobs of ours, and why
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
        """In whose name jobs are submitted here."""
        return self.membership.grant.owner

    def admit(self, peer: NodeId, grant: Grant | None) -> str | None:
        """Say why a peer that shows this grant is no member; None if it is one."""
        admission = self.verified(peer, grant)
        return admission if isinstance(admission, str) else None

    def verified(self, peer: NodeId, grant: Grant | None) -> Admission | str:
        """Return what a peer that shows this grant may do now, or why nothing."""
        now = asyncio.get_running_loop().time()
        return self.roster.verify(peer, grant, now)

    def admission(self, peer: NodeId) -> Admission | None:
        """Return what a member that we have met may do now."""
        return self.roster.get(peer, asyncio.get_running_loop().time())

    def _is_member(self, peer: NodeId) -> bool:
        now = asyncio.get_running_loop().time()
        return self.roster.get(peer, now) is not None

    def _make_cargo(self) -> Cargo:
        return Cargo(
            self.home,
            self.identity,
            self.outputs,
            owner=self.owner,
            cache_bytes=self.settings.cache_bytes
            or default_cache_bytes(self.home.path),
            feed=self.feed,
            is_member=self._is_member,
            scheduler=lambda: self.scheduler,
            on_failure=self._fail,
        )

    async def start(self, links: Links, finder: Finder) -> None:
        """Run the machine on this network; it hears of no earlier life's processes."""
        self._links, self._finder = links, finder
        for driver in self._unlike:
            await driver.open()
        await self.cargo.start(links)
        failpoints.reach("boot.opened")
        performer = Performer(
            links=links,
            finder=finder,
            tasks=self.tasks,
            outputs=self.outputs,
            clients=self.clients,
            cargo=self.cargo,
            mishaps=self.mishaps,
            renewals=self.renewals,
        )
        host = Host(
            self.peer, self._records, performer.perform, on_failure=self._fail_at
        )
        self._host = host
        loop = asyncio.get_running_loop()
        self._journal.start(
            loop.call_soon_threadsafe, on_synced=self._synced, on_failed=self._fail
        )
        self.feed(AddressesChanged(links.addresses))
        self._wall_clock.start()
        self._tell_of_drivers()
        self.audit.start(loop)
        self.audit.note(up(self.settings.roles, self._unconfined()))
        self.feed(Booted())
        for event in self._early:
            self.feed(event)
        self._early.clear()
        self.post.start(links)
        self.api_calls.start(links)
        await self.relay.start(links)
        self._sweep_outputs()

    def _tell_of_drivers(self) -> None:
        """Tell the machine what its drivers can promise; it comes before `Booted`."""
        for name, driver in self._drivers.items():
            held = driver.promises
            self.feed(
                DriverOpened(
                    name, held.confined, held.unlimited, held.internet, held.weaker
                )
            )

    def _unconfined(self) -> list[str]:
        """Say of each driver that does not confine tasks why."""
        reasons = (each.promises.confined for each in self._unlike)
        return [reason for reason in dict.fromkeys(reasons) if reason]

    def state_of(self, job: JobId) -> JobState | None:
        """Return what a client may know of a job; None if there is no such job.

        An end that is not on disk yet could be undone by a crash: nobody hears of it.
        """
        scheduler = self.peer.scheduler
        record = scheduler.book.jobs.get(job) if scheduler is not None else None
        if record is None or record.state == "active":
            return None if record is None else "active"
        return record.state if self._records.is_safe(record) else "active"

    async def end_of(self, job: JobId) -> JobState | None:
        """Wait until a job has ended for good; None if there is no such job."""
        while (state := self.state_of(job)) == "active":
            end = self._awaited.setdefault(job, News())
            await end.wait()
        return state

    def feed(self, event: Event) -> None:
        """Tell the machine a fact."""
        if self._host is not None:
            self._host.feed(event)
        elif len(self._early) < EARLY_MAX:
            self._early.append(event)

    def drain(self, grace_s: float) -> None:
        """Take no new work; what runs has this long to end."""
        self.feed(DrainRequested(grace_s))

    async def close(self) -> None:
        """End in good order: tasks first, then links, then the journal."""
        if self._sweeping is not None:
            await asyncio.gather(self._sweeping, return_exceptions=True)
        self._wall_clock.stop()
        await self.api_calls.close()
        await self.relay.close()
        await self.tasks.close()
        await self.cargo.close()
        if self._host is not None:
            self._host.close()
        for driver in self._unlike:
            await driver.close()
        if self._finder is not None:
            await self._finder.close()
        if self._links is not None:
            await self._links.close()
        self.outputs.close()
        if self._host is not None:
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
        worker = scheduler = gate = None
        gossip = Gossip(self.id, self._rng, sign=self.identity.sign, verify=verify)
        if "worker" in settings.roles:
            epoch = next_epoch(self.home)
            failpoints.reach("boot.epoch")
            worker = Worker(
                self.id,
                settings.capacity,
                roster,
                rules=settings.rules,
                epoch=epoch,
                rng=self._rng,
            )
        if "scheduler" in settings.roles:
            roster.meet(self.id, grant, now)
            scheduler = Scheduler(
                self.id,
                roster,
                journal=entries,
                grant=grant,
                policies=Policies(Registry(), settings.policy, settings.order),
                heard=gossip.known,
                rng=self._rng,
                now=now,
            )
        if "gate" in settings.roles:
            gate = Gate(self.id, rng=self._rng)
        return Peer(
            self.id,
            roster,
            grant=grant,
            worker=worker,
            scheduler=scheduler,
            gate=gate,
            gossip=gossip,
            journal=entries,
        )

    def _revived(self, entries: list[Entry]) -> Peer:
        """Return the machine with what earlier lives left.

        Jobs that this node died of, and those that cannot be replayed, are ended.
        """
        aside = self.handling.set_aside_now
        for each in aside:
            self.happenings.set_aside(each.job, each.reason)
        if self.settings.journal:
            # Attempts of the life that is forgotten must not be used once more.
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
            traceback.print_exception(error)  # Into the node's log.
            bad.update(unsound)
            peer = self._assemble(entries)
        for job, why in bad.items():
            self.set_aside[job] = why
            self._records.append(Cancelled(job, why, time.time()), durable=True)
        return peer

    def _is_behind(self) -> bool:
        return self._journal.behind

    def _synced(self, number: int) -> None:
        assert self._host is not None
        self._records.reach_kept(number)
        self._host.synced(number)
        ended = self._records.synced(number)
        for entry in self._records.kept(number):
            self.happenings.note(entry)
            if isinstance(entry, Revoked):
                self.audit.note(revoked(entry.revocation))
        self.news.tell()  # Not before: nobody is told of what a crash could undo.
        for job in ended & self._awaited.keys():
            if self.state_of(job) != "active":
                self._awaited.pop(job).tell()
        self.relay.calls.look()
        if self._records.has_grown and self.peer.scheduler is not None:
            book = self.peer.scheduler.book
            self._records.compact(book, self.roster.revocations)
            self._sweep_outputs()

    def _sweep_outputs(self) -> None:
        """Remove what jobs wrote that were forgotten, in the background."""
        if self.peer.scheduler is not None:
            sweep = self.outputs.sweep(self.peer.scheduler.book.tasks.keys)
            self._sweeping = asyncio.get_running_loop().create_task(sweep)

    def _fail(self, error: BaseException | StoreError) -> None:
        """End the node: it must not go on acknowledging what it cannot keep."""
        if not self.ended.done():
            self.handling.blame(None)
            self.ended.set_exception(error)

    def _fail_at(self, error: BaseException) -> None:
        """End the node because of what it was just told, and remember of what."""
        if self._host is not None and self._host.handling is not None:
            self.handling.blame(subject_of(self._host.handling, self._task_of))
        self._fail(error)

    def _task_of(self, attempt: Attempt) -> TaskId | None:
        scheduler = self.peer.scheduler
        run = None if scheduler is None else scheduler.book.runs.get(attempt)
        return self.tasks.task_of(attempt) if run is None else run.task

    def _know(self, peer: NodeId, addresses: Sequence[str]) -> None:
        if self._links is not None and peer != self.id:
            self._links.know(peer, addresses)
