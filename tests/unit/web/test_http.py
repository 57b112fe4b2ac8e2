"""HTTP from strangers: what is wrong with it is said, and nothing piles up."""

import asyncio
import contextlib
import json

import pytest
from tests.unit.web.fake_node import FakeService, make_page
from tests.unit.web.visits import (
    body_of,
    head_of,
    request,
    said,
    status,
    tasks_end,
    visited,
)

from shoal.api import shoal_pb2 as pb
from shoal.api.server.http_app import BODY_BYTES_MAX, HEAD_BYTES_MAX
from shoal.web import streams
from shoal.web.page import LIMITS

SOON_S = 5.0


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (b"\x16\x03\x01\x02\x00 not HTTP\r\n\r\n", 400),
        (b"GET /\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n\r\n", 400),  # No host.
        (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost : localhost\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nConnection: close\r\nHost: a\r\n folded: x\r\n\r\n", 421),
        (b"GET / HTTP/3.0\r\nHost: localhost\r\n\r\n", 505),
        (request("/", x="y" * HEAD_BYTES_MAX), 431),
        (request("/" + "a" * HEAD_BYTES_MAX), 431),
        (request("/api/jobs", "POST", content_length="9, 8"), 400),
        (request("/api/jobs", "POST", transfer_encoding="gzip"), 501),
        (request("/api/jobs", "POST", b"x" * (BODY_BYTES_MAX + 1)), 413),
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
        writer.write(request("/", connection="keep-alive") + request("/api/info"))
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

    answer = said(request("/api/jobs/abc"), make_page(service))

    assert status(answer) == 500
    assert "ZeroDivisionError" in json.loads(body_of(answer))["error"]["because"]
    assert "Traceback" in capsys.readouterr().err


# Slow ones.


@pytest.mark.parametrize("begin", [b"", b"GET / HTT", request("/")[:-2]])
def test_who_does_not_get_on_with_a_request_is_cut_off(
    begin: bytes,
) -> None:
    page = make_page(limits=LIMITS._replace(idle_s=0.01, request_s=0.01))

    async def visit(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bytes:
        writer.write(begin)
        try:
            return await reader.read()
        except ConnectionResetError:
            return b""

    assert visited(visit, page) == b""


def test_a_drip_of_bytes_does_not_buy_time() -> None:
    page = make_page(limits=LIMITS._replace(request_s=0.1))

    async def visit(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> int:
        sent = 0
        while not reader.at_eof():
            writer.write(b"GET / HTTP/1.1\r\n" if not sent else b"x: y\r\n")
            sent += 1
            try:
                async with asyncio.timeout(0.02):
                    await reader.read(1)
            except TimeoutError:
                continue
            except ConnectionError:  # A reset connection is never at its end.
                break
        return sent

    assert visited(visit, page) < 20


def test_a_connection_serves_on_after_a_request_and_then_idles_out() -> None:
    page = make_page(limits=LIMITS._replace(idle_s=0.05))

    async def visit(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> list[int]:
        found: list[int] = []
        for _ in range(2):
            writer.write(request("/api/info", connection="keep-alive"))
            head = await reader.readuntil(b"\r\n\r\n")
            size = int(head_of(head).split("content-length: ")[1].split()[0])
            await reader.readexactly(size)
            found.append(status(head))
        with contextlib.suppress(ConnectionResetError):
            assert await reader.read() == b""
        return found

    assert visited(visit, page) == [200, 200]


class Chatty(FakeService):
    """A node that always has news: each look finds another, of 64 kB."""

    def __init__(self) -> None:
        super().__init__()
        self.looks = 0

    async def on_info(self, request: pb.InfoRequest) -> pb.NodeInfo:
        self.looks += 1
        return pb.NodeInfo(shoal=f"{self.looks} " + "y" * 65_536)


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "LOOK_S", 0.0)
    monkeypatch.setattr(streams, "TICK_S", 0.0)
    monkeypatch.setattr(streams, "SHARE_MAX", 1_000.0)


@pytest.mark.usefixtures("eager")
def test_who_does_not_take_a_stream_is_cut_off_and_nothing_piles_up() -> None:
    service, limits = Chatty(), LIMITS._replace(send_s=0.05)
    page = make_page(service, limits=limits)

    async def visit(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> int:
        writer.write(request("/api/stream"))
        await reader.readuntil(b"event: info")
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        await tasks_end()
        return service.looks

    assert visited(visit, page) < 200  # What the kernel takes: not gigabytes.


@pytest.mark.usefixtures("eager")
def test_a_stream_ends_when_its_visitor_goes() -> None:
    for service in (FakeService(), Chatty()):

        async def visit(
            reader: asyncio.StreamReader, writer: asyncio.StreamWriter
        ) -> None:
            writer.write(request("/api/stream"))
            await reader.readuntil(b"event: info")
            writer.close()
            async with asyncio.timeout(SOON_S):
                await tasks_end()

        visited(visit, make_page(service))


def test_a_page_that_stops_ends_its_streams_at_once() -> None:
    page = make_page()

    async def visit(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bytes:
        writer.write(request("/api/stream"))
        await reader.readuntil(b"event: info")
        async with asyncio.timeout(SOON_S):
            await page.stop()
        await tasks_end(left=0)
        try:
            return (await reader.read())[-5:]
        except ConnectionResetError:
            return b""

    assert visited(visit, page) != b"0\r\n\r\n"  # Cut off, not ended.


def test_a_new_token_ends_the_streams_of_the_old_one() -> None:
    page = make_page()

    async def visit(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> int:
        writer.write(request("/api/stream"))
        await reader.readuntil(b"event: info")
        page.renew("another")
        with contextlib.suppress(ConnectionResetError):
            async with asyncio.timeout(SOON_S):
                await reader.read()
        port = int(page.address.rpartition(":")[2])
        again, writer_ = await asyncio.open_connection("127.0.0.1", port)
        writer_.write(request("/api/info"))
        answer = await again.read()
        writer_.close()
        return status(answer)

    assert visited(visit, page) == 401
