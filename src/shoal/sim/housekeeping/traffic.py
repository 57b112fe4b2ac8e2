"""Simulate users who keep house: they remove jobs, drain workers, and are called.

Some worlds have jobs that name a command for their end. Its calls fail at times, and
take a while, so that crashes come between them and their entry. Users remove jobs, also
such as have not ended, and let workers drain for a while, across restarts. Schedulers
keep only a few ended jobs; at the very end their clocks jump by a day, so that the rule
counts. The promises are in `promises`.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any, Final, final

import msgspec

from shoal.core.events import DrainEnded, DrainRequested
from shoal.core.housekeeping.events import (
    CallEnd,
    DropJob,
    EndCallEnded,
    RemovalRequested,
)
from shoal.core.housekeeping.retention import KeepRule
from shoal.model.ids import JobId, NodeId
from shoal.model.job import OnEnd

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from shoal.sim.checkers.suite import Suite
    from shoal.sim.node.host import NodeSpec, SimHost
    from shoal.sim.workload import Errand, Workload
    from shoal.sim.world import World

WORLDS_SHARE: Final = 0.2  # share of worlds in which somebody keeps house
CALLED_SHARE: Final = 0.6  # share of their jobs that name a command for their end
FAILED_SHARE: Final = 0.3  # share of calls that fail
CALL_MAX_S: Final = 3.0
REMOVED_SHARE: Final = 0.4
SUBMITTED_S: Final = 6.0  # after this nobody submits the job a second time
DRAINED_SHARE: Final = 0.4  # share of workers that are drained for a while
RESTARTED_SHARE: Final = 0.5  # share of these that restart meanwhile
DOWN_S: Final = 0.5
ON_END: Final = OnEnd(command=("notify",))
KEEP: Final = KeepRule(age_s=3_600.0, jobs=2)
LATER_S: Final = 86_400.0  # how far clocks jump at the end
CALLED_S: Final = 900.0  # bound after the last fault: five pauses that double
KEPT_S: Final = 90.0  # bound for the rule, which is looked at every minute


class Removal(msgspec.Struct, frozen=True, kw_only=True):
    """A user who wants a job removed."""

    at_s: float
    errand: Errand


class Drain(msgspec.Struct, frozen=True, kw_only=True):
    """A worker that its owner drains for a while, also in later lives."""

    node: NodeId
    from_s: float
    until_s: float
    grace_s: float | None
    restart_s: float | None  # when it crashes meanwhile, if ever


class HouseScript(msgspec.Struct, frozen=True, kw_only=True):
    """What users do about ended jobs and workers."""

    removals: tuple[Removal, ...]
    drains: tuple[Drain, ...]
    heal_s: float


def with_calls(rng: Random, workload: Workload) -> Workload:
    """Let some jobs name what is called at their end."""
    errands = tuple(
        msgspec.structs.replace(
            errand, job=msgspec.structs.replace(errand.job, on_end=ON_END)
        )
        if rng.random() < CALLED_SHARE
        else errand
        for errand in workload.errands
    )
    return msgspec.structs.replace(workload, errands=errands)


def draw_house_script(
    rng: Random, workload: Workload, workers: Sequence[NodeId], heal_s: float
) -> HouseScript:
    """Draw who removes which job when, and which worker is drained."""
    removals = tuple(
        Removal(
            at_s=errand.at_s + SUBMITTED_S + rng.uniform(0.0, heal_s), errand=errand
        )
        for errand in workload.errands
        if rng.random() < REMOVED_SHARE
    )
    drains = tuple(
        _draw_drain(rng, node, heal_s)
        for node in workers
        if rng.random() < DRAINED_SHARE
    )
    return HouseScript(removals=removals, drains=drains, heal_s=heal_s)


def _draw_drain(rng: Random, node: NodeId, heal_s: float) -> Drain:
    from_s = rng.uniform(0.5, heal_s * 0.7)
    until_s = rng.uniform(from_s, heal_s)
    restarts = rng.random() < RESTARTED_SHARE
    return Drain(
        node=node,
        from_s=from_s,
        until_s=until_s,
        grace_s=rng.choice((None, 0.5, 10.0)),
        restart_s=rng.uniform(from_s, until_s) if restarts else None,
    )


def with_rule(node: NodeSpec) -> NodeSpec:
    """Let a scheduler keep few jobs."""
    return msgspec.structs.replace(node, keep=KEEP)


@final
class HouseTraffic:
    """The users of one world who keep house."""

    def __init__(self, script: HouseScript, world: World, suite: Suite) -> None:
        self._script = script
        self._world = world
        self._suite = suite
        self._promises = suite.house
        self._rng = world.stream("housekeeping")
        self._tokens = 0

    @property
    def performers(self) -> Mapping[type, Callable[[SimHost, Any], None]]:
        """The performer of each effect."""
        return {CallEnd: self._call, DropJob: self._promises.dropped}

    def schedule(self) -> None:
        """Schedule what the users do."""
        agenda, script = self._world.agenda, self._script
        for removal in script.removals:
            agenda.at(removal.at_s, self._remove, removal.errand)
        for drain in script.drains:
            asked = DrainRequested(drain.grace_s, lasts=True)
            agenda.at(drain.from_s, self._drain, drain.node, asked)
            agenda.at(drain.until_s, self._undo, drain.node)
            if drain.restart_s is not None:
                agenda.at(drain.restart_s, self._world.crash, drain.node)
                agenda.at(drain.restart_s + DOWN_S, self._world.restart, drain.node)

    def settle(self) -> None:
        """Run until all calls were made; then set clocks ahead, and see the rule."""
        world = self._world
        bound_s = max(world.now, self._script.heal_s) + CALLED_S
        while not world.agenda.stopped and (open_ := self._uncalled()):
            world.run(world.now + 5.0)
            if world.now > bound_s:
                self._promises.not_called(open_[0])
        schedulers = [
            host for host in world.hosts.values() if host.spec.keep.limits and host.up
        ]
        if world.agenda.stopped:
            return
        for host in schedulers:
            host.set_wall(LATER_S)
        world.run(world.now + KEPT_S)
        for host in schedulers:
            self._promises.check_rule(host)

    def _uncalled(self) -> list[JobId]:
        """Return the ended jobs whose command was not called to the end."""
        suite, found = self._suite, list[JobId]()
        assert suite.clients is not None
        for order in suite.clients.orders.values():
            job, node = order.errand.job, order.errand.scheduler
            truth = suite.journals.truth(node)
            has_ended = job.id in truth.jobs and truth.ended(job.id)
            is_over = self._promises.is_over(node, job.id)
            if job.on_end is not None and has_ended and not is_over:
                found.append(job.id)
        return found

    def _call(self, host: SimHost, effect: CallEnd) -> None:
        job = effect.report.job
        self._promises.called(host, job)
        fails = self._rng.random() < FAILED_SHARE
        trouble = "no route" if fails and self._world.now < self._script.heal_s else ""
        ended = EndCallEnded(job, trouble)
        host.later(self._rng.uniform(0.0, CALL_MAX_S), lambda: host.feed(ended))

    def _remove(self, errand: Errand) -> None:
        """Remove a job, once no client wants anything of it any more."""
        clients = self._suite.clients
        assert clients is not None
        order = clients.orders[errand.job.id]
        is_wanted = errand.cancel_after_s is not None and order.cancelled_at is None
        if order.accepted_at is None or is_wanted:
            return
        self._tokens -= 1  # Those of other clients are above 0.
        request = RemovalRequested(self._tokens, errand.job.id)
        self._world.feed(errand.scheduler, request)

    def _drain(self, node: NodeId, asked: DrainRequested) -> None:
        self._world.feed(node, asked)

    def _undo(self, node: NodeId) -> None:
        """Let a worker take tasks again, as soon as it is there to be told."""
        if not self._world.feed(node, DrainEnded()):
            self._world.agenda.after(1.0, self._undo, node)
