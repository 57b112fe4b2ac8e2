"""What a node answers to each call of its API.

Calls read the machine's state on the event loop, where nothing else changes it
meanwhile. What takes long (specs of many tasks, files) is done in a thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import re
import time
from contextlib import aclosing
from typing import TYPE_CHECKING, Final, final

import msgspec

import shoal
from shoal.api import (
    callers,
    calls,
    known_names,
    metrics,
    pinging,
    planning,
    rights,
    tokens,
    views,
    whereabouts,
)
from shoal.api import shoal_pb2 as pb
from shoal.api.auditing import Ledger, audited
from shoal.api.cargo import CargoCalls
from shoal.api.forwarding import Forwarding
from shoal.api.job_names import check_id, job_called, tasks_called
from shoal.api.log_reader import LogReader
from shoal.api.methods import Methods
from shoal.api.node_names import known_nodes, node_called
from shoal.core.quotas import Quota, narrowed_job
from shoal.errors import NotFoundError, ShoalError, UsageError
from shoal.model.again import again
from shoal.model.bounds import NAME_LENGTH_MAX
from shoal.model.derive import derive
from shoal.model.grammar import is_name
from shoal.model.ids import JobId, NodeId, OwnerId, TaskId
from shoal.model.submission import load_spec
from shoal.model.totals import totals
from shoal.net.invitations import Terms
from shoal.net.petname import petname
from shoal.protocol.limits import ADDRESSES_MAX
from shoal.protocol.messages import PeerAddress
from shoal.runtime.cargo import needs_cargo
from shoal.runtime.cautions import cautions
from shoal.runtime.granting import ROLES
from shoal.runtime.listening import only_here
from shoal.runtime.revoking import revoke

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from shoal.api.callers import Caller
    from shoal.core.jobs import JobBook, JobRecord, TaskRecord
    from shoal.core.scheduler import Scheduler
    from shoal.drivers.process import ProcessDriver
    from shoal.model.job import Job
    from shoal.model.spec import JobSpec
    from shoal.runtime.calls import Calls
    from shoal.runtime.nearby import Nearby
    from shoal.runtime.network import Network
    from shoal.runtime.node import Node
    from shoal.runtime.reception import Reception

SHORT_SPEC_CHARS: Final = 4_096
SHORT_SPECS_KEPT: Final = 64
MANY: Final = re.compile(r'"(array|sweep|steps|nodes|recipe)"|\\')
"""What may stand for many tasks in a spec; a backslash could spell any of it."""

GROUPS_EXPLAINED_MAX: Final = 20
WATCH_PAUSE_S: Final = 0.05
"""Between two looks at a job that changes all the time, at least."""

WATCH_SHARE: Final = 0.02
"""Of its time a node looks at a job of many tasks, for each who watches it."""

MANY_TASKS: Final = 16
PEERS_TOLD_MAX: Final = 32


@audited
@final
class Service(CargoCalls):
    """One method for each call; `ShoalError` becomes the error of the call."""

    def __init__(
        self,
        node: Node,
        driver: ProcessDriver,
        network: Network,
        desk: Reception,
        *,
        stop: Callable[[float], None],
    ) -> None:
        """Answer for `node`; `stop` ends it, after so many seconds of grace."""
        super().__init__(node.cargo, node.owner)
        self._node = node
        self._driver = driver
        self._network = network
        self._links = network.links
        self._desk = desk
        desk.company.peers = self._dialable
        self._stop = stop
        self.methods = Methods(self)
        self.audit = Ledger(node)
        self._forwarding = Forwarding(node, network, self.methods)
        self._began = asyncio.get_running_loop().time()
        self.near: Nearby | None = None
        self.renew: Callable[[str], None] = _ignore  # Is told of a new token.
        self.api_address = ""
        self.far_address = ""
        self.web_address = ""
        self.web_print = ""
        self.web_port_was_taken = False

    @property
    def calls(self) -> Calls:
        """The calls of functions by clients of this node."""
        return self._node.relay.calls

    # Jobs.

    async def on_submit(self, request: pb.SubmitRequest) -> pb.SubmitReply:
        """Take a job in."""
        check_id(request.job_id)
        if _is_short(request):
            job = self._derived(request)  # Sooner done than handed to a thread.
        else:
            job = await asyncio.to_thread(self._derived, request)
        return await self._hand_in(job)

    async def on_retry(self, request: pb.RetryRequest) -> pb.SubmitReply:
        """Take a job in that was here before."""
        check_id(request.job_id)
        record = self._find(request.job)
        if self._node.state_of(record.job.id) == "active":
            raise ShoalError(
                f"job {record.job.id} has not ended",
                because="it would run twice at the same time",
                hint=f"`shoal cancel {record.job.id}` ends it",
            )
        done: set[TaskId] = set()
        if request.failed_only:
            states = (self._book.tasks[task.id] for task in record.job.tasks())
            done = {task.task.id for task in states if task.state == "done"}
        if len(done) == sum(1 for _ in record.job.tasks()):
            raise ShoalError(
                f"nothing of job {record.job.id} is left to do",
                because="all its tasks are done",
                hint=f"`shoal retry {record.job.id}` runs all of it again",
            )
        if needs_cargo(record.job):
            needed = await asyncio.to_thread(self._cargo.needed_by, record.job)
            self._belongings.note(callers.current(), needed)
        id_ = callers.current().id_for(request.job_id)
        return await self._hand_in(again(record.job, id_, done))

    async def _hand_in(self, job: Job) -> pb.SubmitReply:
        caller = callers.current()
        known = self._book.jobs.get(job.id)
        if known is not None and not _same(known, job):
            raise ShoalError(
                f"there is a job {job.id} already",
                because="it was submitted with another spec",
                hint="draw another id",
            )
        self._check_submitter()
        rights.check_secrets(job, caller)
        if needs_cargo(job):
            await self._check_cargo(job)
        answer = await self._node.clients.submit(job, caller.grant)
        if answer.refused:
            raise ShoalError(
                f"the job was not accepted: {answer.refused}",
                hint="`shoal show last` shows the last job that was",
            )
        view = views.job_view(self._node, self._book.jobs[job.id])
        return pb.SubmitReply(job=view, needs=str(totals(job)))

    def _check_submitter(self) -> None:
        own = self._node.membership
        rights.check_submitter(own, self._node.admit(self._node.id, own.grant))

    async def on_get(self, request: pb.GetRequest) -> pb.Job:
        """Return one job."""
        most = request.tasks_max or views.TASKS_SHOWN_MAX
        record = self._find(request.job)
        view = views.job_view(self._node, record, most)
        views.say_why(self._node, [(record, view)])
        return view

    async def on_list(self, request: pb.ListRequest) -> pb.ListReply:
        """Return the latest jobs."""
        records = self._visible()
        if request.active_only:
            records = self._active_of(records)
        records.sort(key=lambda record: record.wall_s)
        shown = records[-request.jobs_max :] if request.jobs_max > 0 else records
        if request.active_max > 0:
            older = self._active_of(records[: len(records) - len(shown)])
            shown = self._foremost(older, request.active_max) + shown
        jobs = [views.job_view(self._node, record) for record in shown]
        views.say_why(self._node, list(zip(shown, jobs, strict=True)))
        return pb.ListReply(jobs=jobs, total=len(records))

    def _active_of(self, records: list[JobRecord]) -> list[JobRecord]:
        return [r for r in records if self._node.state_of(r.job.id) == "active"]

    def _foremost(self, records: list[JobRecord], most: int) -> list[JobRecord]:
        """Return as many as that, in their order; those that run before others."""
        if len(records) > most:
            tasks = self._book.tasks
            waiting = {
                record.job.id
                for record in records
                if not any(tasks[task.id].live for task in record.job.tasks())
            }
            records = sorted(records, key=lambda record: record.job.id in waiting)
            records = sorted(records[:most], key=lambda record: record.wall_s)
        return records

    async def on_watch(self, request: pb.WatchRequest) -> AsyncIterator[pb.Job]:
        """Return a job whenever it changes, until it has ended."""
        record = self._find(request.job)
        last: pb.Job | None = None
        while True:
            has_ended = self._node.state_of(record.job.id) != "active"
            began = time.perf_counter()
            view = views.job_view(self._node, record)
            pause_s = (time.perf_counter() - began) / WATCH_SHARE
            if view != last:
                yield view  # The job may end meanwhile; that is told the next time.
                last = view
            if has_ended:
                return
            if self._node.state_of(record.job.id) != "active":
                continue
            await self._node.news.wait()
            with contextlib.suppress(TimeoutError):  # An end is told at once.
                async with asyncio.timeout(max(WATCH_PAUSE_S, pause_s)):
                    await self._node.end_of(record.job.id)

    async def on_logs(self, request: pb.LogsRequest) -> AsyncIterator[pb.LogPiece]:
        """Return what tasks wrote, and go on until the end if asked."""
        record = self._find(request.job)
        tasks = [task.task.id for task in self._tasks(record, request.task)]
        node = self._node
        reader = LogReader(
            node.outputs,
            tasks,
            stream=request.stream,
            all_attempts=request.all_attempts,
            last_bytes=max(0, request.last_bytes),
        )
        news = node.outputs.follow(*tasks)
        end = asyncio.ensure_future(node.end_of(record.job.id))
        end.add_done_callback(lambda _: news.set())
        try:
            while True:
                news.clear()
                is_last = end.done() or not request.follow
                while pieces := await asyncio.to_thread(reader.read):
                    for piece in pieces:
                        yield piece
                if is_last:
                    return
                await news.wait()
                if len(tasks) > MANY_TASKS:
                    await asyncio.sleep(WATCH_PAUSE_S)
        finally:
            node.outputs.unfollow(news)
            end.cancel()

    async def on_cancel(self, request: pb.CancelRequest) -> pb.CancelReply:
        """End a job."""
        record = self._find(request.job)
        had_ended = self._node.state_of(record.job.id) != "active"
        answer = await self._node.clients.cancel(record.job.id, request.reason)
        if answer.refused:
            raise NotFoundError(answer.refused)
        view = views.job_view(self._node, record)
        return pb.CancelReply(job=view, had_ended=had_ended)

    async def on_curves(self, request: pb.CurvesRequest) -> pb.CurvesReply:
        """Return the figures that tasks of a job told."""
        record = self._find(request.job)
        return views.curves_view(self._node, record, request.since_s)

    async def on_plan(self, request: pb.PlanRequest) -> pb.PlanReply:
        """Say where a job would go."""
        self._check_submitter()
        kind = request.WhichOneof("spec")
        spec = {kind: getattr(request, kind)} if kind else {}
        asked = pb.SubmitRequest(job_id="plan", **spec)
        job = await asyncio.to_thread(self._derived, asked)
        nodes = list((await self.on_nodes(pb.NodesRequest())).nodes)
        groups = planning.groups_of(self._node, job, nodes)
        return pb.PlanReply(
            groups=groups,
            more=len(job.groups) - len(groups),
            needs=str(totals(job)),
            fits_now=all(group.room >= group.least for group in groups),
        )

    async def on_events(self, request: pb.EventsRequest) -> AsyncIterator[pb.Event]:
        """Return what happens."""
        happenings, caller = self._node.happenings, callers.current()
        async for each in happenings.follow(request.latest, on=request.follow):
            if caller.owner is not None and not self._concerns(caller, each.job):
                continue
            yield pb.Event(
                number=each.number,
                at_s=each.at_s,
                what=each.what,
                text=each.text,
                job=each.job,
                task=each.task,
                node=views.name_of(each.node) if each.node else None,
            )

    def _concerns(self, caller: Caller, job: str) -> bool:
        record = self._book.jobs.get(JobId(job))
        return record is not None and caller.sees(record)

    async def on_metrics(self, request: pb.MetricsRequest) -> pb.MetricsReply:
        """Return figures of this node."""
        del request
        return pb.MetricsReply(text=self.metrics_text())

    def metrics_text(self) -> str:
        """Return figures of this node, as Prometheus reads them."""
        api = {f"api {key}": n for key, n in self._node.api_calls.counts.items()}
        return metrics.text_of(self._node, {**self._network.counts, **api})

    async def on_explain(self, request: pb.ExplainRequest) -> pb.ExplainReply:
        """Say why tasks are where they are."""
        record = self._find(request.job)
        if request.task:
            tasks = self._tasks(record, request.task)
        else:
            tasks = views.lagging(self._book, record)
        found = [
            views.explanation_view(said, task.task)
            for task in tasks[:GROUPS_EXPLAINED_MAX]
            if (said := self._scheduler.explain(task.task.id)) is not None
        ]
        for view in found:
            if moving := self._node.outputs.moving(TaskId(view.task)):
                view.why.insert(0, moving)
        more = max(0, len(tasks) - GROUPS_EXPLAINED_MAX)
        return pb.ExplainReply(job_id=record.job.id, tasks=found, more=more)

    async def on_calls(
        self, requests: AsyncIterator[pb.CallsRequest]
    ) -> AsyncIterator[pb.CallsReply]:
        """Call functions until the client has gone."""
        async for reply in calls.serve(self.calls, requests, callers.current()):
            yield reply

    # Other nodes of the same owner.

    async def on_list_everywhere(
        self, request: pb.ListEverywhereRequest
    ) -> pb.ListEverywhereReply:
        """Return the jobs of all nodes of this owner."""
        return await self._forwarding.jobs_everywhere(request)

    async def on_forward(
        self, request: pb.ForwardRequest
    ) -> AsyncIterator[pb.ForwardReply]:
        """Call another node."""
        async with aclosing(self._forwarding.call(request)) as replies:
            async for reply in replies:
                yield reply

    # The node.

    async def on_nodes(self, request: pb.NodesRequest) -> pb.NodesReply:
        """Return all known nodes."""
        del request
        nodes = views.nodes_view(self._node, self._links)
        return pb.NodesReply(nodes=nodes, warnings=self._cautions())

    async def on_ping(self, request: pb.PingRequest) -> pb.PingReply:
        """Measure the way to a node."""
        return await pinging.answer(self._node.id, self._links, request)

    async def on_info(self, request: pb.InfoRequest) -> pb.NodeInfo:
        """Return what this node is."""
        del request
        node, jobs = self._node, self._visible()
        return pb.NodeInfo(
            name=views.name_of(node.id),
            version=shoal.__version__,
            pid=os.getpid(),
            shoal=node.membership.shoal,
            roles=[r for r in node.settings.roles if r in node.membership.grant.roles],
            addresses=self._links.addresses,
            api_address=self.api_address,
            home=str(node.home.path) if callers.current().is_own else "",
            up_s=asyncio.get_running_loop().time() - self._began,
            policy=node.settings.policy,
            node=views.self_view(node),
            not_isolated=self._driver.not_isolated,
            sandboxed=self._driver.sandboxed,
            jobs=len(jobs),
            active_jobs=self._active(),
            network=views.network_view(self._network),
            far_address=self.far_address,
            strangers=node.settings.rules.strangers,
            task_network=node.settings.rules.task_network,
            web_address=self.web_address,
            web_print=self.web_print,
            web_port_was_taken=self.web_port_was_taken,
            warnings=self._cautions(),
        )

    def _cautions(self) -> list[str]:
        if not callers.current().is_own:
            return []
        return cautions(self._node, self._links.addresses)

    async def on_invite(self, request: pb.InviteRequest) -> pb.InviteReply:
        """Let somebody join."""
        if request.role not in ROLES:
            raise UsageError(
                f"'{request.role}' is no role",
                because=f"the roles are {', '.join(ROLES)}",
                hint="write it like --role worker",
            )
        self._network.expect_company()
        addresses = self._network.doors
        text = self._desk.invite(
            _terms(request, self._node.owner),
            uses=request.uses,
            ttl_s=request.ttl_s,
            addresses=addresses,
        )
        return pb.InviteReply(
            text=text,
            shoal=self._node.membership.shoal,
            addresses=addresses,
            only_here=only_here(addresses),
        )

    async def on_requests(self, request: pb.RequestsRequest) -> pb.RequestsReply:
        """Say who asks to be let in."""
        return views.requests_view(self._node, self._desk, self.near)

    async def on_accept(self, request: pb.AcceptRequest) -> pb.AcceptReply:
        """Let somebody in, or not; or agree to be let in."""
        if self.near is None:
            raise NotFoundError("nobody asks", because="the node is starting")
        owner = self._node.owner if request.mine else None
        accepted = not request.decline
        node = self.near.decide(
            request.node, request.code, accepted=accepted, owner=owner
        )
        return pb.AcceptReply(node=views.name_of(node))

    async def on_revoke(self, request: pb.RevokeRequest) -> pb.RevokeReply:
        """Void the grants of a node."""
        node = self._find_node(request.node)
        await revoke(self._node, self._desk.granting, node)
        return pb.RevokeReply(node=views.name_of(node))

    async def on_drain(self, request: pb.DrainRequest) -> pb.DrainReply:
        """Take no new work."""
        self._node.drain(request.grace_s)
        return pb.DrainReply()

    async def on_shutdown(self, request: pb.ShutdownRequest) -> pb.ShutdownReply:
        """End this node soon."""
        self._stop(request.grace_s)
        return pb.ShutdownReply(
            tasks=len(self._node.tasks), active_jobs=self._active(), pid=os.getpid()
        )

    async def on_rotate_token(
        self, request: pb.RotateTokenRequest
    ) -> pb.RotateTokenReply:
        """Make a new token."""
        del request
        self.renew(await asyncio.to_thread(tokens.rotate, self._node.home))
        path = whereabouts.token_file(self._node.home)
        return pb.RotateTokenReply(path=str(path) if callers.current().is_own else "")

    # Finding things.

    @property
    def _scheduler(self) -> Scheduler:
        assert self._node.peer.scheduler is not None
        return self._node.peer.scheduler

    @property
    def _book(self) -> JobBook:
        return self._scheduler.book

    def _active(self) -> int:
        states = (self._node.state_of(record.job.id) for record in self._visible())
        return sum(state == "active" for state in states)

    def _derived(self, request: pb.SubmitRequest) -> Job:
        if _is_short(request):
            spec = _short_spec(request.json)
        elif request.WhichOneof("spec") == "json":
            spec = load_spec(request.json, "json")
        else:
            spec = load_spec(request.yaml, "yaml")
        caller = callers.current()
        owner = self._node.owner if caller.owner is None else caller.owner
        id_ = caller.id_for(request.job_id)
        job = derive(spec, id_, owner, is_canonical=True)
        known_names.check(job)
        return job

    def _visible(self) -> list[JobRecord]:
        """Return the jobs that whoever calls may know of."""
        return callers.current().visible(self._book.jobs.values())

    def _find(self, selector: str) -> JobRecord:
        exact = self._book.jobs.get(JobId(selector))
        if exact is not None and callers.current().sees(exact):
            return exact
        return job_called(selector, self._visible())

    def _find_node(self, selector: str) -> NodeId:
        if selector in (self._node.id, petname(self._node.id)):
            raise UsageError(
                "a node cannot revoke itself",
                because="it would lose its own shoal",
                hint="`shoal down` ends it",
            )
        return node_called(selector, known_nodes(self._node, self._network))

    def _dialable(self) -> tuple[PeerAddress, ...]:
        """Return this node, and members that a newcomer could reach as well."""
        itself = PeerAddress(self._node.id, self._links.addresses[:ADDRESSES_MAX])
        others = self._network.acquaintances
        found = [PeerAddress(node, at) for node, at in others if node != self._node.id]
        return (itself, *found[:PEERS_TOLD_MAX])

    def _tasks(self, record: JobRecord, selector: str) -> list[TaskRecord]:
        return tasks_called(selector, record, self._book)


@functools.lru_cache(SHORT_SPECS_KEPT)
def _short_spec(text: str) -> JobSpec:
    """Return the spec in a text; programs often submit the same one again."""
    return load_spec(text, "json")


def _is_short(request: pb.SubmitRequest) -> bool:
    """Whether a spec is small, and names nothing that makes many tasks of it."""
    text = request.json
    return 0 < len(text) <= SHORT_SPEC_CHARS and not MANY.search(text)


def _same(known: JobRecord, job: Job) -> bool:
    """Whether two jobs are one: one of them was cut to what is allowed."""
    quota = Quota(known.quota_gpus, known.quota_cpu_milli)
    cut = msgspec.structs.replace(job, priority=known.job.priority)
    return known.job == narrowed_job(cut, quota)


def _ignore(token: str) -> None:
    """Be told of a token before anybody serves."""


def _terms(request: pb.InviteRequest, own: OwnerId) -> Terms:
    """Return what an invitation grants, of a node of this owner."""
    gpus = request.quota_gpus if request.HasField("quota_gpus") else None
    cpu = request.quota_cpu_milli if request.HasField("quota_cpu_milli") else None
    owner = request.owner
    named = is_name(owner) and len(owner) <= NAME_LENGTH_MAX
    if (gpus or 0) < 0 or (cpu or 0) < 0 or not named:
        raise UsageError(
            "that is no quota",
            because="amounts are 0 or more, and names of owners short",
            hint="write it like --quota gpus=4,cpus=8 --owner alice",
        )
    return Terms(
        roles=ROLES[request.role],
        owner=own if request.mine else OwnerId(request.owner),
        quota_gpus=gpus,
        quota_cpu_milli=cpu,
    )
