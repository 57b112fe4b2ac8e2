"""The smallest machines that a host can run, and a world of them."""

from collections.abc import Callable
from typing import final

import msgspec

from shoal.core.events import Booted, DeadlineReached, Effect, Event
from shoal.core.machine import Decider
from shoal.model.ids import NodeId
from shoal.sim.agenda import Agenda
from shoal.sim.node.host import HostWatch, NodeLife, NodeSpec
from shoal.sim.world import World

Script = Callable[[Event], list[Effect]]


@final
class Scribe:
    """Writes down what it is told and answers as the script says."""

    def __init__(self, script: Script) -> None:
        self.told: list[tuple[float, Event]] = []
        self.due: float | None = None
        self._script = script

    def handle(self, event: Event, now: float) -> list[Effect]:
        if isinstance(event, DeadlineReached):
            self.due = None
        self.told.append((now, event))
        return self._script(event)

    def next_deadline(self) -> float | None:
        return self.due

    @property
    def heard(self) -> list[Event]:
        """What it was told, without the times and its own start."""
        return [event for _, event in self.told if not isinstance(event, Booted)]


def silence(event: Event) -> list[Effect]:
    return []


class Stage:
    """A world of scribes; `lives` holds every machine that was ever built."""

    def __init__(self, seed: int = 0, watch: HostWatch | None = None) -> None:
        self.scripts: dict[str, Script] = {}
        self.lives: dict[str, list[Scribe]] = {}
        self.agenda = Agenda()
        self.world = World(seed, self.agenda, self._assemble, watch or HostWatch())

    def add(self, id_: str, script: Script = silence, **spec: object) -> Scribe:
        self.scripts[id_] = script
        self.world.add(_spec(id_, **spec))
        return self.now(id_)

    def now(self, id_: str) -> Scribe:
        """Return the machine of the present life."""
        return self.lives[id_][-1]

    def _assemble(self, life: NodeLife) -> Decider:
        scribe = Scribe(self.scripts[life.spec.id])
        self.lives.setdefault(life.spec.id, []).append(scribe)
        return scribe


def _spec(id_: str, **fields: object) -> NodeSpec:
    base = NodeSpec(id=NodeId(id_), roles=("worker",))
    return msgspec.structs.replace(base, **fields)
