"""Simulate channels from schedulers to tasks, with users who come, write and leave.

Some schedulers open channels to tasks of theirs that run, and write numbered items.
The worker's end echoes each of them, and says how many there were at last. Users are
slow at times, leave early, or ask for attempts that are not theirs. A laptop of the
owner of a scheduler opens channels to that and to other schedulers, and may be revoked
meanwhile. Tasks call the schedulers of their jobs, and submit jobs there; some workers
speak for tasks of others, or go on after the end. Some users send a task its standard
input, and some of these leave in the middle. The promises are in `promises`.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any, Final, final

import msgspec

from shoal.core.channels.channels import HEARD_S, SILENT_S
from shoal.core.channels.events import (
    ChannelDropped,
    ChannelFinished,
    ChannelSlowed,
    ChannelWanted,
    ChannelWrote,
    DeliverItems,
    EndChannel,
    PauseChannel,
    ServeChannel,
    TaskClosed,
    TaskOpened,
)
from shoal.core.events import InputLost, InputTaken, JobSubmitted, MessageReceived
from shoal.model.ids import Attempt, GroupId, JobId, NodeId, OwnerId, TaskId
from shoal.model.job import Group
from shoal.protocol.channels.messages import ChannelUse
from shoal.sim.channels.promises import ChannelPromises
from shoal.sim.node import trust
from shoal.sim.node.host import NodeSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from shoal.core.events import Effect, Event
    from shoal.sim.checkers.suite import Suite
    from shoal.sim.node.driver import SimProcess
    from shoal.sim.node.host import SimHost
    from shoal.sim.world import World

WORLDS_SHARE: Final = 0.15  # share of worlds with channels
USERS_MAX: Final = 12
SLOW_SHARE: Final = 0.3
LEAVES_SHARE: Final = 0.2
LAPTOP: Final = NodeId("c0")
LAPTOP_SHARE: Final = 0.4  # share of users that sit at the laptop
REVOKED_SHARE: Final = 0.4
LINKED_S: Final = 1.0  # time until a dialled link is up, if ever
WRONG_SHARE: Final = 0.15  # share of users that want what is not theirs
PIECES: Final = (0, 1, 5, 40)
SIZES: Final = (4, 100, 60_000)
EOF: Final = b"eof"
USE: Final = ChannelUse(kind="port", port=80)
API: Final = ChannelUse(kind="api")
TASKS_SHARE: Final = 0.5  # share of worlds with channels in which tasks call
CALLS_MAX: Final = 10
INPUT: Final = ChannelUse(kind="stdin")
INPUTS_SHARE: Final = 0.5  # share of worlds with channels in which users send input
INPUTS_MAX: Final = 8
INPUT_LEAVES_SHARE: Final = 0.5
TOKEN: Final = 1 << 40  # of jobs that tasks submit; clients have smaller ones


class ChannelErrand(msgspec.Struct, frozen=True, kw_only=True):
    """One user who wants a channel to some task of a scheduler."""

    at_s: float
    scheduler: NodeId
    pieces: int
    size: int
    pause_s: float
    slow_s: float = 0.0  # how long it reads nothing, after the first item
    leaves_after: int | None = None  # items
    is_wrong: bool = False  # wants a task of another scheduler
    by_laptop: bool = False  # wants a job of that scheduler
    by_task: bool = False  # a task of that scheduler calls it; wrong: another's worker
    stays: bool = False  # its worker goes on when it has ended
    is_input: bool = False  # sends a task its standard input


class ChannelScript(msgspec.Struct, frozen=True, kw_only=True):
    """All channels of a world."""

    errands: tuple[ChannelErrand, ...]
    heal_s: float
    laptop: NodeSpec
    revoked_s: float | None = None  # when the laptop is revoked, if ever


def draw_channel_script(
    rng: Random, schedulers: list[NodeSpec], heal_s: float
) -> ChannelScript | None:
    """Draw users of channels; None if this world has none."""
    if rng.random() >= WORLDS_SHARE:
        return None
    owner = rng.choice(schedulers).owner
    grant = trust.grant(LAPTOP, ("scheduler",), owner)
    count = rng.randint(4, USERS_MAX)
    errands = [_draw_errand(rng, schedulers, heal_s) for _ in range(count)]
    calls = Random(f"{count}/{heal_s}/tasks")
    if calls.random() < TASKS_SHARE:
        count = calls.randint(3, CALLS_MAX)
        errands += [_draw_call(calls, schedulers, heal_s) for _ in range(count)]
    inputs = Random(f"{count}/{heal_s}/inputs")
    if inputs.random() < INPUTS_SHARE:
        count = inputs.randint(3, INPUTS_MAX)
        errands += [_draw_input(inputs, schedulers, heal_s) for _ in range(count)]
    return ChannelScript(
        errands=tuple(errands),
        heal_s=heal_s,
        laptop=NodeSpec(id=LAPTOP, roles=(), owner=owner, grant=grant),
        revoked_s=rng.uniform(1.0, heal_s) if rng.random() < REVOKED_SHARE else None,
    )


def _draw_errand(
    rng: Random, schedulers: list[NodeSpec], heal_s: float
) -> ChannelErrand:
    pieces = rng.choice(PIECES)
    return ChannelErrand(
        at_s=rng.uniform(1.0, heal_s + 20.0),
        scheduler=rng.choice(schedulers).id,
        by_laptop=rng.random() < LAPTOP_SHARE,
        pieces=pieces,
        size=rng.choice(SIZES),
        pause_s=rng.choice((0.0, 0.01, 0.5)),
        slow_s=rng.uniform(1.0, 20.0) if rng.random() < SLOW_SHARE else 0.0,
        leaves_after=rng.randint(0, pieces) if rng.random() < LEAVES_SHARE else None,
        is_wrong=rng.random() < WRONG_SHARE,
    )


def _draw_call(rng: Random, schedulers: list[NodeSpec], heal_s: float) -> ChannelErrand:
    return ChannelErrand(
        at_s=rng.uniform(1.0, heal_s),
        scheduler=rng.choice(schedulers).id,
        by_task=True,
        pieces=rng.choice(PIECES),
        size=SIZES[0],
        pause_s=rng.choice((0.01, 0.5, 2.0)),
        is_wrong=rng.random() < WRONG_SHARE,
        stays=rng.random() < WRONG_SHARE,
    )


def _draw_input(
    rng: Random, schedulers: list[NodeSpec], heal_s: float
) -> ChannelErrand:
    pieces = rng.choice(PIECES)
    leaves = rng.random() < INPUT_LEAVES_SHARE
    return ChannelErrand(
        at_s=rng.uniform(1.0, heal_s + 20.0),
        scheduler=rng.choice(schedulers).id,
        is_input=True,
        pieces=pieces,
        size=rng.choice(SIZES),
        pause_s=rng.choice((0.0, 0.01, 0.5)),
        leaves_after=rng.randint(0, pieces) if leaves else None,
    )


class _User(msgspec.Struct):
    """A user, and how far it got."""

    errand: ChannelErrand
    host: SimHost
    life: int
    said: int = 0
    heard: int = 0
    is_paused: bool = False
    is_over: bool = False

    @property
    def name(self) -> str:
        return f"a user of {self.host.id} at {self.errand.at_s:.1f} s"


class _Echo(msgspec.Struct):
    """A worker's end: an echo. For a task that calls, it is at the scheduler."""

    heard: int = 0
    attempt: Attempt | None = None  # of the task that calls, if one does
    input_of: Attempt | None = None  # whose standard input this is, if it is
    is_whole: bool = False  # the user said that this is all


_Key = tuple[NodeId, int, int]  # node, life, end


@final
class ChannelTraffic:
    """The users of channels in one world, and the tasks at the other end."""

    def __init__(self, script: ChannelScript, world: World, suite: Suite) -> None:
        self.completed = 0
        self.promises = ChannelPromises(
            suite.violations, suite.revocations, world.hosts
        )
        self._script = script
        self._world = world
        self._users: dict[_Key, _User] = {}
        self._echoes: dict[_Key, _Echo] = {}
        self._calls: dict[_Key, tuple[NodeId, Attempt | None]] = {}  # worker, attempt
        self._running: dict[Attempt, NodeId] = {}
        self._number = 0
        self._staying: set[Attempt] = set()

    @property
    def performers(self) -> Mapping[type, Callable[[SimHost, Any], None]]:
        """The performer of each effect."""
        return {
            ServeChannel: self._serve,
            DeliverItems: self._deliver,
            PauseChannel: self._pause,
            EndChannel: self._end,
        }

    def schedule(self) -> None:
        """Add the laptop, and schedule all users."""
        script, agenda = self._script, self._world.agenda
        self._world.add(script.laptop)
        for errand in script.errands:
            if errand.by_laptop:
                agenda.at(errand.at_s - LINKED_S, self._reach, errand.scheduler)
            agenda.at(errand.at_s, self._come, errand)
        if script.revoked_s is not None:
            agenda.at(script.revoked_s, self._world.revoke, LAPTOP)
        agenda.after(1.0, self._sweep)

    def _reach(self, scheduler: NodeId) -> None:
        host = self._world.hosts[LAPTOP]
        if host.up:
            self._world.network.reach(host, scheduler)

    def started(self, host: SimHost, process: SimProcess) -> None:
        """Let channels into a process."""
        attempt = process.start.attempt
        self._running[attempt] = host.id
        opened = TaskOpened(attempt)
        self._world.agenda.after(0.0, self._tell, host, host.life, opened)

    def reaped(self, host: SimHost, process: SimProcess) -> None:
        """Refuse further visits of a process."""
        self._running.pop(process.start.attempt, None)
        if process.start.attempt not in self._staying:
            host.feed(TaskClosed(process.start.attempt))

    # Users.

    def _come(self, errand: ChannelErrand) -> None:
        if errand.by_task:
            self._call(errand)
            return
        at = LAPTOP if errand.by_laptop else errand.scheduler
        self._number += 1
        self._begin(self._world.hosts[at], errand, self._wanted(self._number, errand))

    def _call(self, errand: ChannelErrand) -> None:
        """Let a task call its scheduler, or another worker in its name."""
        self._number += 1
        found = sorted(
            (attempt, worker)
            for attempt, worker in self._running.items()
            if attempt.scheduler == errand.scheduler
        )
        if not found:
            return
        attempt, worker = found[self._number % len(found)]
        if errand.is_wrong:
            others = sorted({each for _, each in found} - {worker}) or [worker]
            host = self._world.hosts[others[0]]
            if host.up:
                host.feed(TaskOpened(attempt))  # It claims so.
        else:
            host = self._world.hosts[worker]
        if errand.stays:
            self._staying.add(attempt)
        wanted = ChannelWanted(self._number, errand.scheduler, API, attempt)
        self._begin(host, errand, wanted)

    def _begin(
        self, host: SimHost, errand: ChannelErrand, wanted: ChannelWanted | None
    ) -> None:
        number = self._number
        if not host.up or wanted is None:
            return
        user = self._users[host.id, host.life, number] = _User(errand, host, host.life)
        host.feed(wanted)
        takes_s = errand.pieces * errand.pause_s + errand.slow_s
        late_s = max(0.0, self._script.heal_s - self._world.now)
        bound_s = late_s + 4 * SILENT_S + HEARD_S + takes_s
        self._world.agenda.after(bound_s, self._check_over, user)
        self._world.agenda.after(errand.pause_s, self._write, number, user)

    def _wanted(self, number: int, errand: ChannelErrand) -> ChannelWanted | None:
        if errand.by_laptop:
            return ChannelWanted(number, errand.scheduler, USE, job="last")
        found = [
            (attempt, worker)
            for attempt, worker in sorted(self._running.items())
            if (attempt.scheduler == errand.scheduler) != errand.is_wrong
        ]
        if not found:
            return None
        attempt, worker = found[number % len(found)]
        use = INPUT if errand.is_input else USE
        return ChannelWanted(number, worker, use, attempt)

    def _check_over(self, user: _User) -> None:
        if user.host.up and user.host.life == user.life:
            self.promises.check_over(user.name, is_over=user.is_over)

    def _write(self, number: int, user: _User) -> None:
        errand = user.errand
        if user.is_over or not user.host.up or user.host.life != user.life:
            return
        if user.said == errand.leaves_after:
            user.is_over = True
            user.host.feed(ChannelDropped(number, "the user left"))
            return
        if not user.is_paused:
            is_last = user.said == errand.pieces
            item = EOF if is_last else _item(user.said, errand.size)
            user.said += 1
            user.host.feed(ChannelWrote(number, (item,)))
            if is_last:
                return
        pause_s = max(errand.pause_s, 0.1 if user.is_paused else 0.0)
        self._world.agenda.after(pause_s, self._write, number, user)

    def _heard_item(self, number: int, user: _User, item: bytes) -> None:
        if user.is_over:
            return
        if item.startswith(EOF):
            user.is_over = True
            count = int(item.removeprefix(EOF))
            is_whole = count == user.heard == user.errand.pieces
            self.promises.ended_well(user.name, is_whole=is_whole)
            self.completed += 1
            finished = ChannelFinished(number)
            self._world.agenda.after(0.0, self._tell, user.host, user.life, finished)
            return
        self.promises.delivered(user.name, int(item.split(b".")[0]), user.heard)
        user.heard += 1
        if user.heard == 1 and user.errand.slow_s:
            later = self._world.agenda.after
            slow, fast = ChannelSlowed(number, slow=True), ChannelSlowed(number, False)
            later(0.0, self._tell, user.host, user.life, slow)
            later(user.errand.slow_s, self._tell, user.host, user.life, fast)

    # Both ends.

    def decided(
        self, host: SimHost, _: MessageReceived, effects: Sequence[Effect]
    ) -> None:
        """Check what a node decides. It may do so much later, if its disk is slow."""
        for effect in effects:
            match effect:
                case ServeChannel(caller=caller, asked=asked):
                    self.promises.served(host, caller.node, asked)
                    if asked.use.kind == "api":
                        key = (host.id, host.life, effect.end)
                        self._calls[key] = (caller.node, asked.attempt)
                case DeliverItems():
                    call = self._calls.get((host.id, host.life, effect.end))
                    if call is not None:
                        self.promises.called(host, *call)
                case _:
                    pass

    def _serve(self, host: SimHost, effect: ServeChannel) -> None:
        kind, attempt = effect.asked.use.kind, effect.asked.attempt
        echo = _Echo()
        if kind == "api":
            echo.attempt = attempt
        elif kind == "stdin" and attempt is not None:
            echo.input_of = attempt
            taken = InputTaken(attempt)
            self._world.agenda.after(0.0, self._tell, host, host.life, taken)
        self._echoes[host.id, host.life, effect.end] = echo

    def _deliver(self, host: SimHost, effect: DeliverItems) -> None:
        key = (host.id, host.life, effect.end)
        if (user := self._users.get(key)) is not None:
            for item in effect.items:
                self._heard_item(effect.end, user, item)
            return
        echo = self._echoes[key]
        if echo.attempt is not None:
            self._submit(host, echo)
        for item in effect.items:
            back = item
            if item == EOF:
                echo.is_whole = True
                back = EOF + str(echo.heard).encode()
            else:
                what = f"a task on {host.id}"
                self.promises.delivered(what, int(item.split(b".")[0]), echo.heard)
                echo.heard += 1
            wrote = ChannelWrote(effect.end, (back,))
            self._world.agenda.after(0.0, self._tell, host, host.life, wrote)
            if item == EOF:
                done = ChannelFinished(effect.end)
                self._world.agenda.after(0.001, self._tell, host, host.life, done)

    def _submit(self, host: SimHost, echo: _Echo) -> None:
        """Submit a job like that of a task, with an owner and a rank of its own."""
        found = self.promises.job_of(host, echo.attempt)
        if found is None or echo.heard:
            return
        self._number += 1
        job, task = found
        id_ = JobId(f"child-{host.id}-{self._number}")
        group = GroupId(f"{id_}.main")
        own = msgspec.structs.replace(
            task, id=TaskId(f"{group}.0"), job=id_, group=group, index=0, size=1
        )
        child = msgspec.structs.replace(
            job,
            id=id_,
            owner=OwnerId("mallory"),
            priority=job.priority + 1,
            groups=(Group(id=group, tasks=(own,)),),
        )
        detached = self._number % 3 == 0
        token = TOKEN + self._number
        event = JobSubmitted(token, child, parent=echo.attempt, detached=detached)
        self.promises.submitted(id_, job, detached=detached)
        self._world.agenda.after(0.0, self._tell, host, host.life, event)

    def _pause(self, host: SimHost, effect: PauseChannel) -> None:
        user = self._users.get((host.id, host.life, effect.end))
        if user is not None:
            user.is_paused = effect.paused
        else:
            slowed = ChannelSlowed(effect.end, effect.paused)
            self._world.agenda.after(0.0, self._tell, host, host.life, slowed)

    def _end(self, host: SimHost, effect: EndChannel) -> None:
        key = (host.id, host.life, effect.end)
        if (user := self._users.get(key)) is not None:
            user.is_over = True
        elif (echo := self._echoes[key]).input_of is not None and not echo.is_whole:
            self._world.agenda.after(0.0, self._lose, host, host.life, echo.input_of)

    def _lose(self, host: SimHost, life: int, attempt: Attempt) -> None:
        """Tell a worker that the input of a task is cut off, if that still runs."""
        if attempt in self._running and host.up and host.life == life:
            self.promises.cut(attempt)
            host.feed(InputLost(attempt, "its user has gone"))

    def _tell(self, host: SimHost, life: int, event: Event) -> None:
        if host.up and host.life == life:
            host.feed(event)

    def _sweep(self) -> None:
        self.promises.sweep(self._world.hosts.values())
        self.promises.check_children(self._world.hosts.values())
        self._world.agenda.after(1.0, self._sweep)


def _item(number: int, size: int) -> bytes:
    return str(number).encode().ljust(size, b".")
