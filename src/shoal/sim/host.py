"""One simulated node: performs what its machine asks for, in virtual time.

A host has a clock of its own, which runs a little fast or slow, a disk, processes
and links. A crash takes the machine, the links and what the disk had not synced; a
boot builds a new machine from the journal, and starts with no process left.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import Final, Protocol, final

import msgspec

from shoal.core.events import (
    Answer,
    Booted,
    DeadlineReached,
    Disconnect,
    Effect,
    Event,
    GrantSigned,
    KeepGrant,
    LookUp,
    MessageReceived,
    Provide,
    Publish,
    Send,
    Show,
    SignGrant,
    SizeEstimated,
    Spread,
    StartTask,
    StopTask,
    WallClockRead,
)
from shoal.core.journal import Entry
from shoal.core.renewing import renewed
from shoal.core.rules import Rules
from shoal.model.ids import NodeId, OwnerId
from shoal.model.resources import Capacity
from shoal.protocol.messages import Grant, Role
from shoal.sim.agenda import Agenda
from shoal.sim.cheats import Answers, Cheat
from shoal.sim.directory import Directory
from shoal.sim.disk import Disk
from shoal.sim.driver import Driver, Plans, Process, Starts
from shoal.sim.history import BATCH, History
from shoal.sim.network import Link, Network
from shoal.sim.trust import ROOT, WALL_AT_START_S, sign_grant

UPTIME_MAX_S: Final = 1e6
"""Monotonic clocks begin anywhere up to this: no two nodes agree on a point in time."""

COMPACTED_SHARE: Final = 0.3
"""Of boots find their journal compacted; a live node does that now and then."""

SIZE_KNOWN_S: Final = 1.0
"""The density of the DHT is known so long after the start."""

NEVER_S: Final = float("inf")
DEADLINE_REACHED: Final = DeadlineReached()


class Machine(Protocol):
    """What a host runs: facts in, effects out."""

    def handle(self, event: Event, now: float) -> list[Effect]:
        """Take in one fact; return what to do about it."""
        ...

    def next_deadline(self) -> float | None:
        """When to deliver `DeadlineReached`, if ever."""
        ...


class NodeSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What does not change about a node, however often it crashes."""

    id: NodeId
    roles: tuple[Role, ...]
    owner: OwnerId = OwnerId("ann")
    grant: Grant | None = None
    capacity: Capacity | None = None  # of the worker, if it has that role
    rules: Rules = Rules()
    clock_rate: float = 1.0
    wall_skew_s: float = 0.0
    cheat: Cheat | None = None
    holds_root: bool = False  # whether it signs by the root's key


class Life(msgspec.Struct, frozen=True, kw_only=True):
    """What a machine is built from at the start of one life of its node."""

    spec: NodeSpec
    number: int  # from 1, one more with every boot
    journal: Sequence[Entry]
    rng: Random
    now: float  # on the node's own clock
    wall_at_zero_s: float  # what the wall clock read at zero of that clock


Assemble = Callable[[Life], Machine]
Compact = Callable[[Sequence[Entry]], list[Entry]]
SentHook = Callable[["Host", NodeId, object], None]
ToldHook = Callable[["Host", MessageReceived, list[Effect]], None]
Tap = Callable[["Host", Event, list[Effect]], None]
Pacing = Callable[["Host", Process, float, Callable[[], None]], None]


class Watch:
    """What a world tells its observers. Those of interest replace these methods."""

    def __init__(self) -> None:
        self.sent: dict[type, SentHook] = {}  # by message, as it leaves a node
        self.told: dict[type, ToldHook] = {}  # by message, after it was handled
        self.suspects: dict[NodeId, ToldHook] = {}  # by sender, likewise

    def booted(self, host: Host) -> None:
        """Take note that a node is about to be told that it is up."""

    def crashed(self, host: Host) -> None:
        """Take note that a node is down; its disk has lost what it loses."""

    def started(self, host: Host, process: Process) -> None:
        """Take note that a process runs and holds its devices."""

    def reaped(self, host: Host, process: Process) -> None:
        """Take note that nothing is left of a process."""

    def safe(self, host: Host, entries: Sequence[Entry]) -> None:
        """Take note that entries of the journal now survive a crash."""

    def answered(self, host: Host, answer: Answer) -> None:
        """Take note that a client of this node got an answer."""

    def poisoned(self, host: Host, process: Process) -> None:
        """Let a process take its whole machine down."""


class Scene(msgspec.Struct, kw_only=True):
    """What all nodes of one world share."""

    agenda: Agenda
    network: Network
    directory: Directory
    history: History
    plans: Plans
    starts: Starts
    assemble: Assemble
    watch: Watch
    compact: Compact | None = None
    tap: Tap | None = None
    pacing: Pacing | None = None  # how long work takes, if that is no fixed time


@final
class Host:
    """A node of the world."""

    def __init__(self, scene: Scene, spec: NodeSpec, index: int, rng: Random) -> None:
        self.spec = spec
        self.id = spec.id
        self.index = index
        self.grant = spec.grant
        self.up = False
        self.left = False  # gone for good
        self.life = 0
        self.lag_s = 0.0
        self.wall_error_s = 0.0  # by how much the wall clock is wrong just now
        self.links: dict[NodeId, Link] = {}
        self.machine: Machine | None = None
        self.rng = rng
        self.now_local = 0.0
        self.answers = Answers(spec.cheat, rng)
        self.disk = Disk(scene.agenda, rng, self._perform, self._on_safe)
        self.driver = self._new_driver(scene)
        self._scene = scene
        self._agenda = scene.agenda
        self._network = scene.network
        self._offset_s = 0.0
        self._rate = spec.clock_rate
        self._due: float | None = None  # what the machine last asked for
        self._armed_at = NEVER_S  # the wake-up on the agenda, in virtual time
        self._history = scene.history
        self._moments = scene.history.batch
        self._tap = scene.tap
        self._sent = scene.watch.sent
        self._told = scene.watch.told
        self._suspects = scene.watch.suspects
        self._performers: dict[type, Callable[..., None]] = {
            Send: self._send,
            Publish: self._publish,
            Spread: self._spread,
            Disconnect: self._disconnect,
            LookUp: self._look_up,
            Provide: self._provide,
            Answer: self._answer,
            StartTask: self._start_task,
            StopTask: self._stop_task,
            Show: self._show,
            SignGrant: self._sign_grant,
            KeepGrant: self._keep_grant,
        }

    # Life and death.

    def boot(self) -> None:
        """Start a new life with what the disk kept; no process is left of the old."""
        assert not self.up
        self.driver.kill_all()
        self.driver = self._new_driver(self._scene)
        self.up = True
        compact = self._scene.compact
        if compact is not None and self.rng.random() < COMPACTED_SHARE:
            self.disk.compact(compact(self.disk.entries))
        self._tap = self._scene.tap
        self._due = None
        self._armed_at = NEVER_S
        self._offset_s = self.rng.uniform(0.0, UPTIME_MAX_S) - self._agenda.now
        self.now_local = 0.0
        now = self.clock()
        self.machine = self._scene.assemble(
            Life(
                spec=msgspec.structs.replace(self.spec, grant=self.grant),
                number=self.life + 1,
                journal=tuple(self.disk.entries),
                rng=Random(self.rng.getrandbits(64)),
                now=now,
                wall_at_zero_s=WALL_AT_START_S
                + self._agenda.now
                + self.spec.wall_skew_s
                + self.wall_error_s
                - now,
            )
        )
        self._scene.watch.booted(self)
        self.feed(Booted())
        self._agenda.after(SIZE_KNOWN_S, self._estimate_size, self.life)

    def set_wall(self, error_s: float) -> None:
        """Set the wall clock, right or wrong; the node reads it soon."""
        self.wall_error_s = error_s
        off_s = self.spec.wall_skew_s + error_s
        self.feed(WallClockRead(WALL_AT_START_S + self._agenda.now + off_s))

    def crash(self, *, power: bool, closed: bool | None = None) -> None:
        """Die at once. Without a power cut, processes live on for a moment."""
        assert self.up
        self.up = False
        self.life += 1
        self.machine = None
        self._scene.network.drop(self, closed=closed)
        self.disk.crash()
        if power:
            self.driver.kill_all()
        else:
            self.driver.abandon()
        self._scene.watch.crashed(self)

    # Facts in.

    def clock(self) -> float:
        """Read this node's monotonic clock."""
        local = (self._agenda.now + self._offset_s) * self._rate
        if local > self.now_local:
            self.now_local = local
        return self.now_local

    def feed(self, event: Event) -> None:
        """Tell the machine one fact and perform what it answers."""
        machine = self.machine
        if machine is None:
            return
        at = self._agenda.now
        now = (at + self._offset_s) * self._rate
        if now > self.now_local:
            self.now_local = now
        effects = machine.handle(event, self.now_local)
        if self._tap is not None:
            self._tap(self, event, effects)
        told: Event | NodeId = event
        if type(event) is MessageReceived:
            told = event.peer  # What it says is among the effects of its sender.
            hook = self._told.get(type(event.message))
            if hook is not None:
                hook(self, event, effects)
            if self._suspects and event.peer in self._suspects:
                self._suspects[event.peer](self, event, effects)
        self._moments.append((at, self.index, told, effects))
        if len(self._moments) >= BATCH:
            self._history.flush()
        if effects:
            self.disk.submit(effects)
        if self.machine is machine:
            due = machine.next_deadline()
            if due != self._due:
                self._arm(due)

    def _arm(self, due: float | None) -> None:
        self._due = due
        if due is not None:
            at = due / self._rate - self._offset_s + self.lag_s
            now = self._agenda.now
            if at < now:
                at = now
            if at < self._armed_at:
                self._armed_at = at
                self._agenda.at(at, self._wake, self.life, at)

    def _wake(self, life: int, at: float) -> None:
        if life != self.life or at != self._armed_at or not self.up:
            return
        self._armed_at = NEVER_S
        due = self._due
        if due is None:
            return
        if due / self._rate - self._offset_s + self.lag_s > self._agenda.now:
            self._arm(due)  # It was put off since.
            return
        self._due = None
        if due > self.now_local:
            self.now_local = due
        self.feed(DEADLINE_REACHED)

    def _estimate_size(self, life: int) -> None:
        if self.up and life == self.life:
            nodes = len(self._scene.network) * self.rng.uniform(0.7, 1.4)
            self.feed(SizeEstimated(max(1, int(nodes))))

    # Effects out.

    def _perform(self, effect: Effect) -> None:
        if self.up:
            self._performers[type(effect)](effect)

    def _send(self, effect: Send) -> None:
        message = effect.message
        hook = self._sent.get(type(message))
        if hook is not None:
            hook(self, effect.peer, message)
        if effect.peer == self.id:
            event = MessageReceived(self.id, message)
            self._agenda.after(0.0, self._hear_itself, self.life, event)
        else:
            self._network.send(self, effect.peer, message)

    def _hear_itself(self, life: int, event: Event) -> None:
        if life == self.life:
            self.feed(event)

    def _publish(self, effect: Publish) -> None:
        hook = self._sent.get(type(effect.message))
        if hook is not None:
            hook(self, NodeId(""), effect.message)
        self._scene.network.publish(self, effect.message)

    def _spread(self, effect: Spread) -> None:
        self._scene.network.spread(self, effect.message)

    def _disconnect(self, effect: Disconnect) -> None:
        self._scene.network.disconnect(self, effect.peer)

    def _look_up(self, effect: LookUp) -> None:
        self._scene.directory.look_up(self, effect)

    def _provide(self, effect: Provide) -> None:
        self._scene.directory.provide(self.id, effect.keys)

    def _answer(self, effect: Answer) -> None:
        self._scene.watch.answered(self, effect)

    def _start_task(self, effect: StartTask) -> None:
        self.driver.start(effect)

    def _stop_task(self, effect: StopTask) -> None:
        self.driver.stop(effect)

    def _show(self, effect: Show) -> None:
        """Drop it: nobody watches."""

    def _sign_grant(self, effect: SignGrant) -> None:
        grant, wall_s = self.grant, WALL_AT_START_S + self._agenda.now
        if grant is None or "admin" not in grant.roles:
            made: Grant | str = "no admin"
        else:
            made = renewed(
                effect.grant,
                grant,
                is_root=self.spec.holds_root,
                revoked_up_to=-1,
                wall_s=wall_s + self.spec.wall_skew_s,
            )
        if isinstance(made, str):
            event = GrantSigned(effect.peer, effect.request, None, made)
        else:
            key = ROOT if self.spec.holds_root else self.id
            signed = sign_grant(msgspec.structs.replace(made, signer=key), key)
            event = GrantSigned(effect.peer, effect.request, signed)
        self._agenda.after(0.0, self._hear_itself, self.life, event)

    def _keep_grant(self, effect: KeepGrant) -> None:
        """Show it from now on; the network takes it from here."""
        self.grant = effect.grant

    def _on_safe(self, entries: Sequence[Entry]) -> None:
        self._scene.watch.safe(self, entries)

    # Processes.

    def _new_driver(self, scene: Scene) -> Driver:
        feed = partial(self._feed_in, self.life)
        driver = Driver(scene.agenda, self.rng, scene.plans, scene.starts, feed)
        if scene.pacing is not None:
            driver.pace = partial(scene.pacing, self)
        driver.say = self.answers.outcome
        driver.on_started = partial(scene.watch.started, self)
        driver.on_reaped = partial(scene.watch.reaped, self)
        driver.on_poison = partial(scene.watch.poisoned, self)
        return driver

    def _feed_in(self, life: int, event: Event) -> None:
        if life == self.life:
            self.feed(event)
