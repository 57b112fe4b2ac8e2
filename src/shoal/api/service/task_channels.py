"""Channels of clients to tasks: who may open one, and where it leads.

A client of this node opens a channel by `Channel` of the API. If the job is here, the
node opens a channel to the worker that runs the task. Otherwise it opens one to the
node of the same owner that has the job, and that node opens the second (`Joint`). Both
check the caller as for any other call about a job.

A channel to the standard input of a task waits until the task runs. A client that goes
before it has sent all takes the job with it: nobody else has the rest.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections import deque
from contextlib import aclosing
from typing import TYPE_CHECKING, Final, final

from shoal.api import shoal_pb2 as pb
from shoal.api.server.rights import check_neighbour, member
from shoal.api.service.audited import Origin, entered, refused
from shoal.api.service.callers import answer_for
from shoal.errors import NotAllowedError, ShoalError, UsageError
from shoal.net.identity.petname import petname
from shoal.protocol.channels import items as channel_items
from shoal.protocol.channels.items import ITEM_BYTES_MAX
from shoal.protocol.channels.messages import ChannelUse
from shoal.protocol.limits import PORT_MAX, SIDE_MAX
from shoal.runtime.background_tasks import BackgroundTasks
from shoal.runtime.channels.channel_ends import Joint

if TYPE_CHECKING:
    from collections.abc import (
        AsyncGenerator,
        AsyncIterator,
        Awaitable,
        Callable,
    )

    from shoal.core.dispatch.run_states import TaskRun
    from shoal.core.membership.members import Admission
    from shoal.core.records.records import JobRecord, TaskRecord
    from shoal.model.ids import JobId, NodeId
    from shoal.protocol.channels.messages import ChannelOpen
    from shoal.runtime.channels.channel_ends import ChannelLine
    from shoal.runtime.node import Node

    Find = Callable[[str, str], tuple[JobRecord, list[TaskRecord]]]
    """Returns a job that the current caller may see, and the tasks that it means."""

UNREAD_HIGH: Final = 256 << 10
"""Bytes that wait for a client before the task is slowed down."""

UNREAD_LOW: Final = 64 << 10
ARGUMENTS_BYTES_MAX: Final = 100_000
OPEN_AGAIN_S: Final = 0.2
STARTED_S: Final = 0.05
INPUT_GONE: Final = "the sender of its standard input has gone"
METHOD: Final = "Channel"


@final
class TaskChannels:
    """Opens channels for clients, and for nodes of the same owner."""

    def __init__(
        self, node: Node, find: Find, reach: Callable[[str], Awaitable[NodeId]]
    ) -> None:
        """Find jobs by `find`, and other nodes of this owner by `reach`."""
        self._node = node
        self._find = find
        self._reach = reach
        self._serving = BackgroundTasks()
        node.channels.serve_job = self.serve_job

    async def serve(
        self, requests: AsyncIterator[pb.ChannelRequest]
    ) -> AsyncGenerator[pb.ChannelReply]:
        """Serve a client until the channel ends, or the client hangs up."""
        first = await anext(aiter(requests), None)
        if first is None or not first.HasField("target"):
            raise UsageError("the first request says what to open")
        target, use = first.target, use_of(first.target)
        if use.kind == "stdin":
            async with aclosing(self._serve_input(requests, target, use)) as replies:
                async for reply in replies:
                    yield reply
            return
        if target.node and (peer := await self._reach(target.node)) != self._node.id:
            opening = functools.partial(
                self._node.channels.open, peer, use, job=target.job, task=target.task
            )
            place = pb.ChannelReply()
        else:
            task, run = await self._running(target.job, target.task, use)
            opening = functools.partial(
                self._node.channels.open, run.worker, use, attempt=run.attempt
            )
            job, name = task.task.job, task.task.id
            place = pb.ChannelReply(job=job, task=name, worker=petname(run.worker))
        end = ClientEnd()
        yield place
        opening(end.begin)
        reading = asyncio.ensure_future(_read(end, requests))
        try:
            async for items in end.items():
                yield pb.ChannelReply(items=items)
        finally:
            reading.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await reading
            end.leave()

    async def _serve_input(
        self,
        requests: AsyncIterator[pb.ChannelRequest],
        target: pb.ChannelTarget,
        use: ChannelUse,
    ) -> AsyncGenerator[pb.ChannelReply]:
        """Let a client send a task its standard input, once that runs."""
        end, job = ClientEnd(), self._find(target.job, target.task)[0].job.id
        reading: asyncio.Task[None] | None = None
        try:
            while True:
                task, run = await self._awaited(job, target.task, target.input.after)
                end = ClientEnd()
                open_ = self._node.channels.open
                open_(run.worker, use, end.begin, attempt=run.attempt)
                if await end.has_begun():
                    break
                await asyncio.sleep(OPEN_AGAIN_S)  # It is being prepared there.
            yield pb.ChannelReply(
                job=job,
                task=task.task.id,
                worker=petname(run.worker),
                attempt=str(run.attempt),
            )
            reading = asyncio.create_task(_read(end, requests))
            async for items in end.items():
                yield pb.ChannelReply(items=items)
        finally:
            if reading is not None:
                reading.cancel()
            end.leave()
            if not end.is_whole and self._node.state_of(job) == "active":
                self._serving.start(self._node.clients.cancel(job, INPUT_GONE))

    async def _awaited(
        self, job: JobId, task: str, after: str
    ) -> tuple[TaskRecord, TaskRun]:
        """Return the attempt that runs, once one does that is another than `after`."""
        while self._node.state_of(job) == "active":
            tasks = self._find(job, task)[1]
            for each in tasks:
                run = _run_of(each)
                if run is not None and str(run.attempt) != after:
                    return each, run
            with contextlib.suppress(TimeoutError):
                # That an attempt has started is no news.
                is_placed = any(each.live for each in tasks)
                async with asyncio.timeout(STARTED_S if is_placed else None):
                    await self._node.news.wait()
        raise _over(job)

    def serve_job(
        self, line: ChannelLine, caller: Admission, asked: ChannelOpen
    ) -> Joint:
        """Serve another node of this owner: join its channel to one to the worker."""
        line.slow(slow=True)  # Nothing comes before there is somewhere to put it.
        near = Joint(line)
        self._serving.start(self._join(near, caller, asked))
        return near

    async def _join(self, near: Joint, caller: Admission, asked: ChannelOpen) -> None:
        place = Origin("link", caller.node, caller.owner)
        note = self._node.audit.note
        try:
            owner = self._node.owner
            check_neighbour(petname(caller.node), caller, owner, METHOD)
            grant = self._node.roster.shown(caller.node)
            answer_for(member(caller, grant, owner, way="link"))
            task, run = await self._running(asked.job, asked.task, asked.use)
        except NotAllowedError as error:
            refused(note, METHOD, place, str(error))
            near.refuse(error)
        except ShoalError as error:
            near.refuse(error)
        else:
            entered(note, place, task.task.job, task.task.id)
            join = functools.partial(_joined, near)
            open_ = self._node.channels.open
            open_(run.worker, asked.use, join, attempt=run.attempt)

    async def _running(
        self, job: str, task: str, use: ChannelUse
    ) -> tuple[TaskRecord, TaskRun]:
        """Return the running attempt that a user means; raise if there is none."""
        record, tasks = self._find(job, task)
        running = [(each, run) for each in tasks if (run := _run_of(each)) is not None]
        if len(running) == 1:
            return running[0]
        name = f"{record.job.id}/{task}" if task else record.job.id
        if running:
            known = ", ".join(each.task.id for each, _ in running[:8])
            raise UsageError(
                f"{len(running)} tasks of job {name} run",
                because="a command or a connection goes to one of them",
                hint=f"name one, such as {record.job.id}/0; they are {known}",
            )
        if self._node.state_of(record.job.id) == "active":
            raise ShoalError(
                f"no task of job {name} runs now",
                because="it waits, or is being started",
                hint=f"`shoal explain {record.job.id}` says why; then try again",
            )
        raise _over(record.job.id)


def _over(job: JobId) -> ShoalError:
    return ShoalError(
        f"job {job} has ended",
        because="channels lead to running tasks",
        hint=f"`shoal logs {job}` shows what it wrote",
    )


def _run_of(task: TaskRecord) -> TaskRun | None:
    """Return the attempt of a task that runs now, if one does."""
    runs = [run for run in task.live.values() if run.started and not run.lost]
    return max(runs, key=lambda run: run.attempt, default=None)


def _joined(near: Joint, line: ChannelLine) -> Joint:
    far = Joint(line)
    near.join(far)
    return far


def use_of(target: pb.ChannelTarget) -> ChannelUse:
    """Return what a client wants; raise `UsageError` if that is nothing."""
    match target.WhichOneof("use"):
        case "port":
            if not 0 < target.port <= PORT_MAX:
                raise UsageError(f"there is no port {target.port}")
            return ChannelUse(kind="port", port=target.port)
        case "program":
            argv = tuple(target.program.argv)
            if not argv or sum(map(len, argv)) > ARGUMENTS_BYTES_MAX:
                raise UsageError(
                    "this is no program with its arguments",
                    because=f"it has none, or more than {ARGUMENTS_BYTES_MAX} bytes",
                )
            if any("\0" in text for text in argv):
                raise UsageError("an argument holds a zero byte")
            has, terminal = target.program.HasField("terminal"), target.program.terminal
            return ChannelUse(
                kind="program",
                argv=argv,
                terminal=has,
                rows=min(terminal.rows, SIDE_MAX),
                columns=min(terminal.columns, SIDE_MAX),
                terminal_type=_plain(terminal.type),
            )
        case "input":
            if target.node:
                raise UsageError(
                    "input is sent at the node that has the job",
                    hint="connect to that node",
                )
            terminal = target.input.terminal
            return ChannelUse(
                kind="stdin",
                rows=min(terminal.rows, SIDE_MAX),
                columns=min(terminal.columns, SIDE_MAX),
            )
        case _:
            raise UsageError("a channel leads to a port, a program or an input")


def _plain(text: str) -> str:
    return text if text.isascii() and text.isprintable() and len(text) < 64 else ""


async def _read(end: ClientEnd, requests: AsyncIterator[pb.ChannelRequest]) -> None:
    async for request in requests:
        if any(not 0 < len(item) <= ITEM_BYTES_MAX for item in request.items):
            end.fail(UsageError(f"an item has 1 to {ITEM_BYTES_MAX} bytes"))
            return
        await end.write(tuple(request.items))


@final
class ClientEnd:
    """The end of a channel that a client of this node uses."""

    def __init__(self) -> None:
        self._line: ChannelLine | None = None
        self._items: deque[bytes] = deque()
        self._bytes = 0
        self._is_slow = False
        self._news = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._over: str | None = None
        self._error: ShoalError | None = None
        self._is_whole = False

    def begin(self, line: ChannelLine) -> ClientEnd:
        """Use this end of the channel."""
        self._line = line
        return self

    @property
    def is_whole(self) -> bool:
        """Whether the client has sent all, or the task's side wants no more."""
        return self._is_whole or self._over == ""

    async def has_begun(self) -> bool:
        """Wait for the first word of the task's side; return whether there is one."""
        while not self._items and self._over is None:
            self._news.clear()
            await self._news.wait()
        return bool(self._items)

    def deliver(self, items: tuple[bytes, ...]) -> None:
        """Keep items until the client takes them."""
        self._items += items
        self._is_whole = self._is_whole or items[0][:1] == channel_items.FAILED
        self._bytes += sum(map(len, items))
        self._news.set()
        self._pace()

    def pause(self, *, paused: bool) -> None:
        """Take nothing from the client, or go on."""
        if paused:
            self._room.clear()
        else:
            self._room.set()

    def ended(self, reason: str) -> None:
        """Note that the channel is gone."""
        self._over = reason
        self._line = None
        self._news.set()
        self._room.set()

    def fail(self, error: ShoalError) -> None:
        """Have the client hear of an error."""
        self._error = error
        self._news.set()

    async def write(self, items: tuple[bytes, ...]) -> None:
        """Send what the client says, once there is room."""
        await self._room.wait()
        self._is_whole = self._is_whole or channel_items.EOF in items
        if self._line is not None and items:
            self._line.write(*items)

    async def items(self) -> AsyncGenerator[list[bytes]]:
        """Yield what the task's side says; raise if that is cut off."""
        while True:
            if self._error is not None:
                raise self._error
            if self._items:
                items = list(self._items)
                self._items.clear()
                self._bytes = 0
                self._pace()
                for some in _portions(items):
                    yield some
                continue
            if self._over is not None:
                break
            self._news.clear()
            await self._news.wait()
        if self._over:
            raise ShoalError(
                "the channel to the task broke off",
                because=self._over,
                hint="`shoal show last` says whether it still runs",
            )

    def leave(self) -> None:
        """Give the channel up: the client has gone."""
        if self._line is not None:
            line, self._line = self._line, None
            line.drop("its user has gone")

    def _pace(self) -> None:
        is_slow = self._bytes > (UNREAD_LOW if self._is_slow else UNREAD_HIGH)
        if is_slow != self._is_slow:
            self._is_slow = is_slow
            if self._line is not None:
                self._line.slow(slow=is_slow)


def _portions(items: list[bytes]) -> list[list[bytes]]:
    """Cut items into messages of a moderate size."""
    found: list[list[bytes]] = [[]]
    size = 0
    for item in items:
        if size > channel_items.BODY_BYTES_MAX:
            found.append([])
            size = 0
        found[-1].append(item)
        size += len(item)
    return found
