"""`shoal forward`: reach TCP ports of a running task from this machine."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from typing import TYPE_CHECKING, Final, NamedTuple, final

import click

from shoal.api import shoal_pb2 as pb
from shoal.api.client import client as api
from shoal.cli.display.printing import has_ended
from shoal.cli.job_input.completion_types import JOB
from shoal.cli.options import PORT_MAX, any_node_option, talk
from shoal.cli.tasks import carrying
from shoal.errors import ShoalError, UsageError
from shoal.protocol.channels import items

if TYPE_CHECKING:
    from shoal.api.client.client import Client, TaskChannel

HERE: Final = "127.0.0.1"
WAITING_MAX: Final = 64
RESET: Final = struct.pack("ii", 1, 0)  # Closing it resets the connection.


class PortPair(NamedTuple):
    """A port of the task, and the port here that leads to it; 0: the same, or any."""

    theirs: int
    ours: int


def parsed(text: str) -> PortPair:
    """Return the ports of PORT or LOCALPORT:PORT; raise if they are none."""
    ours, colon, theirs = text.rpartition(":")
    numbers = [int(part) if part.isdecimal() else 0 for part in (theirs, ours or "0")]
    is_local = not colon or ours.isdecimal()
    if not 0 < numbers[0] <= PORT_MAX or numbers[1] > PORT_MAX or not is_local:
        raise UsageError(
            f"'{text}' is not a port",
            because=f"a port is a number from 1 to {PORT_MAX}",
            hint="write it like 8888, or 9000:8888 for port 9000 here",
        )
    return PortPair(*numbers)


@click.command()
@click.argument("job", type=JOB, metavar="JOB[/TASK]")
@click.argument("ports", nargs=-1, required=True, metavar="[LOCALPORT:]PORT...")
@click.option(
    "--address", default=HERE, help="Listen on this address instead of 127.0.0.1."
)
@any_node_option
def forward(job: str, ports: tuple[str, ...], address: str, node: str | None) -> None:
    """Reach TCP ports of a running task from this machine.

    Whatever listens on PORT inside the task, on any machine of the shoal, answers on
    127.0.0.1:LOCALPORT here: by default the same port, or any free one if that is
    taken. It also works for tasks without a network. Ends with the job, or by Ctrl-C.
    """
    pairs = [parsed(text) for text in ports]
    target = carrying.target_of(job)
    with api.connect(node) as client:
        job_id = client.get(target.job, tasks_max=1).id
        target.job = job_id
        doors = [Door(client, target, pair, address) for pair in pairs]
        try:
            for door in doors:
                door.open()
            wait_for_end(client, job_id)
        finally:
            for door in doors:
                door.close()


def wait_for_end(client: Client, job: str) -> None:
    """Wait until a job has ended, and say so."""
    for view in client.watch(job):
        if has_ended(view):
            talk(f"job {job} has ended")


@final
class Door:
    """A port of this machine that leads to a port of a task."""

    def __init__(
        self, client: Client, target: pb.ChannelTarget, pair: PortPair, address: str
    ) -> None:
        self._client = client
        self._target = pb.ChannelTarget(port=pair.theirs)
        self._target.MergeFrom(target)
        self._pair = pair
        self._address = address
        self._listener: socket.socket | None = None
        self.port = 0  # of this machine, once it is open

    def open(self, *, quiet: bool = False) -> None:
        """Listen, and say what to open."""
        trouble = self._trouble()
        self._listener = listener = self._listen()
        self.port = listener.getsockname()[1]
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()
        if quiet:
            return
        host = f"[{self._address}]" if ":" in self._address else self._address
        talk(
            f"http://{host}:{self.port} leads to port {self._pair.theirs} of job "
            f"{self._target.job} (Ctrl-C ends that)"
        )
        if trouble:
            talk(f"note: {trouble}; each new connection tries again")

    def close(self) -> None:
        """Listen no more."""
        if self._listener is not None:
            self._listener.close()

    def _trouble(self) -> str:
        """Try the port once; return why it does not answer yet, if it does not."""
        channel = self._client.channel(self._target)
        try:
            for _ in carrying.heard(channel):
                return ""
        except ShoalError as error:
            if not error.what.startswith("nothing of the task listens"):
                raise
            return error.what
        finally:
            channel.close()
        return ""

    def _listen(self) -> socket.socket:
        wanted = self._pair.ours or self._pair.theirs
        family = socket.AF_INET6 if ":" in self._address else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            try:
                listener.bind((self._address, wanted))
            except OSError:
                if self._pair.ours:
                    raise
                listener.bind((self._address, 0))  # Any that is free.
            listener.listen(WAITING_MAX)
        except OSError as error:
            listener.close()
            raise UsageError(
                f"cannot listen on {self._address}:{wanted}",
                because=error.strerror or str(error),
                hint=f"choose another: LOCALPORT:{self._pair.theirs}",
            ) from None
        return listener

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                line, _ = listener.accept()
                threading.Thread(target=self._serve, args=(line,), daemon=True).start()

    def _serve(self, line: socket.socket) -> None:
        """Carry one connection."""
        is_whole = False
        channel: TaskChannel | None = None
        try:
            channel = self._client.channel(self._target)
            is_whole = _carry(line, channel)
        except ShoalError as error:
            talk(f"note: {error}")
        except OSError:
            pass  # The program here closed its connection.
        finally:
            if channel is not None:
                channel.close()
            with contextlib.suppress(OSError):
                if not is_whole:
                    line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                line.close()


def _carry(line: socket.socket, channel: TaskChannel) -> bool:
    """Copy bytes both ways; return whether both sides ended cleanly."""
    sent = threading.Event()
    upwards = threading.Thread(
        target=_send_all, args=(line, channel, sent), daemon=True
    )
    has_end = False
    for kind, body in carrying.heard(channel):
        if kind == items.READY:
            upwards.start()
        elif kind == items.DATA:
            line.sendall(body)
        elif kind == items.EOF:
            has_end = True
            line.shutdown(socket.SHUT_WR)
    return has_end and sent.is_set()


def _send_all(line: socket.socket, channel: TaskChannel, sent: threading.Event) -> None:
    try:
        while data := line.recv(carrying.READ_BYTES):
            channel.send(pb.ChannelRequest(items=[items.DATA + data]))
        channel.send(pb.ChannelRequest(items=[items.EOF]))
        sent.set()
    except OSError:
        channel.close()  # The program here is gone: so is its connection over there.
