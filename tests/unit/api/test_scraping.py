"""The page for Prometheus, over a real socket."""

import asyncio

import pytest

from shoal.api.metrics import Family
from shoal.api.scraping import MetricsPage
from shoal.errors import ShoalError


def asked(request: bytes) -> bytes:
    async def story() -> bytes:
        page = MetricsPage(lambda: "shoal_jobs 3\n")
        port = await page.start("127.0.0.1", 0)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request)
        writer.write_eof()
        answer = await reader.read()
        writer.close()
        await page.stop()
        return answer

    return asyncio.run(story())


def test_the_page_is_metrics() -> None:
    answer = asked(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")

    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"Content-Length: 13" in head
    assert body == b"shoal_jobs 3\n"


@pytest.mark.parametrize(
    ("request_", "begins"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", b"HTTP/1.1 404"),
        (b"POST /metrics HTTP/1.1\r\n\r\n", b"HTTP/1.1 405"),
        (b"HEAD /metrics HTTP/1.1\r\n\r\n", b"HTTP/1.1 200"),
        (b"\x16\x03\x01 nonsense", b""),
        (b"x" * 20_000, b""),
        (b"\r\n\r\n", b""),
    ],
)
def test_anything_else_is_answered_or_dropped(request_: bytes, begins: bytes) -> None:
    answer = asked(request_)

    assert answer.startswith(begins)
    assert bool(answer) == bool(begins)


def test_a_port_that_is_taken_is_said() -> None:
    async def story() -> None:
        first, second = MetricsPage(str), MetricsPage(str)
        port = await first.start("127.0.0.1", 0)
        with pytest.raises(ShoalError, match="for metrics"):
            await second.start("127.0.0.1", port)
        await first.stop()

    asyncio.run(story())


def test_a_family_is_written_as_prometheus_reads_it() -> None:
    family = Family("shoal_x", "gauge", "What it is.")
    family.add(25274800128, what='a "b"\\\n')
    family.add(0.5)

    assert list(family.lines()) == [
        "# HELP shoal_x What it is.",
        "# TYPE shoal_x gauge",
        'shoal_x{what="a \\"b\\"\\\\\\n"} 25274800128',
        "shoal_x 0.5",
    ]
