"""Check promises about the end: I2, I7, I12, L1, L2, L3 and O2.

After the last fault every job must end within a bound, and all resources must be
freed.
"""

from __future__ import annotations

from typing import Final, final

from shoal.core.timing import KILL_S
from shoal.model.ids import TaskId
from shoal.model.job import Job
from shoal.sim.checkers.journals import Journals
from shoal.sim.checkers.violations import Violations
from shoal.sim.clients import ClientOrder, SimClients
from shoal.sim.node.driver import Behaviour
from shoal.sim.node.host import SimHost
from shoal.sim.opinions import Opinions
from shoal.sim.world import World

STALL_S: Final = 100.0
"""Longest time without progress once the world is healed."""

SETTLE_S: Final = 90.0
"""Time after the last job's end by which all is free and known to be."""

CANCEL_S: Final = 60.0
"""Time after a cancel, or healing, by which no process of the job runs."""

EXTRA_S: Final = 300.0


@final
class Ending:
    """Runs a healed world until all jobs have ended and all is free."""

    def __init__(
        self,
        world: World,
        clients: SimClients,
        journals: Journals,
        violations: Violations,
        opinions: Opinions,
    ) -> None:
        self._world = world
        self._clients = clients
        self._journals = journals
        self._violations = violations
        self._opinions = opinions
        self._changes = -1
        self._changed_at = 0.0

    def run(self, heal_s: float) -> None:
        """Run a healed world to its end, and check it meanwhile."""
        world = self._world
        self._changed_at = world.now
        bound_s = heal_s + self._bound_s()
        while not world.agenda.stopped and (open_ := self._open()):
            world.run(world.now + 1.0)
            self._check_progress(open_, bound_s)
            self._check_cancels(heal_s)
        settled_by = world.now + SETTLE_S
        while not world.agenda.stopped and (unsettled := self._unsettled()):
            world.run(world.now + 1.0)
            if world.now > settled_by:
                self._violations.report(*unsettled)

    # Jobs.

    def _open(self) -> list[ClientOrder]:
        return [
            order for order in self._clients.orders.values() if self._is_open(order)
        ]

    def _is_open(self, order: ClientOrder) -> bool:
        if order.refused:
            return False
        truth = self._journals.truth(order.errand.scheduler)
        job = order.errand.job.id
        if order.cancel_asked and order.cancelled_at is None:
            return True
        return (
            order.accepted_at is None or job not in truth.jobs or not truth.ended(job)
        )

    def _check_progress(self, open_: list[ClientOrder], bound_s: float) -> None:
        now = self._world.now
        changes = sum(truth.changes for truth in self._journals.truths.values())
        changes += sum(self._world.starts.values())
        if changes != self._changes or self._anything_runs():
            self._changes = changes
            self._changed_at = now
        names = ", ".join(sorted(order.errand.job.id for order in open_))
        if now - self._changed_at > STALL_S:
            what = f"nothing moved for {STALL_S:.0f} s, open: {names}"
            self._violations.report("L1", what)
        if now > bound_s:
            starved = [order for order in open_ if not self._ever_ran(order.errand.job)]
            self._violations.report("L2" if starved else "I2", f"still open: {names}")

    def _anything_runs(self) -> bool:
        return any(host.driver.processes for host in self._world.hosts.values())

    def _ever_ran(self, job: Job) -> bool:
        return any(task.id in self._world.starts for task in job.tasks())

    def _check_cancels(self, heal_s: float) -> None:
        now = self._world.now
        for order in self._clients.orders.values():
            if order.cancelled_at is None:
                continue
            since = max(heal_s, order.cancelled_at)
            if now - since > CANCEL_S and (alive := self._alive(order.errand.job)):
                self._violations.report("L3", f"{alive[0]} runs though cancelled")

    def _alive(self, job: Job) -> list[TaskId]:
        return [
            process.start.task.id
            for host in self._world.hosts.values()
            for process in host.driver.processes.values()
            if process.start.task.job == job.id
        ]

    def _bound_s(self) -> float:
        """Bound the time for all jobs in sequence, with all retries."""
        return EXTRA_S + sum(
            self._longest_s(order.errand.job) for order in self._clients.orders.values()
        )

    def _longest_s(self, job: Job) -> float:
        longest = 0.0
        for task in job.tasks():
            plan = self._world.plans.get(task.id, Behaviour())
            once = (
                plan.run_s * (10.0 if plan.straggles else 1.0) + task.grace_s + KILL_S
            )
            longest += 10.0 + (once + 15.0) * (job.retry.max + 6)
        return longest

    # Leftovers.

    def _unsettled(self) -> tuple[str, str] | None:
        for host in self._world.hosts.values():
            if host.left or not host.up:
                continue
            found = self._unsettled_reports(host) or self._unsettled_worker(host)
            if found := found or self._unsettled_views(host):
                return found
        return None

    def _unsettled_reports(self, host: SimHost) -> tuple[str, str] | None:
        held = self._opinions.held_reports(host)
        return ("O2", f"{host.id} still holds {held} reports") if held else None

    def _unsettled_worker(self, host: SimHost) -> tuple[str, str] | None:
        worker = self._opinions.worker(host)
        if worker is None:
            return None
        if host.driver.processes:
            return "I7", f"{host.id} still runs {len(host.driver.processes)} processes"
        if not worker.idle:
            return "I7", f"{host.id} is idle, but not all of it is free: {worker.load}"
        if worker.unacknowledged:
            what = f"{host.id} still has {worker.unacknowledged} reports to tell"
            return "I3", what
        return None

    def _unsettled_views(self, host: SimHost) -> tuple[str, str] | None:
        for node, load in self._opinions.views(host).items():
            seen = self._world.hosts.get(node)
            worker = self._opinions.worker(seen) if seen and seen.up else None
            if worker is None:
                return "I12", f"{host.id} still knows {node}, which is gone"
            if load != worker.load:
                what = f"{host.id} believes {load} of {node}, which has {worker.load}"
                return "I12", what
        return None
