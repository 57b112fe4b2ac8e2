"""The world of one seed: kept jobs, a scheduler that is lost, and checkers.

What happens is drawn before (`script`). Then the network heals, and every job must end.
"""

from __future__ import annotations

from typing import Final, final

from shoal.core.events import JobSubmitted
from shoal.sim.agenda import Agenda
from shoal.sim.checkers.violations import Violation, Violations
from shoal.sim.faults.schedule import Crash, heal
from shoal.sim.node.assembly import assemble_peer, compact_journal
from shoal.sim.node.host import Tap
from shoal.sim.succession.promises import KeptPromises
from shoal.sim.succession.script import (
    FIRST,
    SUBMIT_S,
    KeptScript,
    LeaveForGood,
    draw_script,
)
from shoal.sim.world import World

LINKED_S: Final = 1.0
HEAL_S: Final = 130.0
END_S: Final = 1_200.0


@final
class KeptTrial:
    """The world of one seed, with its promises."""

    def __init__(
        self, seed: int, script: KeptScript | None = None, tap: Tap | None = None
    ) -> None:
        """Prepare the world; nothing happens before `run`."""
        self.script = script = script or draw_script(seed)
        agenda = Agenda()
        self.violations = Violations(agenda)
        jobs = {job.id: job for job in script.jobs}
        self.promises = KeptPromises(agenda, self.violations, jobs)
        self.promises.handovers.is_calm = script.is_calm
        faults = [fault for _, _, fault in script.faults]
        self.promises.leaves = any(isinstance(f, LeaveForGood) for f in faults)
        self.world = World(seed, agenda, assemble_peer, self.promises, tap=tap)
        self.world.scene.compact = compact_journal

    def run(self) -> tuple[Violation, ...]:
        """Run the world through its faults and to its end."""
        return self.violations.found_in(self._run)

    def _run(self) -> None:
        world, script = self.world, self.script
        world.plans.update(script.behaviours)
        for spec in script.nodes:
            world.add(spec)
        world.agenda.at(LINKED_S, self._link)
        for number, job in enumerate(script.jobs):
            submit = JobSubmitted(number, job)
            world.agenda.at(SUBMIT_S + 0.3 * number, self._submit, submit)
        for begin, end, fault in script.faults:
            world.agenda.at(begin, fault.begin, world)
            if end is not None:
                world.agenda.at(end, fault.end, world)
        if script.code is not None:
            world.hosts[FIRST].blobs.keep(script.code)
        self.promises.hosts = world.hosts
        world.run(HEAL_S)
        self._heal()
        world.run(END_S)
        if not self.violations.found:
            self.promises.settle(list(world.hosts.values()))

    def _submit(self, request: JobSubmitted) -> None:
        self.world.submit(FIRST, request)

    def _link(self) -> None:
        hosts = list(self.world.hosts.values())
        for host in hosts:
            for other in hosts:
                if other is not host:
                    self.world.network.reach(host, other.id)

    def _heal(self) -> None:
        """End all faults but those for good."""
        for _, end, fault in self.script.faults:
            if end is None and isinstance(fault, Crash):
                for node in fault.nodes:
                    self.world.hosts[node].left = True
        if not self.violations.found:
            heal(self.world)
            self._link()
