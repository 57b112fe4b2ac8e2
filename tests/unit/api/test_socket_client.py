"""The client's side of the plain socket, against a node of a few lines."""

import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from shoal.api import shoal_pb2 as pb
from shoal.api.call_frames import END, MESSAGE, packed
from shoal.api.client import socket_client
from shoal.api.client.socket_client import SocketCalls
from shoal.errors import UnreachableError


def serve(path: Path, answer: Callable[[socket.socket], None]) -> SocketCalls:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen(1)

    def once() -> None:
        with listener, listener.accept()[0] as line, suppress(BrokenPipeError):
            line.recv(1 << 16)
            answer(line)

    threading.Thread(target=once, daemon=True).start()
    return SocketCalls(path, "otter")


def frames(line: socket.socket, *pauses_s: float) -> None:
    for pause_s in pauses_s:
        time.sleep(pause_s)
        data = pb.Job(id="j").SerializeToString()
        line.sendall(packed(MESSAGE, data))
    line.sendall(packed(END, b""))


def test_an_answer_that_takes_longer_than_one_wait_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket_client, "LOOK_UP_S", 0.01)
    calls = serve(tmp_path / "s", lambda line: frames(line, 0.1, 0.1))

    found = list(calls.follow("Watch", pb.GetRequest(), pb.Job, None))

    assert [view.id for view in found] == ["j", "j"]


def test_a_node_that_stays_silent_is_given_up_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket_client, "LOOK_UP_S", 0.01)
    calls = serve(tmp_path / "s", lambda line: frames(line, 1.0))

    with pytest.raises(UnreachableError, match="does not answer") as caught:
        calls.ask("Get", pb.GetRequest(), pb.Job, 0.1)

    assert "its jobs go on when it is up again" in caught.value.hint
