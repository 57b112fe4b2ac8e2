"""Files that jobs have left, for a browser to save."""

import asyncio
import io
import json
import zipfile

import pytest
from tests.unit.web.fake_node import TOKEN, FakeService, make_page
from tests.unit.web.visits import body_of, head_of, request, said, status, visited

from shoal.errors import NotFoundError
from shoal.web.downloads import (
    TICKETS_MAX,
    VALID_S,
    DownloadBody,
    Tickets,
    safe_name,
)

LEFT = {"out/a b.txt": b"twelve bytes", "out/<ü>.bin": b"\0\1\2\3\4"}


def service_with(left: dict[str, bytes]) -> FakeService:
    service = FakeService()
    service.left = left
    return service


def downloaded(what: dict[str, object], service: FakeService) -> list[bytes]:
    """Ask for a ticket and follow it twice; return all three answers."""

    async def visit(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> list[bytes]:
        port = writer.get_extra_info("peername")[1]
        writer.write(request("/api/downloads", "POST", json.dumps(what).encode()))
        answers = [await reader.read()]
        url = json.loads(body_of(answers[0]))["url"]
        for _ in range(2):
            again, out = await asyncio.open_connection("127.0.0.1", port)
            out.write(request(url, token=None))
            answers.append(await again.read())
            out.close()
        return answers

    return visited(visit, make_page(service))


def whole(answer: bytes) -> bytes:
    """Return a body, out of its chunks if it has some."""
    body = body_of(answer)
    if "transfer-encoding: chunked" not in head_of(answer):
        return body
    data = b""
    while body:
        size, _, body = body.partition(b"\r\n")
        data += body[: int(size, 16)]
        body = body[int(size, 16) + 2 :]
    return data


def test_a_file_is_saved_by_a_ticket_that_works_once() -> None:
    what: dict[str, object] = {
        "job": "abc",
        "task": "abc.main.0",
        "path": "out/<ü>.bin",
    }

    ticket, first, second = downloaded(what, service_with(LEFT))

    assert TOKEN.encode() not in ticket
    assert (status(first), status(second)) == (200, 404)
    assert whole(first) == b"\0\1\2\3\4"
    head = head_of(first)
    assert "content-length: 5" in head
    assert "attachment; filename=\"___.bin\"; filename*=utf-8''_%c3%bc_.bin" in head
    assert "content-type: application/octet-stream" in head


def test_all_files_come_in_one_archive() -> None:
    _, answer, _ = downloaded({"job": "abc"}, service_with(LEFT))

    archive = zipfile.ZipFile(io.BytesIO(whole(answer)))
    found = {name: archive.read(name) for name in archive.namelist()}
    assert archive.testzip() is None
    assert found == {
        "main.0/out/a b.txt": b"twelve bytes",
        "main.0/out/_ü_.bin": b"\0\1\2\3\4",
    }
    assert 'filename="abc.zip"' in head_of(answer)


def test_the_log_is_a_file_too() -> None:
    _, answer, _ = downloaded({"job": "abc", "log": True}, FakeService())

    assert whole(answer).decode() == "==> abc.main.0 attempt 1 stdout <==\ngrüße\n"


@pytest.mark.parametrize(
    "what", [{"job": "abc"}, {"job": "abc", "path": "../../etc/passwd"}]
)
def test_what_is_not_there_cannot_be_had(what: dict[str, object]) -> None:
    left = LEFT if "path" in what else {}

    _, answer, _ = downloaded(what, service_with(left))

    assert status(answer) == 404
    assert json.loads(body_of(answer))["error"]["hint"]


def test_files_are_listed_with_their_sizes() -> None:
    answer = said(request("/api/jobs/abc/outputs"), make_page(service_with(LEFT)))

    [task] = json.loads(body_of(answer))["tasks"]
    assert task["files"] == [
        {"path": "out/<ü>.bin", "bytes": 5},
        {"path": "out/a b.txt", "bytes": 12},
    ]
    assert (task["count"], task["bytes"]) == (2, 17)


def test_a_ticket_is_void_after_a_while_and_there_are_not_many() -> None:
    now = 0.0
    tickets = Tickets(lambda: now)
    wanted = DownloadBody(job="abc")
    old = tickets.give(wanted)
    now = VALID_S + 1
    with pytest.raises(NotFoundError):
        tickets.take(old)
    many = [tickets.give(wanted) for _ in range(TICKETS_MAX + 1)]

    assert tickets.take(many[-1]) is wanted
    with pytest.raises(NotFoundError):
        tickets.take(many[0])
    with pytest.raises(NotFoundError):
        tickets.take("guess")


@pytest.mark.parametrize(
    ("name", "safe"),
    [
        ("model.pt", "model.pt"),
        ("..", "file"),
        ("", "file"),
        ('a"; filename="b', "a_; filename=_b"),
        ("a\r\nSet-Cookie: x", "a__Set-Cookie_ x"),
        ("con\u202egnp.exe", "con_gnp.exe"),
        ("x" * 300 + ".safetensors", "x" * 108 + ".safetensors"),
        ("\\\\share\\x", "__share_x"),
    ],
)
def test_a_name_steers_neither_a_path_nor_a_header_nor_a_screen(
    name: str, safe: str
) -> None:
    assert safe_name(name) == safe
