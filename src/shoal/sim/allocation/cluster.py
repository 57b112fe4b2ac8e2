"""A cluster in virtual time: it queues pilots, runs, preempts and kills them.

It knows nothing of demand. It may refuse a pilot, answer late or not at all, and take
a pilot though whoever submitted it crashed before hearing so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import msgspec

from shoal.core.allocation.events import (
    AllocationTried,
    AnswerAllocation,
    CancelPilot,
    PilotRefused,
    PilotsPolled,
    PilotSubmitted,
    PollPilots,
    SeenPilot,
    SubmitPilot,
    TryAllocation,
)
from shoal.core.events import DrainRequested, Event
from shoal.model.ids import NodeId

if TYPE_CHECKING:
    from collections.abc import Callable

    from shoal.core.allocation.records import AllocationTerms
    from shoal.sim.node.host import SimHost
    from shoal.sim.world import World

ANSWER_S: Final = (0.02, 1.5)
PREEMPT_GRACE_S: Final = 5.0


class ClusterPlan(msgspec.Struct, frozen=True):
    """How the cluster behaves in one seed."""

    queue_s: tuple[float, float]  # how long a pilot waits, at least and at most
    refuses: float  # share of submits that are refused for now
    forbids: bool  # whether it refuses this partition for good
    fails: float  # share of pilots that end before they join
    mute: float  # share of questions without an answer
    preempts_s: float | None  # mean time after which a pilot is preempted


@final
class ClusterJob:
    """One pilot, as the cluster sees it."""

    def __init__(self, terms: AllocationTerms, number: int, native: str) -> None:
        self.terms, self.number, self.native = terms, number, native
        self.running = False
        self.over = False
        self.unwanted = False  # somebody asked to cancel it, heard or not
        self.node: NodeId | None = None
        self.ends_at = float("inf")  # in the time of the world


@final
class SimCluster:
    """Performs the effects of an allocator."""

    def __init__(
        self, world: World, plan: ClusterPlan, pilot: Callable[[ClusterJob], NodeId]
    ) -> None:
        """`pilot` begins a node for a job that starts."""
        self._world, self._plan, self._pilot = world, plan, pilot
        self._rng = world.stream("cluster")
        self.jobs: list[ClusterJob] = []
        self.answers: list[str] = []  # to users
        self.submits = 0
        self.arriving = 0  # submits that were not refused and are on their way
        self.healed = False
        self.on_submit: Callable[[SimHost, SubmitPilot], None] = _ignore
        world.scene.performers.update(
            {
                TryAllocation: self._try,
                SubmitPilot: self._submit,
                PollPilots: self._poll,
                CancelPilot: self._cancel,
                AnswerAllocation: self._answer,
            }
        )

    @property
    def live(self) -> list[ClusterJob]:
        """All that waits or runs."""
        return [job for job in self.jobs if not job.over]

    def heal(self) -> None:
        """Behave from now on, but for the queue, preemptions and walltimes."""
        calm = {"refuses": 0.0, "forbids": False, "fails": 0.0, "mute": 0.0}
        self._plan = msgspec.structs.replace(self._plan, **calm)
        self.healed = True

    def find(self, node: NodeId) -> ClusterJob | None:
        """Return the job that a node was started by."""
        return next((job for job in self.jobs if job.node == node), None)

    def end(self, job: ClusterJob) -> None:
        """End a job; what its node still runs is killed."""
        if job.over:
            return
        job.over = True
        if job.node is not None and self._world.hosts[job.node].up:
            self._world.leave(job.node)

    def _later(self, host: SimHost, fact: Event) -> None:
        if self._rng.random() >= self._plan.mute:
            after_s = self._rng.uniform(*ANSWER_S)
            self._world.agenda.after(after_s, self._tell, host, host.life, fact)

    def _tell(self, host: SimHost, life: int, fact: Event) -> None:
        if host.up and host.life == life:
            host.feed(fact)

    def _answer(self, _host: SimHost, effect: AnswerAllocation) -> None:
        self.answers.append(effect.refused)

    def _try(self, host: SimHost, effect: TryAllocation) -> None:
        refused = "invalid partition" if self._plan.forbids else ""
        answer = AllocationTried(effect.terms.name, refused)
        self._world.agenda.after(0.1, self._tell, host, host.life, answer)

    def _submit(self, host: SimHost, effect: SubmitPilot) -> None:
        self.submits += 1
        self.on_submit(host, effect)
        name, number = effect.terms.name, effect.number
        if self._rng.random() < self._plan.refuses:
            self._later(host, PilotRefused(name, number, "the controller is busy"))
            return
        delay_s = self._rng.uniform(*ANSWER_S)
        self.arriving += 1
        self._world.agenda.after(delay_s, self._arrive, host, host.life, effect)

    def _arrive(self, host: SimHost, life: int, effect: SubmitPilot) -> None:
        self.arriving -= 1
        native = f"{len(self.jobs) + 1}"
        job = ClusterJob(effect.terms, effect.number, native)
        self.jobs.append(job)
        fact = PilotSubmitted(effect.terms.name, effect.number, native)
        if self._rng.random() >= self._plan.mute:
            self._tell(host, life, fact)
        self._world.agenda.after(self._rng.uniform(*self._plan.queue_s), self._go, job)

    def _go(self, job: ClusterJob) -> None:
        if job.over:
            return
        agenda, limit_s = self._world.agenda, job.terms.time_limit_s
        job.running, job.ends_at = True, agenda.now + limit_s
        agenda.after(limit_s, self.end, job)
        if self._rng.random() < self._plan.fails:
            agenda.after(self._rng.uniform(0.1, 3.0), self.end, job)
            return
        agenda.after(self._rng.uniform(0.5, 4.0), self._boot, job)
        if self._plan.preempts_s is not None:
            after_s = self._rng.expovariate(1.0 / self._plan.preempts_s)
            agenda.after(5.0 + after_s, self._preempt, job)

    def _boot(self, job: ClusterJob) -> None:
        if not job.over:
            job.node = self._pilot(job)

    def _preempt(self, job: ClusterJob) -> None:
        """Tell a pilot to go, as a signal would; end it soon after."""
        if job.over or job.node is None:
            return
        self._world.feed(job.node, DrainRequested(grace_s=1.0))
        self._world.agenda.after(PREEMPT_GRACE_S, self.end, job)

    def _poll(self, host: SimHost, effect: PollPilots) -> None:
        seen = tuple(
            SeenPilot(job.number, job.native, job.running)
            for job in self.live
            if job.terms.name == effect.terms.name
        )
        trouble = "timed out" if self._rng.random() < self._plan.mute else ""
        told = PilotsPolled(effect.terms.name, effect.poll, seen, trouble)
        self._later(host, told)

    def _cancel(self, host: SimHost, effect: CancelPilot) -> None:
        for job in self.live:
            if job.native == effect.native:
                job.unwanted = True
                if self._rng.random() >= self._plan.mute:
                    after_s = self._rng.uniform(*ANSWER_S)
                    self._world.agenda.after(after_s, self.end, job)


def _ignore(_host: SimHost, _effect: SubmitPilot) -> None:
    """Nobody watches."""
