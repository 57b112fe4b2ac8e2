"""Machines that fail, come back and slow down, as a training run meets them.

Each chip fails once in `CHIP_MTBF_S`, and takes the worker that it is part of down with
it. So a worker fails more often the more chips it has: that is the failure model of
Decoupled DiLoCo (arXiv 2604.21428). What is measured is its goodput: the samples
that entered an outer step, of those that the same machines process when nothing fails.
"""

from dataclasses import dataclass
from functools import partial

from tests.sim.train_world import World

from shoal.train.diloco.rules import RoundRules

CHIP_MTBF_S = 365 * 86_400.0
SPEEDS = (10.0, 9.0, 7.5, 6.0)
"""Steps per second of one worker after another."""


@dataclass(frozen=True, kw_only=True)
class FailureModel:
    """How often machines fail, and what that costs them."""

    chips: int  # of a worker
    recovery_s: float = 10.0  # until a new process is there
    slow_every_s: float = 0.0  # a worker is slow for a while, so often; 0: never
    slow_for_s: float = 30.0
    slow_to: float = 0.2  # of its speed

    @property
    def mtbf_s(self) -> float:
        """Seconds between two failures of one worker."""
        return CHIP_MTBF_S / self.chips


def trained(
    seed: int, rules: RoundRules, model: FailureModel | None, span_s: float
) -> World:
    """Train for a while on machines that fail, or on such that do not."""
    world = World(seed, rules)
    world.start_aggregator()
    for number in range(rules.workers):
        name, speed = f"w{number:04}", SPEEDS[number % len(SPEEDS)]
        world.start_worker(name, speed=speed)
        if model is not None:
            _plan_failure(world, model, name, speed)
            _plan_slowness(world, model, name, speed)
    world.run(until_s=span_s)
    return world


def samples_counted(world: World) -> int:
    """Return the samples that entered an outer step: of each sync as it ended up."""
    last = {closing.sync: closing for closing in world.closings}
    return sum(p.contribution.samples for each in last.values() for p in each.parts)


def goodput(seed: int, rules: RoundRules, model: FailureModel, span_s: float) -> float:
    """Return the part of the undisturbed machines' samples that counted."""
    disturbed = trained(seed, rules, model, span_s)
    return samples_counted(disturbed) / samples_counted(
        trained(seed, rules, None, span_s)
    )


def _plan_failure(world: World, model: FailureModel, name: str, speed: float) -> None:
    def fail() -> None:
        world.kill_worker(name)
        world.after(model.recovery_s, recover)

    def recover() -> None:
        world.start_worker(name, speed=speed)
        world.after(world.rng.expovariate(1 / model.mtbf_s), fail)

    world.after(world.rng.expovariate(1 / model.mtbf_s), fail)


def _plan_slowness(world: World, model: FailureModel, name: str, speed: float) -> None:
    if not model.slow_every_s:
        return

    def change(to: float) -> None:
        if worker := world.workers.get(name):
            worker.speed = speed * to
        if to < 1:
            world.after(model.slow_for_s, partial(change, 1.0))
        else:
            plan()

    def plan() -> None:
        wait_s = world.rng.expovariate(1 / model.slow_every_s)
        world.after(wait_s, partial(change, model.slow_to))

    plan()
