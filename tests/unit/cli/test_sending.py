"""Standard input on its way to a task: sent once, and again only if that can be."""

import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from shoal.api import shoal_pb2 as pb
from shoal.api.client.client import Client
from shoal.cli.tasks.sending import READ_ONCE, InputSender, with_stdin
from shoal.errors import ShoalError, SpecError, UnreachableError
from shoal.protocol.channels import items


class FakeChannel:
    """A channel to one attempt that takes some input, and then breaks or is done."""

    def __init__(self, attempt: str, *, breaks_after: int | None) -> None:
        self.taken = b""
        self._attempt = attempt
        self._breaks_after = breaks_after
        self._over = threading.Event()

    def send(self, request: pb.ChannelRequest) -> None:
        for item in request.items:
            self.taken += item[1:]
            if item[:1] == items.EOF or len(self.taken) == self._breaks_after:
                self._over.set()

    def replies(self, _type: type) -> Iterator[pb.ChannelReply]:
        yield pb.ChannelReply(attempt=self._attempt)
        yield pb.ChannelReply(items=[items.READY])
        assert self._over.wait(10.0)
        if self._breaks_after is not None:
            raise ShoalError("the channel to the task broke off")

    def close(self) -> None:
        """Do nothing."""


class FakeClient:
    """A node on which a task runs twice: the first attempt is lost."""

    def __init__(self, breaks_after: int) -> None:
        first = FakeChannel("s:1.1", breaks_after=breaks_after)
        self.channels = [first, FakeChannel("s:1.2", breaks_after=None)]
        self.asked: list[str] = []
        self.cancelled: list[str] = []

    def channel(self, target: pb.ChannelTarget) -> FakeChannel:
        self.asked.append(target.input.after)
        if len(self.asked) > len(self.channels):
            raise UnreachableError("the node has gone")
        return self.channels[len(self.asked) - 1]

    def get(self, _job: str, tasks_max: int) -> pb.Job:
        assert tasks_max
        return pb.Job(state=pb.STATE_RUNNING)

    def cancel(self, _job: str, reason: str) -> None:
        self.cancelled.append(reason)


def sent(client: FakeClient, fd: int, monkeypatch: pytest.MonkeyPatch) -> FakeClient:
    """Send all of a descriptor, as the standard input of a command."""
    stdin = SimpleNamespace(fileno=lambda: fd)
    monkeypatch.setattr(sys, "stdin", stdin)
    sender = InputSender(cast("Client", client), "j")

    sender._serve()

    return client


def test_a_file_is_sent_again_from_where_it_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data").write_bytes(b"head\n" + b"x" * 50)
    with (tmp_path / "data").open("rb") as file:
        os.lseek(file.fileno(), 5, os.SEEK_SET)
        client = sent(FakeClient(50), file.fileno(), monkeypatch)

    assert [each.taken for each in client.channels] == [b"x" * 50] * 2
    assert client.asked == ["", "s:1.1", "s:1.2"]
    assert client.cancelled == []


def test_a_pipe_that_was_read_ends_the_job_and_says_why(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read, write = os.pipe()
    os.write(write, b"abc")

    client = sent(FakeClient(3), read, monkeypatch)

    assert client.cancelled == [READ_ONCE]
    assert client.channels[1].taken == b""
    os.close(read)
    os.close(write)


def test_jobs_that_cannot_have_input_are_refused_if_it_was_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    read, write = os.pipe()
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(fileno=lambda: read))
    one, many = '{"command": ["wc"]}', '{"command": ["wc"], "array": 3}'
    os.write(write, b"abc")

    assert '"stdin": "pipe"' in with_stdin(one, asked=False, tty=False, quiet=False)
    assert with_stdin(many, asked=False, tty=False, quiet=False) == many
    assert "not sent: the job has several tasks" in capsys.readouterr().err
    for spec in (many, '{"recipe": "echo"}', '{"command": ["wc"], "nodes": 2}'):
        with pytest.raises(SpecError, match="cannot have a standard input"):
            with_stdin(spec, asked=True, tty=False, quiet=False)

    os.read(read, 3)
    os.close(write)  # Empty for good, as under cron: nothing is worth a channel.
    assert with_stdin(one, asked=False, tty=False, quiet=False) == one
    os.close(read)
