"""Three real nodes train twelve networks, then one together; nodes are killed.

Everything here is what a user would type: the lines with a $ are the commands, and
what follows them is what they print. Only the kills are ours.

Run: make demo
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from shoal.api import shoal_pb2 as pb
from shoal.api.client.client import Client
from shoal.api.node_file import is_node, read
from shoal.cli.display.training_curves import MARGIN, CurveBoard
from shoal.errors import ShoalError
from shoal.runtime.home import Home

HERE: Final = Path(__file__).parent
LOOK_S: Final = 0.2
LIMIT_S: Final = 240.0
WIDTH: Final = 78
KILL_AT_ROUND: Final = 5
BACK_AT_ROUND: Final = 8
NEXT: Final = {
    ".venv/bin/shoal up": "start a node, and leave it running",
    ".venv/bin/shoal run -- COMMAND": "run something on it",
    ".venv/bin/shoal run examples/diloco-gpt.yaml": "train this GPT for longer",
    "less docs/guides/training.md": "train a model of your own",
    "make sim-demo": "watch the same machines in virtual time",
}
console = Console(highlight=False)


class Machine:
    """One of the three: a home of its own, and whoever types there."""

    def __init__(self, letter: str, folder: Path) -> None:
        self.letter = letter
        self.home = Home(folder / letter)
        self._env = {**os.environ, "SHOAL_HOME": str(self.home.path)}

    def types(self, *words: str, shown: str = "") -> str:
        """Run a command of shoal here, for all to see; return what it printed."""
        say(f"{self.letter}$ shoal {shown or ' '.join(words)}", bold=True)
        done = self._run(*words, stderr=subprocess.STDOUT)
        for line in done.splitlines():
            say(f"   {line}")
        return done

    def does(self, *words: str) -> str:
        """Run a command of shoal here, quietly."""
        return self._run(*words, stderr=None)

    def _run(self, *words: str, stderr: int | None) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "shoal.cli", *words],
            env=self._env,
            cwd=HERE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            check=False,
        )
        if done.returncode:
            raise click.ClickException(f"`shoal {' '.join(words)}`: {done.stdout}")
        return done.stdout

    @property
    def name(self) -> str:
        """What the node calls itself."""
        found = read(self.home)
        assert found is not None
        return found.petname

    def client(self) -> Client:
        """Return a client of the node here."""
        found = read(self.home)
        assert found is not None
        return Client(f"unix:{found.socket}", name=self.letter)

    def is_killed(self) -> None:
        """End the node as a power cut would: it gets no chance to do anything."""
        found = read(self.home)
        assert found is not None
        os.kill(found.pid, signal.SIGKILL)
        until(lambda: not is_node(found.pid))

    def goes_home(self) -> None:
        """End the node, if it runs."""
        found = read(self.home)
        if found is not None and is_node(found.pid):
            self.does("down", "-q")


def say(text: str = "", *, bold: bool = False) -> None:
    """Print a line, above the bar if there is one."""
    style = "bold" if bold else None
    console.print(text, style=style, markup=False, soft_wrap=True)


def chapter(title: str) -> None:
    """Begin something new."""
    say(f"\n{title} {'-' * (WIDTH - len(title) - 1)}")


def until(condition: Callable[[], bool]) -> None:
    """Wait for something to become so."""
    limit = time.monotonic() + LIMIT_S
    while not condition():
        if time.monotonic() > limit:
            raise click.ClickException("this takes too long: is the machine very busy?")
        time.sleep(LOOK_S)


class Watch:
    """Looks at the job, tells what is new, and moves the bar."""

    def __init__(self, machine: Machine, job: str, progress: Progress) -> None:
        self._machine = machine
        self._id = job
        self._progress = progress
        self._bar = progress.add_task("spirals", total=None)
        self._told: dict[str, tuple[int, int]] = {}
        self._began = time.monotonic()
        self.job = self._get()

    def look(self) -> pb.Job:
        """Return the job as it is now; the old one while its node is away."""
        try:
            self.job = self._get()
        except ShoalError:
            return self.job
        for task in self.job.tasks:
            self._tell(task)
        done = sum(_fraction(task) for task in self.job.tasks)
        total = len(self.job.tasks)
        self._progress.update(self._bar, completed=done, total=total)
        return self.job

    def note(self, text: str) -> None:
        """Tell something with the time at which it happened."""
        say(f"{time.monotonic() - self._began:6.1f} s  {text}")

    def runs_on(self, name: str) -> list[str]:
        """Return the trainings that run on a node."""
        tasks = self.look().tasks
        return [
            task.id.rpartition(".")[2]
            for task in tasks
            if task.state == pb.STATE_RUNNING
            and name in [node.petname for node in task.nodes]
        ]

    def progress_on(self, name: str) -> float:
        """Return how far the trainings on a node are, on average."""
        numbers = self.runs_on(name)
        tasks = [t for t in self.job.tasks if t.id.rpartition(".")[2] in numbers]
        return sum(task.fraction for task in tasks) / len(tasks) if tasks else 0.0

    def _get(self) -> pb.Job:
        with self._machine.client() as client:
            return client.get(self._id)

    def _tell(self, task: pb.Task) -> None:
        now = (task.state, task.attempts)
        before = self._told.get(task.id)
        if now == before:
            return
        self._told[task.id] = now
        number = task.id.rpartition(".")[2]
        what = f"training {number:>2}"
        nodes = ", ".join(node.petname for node in task.nodes)
        if task.state == pb.STATE_RUNNING:
            again = f", attempt {task.attempts}" if task.attempts > 1 else ""
            self.note(f"{what} runs on {nodes}{again}")
        elif task.state == pb.STATE_DONE:
            self.note(f"{what} is done, {task.metrics['right']:.1%} right")
        elif task.state == pb.STATE_FAILED:
            raise click.ClickException(f"{what} failed: {task.reason}")


def _fraction(task: pb.Task) -> float:
    return 1.0 if task.state == pb.STATE_DONE else task.fraction


def make_shoal(a: Machine, b: Machine, c: Machine) -> None:
    """Start three nodes that know each other."""
    chapter("Three machines become a shoal")
    a.does("init", "reef", "-q")
    say("a$ shoal init reef", bold=True)
    a.types("up", "--background")
    invitation = a.does("invite", "--uses", "2", "-q").strip()
    say(f"a$ shoal invite --uses 2\n   shoal join {invitation[:40]}…", bold=True)
    for other in (b, c):
        brief = f"join {invitation[:24]}…"
        other.types("join", invitation, "--listen", "127.0.0.1:0", shown=brief)

    def all_known() -> bool:
        with a.client() as client:
            return sum(not node.away for node in client.nodes().nodes) == 3

    until(all_known)
    a.types("nodes")


def train(a: Machine, b: Machine, c: Machine, progress: Progress) -> Watch:
    """Train, and kill two of the three on the way."""
    chapter("Twelve trainings, and a power cut")
    job = a.does("submit", "-q", "spirals.yaml").strip()
    say("a$ shoal submit spirals.yaml", bold=True)
    watch = Watch(a, job, progress)

    until(lambda: watch.progress_on(b.name) > 0.2 and bool(watch.runs_on(c.name)))
    lost = ", ".join(watch.runs_on(b.name))
    watch.note(f"{b.name} is killed with SIGKILL; it ran {lost}")
    b_name = b.name
    b.is_killed()
    until(lambda: not watch.runs_on(b_name))

    until(lambda: watch.look().counts.done >= 4 and bool(watch.runs_on(c.name)))
    kept = ", ".join(watch.runs_on(c.name))
    watch.note(f"{a.name} is killed too, which has the job; {c.name} runs {kept}")
    a.is_killed()
    a.does("up", "--background", "-q")
    watch.note(f"{a.name} is back, and knows its job from the disk")
    b.does("up", "--background", "-q")
    watch.note(f"{b.name} is back as well")

    until(lambda: watch.look().state not in (pb.STATE_RUNNING, pb.STATE_WAITING))
    return watch


def sum_up(watch: Watch, a: Machine) -> bool:
    """Tell what came out of the twelve; return whether all is well."""
    chapter("What came out of the twelve")
    job = watch.job
    a.types("ps")
    with a.client() as client:
        pieces = client.logs(pb.LogsRequest(job=job.id, stream=pb.STREAM_STDOUT))
        results = sorted({line for p in pieces for line in p.data.decode().split("\n")})
    for line in filter(None, results):
        say(f"   {line}")
    attempts = sum(task.attempts for task in job.tasks)
    again = attempts - len(job.tasks)
    total = len(job.tasks)
    say(
        f"\n   {job.counts.done} of {total} trainings done, none lost, none twice; "
        f"{again} ran again after a kill.",
        bold=True,
    )
    return job.counts.done == total and len(list(filter(None, results))) == total


class Together:
    """Follows one DiLoCo job, tells its rounds, and hurts it on the way."""

    def __init__(self, a: Machine, b: Machine, job: str) -> None:
        self.board = CurveBoard()
        self._a, self._b, self._job = a, b, job
        self._name = b.name
        self._told = 0.0
        self._marks: dict[float, str] = {}
        self._sent: list[float] = []  # bytes a round, whoever aggregated
        self._parameters = 0

    def follow(self) -> pb.Job:
        """Follow the job to its end; return it."""
        with self._a.client() as client:
            for piece in client.logs(pb.LogsRequest(job=self._job, follow=True)):
                self._take(piece)
            return client.get(self._job)

    def _take(self, piece: pb.LogPiece) -> None:
        if found := re.search(rb'"parameters": (\d+)', piece.data):
            self._parameters = int(found[1])
        before = self.board.latest.get("workers", 0)
        self.board.take(piece)
        if not self.board.loss or max(self.board.loss) <= self._told:
            return
        self._told = max(self.board.loss)
        self._sent.append(self.board.latest["bytes_sent"])
        say(f"   {self.board.headline()}")
        if before and self.board.latest["workers"] > before:
            told = "a worker has taken its place, with the weights of now"
            say(f"   + {told}", bold=True)
        self._hurt()

    def _hurt(self) -> None:
        if "x" not in self._marks.values() and self._told >= KILL_AT_ROUND:
            self._marks[self._told] = "x"
            self._b.is_killed()
            told = f"{self._name} is killed with SIGKILL; the other workers go on"
            say(f"   x {told}", bold=True)
        elif "+" not in self._marks.values() and self._told >= BACK_AT_ROUND:
            self._marks[self._told] = "+"
            self._b.does("up", "--background", "-q")
            say(f"   + {self._name} is back, and lends its CPUs again", bold=True)

    def sum_up(self) -> None:
        """Draw the curves, and say what was sent."""
        *picture, axis = self.board.picture(WIDTH - 3)
        for line in picture[1:]:
            say(f"   {line}")
        say(f"   {self._marked(axis)}")
        say("   loss by round, in training and on text that was kept back;")
        say("   x: a machine was killed, +: it came back\n")
        rounds, latest = len(self.board.loss), self.board.latest
        sent = sum(self._sent) / len(self._sent)
        # What a ring of as many workers sends if it averages after every step.
        steps = max(each["steps"] for each in self.board.workers.values())
        in_step = 2 * (latest["workers"] - 1) * 4 * self._parameters * steps
        say(
            f"   {rounds} rounds, none lost; {sent / 1e6:.1f} MB a round, "
            f"where training in step sends {in_step / 1e6:.0f} MB.",
            bold=True,
        )

    def _marked(self, axis: str) -> str:
        """Write marks between the ends of the axis, where they happened."""
        last = max(self.board.loss)
        letters = list(axis.ljust(WIDTH - 3))
        width = len(axis.rstrip()) - MARGIN
        for at, mark in self._marks.items():
            letters[MARGIN + round((at - 1) / max(1.0, last - 1) * (width - 1))] = mark
        return "".join(letters).rstrip()


def train_together(a: Machine, b: Machine) -> bool:
    """Train one model on all three, and replace one of them; whether all is well."""
    chapter("One model on three machines: DiLoCo")
    say("a$ shoal run diloco.yaml --watch", bold=True)
    job = a.does("submit", "-q", "diloco.yaml").strip()
    together = Together(a, b, job)
    end = together.follow()
    if end.state != pb.STATE_DONE:
        raise click.ClickException(f"the training failed: {end.reason}")
    say()
    together.sum_up()
    return True


def say_next() -> None:
    """Say what to type now."""
    chapter("Now you")
    for command, what in NEXT.items():
        say(f"   {command:<46} {what}")


def main() -> int:
    """Tell the story; the nodes end with it."""
    bar = Progress(
        TextColumn("  {task.description}"),
        BarColumn(),
        TextColumn("{task.completed:.1f} of {task.total}"),
        console=console,
        transient=True,
    )
    with (
        tempfile.TemporaryDirectory(prefix="shoal-demo-") as folder,
        ExitStack() as end,
    ):
        machines = [Machine(letter, Path(folder)) for letter in "abc"]
        for machine in machines:
            end.callback(machine.goes_home)
        a, b, c = machines
        began = time.monotonic()
        say("Three nodes on this machine train, and are killed on the way: 2 to 3 min.")
        make_shoal(a, b, c)
        with bar:
            watch = train(a, b, c, bar)
        is_well = sum_up(watch, a) and train_together(a, b)
        say(f"   All of it took {time.monotonic() - began:.0f} s.")
    if is_well:
        say_next()
    return 0 if is_well else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except click.ClickException as error:
        error.show()
        sys.exit(1)
