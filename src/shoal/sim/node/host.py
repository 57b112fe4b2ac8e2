"""Simulate one node: perform its machine's effects in virtual time.

A host has a clock that runs slightly fast or slow, a disk, processes and links. A
crash loses the machine, the links and unsynced data. A boot builds a new machine from
the journal and starts without processes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import Any, Final, Protocol, final

import msgspec

from shoal.core.admission.invitation_book import OpenInvitation
from shoal.core.artifacts.events import (
    DropKept,
    DropOutputs,
    FetchCheckpoint,
    FetchKept,
    FetchOutputs,
)
from shoal.core.discovery.events import LearnAddresses, NetworkOpened
from shoal.core.durability.journal import Entry
from shoal.core.environments.events import RemoveEnvironment
from shoal.core.events import (
    AddressesChanged,
    Answer,
    Booted,
    DeadlineReached,
    Disconnect,
    DoubtOutput,
    Effect,
    Event,
    GrantSigned,
    KeepGrant,
    LookUp,
    MakeEnvironment,
    MessageReceived,
    PauseOutput,
    Provide,
    Publish,
    Send,
    Show,
    SignGrant,
    SizeEstimated,
    Spread,
    StageTask,
    StartTask,
    StopTask,
    TaskWrote,
    WallClockRead,
)
from shoal.core.housekeeping.events import CallEnd, DropJob, EndCallEnded
from shoal.core.housekeeping.past_needs import COUNTED_MIN_BYTES
from shoal.core.housekeeping.retention import KeepRule
from shoal.core.leasing.owner_rules import OwnerRules
from shoal.core.machine import Decider
from shoal.core.membership.grant_renewal import renewed
from shoal.core.succession.forwarding import STAY, ForwardRule
from shoal.model.ids import BlobId, NodeId, OwnerId
from shoal.model.job import Task
from shoal.model.kinds import Overlay
from shoal.model.resources import Capacity
from shoal.protocol.messages import Grant, Outcome, Output, Role
from shoal.sim.agenda import Agenda
from shoal.sim.faults.cheats import Cheat, CheatAnswers
from shoal.sim.history import BATCH, WorldHistory
from shoal.sim.network import SimLink, SimNetwork
from shoal.sim.node.blobs import PackedTree, SimBlobs
from shoal.sim.node.dht import SimDht
from shoal.sim.node.disk import Disk
from shoal.sim.node.driver import Plans, SimDriver, SimProcess, Starts
from shoal.sim.node.environments import SimEnvironments
from shoal.sim.node.staging import SimStaging
from shoal.sim.node.trust import ROOT, WALL_AT_START_S, sign_grant

UPTIME_MAX_S: Final = 1e6
"""Monotonic clocks start anywhere up to this, so nodes' clocks disagree."""

COMPACTED_SHARE: Final = 0.3
"""Share of boots that find the journal compacted, as live nodes do at times."""

SIZE_KNOWN_S: Final = 1.0
"""Time after the start when the size of the DHT is known."""

NEVER_S: Final = float("inf")
DEADLINE_REACHED: Final = DeadlineReached()


class NodeSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A node's properties that survive crashes."""

    id: NodeId
    roles: tuple[Role, ...]
    owner: OwnerId = OwnerId("ann")
    grant: Grant | None = None
    capacity: Capacity | None = None  # if it is a worker
    rules: OwnerRules = OwnerRules()
    clock_rate: float = 1.0
    wall_skew_s: float = 0.0
    cheat: Cheat | None = None
    holds_root: bool = False  # whether it signs with the root key
    gates: tuple[str, ...] = ()  # addresses of members that it contacts at start
    keep: KeepRule = KeepRule()  # of ended jobs, if it is a scheduler
    network: NetworkOpened | None = None  # told at each boot, if it has neighbours
    forward: ForwardRule = STAY  # which jobs go to other schedulers
    overlay: Overlay = "random"  # whom it tells what it hears of load
    time_limit_s: float | None = None  # how long its machine is there after a boot
    idle_timeout_s: float | None = None  # idle for so long, it leaves


class NodeLife(msgspec.Struct, frozen=True, kw_only=True):
    """What a machine is built from at boot."""

    spec: NodeSpec
    number: int  # from 1, rises with each boot
    journal: Sequence[Entry]
    rng: Random
    now: float  # on the node's own clock
    wall_at_zero_s: float  # wall time at zero of that clock
    invitations: tuple[OpenInvitation, ...] = ()  # saved before this boot
    met: dict[NodeId, tuple[str, ...]] = {}  # members, saved before this boot


def address_of(node: NodeId) -> str:
    """Return where a simulated node can be dialled, if that matters in its world."""
    return f"/sim/p2p/{node}"


Assemble = Callable[[NodeLife], Decider]
Compact = Callable[[Sequence[Entry]], list[Entry]]
SentHook = Callable[["SimHost", NodeId, object], None]
ToldHook = Callable[["SimHost", MessageReceived, list[Effect]], None]
FactHook = Callable[["SimHost", Event, list[Effect]], None]
Tap = Callable[["SimHost", Event, list[Effect]], None]
PerformAt = Callable[["SimHost", Any], None]
Pacing = Callable[["SimHost", SimProcess, float, Callable[[], None]], None]


class HostWatch:
    """Events for a world's observers; override as needed."""

    def __init__(self) -> None:
        self.sent: dict[type, SentHook] = {}  # by message type, when sent
        self.told: dict[type, ToldHook] = {}  # by message type, when handled
        self.facts: dict[type, FactHook] = {}  # by type of other events, when handled
        self.suspects: dict[NodeId, ToldHook] = {}  # by sender, when handled

    def booted(self, host: SimHost) -> None:
        """Note that a node is about to get `Booted`."""

    def crashed(self, host: SimHost) -> None:
        """Note that a node is down, and unsynced data lost."""

    def started(self, host: SimHost, process: SimProcess) -> None:
        """Note that a process runs and holds its devices."""

    def reaped(self, host: SimHost, process: SimProcess) -> None:
        """Note that a process is gone."""

    def wrote(self, piece: TaskWrote) -> None:
        """Note that a process wrote something."""

    def shown(self, host: SimHost, output: Output) -> None:
        """Note that a scheduler adds something to a log."""

    def doubted(self, host: SimHost, effect: DoubtOutput) -> None:
        """Note that a log may lack lines, or not."""

    def safe(self, host: SimHost, entries: Sequence[Entry]) -> None:
        """Note that journal entries now survive a crash."""

    def answered(self, host: SimHost, answer: Answer) -> None:
        """Note that a client of this node got an answer."""

    def poisoned(self, host: SimHost, process: SimProcess) -> None:
        """Let a process crash its whole machine."""

    def reads(self, host: SimHost, count: int) -> None:
        """Note how many peers a node reads blobs for at once."""

    def making(self, host: SimHost, effect: MakeEnvironment) -> None:
        """Note that a worker begins to make an environment."""

    def removing(self, host: SimHost, effect: RemoveEnvironment) -> None:
        """Note that a worker removes an environment."""


class TaskTalk(Protocol):
    """Lets processes talk to their node, as over their sockets."""

    def started(self, host: SimHost, process: SimProcess) -> None:
        """Begin to talk with a process."""
        ...

    def reaped(self, host: SimHost, process: SimProcess) -> None:
        """Stop talking with a process."""
        ...


class Scene(msgspec.Struct, kw_only=True):
    """Objects shared by all nodes of one world."""

    agenda: Agenda
    network: SimNetwork
    directory: SimDht
    history: WorldHistory
    plans: Plans
    starts: Starts
    assemble: Assemble
    watch: HostWatch
    seed: int
    hosts: dict[NodeId, SimHost]
    compact: Compact | None = None
    tap: Tap | None = None
    performers: dict[type, PerformAt] = {}  # for optional kinds of traffic
    pacing: Pacing | None = None  # how long work takes, if not fixed
    trees: dict[BlobId, PackedTree] = {}  # all that were ever made, as they really are
    disks_fail_until_s: float = 0.0  # disks may refuse and forget blobs until then
    talks: list[TaskTalk] = []  # tasks' talk with their nodes


@final
class SimHost:
    """A node of the world."""

    def __init__(self, scene: Scene, spec: NodeSpec, index: int, rng: Random) -> None:
        self.spec, self.id, self.index = spec, spec.id, index
        self.grant = spec.grant
        self.up = False
        self.left = False  # left for good
        self.life = 0
        self.lag_s = 0.0
        self.wall_error_s = 0.0  # current error of the wall clock
        self.links: dict[NodeId, SimLink] = {}
        self.machine: Decider | None = None
        self.rng = rng
        self.now_local = 0.0
        self.answers = CheatAnswers(spec.cheat, rng)
        self.invitations: tuple[OpenInvitation, ...] = ()  # in a separate file
        self.invitations_busy_until = 0.0
        self.met: dict[NodeId, tuple[str, ...]] = {}  # members, in a separate file
        self.disk = Disk(scene.agenda, rng, self._perform, self._on_safe)
        self._scene = scene
        chance = Random(f"{scene.seed}/blobs/{spec.id}")
        self.blobs = SimBlobs(self, chance, scene.trees)
        self.blobs.on_reads = partial(scene.watch.reads, self)
        self.staging = SimStaging(spec.id, self, self.blobs, chance)
        made = Random(f"{scene.seed}/environments/{spec.id}")
        self.environments = SimEnvironments(self, made)
        self.environments.on_making = partial(scene.watch.making, self)
        self.environments.on_removing = partial(scene.watch.removing, self)
        self.driver = self._new_driver(scene)
        self._agenda = scene.agenda
        self._network = scene.network
        self._offset_s = 0.0
        self._rate = spec.clock_rate
        self._due: float | None = None  # the machine's latest deadline
        self._armed_at = NEVER_S  # scheduled wake-up, in virtual time
        self._history = scene.history
        self._moments = scene.history.batch
        self._tap = scene.tap
        self._sent = scene.watch.sent
        self._told = scene.watch.told
        self._facts = scene.watch.facts
        self._suspects = scene.watch.suspects
        self._performers = self._performers_by_type()

    def _performers_by_type(self) -> dict[type, Callable[..., None]]:
        return {
            Send: self._send,
            Publish: self._publish,
            Spread: self._spread,
            Disconnect: self._disconnect,
            LookUp: self._look_up,
            Provide: self._provide,
            Answer: self._answer,
            StartTask: self._start_task,
            StopTask: self._stop_task,
            StageTask: self._stage_task,
            FetchOutputs: self.staging.fetch_outputs,
            DropOutputs: self.staging.drop_outputs,
            FetchCheckpoint: self.staging.fetch_checkpoint,
            FetchKept: self.staging.fetch_kept,
            DropKept: self._ignore,
            Show: self._show,
            DoubtOutput: partial(self._scene.watch.doubted, self),
            PauseOutput: self._pause_output,
            LearnAddresses: self._ignore,
            DropJob: self._ignore,
            CallEnd: self._call_end,
            SignGrant: self._sign_grant,
            KeepGrant: self._keep_grant,
            **self.blobs.performers,
            **self.environments.performers,
            **{kind: partial(do, self) for kind, do in self._scene.performers.items()},
        }

    # Boots and crashes.

    def boot(self) -> None:
        """Boot from what the disk kept; old processes are gone."""
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
            NodeLife(
                spec=msgspec.structs.replace(self.spec, grant=self.grant),
                number=self.life + 1,
                invitations=self.invitations,
                met=self.met,
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
        for checkpoint in self.staging.checkpoints.values():
            self.feed(checkpoint)
        if self.environments.kept:
            self.feed(self.environments.found())
        self.feed(Booted())
        if self.spec.network is not None:
            self.feed(AddressesChanged((address_of(self.id),)))
            self.feed(self.spec.network)
        self._agenda.after(SIZE_KNOWN_S, self._estimate_size, self.life)

    def set_wall(self, error_s: float) -> None:
        """Set the wall clock's error; the node reads it soon."""
        self.wall_error_s = error_s
        off_s = self.spec.wall_skew_s + error_s
        self.feed(WallClockRead(WALL_AT_START_S + self._agenda.now + off_s))

    def crash(self, *, power: bool, closed: bool | None = None) -> None:
        """Crash at once; without a power cut, processes survive for a moment."""
        assert self.up
        self.up = False
        self.life += 1
        self.machine = None
        self.environments.crashed()
        self.blobs.crashed()
        self.staging.crashed()
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
        self.now_local = max(self.now_local, local)
        return self.now_local

    def feed(self, event: Event) -> None:
        """Feed the machine one fact and perform its effects."""
        machine = self.machine
        if machine is None:
            return
        at = self._agenda.now
        now = (at + self._offset_s) * self._rate
        self.now_local = max(self.now_local, now)
        effects = machine.handle(event, self.now_local)
        if self._tap is not None:
            self._tap(self, event, effects)
        told: Event | NodeId = event
        if type(event) is MessageReceived:
            told = event.peer  # The message is among its sender's effects.
            hook = self._told.get(type(event.message))
            if hook is not None:
                hook(self, event, effects)
            if self._suspects and event.peer in self._suspects:
                self._suspects[event.peer](self, event, effects)
        elif (fact_hook := self._facts.get(type(event))) is not None:
            fact_hook(self, event, effects)
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
            at = max(at, now)
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
            self._arm(due)  # It was postponed.
            return
        self._due = None
        self.now_local = max(self.now_local, due)
        self.feed(DEADLINE_REACHED)

    def later(self, delay_s: float, call: Callable[[], None]) -> None:
        """Call back after a while, unless the node crashes before."""
        self._agenda.after(delay_s, self._call_back, self.life, call)

    def _call_back(self, life: int, call: Callable[[], None]) -> None:
        if self.up and life == self.life:
            call()

    def is_disk_slow(self) -> bool:
        """Whether disk operations take long now."""
        return self.disk.slow

    def is_disk_faulty(self) -> bool:
        """Whether the disk may refuse or forget a blob now."""
        return self._agenda.now < self._scene.disks_fail_until_s

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
        self.environments.stop(effect.attempt)
        self.staging.stop(effect.attempt)
        self.driver.stop(effect)

    def _stage_task(self, effect: StageTask) -> None:
        # Not at once: no facts are fed while effects are performed.
        self.later(0.0, partial(self.staging.stage, effect))

    def _pause_output(self, effect: PauseOutput) -> None:
        self.driver.pause(effect)

    def _show(self, effect: Show) -> None:
        if isinstance(effect.message, Output):
            self._scene.watch.shown(self, effect.message)

    def _ignore(self, effect: LearnAddresses | DropJob) -> None:
        """Ignore it: a world dials by name, and keeps results."""

    def _call_end(self, effect: CallEnd) -> None:
        event = EndCallEnded(effect.report.job)
        self._agenda.after(0.0, self._hear_itself, self.life, event)

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
        """Present the new grant from now on; the network reads it here."""
        self.grant = effect.grant

    def _on_safe(self, entries: Sequence[Entry]) -> None:
        self._scene.watch.safe(self, entries)

    # Processes.

    def _new_driver(self, scene: Scene) -> SimDriver:
        feed = partial(self._feed_in, self.life)
        driver = SimDriver(scene.agenda, self.rng, scene.plans, scene.starts, feed)
        if scene.pacing is not None:
            driver.pace = partial(scene.pacing, self)
        driver.say = self._outcome
        driver.save = self.staging.make
        driver.on_started = self._on_started
        driver.on_wrote = scene.watch.wrote
        driver.on_reaped = self._on_reaped
        driver.on_poison = partial(scene.watch.poisoned, self)
        return driver

    def _outcome(self, task: Task, exit_code: int | None) -> Outcome:
        """Return the outcome that the worker reports for a process."""
        outcome = self.staging.pack(task, self.answers.outcome(task.id, exit_code))
        took = COUNTED_MIN_BYTES + (task.index << 20)
        return msgspec.structs.replace(outcome, memory_bytes=took)

    def _on_started(self, process: SimProcess) -> None:
        self._scene.watch.started(self, process)
        for talk in self._scene.talks:
            talk.started(self, process)

    def _on_reaped(self, process: SimProcess) -> None:
        self._scene.watch.reaped(self, process)
        for talk in self._scene.talks:
            talk.reaped(self, process)

    def _feed_in(self, life: int, event: Event) -> None:
        if life == self.life:
            self.feed(event)
