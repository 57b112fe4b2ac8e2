"""Check promises about environments: E1 and E2.

- E1: a task starts only with all environments that it needs, each whole on the disk
  of its worker and made for its own owners.
- E2: an environment is made by one attempt at a time, and never removed while a task
  runs in it.
"""

from __future__ import annotations

from typing import final

from shoal.core.environments.events import RemoveEnvironment
from shoal.core.environments.shelf import needed_by
from shoal.core.events import MakeEnvironment
from shoal.sim.checkers.violations import Violations
from shoal.sim.node.driver import SimProcess
from shoal.sim.node.host import SimHost


@final
class EnvironmentPromises:
    """Compares processes with the environments on disk."""

    def __init__(self, violations: Violations) -> None:
        self._violations = violations

    def started(self, host: SimHost, process: SimProcess) -> None:
        """Check that a new process has what it needs, and nothing of others."""
        start = process.start
        for need in needed_by(start.task, start.owners):
            kept = host.environments.kept.get(need.id)
            if kept is None:
                what = f"{host.id} starts {start.attempt} without its {need.kind}"
                self._violations.report("E1", what)
            elif kept.owners != start.owners:
                what = f"{start.attempt} runs in what was made for {kept.owners}"
                self._violations.report("E1", what)

    def making(self, host: SimHost, effect: MakeEnvironment) -> None:
        """Check that nobody else makes it now, and that it is not there."""
        id_ = effect.need.id
        others = (each.need.id for each in host.environments.making.values())
        if id_ in host.environments.kept or id_ in others:
            self._violations.report("E2", f"{host.id} makes {id_} a second time")

    def removing(self, host: SimHost, effect: RemoveEnvironment) -> None:
        """Check that no process runs in it."""
        for process in host.driver.processes.values():
            start = process.start
            used = [need.id for need in needed_by(start.task, start.owners)]
            if effect.id in used:
                what = f"{host.id} removes {effect.id}, in which {start.attempt} runs"
                self._violations.report("E2", what)
