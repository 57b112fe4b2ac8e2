"""One pool of lanes: runs its machine, hires lanes as tasks, and talks to them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Protocol, assert_never, final

import msgspec

from shoal.core.calls import (
    Answer,
    BacklogTold,
    Call,
    CallsCame,
    DeadlineReached,
    Effect,
    Event,
    Grant,
    Hire,
    HireFailed,
    LaneLost,
    LaneOpened,
    LaneSaid,
    StopsAsked,
    Switchboard,
    Tell,
)
from shoal.errors import NotAllowedError, ShoalError, UsageError
from shoal.model.derive import derive, profiles_of
from shoal.model.ids import Attempt, JobId, NodeId
from shoal.model.spec import RetrySpec
from shoal.model.submission import load_spec
from shoal.protocol.batches import CallBatch
from shoal.runtime.alarm import Alarm
from shoal.runtime.ferry import Ferry

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from shoal.core.calls import Result
    from shoal.core.courier import Batch
    from shoal.core.jobs import JobBook
    from shoal.model.ids import OwnerId, TaskId
    from shoal.model.spec import JobSpec
    from shoal.protocol.batches import ResultBatch
    from shoal.protocol.messages import AnyMessage
    from shoal.runtime.calls import CallingNode
    from shoal.runtime.clients import Submitter

LANES_MAX: Final = 1_024
LANES_DEFAULT_MAX: Final = 64
IDLE_MAX_S: Final = 86_400.0


class Owner(Protocol):
    """The session of a pool."""

    @property
    def of(self) -> OwnerId:
        """In whose name the client calls, by the door that it came through."""
        ...

    @property
    def submitter(self) -> Submitter:
        """In whose name its interpreters run."""
        ...

    @property
    def functions(self) -> Mapping[int, list[bytes]]:
        """All functions of the client, as items."""
        ...

    def answer(self, results: list[Result]) -> None:
        """Pass results on to the client."""
        ...

    def changed(self, pool: int) -> None:
        """Tell the client of a pool that has changed."""
        ...


class Exchange(Protocol):
    """What a pool needs of all calls of a node."""

    @property
    def node(self) -> CallingNode:
        """The node."""
        ...

    @property
    def send(self) -> Callable[[NodeId, AnyMessage], None]:
        """Say something to a node."""
        ...

    def register(self, tasks: Sequence[TaskId], pool: Pool) -> None:
        """Pass on to `pool` what these tasks say."""
        ...

    def unregister(self, task: TaskId) -> None:
        """Pass nothing on of this task any more."""
        ...


class _Lane(msgspec.Struct):
    """A lane that has said something."""

    worker: NodeId
    task: TaskId
    ferry: Ferry
    ready: bool = False


@final
class Pool:
    """Interpreters of one kind, for one client."""

    def __init__(
        self,
        calls: Exchange,
        owner: Owner,
        id_: int,
        name: JobId,
        spec: str,
        *,
        lanes_max: int,
        idle_s: float,
    ) -> None:
        """Read the spec; raises if it is wrong. The ids of jobs begin with `name`."""
        self._calls = calls
        self._owner = owner
        self._id = id_
        self._name = name
        self._spec = _lane_spec(spec)
        _check_rights(self._spec, owner.submitter)
        most = min(lanes_max, LANES_MAX) or self._room()
        self._machine = Switchboard(
            owner.functions, lanes_max=most, idle_s=min(max(0.0, idle_s), IDLE_MAX_S)
        )
        self._loop = asyncio.get_running_loop()
        self._lanes: dict[Attempt, _Lane] = {}
        self._tasks: dict[TaskId, Attempt | None] = {}  # hired; None: not heard of yet
        self._given_up: set[Attempt] = set()  # as many as lanes were ever lost so
        self._job_of: dict[TaskId, JobId] = {}  # of all that have not ended
        self._hires_made = 0
        self._hires: set[asyncio.Task[None]] = set()
        self._open = True
        self._closed = False
        self._alarm = Alarm(lambda: self._feed(DeadlineReached()))
        self.credit = 0
        self._feed(BacklogTold(0))  # It grants the first credit.

    @property
    def lanes(self) -> int:
        """How many lanes take calls."""
        return self._machine.lanes

    @property
    def hired(self) -> int:
        """How many lanes are waited for."""
        return self._machine.hired

    def call(self, calls: list[Call]) -> None:
        """Run these."""
        self._feed(CallsCame(calls))

    def stop(self, calls: tuple[int, ...]) -> None:
        """Interrupt these."""
        self._feed(StopsAsked(calls))

    def backlog(self, waiting: int) -> None:
        """Know how many calls the client has not sent."""
        self._feed(BacklogTold(waiting))

    def close(self) -> list[JobId]:
        """Say nothing more; return the jobs that are to be cancelled."""
        self._closed = True
        self._alarm.stop()
        for effect in self._machine.farewell():
            self._perform(effect)
        for lane in self._lanes.values():
            lane.ferry.close()
        for task in self._job_of:
            self._calls.unregister(task)
        return list(dict.fromkeys(self._job_of.values()))

    def received(self, peer: NodeId, batch: ResultBatch) -> bool:
        """Take in what a lane says; the first word makes it known.

        False: it was given up, and its calls run elsewhere.
        """
        lane = self._lanes.get(batch.attempt)
        if lane is None:
            if batch.attempt in self._given_up:
                return False
            lane = self._add(peer, batch)
        lane.ferry.receive(batch)
        return True

    def give_up(self, peer: NodeId) -> None:
        """Expect nothing more of the lanes of a worker that is out of reach."""
        for attempt, lane in list(self._lanes.items()):
            if lane.worker == peer:
                self._given_up.add(attempt)
                self._lose(attempt, "its node is out of reach")

    def linked(self, peer: NodeId) -> None:
        """Say again what may have been lost with the last link."""
        for lane in self._lanes.values():
            if lane.worker == peer:
                lane.ferry.hasten()

    def set_open(self, *, is_open: bool) -> None:
        """Take results in, or let lanes wait with them."""
        self._open = is_open
        for lane in self._lanes.values():
            lane.ferry.set_open(is_open=is_open)

    def look(self, book: JobBook) -> None:
        """See which lanes are over, and which never came."""
        for task, attempt in list(self._tasks.items()):
            record = book.tasks.get(task)
            if record is not None and not record.ended:
                if attempt is not None and attempt not in record.live:
                    self._tasks[task] = None
                    self._lose(attempt, record.reason, returns=True)
                continue
            self._forget(task)
            outcome = None if record is None else record.outcome
            reason = "" if outcome is None else outcome.reason
            if not reason and record is not None:
                reason = record.reason
            if not reason and outcome is not None and outcome.exit_code:
                reason = f"it ended with exit code {outcome.exit_code}"
            if attempt is not None:
                self._lose(attempt, reason)
                continue
            definite = outcome is not None and outcome.kind == "not-started"
            text = f"no interpreter came up: {reason or 'it ended at once'}"
            self._feed(HireFailed(1, text, definite))

    # Lanes.

    def _add(self, peer: NodeId, batch: ResultBatch) -> _Lane:
        attempt = batch.attempt

        def send(out: Batch) -> None:
            message = CallBatch(
                attempt=attempt,
                first=out.first,
                taken=out.taken,
                items=out.items,
                open=out.open,
                probe=out.probe,
            )
            self._calls.send(peer, message)

        ferry = Ferry(send, lambda items: self._on_items(attempt, items))
        lane = self._lanes[attempt] = _Lane(peer, batch.task, ferry)
        ferry.set_open(is_open=self._open)
        self._tasks[batch.task] = attempt
        return lane

    def _on_items(self, attempt: Attempt, items: list[bytes]) -> None:
        lane = self._lanes.get(attempt)
        if lane is None:
            return
        if not lane.ready:
            lane.ready = True
            self._feed(LaneOpened(attempt))
        admission = self._calls.node.admission(lane.worker)
        own = admission is not None and admission.owner == self._owner.of
        self._feed(LaneSaid(attempt, items, own))

    def _lose(self, attempt: Attempt, reason: str, *, returns: bool = False) -> None:
        lane = self._lanes.pop(attempt, None)
        if lane is not None:
            lane.ferry.close()
        self._feed(LaneLost(attempt, reason, returns))

    async def _hire(self, count: int) -> None:
        name = JobId(f"{self._name}-{self._hires_made}")
        self._hires_made += 1
        node, submitter = self._calls.node, self._owner.submitter
        spec = msgspec.structs.replace(self._spec, array=count)
        try:
            job = derive(spec, name, submitter.owner or node.owner)
        except ShoalError as error:
            self._feed(HireFailed(count, str(error), definite=True))
            return
        tasks = [task.id for task in job.tasks()]
        self._job_of.update(dict.fromkeys(tasks, name))
        self._calls.register(tasks, self)
        answer = await node.clients.submit(job, submitter.grant)
        if answer.refused:
            for task in tasks:
                self._forget(task)
            self._feed(HireFailed(count, answer.refused, definite=True))
            return
        for task in tasks:
            self._tasks.setdefault(task, None)  # Not before: nobody knew them yet.
        if node.scheduler is not None:
            self.look(node.scheduler.book)

    def _forget(self, task: TaskId) -> None:
        self._tasks.pop(task, None)
        self._job_of.pop(task, None)
        self._calls.unregister(task)

    def _room(self) -> int:
        """Say how many lanes the workers known could run, if they ran nothing else."""
        scheduler = self._calls.node.scheduler
        assert scheduler is not None
        profile = profiles_of(self._spec)[0]
        table, fitting = scheduler.views.table, 0
        for node in table.nodes():
            view = table.view(node)
            if view is None:
                continue
            capacity = view.capacity
            counts = [capacity.cpu_milli // max(1, profile.cpu_milli)]
            if profile.memory_bytes:
                counts.append(capacity.memory_bytes // profile.memory_bytes)
            if profile.gpu is not None:
                counts.append(len(capacity.devices) // profile.gpu.count)
            fitting += min(counts)
        return max(1, min(fitting, LANES_DEFAULT_MAX))

    # The machine.

    def _feed(self, event: Event) -> None:
        if self._closed:
            return
        for effect in self._machine.handle(event, self._loop.time()):
            self._perform(effect)
        self._alarm.set_by(self._machine.next_deadline())

    def _perform(self, effect: Effect) -> None:
        match effect:
            case Tell():
                if (lane := self._lanes.get(effect.lane)) is not None:
                    lane.ferry.put(effect.items)
            case Answer():
                self._owner.answer(effect.results)
            case Grant():
                self.credit = effect.credit
                self._owner.changed(self._id)
            case Hire():
                hiring = self._loop.create_task(self._hire(effect.count))
                self._hires.add(hiring)
                hiring.add_done_callback(self._hires.discard)
            case _:
                assert_never(effect)


def _check_rights(spec: JobSpec, submitter: Submitter) -> None:
    """Raise if interpreters of another member would see what is the node's user's."""
    if spec.secrets and not submitter.uses_secrets:
        raise NotAllowedError(
            "this client may not use the secrets of this node",
            because="they are for its user, and for admins of the same owner",
            hint="call functions by a node of your own, with `shoal secret set` there",
        )
    if spec.workdir and submitter.owner is not None:
        raise NotAllowedError(
            "interpreters for a member of another node cannot have a workdir",
            because="nobody looks whose files these are",
            hint="pass what a function needs as an argument",
        )


def _lane_spec(text: str) -> JobSpec:
    """Return the spec of one lane; what cannot be said of one is refused."""
    spec = load_spec(text, "json")
    for name in ("array", "sweep", "steps", "recipe"):
        if getattr(spec, name):
            raise UsageError(
                f"interpreters cannot have `{name}`",
                because="the node decides how many of them there are",
                hint="submit that as a job of its own",
            )
    return msgspec.structs.replace(
        spec,
        name=spec.name or "calls",
        driver="python",
        nodes=1,
        retry=RetrySpec(max=0),
    )
