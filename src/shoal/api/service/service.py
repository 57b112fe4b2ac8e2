"""The service: answers each call of a node's API.

Every server (gRPC, local socket, web page, forwarded calls) ends up in the `on_...`
methods here. They read the node's state on the event loop, where nothing else changes
it meanwhile; slow work (specs of many tasks, files) runs in a thread. `callers.current`
is the authorised caller, which limits what a method shows. `audited` records calls.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import re
import time
from contextlib import aclosing
from itertools import islice
from typing import TYPE_CHECKING, Final, final

import msgspec

import shoal
from shoal.api import node_file
from shoal.api import shoal_pb2 as pb
from shoal.api.allocation.allocation_calls import AllocationCalls
from shoal.api.methods import Methods
from shoal.api.selectors import (
    check_id,
    done_of,
    job_called,
    known_nodes,
    moved,
    node_called,
    some_tasks,
    tasks_called,
)
from shoal.api.server import rights, tokens
from shoal.api.service import callers, function_calls, job_checks, job_filters, views
from shoal.api.service.artifact_calls import ArtifactCalls
from shoal.api.service.audited import CallAudit, audited
from shoal.api.service.forward import Forwarder
from shoal.api.service.inspection import Inspector
from shoal.api.service.log_reader import LogReader
from shoal.api.service.network_words import network_words
from shoal.api.service.task_channels import TaskChannels
from shoal.api.service.usage_view import usage_view
from shoal.core.admission.invitation_book import InvitationTerms
from shoal.core.housekeeping.past_needs import without_past
from shoal.core.membership.quotas import Quota, narrowed_job
from shoal.errors import MovedError, NotFoundError, ShoalError, UsageError
from shoal.model.derive import again, derive, renamed
from shoal.model.ids import JobId, NodeId, OwnerId, TaskId
from shoal.model.job_notes import notes
from shoal.model.spec.schedules import next_after
from shoal.model.spec.submission import load_spec
from shoal.model.text.bounds import NAME_LENGTH_MAX
from shoal.model.text.grammar import is_name
from shoal.model.totals import totals
from shoal.net.identity.identity import public_key
from shoal.net.identity.petname import petname
from shoal.runtime.artifacts.artifacts import needs_artifacts
from shoal.runtime.discovery.listen_addresses import only_here
from shoal.runtime.membership.grant_signing import ROLES
from shoal.runtime.membership.revocation import revoke
from shoal.runtime.monitoring.node_warnings import cautions
from shoal.runtime.wall_clock import zone_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable

    from shoal.api.server.tokens import LiveToken
    from shoal.api.service.callers import Caller
    from shoal.core.records.records import JobRecord, TaskRecord
    from shoal.core.scheduling.job_book import JobBook
    from shoal.core.scheduling.scheduler import Scheduler
    from shoal.drivers.process import ProcessDriver
    from shoal.model.job import Job
    from shoal.runtime.admission.admission_desk import AdmissionDesk
    from shoal.runtime.admission.local_network import LocalNetwork
    from shoal.runtime.calls.sessions import CallSessions
    from shoal.runtime.channels.channel_ends import ChannelEnds
    from shoal.runtime.discovery.node_network import NodeNetwork
    from shoal.runtime.node import Node

SHORT_SPEC_CHARS: Final = 4_096
SHORT_SPECS_KEPT: Final = 64
MANY: Final = re.compile(r'"(array|sweep|steps|nodes|recipe)"|\\')
"""Keys that may expand to many tasks; a backslash could escape any of them."""

GROUPS_EXPLAINED_MAX: Final = 20
WATCH_PAUSE_S: Final = 0.05
"""Minimum time between two updates of a watched job."""

START_LOOK_S: Final = 0.25
"""How often a watch looks whether a task that was sent to its worker has begun."""

WATCH_SHARE: Final = 0.02
"""Share of time that a node may spend on one watch of a job."""

MANY_TASKS: Final = 16
PING_S: Final = 5.0
PING_MAX_S: Final = 15.0
PING_LOOK_S: Final = 0.02


class ApiPlaces(msgspec.Struct):
    """Addresses of a node's servers; each is empty until its server is open."""

    api: str = ""
    far: str = ""
    web: str = ""
    web_print: str = ""  # certificate fingerprint of the page
    web_port_was_taken: bool = False


@audited
@final
class Service(ArtifactCalls, AllocationCalls):
    """Answers API calls, one method each; a `ShoalError` becomes the call's error."""

    def __init__(
        self,
        node: Node,
        driver: ProcessDriver,
        network: NodeNetwork,
        desk: AdmissionDesk,
        near: LocalNetwork,
        token: LiveToken,
        places: ApiPlaces,
        *,
        stop: Callable[[float], None],
    ) -> None:
        """Serve `node`; `stop` ends it after a grace period in seconds.

        `places` is filled in as the node's servers open.
        """
        super().__init__(node.artifacts, node.owner)
        self._node = node
        self._driver = driver
        self._network = network
        self._links = network.links
        self._desk = desk
        self._stop = stop
        self.methods = Methods(self, self._follow, self._seek)
        self.audit = CallAudit(node)
        self._forwarding = Forwarder(node, network, self.methods)
        self._inspector = Inspector(node, network, self._forwarding, self._cautions)
        self._channels = TaskChannels(node, self._tasks_of, self._forwarding.reach)
        self._began = asyncio.get_running_loop().time()
        self._near = near
        self._places = places
        self._token = token

    @property
    def channels(self) -> ChannelEnds:
        """The ends of channels at this node."""
        return self._node.channels

    @property
    def calls(self) -> CallSessions:
        """The sessions of clients that call functions."""
        return self._node.calls

    # Jobs.

    async def on_submit(self, request: pb.SubmitRequest) -> pb.SubmitReply:
        """Accept a new job."""
        check_id(request.job_id)
        if _is_short(request):
            job = self._derived(request)  # Faster than a thread.
        else:
            job = await asyncio.to_thread(self._derived, request)
        job = self._node.past_needs.fill(job)
        detached = request.detached
        return await self._hand_in(self._with_node_ids(job), detached=detached)

    async def on_retry(self, request: pb.RetryRequest) -> pb.SubmitReply:
        """Run an ended job again, or only its unfinished tasks, as a new job.

        A schedule is run at once, besides its own times.
        """
        check_id(request.job_id)
        record = self._find(request.job)
        is_schedule = record.job.schedule is not None
        if self._node.state_of(record.job.id) == "active" and not is_schedule:
            raise ShoalError(
                f"job {record.job.id} has not ended",
                because="it would run twice at the same time",
                hint=f"`shoal cancel {record.job.id}` ends it",
            )
        job_checks.refuse_to_repeat_input(record.job)
        done: set[TaskId] = set()
        if request.failed_only:
            done = done_of(self._book, record.job)
        if len(done) == sum(len(group.tasks) for group in record.job.groups):
            raise ShoalError(
                f"nothing of job {record.job.id} is left to do",
                because="all its tasks are done",
                hint=f"`shoal retry {record.job.id}` runs all of it again",
            )
        id_ = callers.current().id_for(request.job_id)
        outputs = self._artifacts.outputs_of(record) if done else {}
        outputs = {task: tree for task, tree in outputs.items() if task in done}
        job = again(record.job, id_, done, outputs)
        if needs_artifacts(job):
            needed = await asyncio.to_thread(self._artifacts.needed_by, job)
            self._belongings.note(callers.current(), needed)
        return await self._hand_in(job)

    async def _hand_in(self, job: Job, *, detached: bool = False) -> pb.SubmitReply:
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
        rights.check_on_end(job, caller)
        if needs_artifacts(job):
            await self._check_artifacts(job)
        by = caller.submitter
        answer = await self._node.clients.submit(job, by, detached=detached)
        if answer.refused:
            raise job_checks.not_accepted(answer.refused)
        view = views.job_view(self._node, self._book.jobs[job.id])
        told = [*notes(job), *self._scheduler.hopeless(job)]
        return pb.SubmitReply(job=view, needs=str(totals(job)), notes=told)

    def _check_submitter(self) -> None:
        own = self._node.membership
        rights.check_submitter(own, self._node.admit(self._node.id, own.grant))

    async def on_get(self, request: pb.GetRequest) -> pb.Job:
        """Return a job and some of its tasks."""
        most = request.tasks_max or views.TASKS_SHOWN_MAX
        record = self._find(request.job)
        states = views.states_of(request.task_states)
        first = max(0, request.tasks_from)
        tasks = some_tasks(self._book, record.job, states, first, most)
        await self._node.outputs.metrics.catch_up(task.task.id for task in tasks)
        view = views.job_view(self._node, record)
        view.tasks.extend(views.task_view(self._node, task) for task in tasks)
        views.add_steps(self._book, record, view)
        views.say_why(self._node, [(record, view)])
        return view

    async def on_list(self, request: pb.ListRequest) -> pb.ListReply:
        """Return the newest jobs, and some older active ones if asked."""
        records = job_filters.kept(self._node, self._visible(), request)
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
        """Return at most `most` jobs by age, preferring those that run."""
        if len(records) > most:
            groups = self._book.groups
            waiting = {
                record.job.id
                for record in records
                if not any(groups[group.id].live for group in record.job.groups)
            }
            records = sorted(records, key=lambda record: record.job.id in waiting)
            records = sorted(records[:most], key=lambda record: record.wall_s)
        return records

    async def on_watch(self, request: pb.WatchRequest) -> AsyncIterator[pb.Job]:
        """Yield a job whenever it changes, until it ends."""
        record = self._find(request.job)
        last: pb.Job | None = None
        while True:
            has_ended = self._node.state_of(record.job.id) != "active"
            began = time.perf_counter()
            view = views.job_view(self._node, record)
            pause_s = (time.perf_counter() - began) / WATCH_SHARE
            if view != last:
                yield view  # If the job ends here, the next round shows it.
                last = view
            if has_ended:
                return
            if self._node.state_of(record.job.id) != "active":
                continue
            # What changes a job is journalled and so is news, but for starts of tasks.
            look_s = START_LOOK_S if self._awaits_start(record) else None
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(look_s):
                    await self._node.news.wait()
            with contextlib.suppress(TimeoutError):  # Do not delay the end.
                async with asyncio.timeout(max(WATCH_PAUSE_S, pause_s)):
                    await self._node.end_of(record.job.id)

    def _awaits_start(self, record: JobRecord) -> bool:
        groups = [self._book.groups[group.id] for group in record.job.groups]
        running = [group for group in groups if group.live]
        if len(self._book.runs) < sum(len(group.group.tasks) for group in running):
            ours = {group.group.id for group in running}  # Few run of a large array.
            runs, group_of = self._book.runs.values(), self._book.group_of
            live = [run for run in runs if group_of(run.task).group.id in ours]
        else:
            live = [run for group in running for run in self._book.live_in(group)]
        return any(not run.has_begun for run in live)

    async def on_logs(self, request: pb.LogsRequest) -> AsyncIterator[pb.LogPiece]:
        """Yield the output of tasks; with `follow`, until the job ends."""
        record = self._find(request.job)
        tasks = [task.task.id for task in self._tasks(record, request.task)]
        node = self._node
        reader = LogReader(
            node.outputs,
            tasks,
            stream=request.stream,
            all_attempts=request.all_attempts,
            last_bytes=max(0, request.last_bytes),
            last_lines=max(0, request.last_lines),
            since_s=request.since_s,
            times=request.times,
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
        """Cancel a job, or one task of it."""
        record = self._find(request.job)
        job = record.job.id
        tasks = self._tasks(record, request.task) if request.task else []
        ended = all(task.ended for task in tasks)
        if not tasks:
            ended = self._node.state_of(job) != "active"
        for only in tuple(each.task.id for each in tasks) or (None,):
            answer = await self._node.clients.cancel(job, request.reason, only)
            if answer.refused:
                raise NotFoundError(answer.refused)
        view = views.job_view(self._node, record)
        return pb.CancelReply(job=view, had_ended=ended)

    async def on_remove(self, request: pb.RemoveRequest) -> pb.RemoveReply:
        """Forget an ended job."""
        record = self._find(request.job)
        if self._node.state_of(id_ := record.job.id) == "active":
            raise ShoalError(
                f"job {id_} has not ended",
                because="only ended jobs are removed",
                hint=f"`shoal cancel {id_}` ends it; then remove it",
            )
        view = views.job_view(self._node, record)
        answer = await self._node.clients.remove(id_)
        if answer.refused:
            raise NotFoundError(answer.refused)
        return pb.RemoveReply(job=view)

    async def on_usage(self, request: pb.UsageRequest) -> pb.UsageReply:
        """Return what was used by jobs of this node, and what it lent."""
        return pb.UsageReply(rows=usage_view(self._node, request))

    async def on_curves(self, request: pb.CurvesRequest) -> pb.CurvesReply:
        """Return metrics that a job's tasks reported over time."""
        record = self._find(request.job)
        tasks = (t.id for t in islice(record.job.tasks(), views.CURVES_TASKS_MAX))
        await self._node.outputs.metrics.catch_up(tasks)
        return views.curves_view(self._node, record, request.since_s)

    async def on_plan(self, request: pb.PlanRequest) -> pb.PlanReply:
        """Return where a job would be placed, without submitting it."""
        self._check_submitter()
        kind = request.WhichOneof("spec")
        spec = {kind: getattr(request, kind)} if kind else {}
        asked = pb.SubmitRequest(job_id="plan", **spec)
        job = await asyncio.to_thread(self._derived, asked)
        job = self._with_node_ids(self._node.past_needs.fill(job))
        nodes = views.nodes_view(self._node, self._links)
        groups = views.plan_view(self._node, job, nodes)
        return pb.PlanReply(
            groups=groups,
            more=len(job.groups) - len(groups),
            needs=str(totals(job)),
            fits_now=all(map(views.begins_in_time, groups)),
            schedule=self._first_run(job),
        )

    def _first_run(self, job: Job) -> pb.Schedule | None:
        """Return when a schedule would first run; refuse what never could."""
        if job.schedule is None:
            return None
        now = asyncio.get_running_loop().time()
        if why := self._scheduler.schedules.refusal(job, now):
            raise job_checks.not_accepted(why)
        zone = zone_of(job.schedule.timezone)
        assert zone is not None
        first_s = next_after(job.schedule, time.time(), zone)
        return views.schedule_view(job.schedule, first_s)

    async def on_events(self, request: pb.EventsRequest) -> AsyncIterator[pb.Event]:
        """Yield events that the caller may see."""
        event_log, caller = self._node.event_log, callers.current()
        async for each in event_log.follow(request.latest, on=request.follow):
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
        """Return the metrics of this node."""
        del request
        return pb.MetricsReply(text=self.metrics_text().decode())

    def metrics_text(self) -> bytes:
        """Return the metrics of this node in the Prometheus text format."""
        from shoal.api.server import metrics  # noqa: PLC0415 - Slow, rarely needed.

        api = {f"api {key}": n for key, n in self._forwarding.counts.items()}
        return metrics.text_of(self._node, {**self._network.counts, **api})

    async def on_explain(self, request: pb.ExplainRequest) -> pb.ExplainReply:
        """Return why tasks wait, or run where they do."""
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
            moving = self._node.outputs.moving(TaskId(view.task))
            if moving and view.state == pb.STATE_RUNNING:
                view.why.insert(0, moving)
            if view.state == pb.STATE_RUNNING:
                view.why.extend(self._network_of(TaskId(view.task)))
            if view.state == pb.STATE_WAITING:
                views.say_away(view, self._node, record.job)
            if made := self._node.outputs.made(TaskId(view.task)):
                view.why.append(made)
        more = max(0, len(tasks) - GROUPS_EXPLAINED_MAX)
        return pb.ExplainReply(job_id=record.job.id, tasks=found, more=more)

    def _network_of(self, task: TaskId) -> list[str]:
        """Say what is between the nodes of a gang that runs."""
        group = self._book.group_of(task)
        if not group.is_gang:
            return []
        records = (self._book.tasks[each.id] for each in group.group.tasks)
        live = (run.worker for record in records for run in record.live.values())
        return network_words(self._node, list(live))

    async def on_calls(
        self, requests: AsyncIterator[pb.CallsRequest]
    ) -> AsyncIterator[pb.CallsReply]:
        """Serve function calls until the client disconnects."""
        async for reply in function_calls.serve(
            self.calls, requests, callers.current()
        ):
            yield reply

    async def on_channel(
        self, requests: AsyncIterator[pb.ChannelRequest]
    ) -> AsyncIterator[pb.ChannelReply]:
        """Serve a channel to a task until it ends, or the client disconnects."""
        async with aclosing(self._channels.serve(requests)) as replies:
            async for reply in replies:
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
        """Forward a call to another node of the same owner."""
        async with aclosing(self._forwarding.call(request)) as replies:
            async for reply in replies:
                yield reply

    # The node.

    async def on_nodes(self, request: pb.NodesRequest) -> pb.NodesReply:
        """Return all known nodes."""
        del request
        nodes = await self._inspector.nodes()
        return pb.NodesReply(nodes=nodes, warnings=self._cautions())

    async def on_inspect(self, request: pb.InspectRequest) -> pb.InspectReply:
        """Return one node, and what its machine does."""
        return await self._inspector.inspect(request)

    async def on_forget(self, request: pb.ForgetRequest) -> pb.ForgetReply:
        """Take a node that is away off the list."""
        return self._inspector.forget(request)

    async def on_ping(self, request: pb.PingRequest) -> pb.PingReply:
        """Measure the round trip to a node, over the link that carries all traffic.

        On timeout, the reply has the trouble and no round trip.
        """
        peer, links = NodeId(request.node), self._links
        public_key(peer)  # Raises if it is not a node id.
        reply = pb.PingReply(node=views.name_of(peer), path="self", rtt_s=0.0)
        if peer == self._node.id:
            return reply
        reply.ClearField("rtt_s")
        try:
            async with asyncio.timeout(min(request.timeout_s or PING_S, PING_MAX_S)):
                links.reach(peer)
                while not links.path(peer):  # noqa: ASYNC110 - No event per peer.
                    await asyncio.sleep(PING_LOOK_S)
                reply.rtt_s = await links.ping(peer)
        except TimeoutError:
            reply.trouble = links.trouble(peer)
        reply.path = links.path(peer)
        return reply

    async def on_info(self, request: pb.InfoRequest) -> pb.NodeInfo:
        """Return identity, addresses and state of this node."""
        del request
        node, jobs = self._node, self._visible()
        return pb.NodeInfo(
            name=views.name_of(node.id),
            version=shoal.__version__,
            pid=os.getpid(),
            shoal=node.membership.shoal,
            roles=[r for r in node.settings.roles if r in node.membership.grant.roles],
            addresses=self._links.addresses,
            api_address=self._places.api,
            home=str(node.home.path) if callers.current().is_own else "",
            up_s=asyncio.get_running_loop().time() - self._began,
            policy=node.settings.policy,
            node=views.self_view(node),
            not_isolated=self._driver.not_isolated,
            sandboxed=self._driver.sandboxed,
            jobs=len(jobs),
            active_jobs=self._active(),
            network=views.network_view(self._network),
            far_address=self._places.far,
            strangers=node.settings.rules.strangers,
            task_network=node.settings.rules.task_network,
            web_address=self._places.web,
            web_print=self._places.web_print,
            web_port_was_taken=self._places.web_port_was_taken,
            warnings=self._cautions(),
        )

    def _cautions(self) -> list[str]:
        if not callers.current().is_own:
            return []
        return cautions(self._node, self._links.addresses)

    async def on_invite(self, request: pb.InviteRequest) -> pb.InviteReply:
        """Create an invitation to join the shoal."""
        if request.role not in ROLES:
            raise UsageError(
                f"'{request.role}' is no role",
                because=f"the roles are {', '.join(ROLES)}",
                hint="write it like --role worker",
            )
        self._network.expect_company()
        addresses = self._network.doors
        text = await self._desk.invite(
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
        """Return pending requests to join."""
        return views.requests_view(self._node, self._desk, self._near)

    async def on_accept(self, request: pb.AcceptRequest) -> pb.AcceptReply:
        """Accept or decline a request to join, incoming or this node's own."""
        owner = self._node.owner if request.mine else None
        node = self._near.decide(
            request.node, request.code, accepted=not request.decline, owner=owner
        )
        return pb.AcceptReply(node=views.name_of(node))

    async def on_revoke(self, request: pb.RevokeRequest) -> pb.RevokeReply:
        """Revoke the grants of a node."""
        node = self._find_node(request.node)
        await revoke(self._node, self._node.granting, node)
        return pb.RevokeReply(node=views.name_of(node))

    async def on_drain(self, request: pb.DrainRequest) -> pb.DrainReply:
        """Take no new work, or take it again."""
        node = self._node
        if node.peer.worker is None:
            raise UsageError(
                f"{petname(node.id)} lends nothing",
                because="it was started with --no-worker",
                hint="`shoal nodes` lists the nodes that lend something",
            )
        if request.undo:
            node.end_drain()
        else:
            has_limit = request.HasField("grace_s")
            grace_s = max(0.0, request.grace_s) if has_limit else None
            node.drain(grace_s, lasts=True)
        return pb.DrainReply(node=views.name_of(node.id), tasks=len(node.tasks))

    async def on_shutdown(self, request: pb.ShutdownRequest) -> pb.ShutdownReply:
        """Stop this node after a grace period."""
        left = await self._node.leave(request.leaves_because)
        self._stop(request.grace_s)
        counts = {"tasks": len(self._node.tasks), "active_jobs": self._active()}
        return pb.ShutdownReply(**counts, pid=os.getpid(), cancelled=left)

    async def on_rotate_token(
        self, request: pb.RotateTokenRequest
    ) -> pb.RotateTokenReply:
        """Replace the token of this node."""
        del request
        self._token.renew(await asyncio.to_thread(tokens.rotate, self._node.home))
        path = node_file.token_file(self._node.home)
        return pb.RotateTokenReply(path=str(path) if callers.current().is_own else "")

    # Lookups.

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
        caller = callers.current()
        owner = self._node.owner if caller.owner is None else caller.owner
        id_ = caller.id_for(request.job_id)
        if _is_short(request):
            job = renamed(_short_job(request.json, owner), id_)
        else:
            is_json = request.WhichOneof("spec") == "json"
            text = request.json if is_json else request.yaml
            spec = load_spec(text, "json" if is_json else "yaml")
            job = derive(spec, id_, owner, is_canonical=True)
        job_checks.check(job)
        return job

    def _with_node_ids(self, job: Job) -> Job:
        """Return a job with the ids of the nodes that it names."""
        if not job.nodes:
            return job
        away = (each for each, _ in self._node.seen.away())
        near = known_nodes(self._node, self._network)
        known = dict.fromkeys([self._node.id, *near, *away])
        found = (node_called(name, known) for name in job.nodes)
        return msgspec.structs.replace(job, nodes=tuple(sorted(set(found))))

    def _visible(self) -> list[JobRecord]:
        """Return the jobs that the caller may see."""
        return callers.current().visible(self._book.jobs.values())

    def _find(self, selector: str) -> JobRecord:
        exact = self._book.jobs.get(JobId(selector))
        if exact is not None and callers.current().sees(exact):
            return exact
        try:
            return job_called(selector, self._visible())
        except NotFoundError as error:
            raise self._moved(selector) or error from None

    async def _follow(
        self, node: str, method: str, request: bytes
    ) -> AsyncGenerator[bytes]:
        """Ask the node that a job was forwarded to."""
        async with aclosing(self._forwarding.ask(node, method, request)) as found:
            async for data in found:
                yield data

    def _moved(self, selector: str) -> NotFoundError | None:
        """Say where a job is that this node keeps, or let go; None if it does not."""
        scheduler, caller = self._node.scheduler, callers.current()
        at = scheduler and scheduler.succession.whereabouts(JobId(selector))
        if not scheduler or not at or caller.owner not in (None, self._node.owner):
            return None
        here = caller.way != "link"  # A node asks no third one for another.
        forwarded = here and scheduler.succession.was_forwarded(JobId(selector))
        why = "schedules it; this node keeps it, or did"
        return moved(selector, at, why, forwarded=forwarded)

    async def _seek(self, job: str) -> MovedError | None:
        return await self._forwarding.seek(job)

    def _find_node(self, selector: str) -> NodeId:
        if selector in (self._node.id, petname(self._node.id)):
            raise UsageError(
                "a node cannot revoke itself",
                because="it would lose its own shoal",
                hint="`shoal down` ends it",
            )
        return node_called(selector, known_nodes(self._node, self._network))

    def _tasks_of(self, job: str, task: str) -> tuple[JobRecord, list[TaskRecord]]:
        record = self._find(job)
        return record, self._tasks(record, task)

    def _tasks(self, record: JobRecord, selector: str) -> list[TaskRecord]:
        return tasks_called(selector, record, self._book)


@functools.lru_cache(SHORT_SPECS_KEPT)
def _short_job(text: str, owner: OwnerId) -> Job:
    """Derive a job of a short spec; cached, as programs often submit the same again."""
    return derive(load_spec(text, "json"), JobId("same"), owner, is_canonical=True)


def _is_short(request: pb.SubmitRequest) -> bool:
    """Return whether a spec is small and cannot expand to many tasks."""
    text = request.json
    return 0 < len(text) <= SHORT_SPEC_CHARS and not MANY.search(text)


def _same(known: JobRecord, job: Job) -> bool:
    """Return whether a job equals a known one, which was cut to its quota."""
    quota = Quota(known.quota_gpus, known.quota_cpu_milli)
    cut = msgspec.structs.replace(job, priority=known.job.priority)
    # More may have been seen of such work since then.
    return without_past(known.job) == without_past(narrowed_job(cut, quota))


def _terms(request: pb.InviteRequest, own: OwnerId) -> InvitationTerms:
    """Return the terms of an invitation by a node that `own` owns."""
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
    return InvitationTerms(
        roles=ROLES[request.role],
        owner=own if request.mine else OwnerId(request.owner),
        quota_gpus=gpus,
        quota_cpu_milli=cpu,
    )
