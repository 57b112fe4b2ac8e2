"""Show the events in one seed's world.

Run: python -m shoal.sim.replay 42 --verbose
"""

from __future__ import annotations

import click

from shoal.sim.checkers.violations import Violation
from shoal.sim.seeds import SeedScript, SeedTrial
from shoal.sim.timeline import Timeline


@click.command()
@click.argument("seed", type=int)
@click.option("--verbose", is_flag=True, help="Show every event and every effect.")
@click.option("--quiet", is_flag=True, help="Show the script and the verdict only.")
def replay(seed: int, verbose: bool, quiet: bool) -> None:
    """Run the world of SEED and print what happens; exit with 1 on a violation."""
    trial = SeedTrial(seed)
    timeline = Timeline(trial.world.agenda, print, verbose=verbose)
    _show_script(seed, trial.script)
    if not quiet:
        trial.world.scene.tap = timeline.tap
    outcome = trial.run()
    print(
        f"seed {seed}: {outcome.events} events, {outcome.virtual_s:.1f} s of virtual "
        f"time, {outcome.jobs} jobs, history {outcome.digest}"
    )
    if raised := trial.suite.violations.traceback:
        print(raised)
    _show_verdict(outcome.violations)


def _show_script(seed: int, script: SeedScript) -> None:
    plan = script.plan
    print(f"seed {seed}: forger {script.forger}, encoded {script.encoded}")
    print(f"  network  loss {plan.loss:.0%}, duplication {plan.duplication:.0%}")
    for spec in script.nodes:
        capacity = spec.capacity
        room = (
            f"{capacity.cpu_milli} mcpu {len(capacity.devices)} gpus"
            if capacity
            else ""
        )
        print(f"  node     {spec.id:<4} {','.join(spec.roles)} {room}")
    for errand in script.workload.errands:
        job = errand.job
        groups = ", ".join(
            f"{group.id} x{len(group.tasks)} gang_min {group.gang_min}"
            for group in job.groups
        )
        marks = [name for name in ("preempt", "at_most_once") if getattr(job, name)]
        print(
            f"  job      {job.id} at {errand.at_s:.1f} s to {errand.scheduler}, "
            f"priority {job.priority} {' '.join(marks)}: {groups}"
        )
    for planned in sorted(plan.faults, key=lambda one: one.from_s):
        print(
            f"  fault    {planned.from_s:.1f}-{planned.until_s:.1f} s {planned.fault}"
        )
    print(f"  healed   {plan.heal_s:.1f} s")


def _show_verdict(violations: tuple[Violation, ...]) -> None:
    if not violations:
        print("every promise was kept")
        return
    for violation in violations:
        print(f"BROKEN {violation}")
    raise SystemExit(1)


if __name__ == "__main__":
    replay()
