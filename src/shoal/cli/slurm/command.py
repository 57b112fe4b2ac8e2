"""`shoal slurm`: the commands of Slurm, on top of a shoal."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from shoal.api.client import client as api
from shoal.cli.options import suggest, talk
from shoal.cli.slurm.options import KNOWN
from shoal.cli.terminal import echo
from shoal.errors import NotFoundError, UsageError
from shoal.runtime.home import Home

if TYPE_CHECKING:
    from shoal.cli.slurm.ledger import BatchJob, BatchLedger
    from shoal.cli.slurm.submitting import Clerk

HELP: Final[dict[str, Any]] = {"help_option_names": ["--help"]}


class SlurmCommand(click.Command):
    """A command whose unknown options are told together with the known ones."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse options as usual."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            known = sorted({o for p in self.params for o in p.opts if o[0] == "-"})
            raise UsageError(
                f"{self.name}: {error.option_name} is not supported",
                because=f"known: {', '.join(known)}",
                hint=f"leave it out; `{ctx.command_path} --help` lists the options",
            ) from None


def _records() -> tuple[BatchLedger, Path]:
    from shoal.cli.slurm.ledger import BatchLedger  # noqa: PLC0415 - Loads sqlite.

    home = Home.default().path
    return BatchLedger(home), home


def _clerk(client: api.Client, ledger: BatchLedger, home: Path) -> Clerk:
    from shoal.cli.slurm.submitting import Clerk  # noqa: PLC0415 - Slow.

    return Clerk(client, ledger, home)


@click.group(name="slurm")
def slurm() -> None:
    """Run scripts that were written for Slurm, with Slurm's own commands.

    `shoal slurm install DIR` writes sbatch, squeue, scancel and sinfo to a folder; put
    it first in your PATH. Without it: `shoal slurm sbatch train.sh`.
    """


@slurm.command(name="install")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option(
    "--shared",
    multiple=True,
    metavar="NAME=FOLDER",
    help="Folder that all workers share under that name; jobs submitted below it run "
    "there.",
)
@click.option(
    "--beside-slurm", is_flag=True, help="Write them though there is a real Slurm."
)
def install_(folder: Path, shared: tuple[str, ...], beside_slurm: bool) -> None:
    """Write sbatch, squeue, scancel and sinfo to a folder."""
    from shoal.cli.slurm.install import install  # noqa: PLC0415

    for path in install(folder, shared, beside_slurm=beside_slurm):
        echo(str(path))
    suggest(f"export PATH={folder.resolve()}:$PATH", "sbatch SCRIPT")


@slurm.command(
    cls=SlurmCommand,
    context_settings={
        **HELP,
        "ignore_unknown_options": True,
        "allow_interspersed_args": False,
    },
    epilog=f"Options: {', '.join(f'--{name}' for name in sorted(KNOWN))}.",
)
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[OPTION...] SCRIPT")
def sbatch(words: tuple[str, ...]) -> None:
    """Submit a batch script, or a command line by --wrap.

    Options are those of Slurm, on the command line or in lines of #SBATCH; lines of
    #SHOAL say what only shoal has. An unknown option is refused with a list of the
    known ones.
    """
    from shoal.cli.slurm.batch import read  # noqa: PLC0415

    asked = read(list(words), os.environ, Path.cwd())
    for note in asked.notes:
        talk(f"sbatch: note: {note}", quiet=asked.quiet)
    with api.connect(None) as client:
        ledger, home = _records()
        clerk = _clerk(client, ledger, home)
        if asked.is_test:
            _tell_plan(client, asked.batch, home)
            return
        clerk.look_at_all()
        reply = clerk.take(asked.batch)
        number = asked.batch.number
        echo(str(number) if asked.parsable else f"Submitted batch job {number}")
        for note in reply.notes if reply is not None else ():
            talk(f"sbatch: note: {note}", quiet=asked.quiet)
        if asked.waits:
            sys.exit(_waited(client, ledger, asked.batch))


def _tell_plan(client: api.Client, batch: BatchJob, home: Path) -> None:
    from shoal.api.shoal_pb2 import PlanRequest  # noqa: PLC0415
    from shoal.cli.display.offers import tell  # noqa: PLC0415
    from shoal.cli.slurm.batch import finished  # noqa: PLC0415

    spec = finished(batch, home, sys.executable)
    spec.pop("workdir", None)
    spec.pop("on_end", None)
    tell(client.plan(PlanRequest(json=json.dumps(spec))))


POLL_S: Final = 0.5


def _waited(client: api.Client, ledger: BatchLedger, batch: BatchJob) -> int:
    """Wait for the end of a job and of what follows from it; return its exit code."""
    from shoal.cli.display.printing import code_of  # noqa: PLC0415

    while (known := ledger.get(batch.number)).state == "held":
        time.sleep(POLL_S)
    if known.state == "cancelled":
        return 1
    for _ in client.watch(batch.job):
        pass
    while not ledger.get(batch.number).ended:
        time.sleep(POLL_S)
    return code_of(client.get(batch.job, tasks_max=1))


@slurm.command(cls=SlurmCommand, context_settings=HELP, hidden=True)
@click.argument("number", type=int)
def ended(number: int) -> None:
    """Write what batch job NUMBER left to files; the node calls this at its end."""
    from shoal.cli.slurm.ending import settle  # noqa: PLC0415

    ledger, home = _records()
    with api.connect(None) as client:
        settle(client, ledger, _clerk(client, ledger, home), ledger.get(number))


@slurm.command(cls=SlurmCommand, context_settings=HELP)
@click.option("-u", "--user", default="", help="Jobs of these users.")
@click.option("--me", is_flag=True, help="Jobs of mine.")
@click.option("-j", "--jobs", "jobs", default="", help="These jobs: 12,13_4.")
@click.option("-t", "--states", default="PD,R", help="Jobs in these states, or all.")
@click.option("-n", "--name", default="", help="Jobs of these names.")
@click.option("-p", "--partition", default="", help="Jobs of these partitions.")
@click.option("-A", "--account", default="", help="Jobs of these accounts.")
@click.option("-o", "--format", "format_", default="", help="Columns: '%i %j %t %M'.")
@click.option("-h", "--noheader", is_flag=True, help="Leave out the headings.")
@click.option("-r", "--array", "each", is_flag=True, help="One line for each task.")
@click.option("-l", "--long", "is_long", is_flag=True, help="Show more columns.")
def squeue(
    jobs: str,
    states: str,
    format_: str,
    **flags: Any,  # noqa: ANN401 - As many as `squeue` has.
) -> None:
    """List batch jobs that wait or run, or those in other states."""
    from shoal.cli.slurm import queue  # noqa: PLC0415
    from shoal.cli.slurm.formats import table  # noqa: PLC0415

    if flags["me"]:
        flags["user"] = f"{flags['user']},{_me()}"
    fields = ("user", "name", "partition", "account")
    wanted = {field: {*flags[field].split(",")} - {""} for field in fields}
    with api.connect(None) as client:
        ledger, home = _records()
        clerk = _clerk(client, ledger, home)
        clerk.look_at_all()
        found = queue.rows_of(
            client,
            ledger,
            clerk,
            states=queue.read_states(states),
            each=flags["each"],
        )
        rows = queue.named(found, jobs) if jobs else list(found)
        for number in filter(str.isdecimal, jobs.split(",")):
            ledger.get(int(number))  # Raises if there is none.
    rows = [
        row
        for row in rows
        if all(not k or getattr(row.batch, field) in k for field, k in wanted.items())
    ]
    usual = queue.LONG if flags["is_long"] else queue.USUAL
    head = not flags["noheader"]
    for line in table(format_ or usual, queue.FIELDS, rows, "squeue", with_head=head):
        echo(line)


def _me() -> str:
    from shoal.cli.slurm.batch import user_of  # noqa: PLC0415

    return user_of(os.environ)


@slurm.command(cls=SlurmCommand, context_settings=HELP)
@click.argument("jobs", nargs=-1, metavar="JOB...")
@click.option("-u", "--user", default="", help="All jobs of this user.")
@click.option("--me", is_flag=True, help="All jobs of mine.")
@click.option("-n", "--name", "-name", "names", default="", help="Jobs of these names.")
@click.option("-t", "--state", default="", help="Only jobs in this state: PD or R.")
@click.option("-Q", "--quiet", is_flag=True, help="No word about jobs that ended.")
@click.option("-v", "--verbose", is_flag=True, help="Say what is cancelled.")
def scancel(
    jobs: tuple[str, ...],
    user: str,
    me: bool,
    names: str,
    state: str,
    quiet: bool,
    verbose: bool,
) -> None:
    """Cancel batch jobs: 12, 12_3, 12_[0-4], or all of a user or name."""
    from shoal.cli.slurm import queue  # noqa: PLC0415
    from shoal.cli.slurm.cancelling import cancel, read_job  # noqa: PLC0415

    user = _me() if me else user
    if not (jobs or user or names or state):
        raise UsageError(
            "scancel: no job was named",
            because="it would cancel nothing, or everything",
            hint="scancel 12, scancel 12_3, or scancel --me",
        )
    with api.connect(None) as client:
        ledger, home = _records()
        states = queue.read_states(state or "PD,R") & {*queue.ACTIVE}
        clerk = _clerk(client, ledger, home)
        rows = list(queue.rows_of(client, ledger, clerk, states=states, each=True))
        aims = [aim for job in jobs for aim in read_job(job)]
        missing: NotFoundError | None = None
        for number, _ in aims:
            try:
                ledger.get(number)
            except NotFoundError as error:
                missing = error
        chosen = [
            row
            for row in rows
            if (not jobs or any(queue.is_of(row, *aim) for aim in aims))
            and (not user or row.batch.user == user)
            and (not names or row.batch.name in names.split(","))
        ]
        whole = {number for number, index in aims if index is None} if jobs else None
        for what in cancel(client, ledger, chosen, whole):
            talk(f"scancel: {what}", quiet=not verbose)
        clerk.look_at_all()
    if missing is not None:
        raise missing
    if jobs and not chosen:
        talk(f"scancel: {', '.join(jobs)} ended already", quiet=quiet)


@slurm.command(cls=SlurmCommand, context_settings=HELP)
@click.option("-N", "--Node", "each", is_flag=True, help="One line for each node.")
@click.option("-l", "--long", "is_long", is_flag=True, help="Show more columns.")
@click.option("-h", "--noheader", is_flag=True, help="Leave out the headings.")
@click.option("-o", "--format", "format_", default="", help="Columns: '%P %D %t %N'.")
@click.option("-n", "--nodes", "names", default="", help="Only these nodes.")
@click.option("-t", "--states", default="", help="Only nodes in these states: idle.")
@click.option("-p", "--partition", default="", help="Only this partition.")
def sinfo(
    each: bool,
    is_long: bool,
    noheader: bool,
    format_: str,
    names: str,
    states: str,
    partition: str,
) -> None:
    """List the nodes of the shoal that run tasks."""
    from shoal.cli.slurm import pool  # noqa: PLC0415
    from shoal.cli.slurm.batch import PARTITION  # noqa: PLC0415
    from shoal.cli.slurm.formats import table  # noqa: PLC0415

    with api.connect(None) as client:
        nodes = client.nodes().nodes
    chosen = [
        node
        for node in nodes
        if (not names or node.name.petname in names.split(","))
        and (not partition or PARTITION in partition.split(","))
    ]
    short = {word[:4] for word in filter(None, states.lower().split(","))}
    rows = [
        row
        for row in pool.rows_of(chosen, each=each)
        if not short or row.state[:4] in short
    ]
    usual = pool.LONG if is_long else pool.BY_NODE if each else pool.USUAL
    for line in table(
        format_ or usual, pool.FIELDS, rows, "sinfo", with_head=not noheader
    ):
        echo(line)
