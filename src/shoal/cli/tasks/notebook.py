"""`shoal notebook`: JupyterLab in a task, reached from this machine."""

from __future__ import annotations

import re
import sys
import urllib.request
from typing import TYPE_CHECKING, Any, Final, NamedTuple, final

import click

from shoal.api.client import client as api
from shoal.api.job_ids import new_job_id
from shoal.api.shoal_pb2 import ChannelTarget, LogsRequest
from shoal.cli.display.printing import (
    code_of,
    echo_json,
    end_text,
    has_ended,
    taken_text,
)
from shoal.cli.display.task_output import screened
from shoal.cli.exit_codes import ExitCode
from shoal.cli.job_input.completion_types import JOB
from shoal.cli.job_input.spec_flags import job_flags, spec_of_flags
from shoal.cli.jobs.run import StopSignal, stopped_by_signals
from shoal.cli.jobs.submit import pack, send_in
from shoal.cli.options import PORT_MAX, json_option, node_option, suggest, talk
from shoal.cli.tasks.forward import HERE, Door, PortPair
from shoal.cli.terminal import echo
from shoal.errors import NotFoundError, ShoalError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shoal.api.client.client import Client

PACKAGE: Final = "jupyterlab"
NAME: Final = "notebook"
COMMAND: Final = (
    *("python", "-m", PACKAGE, "--no-browser", "--allow-root"),
    *("--ip=127.0.0.1", "--port=8888", "--ServerApp.port_retries=100"),
    "--FileCheckpoints.checkpoint_dir=/tmp/jupyter/checkpoints",
)
PLACES: Final = {
    "JUPYTER_CONFIG_DIR": "/tmp/jupyter/config",  # noqa: S108 - Of the task alone.
    "JUPYTER_DATA_DIR": "/tmp/jupyter/data",  # noqa: S108
    "JUPYTER_RUNTIME_DIR": "/tmp/jupyter/runtime",  # noqa: S108
    "IPYTHONDIR": "/tmp/jupyter/ipython",  # noqa: S108
}
"""Where Jupyter keeps its own files: not among those of the user."""

KEPT: Final = ("**/*.ipynb", "*.ipynb")
ADDRESS: Final = re.compile(
    r"https?://(?:127\.0\.0\.1|localhost):(\d{1,5})(/[\w/.-]*\?token=[\w-]{1,128})"
)
LINES_KEPT: Final = 20
LINE_BYTES_MAX: Final = 65_536
ENDED_S: Final = 30.0


class NotebookAddress(NamedTuple):
    """Where Jupyter listens inside the task, and the rest of its URL."""

    port: int
    path: str


@click.command()
@click.argument("job", required=False, type=JOB, metavar="[JOB]")
@job_flags
@click.option("--port", type=click.IntRange(1, PORT_MAX), help="Port of this machine.")
@click.option("-d", "--detach", is_flag=True, help="Leave it running, and return.")
@click.option("--stop", is_flag=True, help="Stop the notebook in JOB.")
@node_option
@json_option
def notebook(
    job: str | None,
    port: int | None,
    detach: bool,
    stop: bool,
    node: str | None,
    as_json: bool,
    **flags: Any,  # noqa: ANN401 - As many as a job has.
) -> None:
    """Run JupyterLab in a task, and reach it from this machine.

    It runs wherever there is room, like any job: --gpus, --workdir and all other flags
    say with what. Without --python it gets JupyterLab and every --package from PyPI.
    Prints the URL to open. Ctrl-C stops it; its notebooks are then in out/JOB. With
    --detach it goes on: `shoal notebook JOB` opens it again, and --stop stops it.
    """
    if stop and (job is None or detach):
        raise UsageError(
            "--stop needs the JOB of a notebook",
            because="it stops one that runs",
            hint="shoal notebook last --stop",
        )
    with api.connect(node) as client:
        packed = ""
        if job is not None:
            _refuse_flags(flags)
            target = client.get(job, tasks_max=1).id
        else:
            target, packed = new_job_id(), pack(client, _spec(flags))
        session = _Session(client, target, port, is_ours=job is None, as_json=as_json)
        # From here on there may be a job to cancel.
        with stopped_by_signals("shoal notebook"):
            try:
                if packed:
                    session.submit(packed)
                if stop:
                    code = session.stop()
                else:
                    code = session.until_up() if detach else session.run()
            except StopSignal as why:
                code = session.leave(str(why))
    sys.exit(code)


def _refuse_flags(flags: dict[str, Any]) -> None:
    given = [name for name, value in flags.items() if value not in (None, ())]
    if given:
        raise UsageError(
            f"--{given[0].replace('_', '-')} does not go with a JOB",
            because="that notebook runs already",
            hint="leave JOB out to start another",
        )


def _spec(flags: dict[str, Any]) -> str:
    """Return the job of a notebook, as JSON."""
    given = {name: value for name, value in flags.items() if value not in (None, ())}
    if not given.get("python"):
        given["packages"] = (PACKAGE, *given.get("packages", ()))
    given.setdefault("name", NAME)
    given.setdefault("outputs", KEPT)
    given["env"] = (*(f"{k}={v}" for k, v in PLACES.items()), *given.get("env", ()))
    return spec_of_flags({**given, "command": COMMAND})


@final
class _Session:
    """A notebook that runs in a job, and the port here that leads to it."""

    def __init__(
        self,
        client: Client,
        job: str,
        port: int | None,
        *,
        is_ours: bool,
        as_json: bool,
    ) -> None:
        self._client = client
        self._job = job
        self._port = port
        self._is_ours = is_ours
        self._as_json = as_json
        self._door: Door | None = None
        self._found: NotebookAddress | None = None
        self._lines: list[str] = []  # the last, in case it never comes up

    def submit(self, packed: str) -> None:
        """Submit the job of a new notebook."""
        for note in send_in(self._client, packed, self._job).notes:
            talk(f"note: {note}")
        talk(f"job {self._job} submitted; the first start installs JupyterLab")

    def run(self) -> int:
        """Serve the notebook until it ends; return its exit code."""
        for address in self._addresses():
            self._open(address)
        return self._ended()

    def until_up(self) -> int:
        """Wait until the notebook is up, and leave it."""
        for _ in self._addresses():
            if self._as_json:
                echo_json({"job": self._job})
            else:
                echo(self._job)
            talk("the notebook is up, and goes on")
            self._suggest()
            return 0
        return self._ended()

    def leave(self, why: str) -> int:
        """Stop the notebook if this command began it; say what goes on."""
        talk("")
        if not self._is_ours:
            talk(f"the notebook goes on in job {self._job}")
            self._suggest()
            return 0
        if self._door is not None and self._found is not None:
            return self._shut_down(self._door, self._found)
        try:
            self._client.cancel(self._job, why)
        except NotFoundError:
            raise click.Abort from None  # It was not submitted yet.
        talk(f"job {self._job} was cancelled before the notebook was up")
        return ExitCode.CANCELLED

    def stop(self) -> int:
        """Stop a notebook that runs."""
        for address in self._addresses():
            door = self._opened(address)
            return self._shut_down(door, address)
        return self._ended()

    def _shut_down(self, door: Door, address: NotebookAddress) -> int:
        """Have Jupyter end by itself, so that what it leaves is kept.

        A job that is cancelled has no outputs.
        """
        token = address.path.rpartition("=")[2]
        request = urllib.request.Request(
            f"http://{HERE}:{door.port}/api/shutdown",
            method="POST",
            headers={"Authorization": f"token {token}"},
        )
        try:
            with urllib.request.urlopen(request, timeout=ENDED_S):  # noqa: S310
                pass
        except OSError as error:
            talk(f"note: Jupyter did not shut down: {error}")
            self._client.cancel(self._job, "Jupyter did not shut down")
        for view in self._client.watch(self._job):
            if has_ended(view):
                break
        talk(f"the notebook in job {self._job} was stopped")
        self._take()
        return 0

    def _suggest(self) -> None:
        again = f"shoal notebook {self._job}"
        suggest(again, f"{again} --stop")

    def _addresses(self) -> Iterator[NotebookAddress]:
        """Yield where Jupyter listens, for each attempt that says so."""
        rests: dict[int, bytes] = {}
        for piece in self._client.logs(LogsRequest(job=self._job, follow=True)):
            *lines, rest = (rests.get(piece.stream, b"") + piece.data).split(b"\n")
            rests[piece.stream] = rest[-LINE_BYTES_MAX:]
            for line in lines:
                text = screened(line)
                self._lines = [*self._lines, text][-LINES_KEPT:]
                found = ADDRESS.search(text)
                if found is None or not 0 < int(found[1]) <= PORT_MAX:
                    continue
                address = NotebookAddress(int(found[1]), found[2])
                if address != self._found:
                    self._found = address
                    yield address

    def _opened(self, address: NotebookAddress) -> Door:
        """Let a port of this machine lead to the notebook."""
        ours = self._port or (0 if self._door is None else self._door.port)
        pair = PortPair(address.port, ours)
        door = Door(self._client, ChannelTarget(job=self._job), pair, HERE)
        door.open(quiet=True)
        return door

    def _open(self, address: NotebookAddress) -> None:
        """Let a port of this machine lead to the notebook, and print its URL."""
        if self._door is not None:
            talk("the notebook was started again, and has another URL")
            self._door.close()
        self._door = self._opened(address)
        url = f"http://{HERE}:{self._door.port}{address.path}"
        if self._as_json:
            echo_json({"job": self._job, "url": url})
        else:
            echo(url)
        ends = "stops the notebook" if self._is_ours else "leaves it"
        talk(f"open this in a browser; Ctrl-C {ends}")

    def _ended(self) -> int:
        end = self._client.get(self._job, tasks_max=1)
        if self._found is None:
            for line in self._lines:
                talk(line)
        talk(end_text(end))
        self._take()
        if self._found is None:
            raise ShoalError(
                f"the notebook in job {self._job} never came up",
                because=end.reason or "it ended before it said where it listens",
                hint=f"`shoal logs {self._job}` shows what it wrote",
            )
        return code_of(end)

    def _take(self) -> None:
        """Download the notebooks that the job left."""
        from shoal.cli.jobs.pull import take  # noqa: PLC0415 - Slow to import.

        taken = [each for each in take(self._client, self._job) if each.files]
        for each in taken:
            talk(taken_text(each))
        if not taken:
            talk("it left no notebooks")
