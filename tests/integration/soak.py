"""Hurt live nodes for a long time, in every way that the tests know, by seed.

Run: python -m tests.integration.soak --minutes 10

Exits with 1 if anything is lost, doubled, leaked or late. The seed decides who is
hurt when; real processes do not repeat themselves exactly, so run it some more.
"""

import shutil
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from random import Random, SystemRandom

import click
from tests.integration.crash_plans import Arena, Plan, plans
from tests.integration.islands import Islands, missing
from tests.integration.live_shoal import LiveShoal, live_shoal
from tests.integration.partitions import split_and_heal
from tests.integration.random_harm import harm
from tests.integration.test_hostile_node import attack_and_serve

AGREED_S = 10.0
PASSINGS = (1, 1, 2, 3, 5)
"""Failpoints strike at one of these, in turn: first uses and later ones differ."""


class Report:
    """Says how it goes, and remembers what went wrong."""

    def __init__(self) -> None:
        self.wrong: list[str] = []
        self._began = time.monotonic()

    def say(self, text: str) -> None:
        """Print a line with the time."""
        spent = time.monotonic() - self._began
        click.echo(f"{int(spent // 60):3d}:{int(spent % 60):02d}  {text}")

    def run(self, name: str, trial: Callable[[], object]) -> None:
        """Try something; what it raises is a violation."""
        began = time.monotonic()
        try:
            told = trial()
        except Exception as error:  # noqa: BLE001 - Whatever it is, it is told.
            self.wrong.append(f"{name}: {error!r}")
            self.say(f"VIOLATION  {name}\n{traceback.format_exc()}")
        else:
            took_s = time.monotonic() - began
            self.say(f"ok  {name}  {took_s:.1f} s  {'' if told is None else told}")


@contextmanager
def folder() -> Iterator[Path]:
    """Lend a folder that every user may enter; it is kept if the block raises."""
    path = Path(tempfile.mkdtemp(prefix="shoal-soak-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path, ignore_errors=True)


def failpoints(report: Report, rounds: int, rng: Random, jobs: int) -> None:
    """Kill at every failpoint, in every role, so many times."""
    todo = [
        plan._replace(passing=PASSINGS[n % len(PASSINGS)])
        for n in range(rounds)
        for plan in plans()
    ]
    rng.shuffle(todo)
    with folder() as path:
        arenas: SimpleQueue[Arena] = SimpleQueue()
        for n in range(jobs):
            arenas.put(Arena(path / str(n)))

        def one(plan: Plan) -> None:
            arena = arenas.get()
            report.run(f"kill at {plan}", partial(arena.run, plan))
            arenas.put(arena)

        with ThreadPoolExecutor(jobs) as pool:
            list(pool.map(one, todo))
        for _ in range(jobs):
            arenas.get().close()


def split(size: int) -> object:
    """Split a shoal of two halves of this size, and join it again."""
    net = Islands(size, size)
    try:
        net.build()
        with folder() as path:
            shoal = LiveShoal(
                path,
                2 * size - 1,
                place=net.place,
                worker_roles=("scheduler", "worker"),
            )
            with live_shoal(shoal):
                healed = split_and_heal(shoal, net, size)
    finally:
        net.remove()
    assert healed.whole_s < AGREED_S, healed
    return healed


def random_harm(seed: int, minutes: float) -> object:
    """Kill, stop and restart nodes at random while they work."""
    with folder() as path:
        return harm(path, Random(seed), minutes * 60)


def hostile(seconds: float, seed: int) -> object:
    """Attack a node for a while."""
    with folder() as path:
        return attack_and_serve(path, seconds, seed)


@click.command()
@click.option("--minutes", default=10.0, show_default=True, help="Of random harm.")
@click.option("--rounds", default=1, show_default=True, help="Through all failpoints.")
@click.option("--half", default=25, show_default=True, help="Nodes on each island.")
@click.option("--attack-s", default=60.0, show_default=True, help="Of hostile callers.")
@click.option("--jobs", default=2, show_default=True, help="Shoals at one time.")
@click.option("--seed", type=int, help="Who is hurt when; else drawn, and printed.")
def soak(
    minutes: float, rounds: int, half: int, attack_s: float, jobs: int, seed: int | None
) -> None:
    """Hurt live nodes for a long time; exit with 1 if a promise is broken."""
    seed = SystemRandom().randrange(1_000_000) if seed is None else seed
    report = Report()
    report.say(f"seed {seed}; the same plan again: make soak SEED={seed}")
    if rounds:
        failpoints(report, rounds, Random(seed), jobs)
    if minutes:
        report.run(f"{minutes:g} min of harm", partial(random_harm, seed, minutes))
    if half and (why := missing()):
        report.say(f"skipped the split: {why}")
    elif half:
        report.run(f"split {half}/{half}", partial(split, half))
    if attack_s:
        report.run(f"{attack_s:g} s of attacks", partial(hostile, attack_s, seed))
    report.say(f"seed {seed}: {len(report.wrong)} promises were broken")
    for text in report.wrong:
        click.echo(text)
    raise SystemExit(1 if report.wrong else 0)


if __name__ == "__main__":
    soak()
