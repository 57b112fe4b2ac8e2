"""The client's side of calls at another node, through a node of a few lines."""

import socket
import threading
from pathlib import Path

import pytest

from shoal.api import shoal_pb2 as pb
from shoal.api.call_frames import END, ERROR, MESSAGE, frame, frame_buffer, packed
from shoal.api.client.socket_client import ForwardedCalls, SocketCalls
from shoal.errors import ShoalError, UnreachableError

asked: list[tuple[str, pb.ForwardRequest]] = []


def calls(path: Path, *frames: bytes) -> ForwardedCalls:
    """Return calls at a node that answers the first with these frames."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen(1)

    def once() -> None:
        with listener, listener.accept()[0] as line:
            [request] = frame_buffer().feed(line.recv(1 << 16))
            method, _, data = request[1:].partition(b"\0")
            asked.append((method.decode(), pb.ForwardRequest.FromString(data)))
            line.sendall(b"".join(frames) + packed(END, b""))

    threading.Thread(target=once, daemon=True).start()
    return ForwardedCalls(SocketCalls(path, "otter"), "heron")


def reply(data: bytes) -> bytes:
    return frame(MESSAGE, pb.ForwardReply(reply=data))


def test_a_call_goes_as_it_is_and_its_answers_come_back(tmp_path: Path) -> None:
    jobs = [pb.Job(id="a"), pb.Job(id="b")]
    request = pb.WatchRequest(job="a")
    heron = calls(tmp_path / "s", *(reply(job.SerializeToString()) for job in jobs))

    found = list(heron.follow("Watch", request, pb.Job, 5.0))

    assert found == jobs
    method, sent = asked.pop()
    assert (method, sent.node, sent.method) == ("Forward", "heron", "Watch")
    assert pb.WatchRequest.FromString(sent.request) == request


def test_an_answer_that_is_none_is_no_crash(tmp_path: Path) -> None:
    heron = calls(tmp_path / "s", reply(b"\xff\xff\xff"))

    with pytest.raises(ShoalError, match="sent an answer that cannot be read"):
        heron.ask("Get", pb.GetRequest(), pb.Job, 5.0)


def test_that_the_other_node_is_away_is_known_from_its_kind(tmp_path: Path) -> None:
    away = pb.Error(what="heron cannot be reached", kind="unreachable")
    heron = calls(tmp_path / "s", frame(ERROR, away))

    with pytest.raises(UnreachableError, match="heron cannot be reached"):
        heron.ask("Get", pb.GetRequest(), pb.Job, 5.0)


def test_no_answer_at_all_is_told(tmp_path: Path) -> None:
    heron = calls(tmp_path / "s")

    with pytest.raises(UnreachableError, match="gave no answer"):
        heron.ask("Get", pb.GetRequest(), pb.Job, 5.0)
