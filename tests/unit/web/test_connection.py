"""HTTP from strangers: what is wrong with it is said, and nothing piles up."""

import asyncio
import json
import math
from typing import Any

import pytest
from tests.unit.web.fake_node import FakeService, make_site
from tests.unit.web.visits import body_of, head_of, request, said, status, visited

from shoal.web import connection
from shoal.web.connection import Connection
from shoal.web.exchange import Request, Response, Send, Stream

SOON_S = 5.0


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (b"\x16\x03\x01\x02\x00 not HTTP\r\n\r\n", 400),
        (b"GET /\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n\r\n", 400),  # No host.
        (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost : localhost\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\n folded: x\r\n\r\n", 421),
        (b"GET / HTTP/3.0\r\nHost: localhost\r\n\r\n", 505),
        (request("/", x="y" * connection.HEAD_BYTES_MAX), 431),
        (request("/" + "a" * connection.HEAD_BYTES_MAX), 431),
        (request("/api/jobs", "POST", content_length="9, 8"), 400),
        (request("/api/jobs", "POST", transfer_encoding="gzip"), 501),
        (request("/api/jobs", "POST", b"x" * (connection.BODY_BYTES_MAX + 1)), 413),
        (request("/api/info", authorization="Bearer again"), 400),
        (request("/api/info", origin="http://a", Origin="http://b"), 400),
    ],
)
def test_nonsense_is_refused_and_the_connection_closed(sent: bytes, code: int) -> None:
    answer = said(sent)

    assert status(answer) == code
    assert json.loads(body_of(answer))["error"]["what"]


def test_a_length_and_chunks_at_once_are_not_two_requests() -> None:
    smuggled = request("/static/style.css")
    first = request("/", "POST", content_length="4", transfer_encoding="chunked")
    sent = first + b"0\r\n\r\n" + smuggled

    answer = said(sent)

    assert status(answer) == 400
    assert b"text/css" not in answer


def test_two_requests_that_come_at_once_are_answered_in_order() -> None:
    async def visit(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bytes:
        writer.write(request("/") + request("/api/info", connection="close"))
        async with asyncio.timeout(SOON_S):
            return await reader.read()

    answer = visited(visit)

    assert answer.count(b"HTTP/1.1 200 OK") == 2
    assert answer.index(b"text/html") < answer.index(b"application/json")


def test_a_question_for_the_head_gets_no_body() -> None:
    answer = said(request("/", "HEAD"))

    assert status(answer) == 200
    assert body_of(answer) == b""
    assert "content-length: 0" not in head_of(answer)


def test_whoever_waits_for_a_go_gets_it() -> None:
    asked = request("/api/plan", "POST", b'{"spec":"x"}', expect="100-continue")

    async def visit(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> list[bytes]:
        head, _, body = asked.partition(b"\r\n\r\n")
        writer.write(head + b"\r\n\r\n")
        go_on = await reader.readuntil(b"\r\n\r\n")
        writer.write(body)
        return [go_on, await reader.readuntil(b"\r\n\r\n")]

    go_on, answer = visited(visit)

    assert go_on.startswith(b"HTTP/1.1 100")
    assert answer.startswith(b"HTTP/1.1 200")


def test_every_answer_forbids_what_the_page_does_not_need() -> None:
    for target in ("/", "/static/main.js", "/api/info", "/nowhere"):
        head = head_of(said(request(target)))

        assert "content-security-policy: default-src 'self'" in head
        assert "x-content-type-options: nosniff" in head
        assert "frame-ancestors 'none'" in head
        assert "referrer-policy: no-referrer" in head
        assert "cache-control: no-store" in head
        assert "access-control-allow" not in head


def test_a_bug_is_an_answer_and_not_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    service = FakeService()
    service.fails = ZeroDivisionError("of all things")

    answer = said(request("/api/jobs/abc"), make_site(service))

    assert status(answer) == 500
    assert "ZeroDivisionError" in json.loads(body_of(answer))["error"]["because"]
    assert "Traceback" in capsys.readouterr().err


# Slow ones.


@pytest.mark.parametrize("begin", [b"", b"GET / HTT", request("/")[:-2]])
def test_who_does_not_get_on_with_a_request_is_cut_off(
    begin: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "FIRST_S", 0.01)
    monkeypatch.setattr(connection, "REQUEST_S", 0.01)

    async def visit(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bytes:
        writer.write(begin)
        try:
            return await reader.read()
        except ConnectionResetError:
            return b""

    assert visited(visit) == b""


class Endless:
    """A page whose only answer never ends; `told` counts what was taken from it."""

    def __init__(self, most: float = math.inf) -> None:
        self.most = most
        self.told = 0
        self.ended = asyncio.Event()

    async def answer(self, request: Request) -> Response | Stream:
        return Stream(self.run)

    async def run(self, send: Send) -> None:
        try:
            while self.told < self.most:
                await send("x", b"y" * 65_536)
                self.told += 1
            await asyncio.Event().wait()
        finally:
            self.ended.set()

    async def serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        await Connection(reader, writer, self.answer).run()


def test_who_does_not_take_a_stream_is_cut_off_and_nothing_piles_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection, "SEND_S", 0.05)
    page: Any = Endless()

    async def visit(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(request("/"))
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        await page.ended.wait()

    visited(visit, page)

    assert page.told < 200  # What the kernel takes, and no more: not gigabytes.


@pytest.mark.parametrize("most", [1, math.inf])
def test_a_stream_ends_when_its_visitor_goes(most: float) -> None:
    page: Any = Endless(most)

    async def visit(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(request("/"))
        await reader.readuntil(b"event: x\n")
        writer.close()
        async with asyncio.timeout(SOON_S):
            await page.ended.wait()

    visited(visit, page)

    assert page.ended.is_set()
