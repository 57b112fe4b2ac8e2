"""The page for Prometheus, over a real socket."""

import asyncio
from types import SimpleNamespace
from typing import cast

import pytest
from tests.unit.web.fake_node import FakeNode
from tests.unit.web.visits import status

from shoal.api.server.metrics import text_of
from shoal.api.server.metrics_page import MetricsPage
from shoal.api.service import views
from shoal.errors import ShoalError
from shoal.runtime.node import Node

SOON_S = 5.0


def page_of(text: bytes = b"shoal_jobs 3\n") -> MetricsPage:
    return MetricsPage(lambda: text, cast("Node", FakeNode()), "token")


def asked(request: bytes, *, goes: bool = False) -> bytes:
    async def story() -> bytes:
        page = page_of()
        port = await page.start("127.0.0.1", 0)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request)
        if goes:
            writer.write_eof()
        async with asyncio.timeout(SOON_S):
            answer = await reader.read()
        writer.close()
        await page.stop()
        return answer

    return asyncio.run(story())


def test_the_page_is_metrics_and_then_hangs_up() -> None:
    answer = asked(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")

    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"content-length: 13" in head
    assert b"content-type: text/plain; version=0.0.4" in head
    assert body == b"shoal_jobs 3\n"


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"GET / HTTP/1.1\r\nHost: x", 404),
        (b"POST /metrics HTTP/1.1\r\nHost: x", 405),
        (b"HEAD /metrics HTTP/1.1\r\nHost: x", 200),
        (b"GET /metrics HTTP/1.1", 400),
        (b"x" * 20_000, 400),
        (b"", 400),
    ],
)
def test_anything_else_is_answered_with_what_is_wrong(line: bytes, code: int) -> None:
    answer = asked(line + b"\r\nConnection: close\r\n\r\n")

    assert status(answer) == code
    assert b"shoal_jobs" not in answer


def test_who_goes_before_it_has_asked_gets_nothing() -> None:
    assert asked(b"GET /metr", goes=True) == b""


def test_a_port_that_is_taken_is_said() -> None:
    async def story() -> None:
        first, second = page_of(), page_of()
        port = await first.start("127.0.0.1", 0)
        with pytest.raises(ShoalError, match="for metrics"):
            await second.start("127.0.0.1", port)
        await first.stop()

    asyncio.run(story())


NAMES = """
process_cpu_seconds_total
process_max_resident_bytes
shoal_api_calls_open
shoal_clock_s
shoal_generation
shoal_gossip_neighbours{overlay="random"}
shoal_jobs{state="active"}
shoal_link_events_total{what="a \\"b\\"\\\\"}
shoal_load_messages_total
shoal_load_news_total
shoal_node_info{node="n0",shoal="reef",version="1.2"}
shoal_oldest_job_s
shoal_resource_free{resource="cpu"}
shoal_resource_free{resource="disk_bytes"}
shoal_resource_free{resource="gpu"}
shoal_resource_free{resource="memory_bytes"}
shoal_resource_total{resource="cpu"}
shoal_resource_total{resource="disk_bytes"}
shoal_resource_total{resource="gpu"}
shoal_resource_total{resource="memory_bytes"}
shoal_tasks_here
shoal_tasks{state="running"}
shoal_workers_known
""".strip().splitlines()
"""What dashboards go by. A name is never changed, only added."""


def test_names_and_labels_stay_what_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    amounts = SimpleNamespace(cpu_milli=1, memory_bytes=2, disk_bytes=3, gpu_milli=4)
    shown = SimpleNamespace(worker=True, total=amounts, free=amounts)
    book = SimpleNamespace(
        jobs={"j": SimpleNamespace(state="active", submitted_at=0.0)},
        groups={"g": SimpleNamespace(array=None)},
        records_in=lambda _: [SimpleNamespace(state="running")],
        generation=7,
    )
    scheduler = SimpleNamespace(book=book, views=[1])
    node = SimpleNamespace(
        id="n0",
        membership=SimpleNamespace(shoal="reef"),
        peer=SimpleNamespace(
            scheduler=scheduler,
            gossip=SimpleNamespace(news=1, sent=2),
            find=lambda _: SimpleNamespace(overlay="random", chosen=None),
        ),
        tasks=[],
        forwarded_calls=SimpleNamespace(open=0),
    )
    monkeypatch.setattr(views, "self_view", lambda _: shown)
    monkeypatch.setattr("shoal.__version__", "1.2")

    async def story() -> str:
        return text_of(cast("Node", node), {'a "b"\\': 5}).decode()

    text = asyncio.run(story())

    lines = [line for line in text.splitlines() if not line.startswith("#")]
    found = [line.rpartition(" ")[0] for line in lines]
    assert sorted(found) == NAMES
