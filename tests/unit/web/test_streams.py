"""What is told as it happens."""

import asyncio
import json
from typing import Any

import pytest
from reference.answers import ANSWERS, breaches
from tests.unit.web.fake_node import FakeNode, FakeService, make_page
from tests.unit.web.visits import request, tasks_end, visited

from shoal.api import shoal_pb2 as pb
from shoal.model.ids import TaskId
from shoal.web import streams

FIRST = 5
"""So many events tell all there is of a whole node."""

Told = list[tuple[str, Any]]


async def next_event(reader: asyncio.StreamReader) -> tuple[str, Any]:
    """Return the next event of a stream, out of the chunks that HTTP makes of it."""
    name = (await reader.readuntil(b"event: ") and await reader.readline()).decode()
    data = await reader.readuntil(b"\n\n")
    return name.strip(), json.loads(data.removeprefix(b"data: "))


def told(target: str, service: FakeService, most: int, node: FakeNode) -> Told:
    async def visit(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Told:
        writer.write(request(target))
        return [await next_event(reader) for _ in range(most)]

    return visited(visit, make_page(service, node))


def test_the_first_page_is_told_all_there_is() -> None:
    found = dict(told("/api/stream", FakeService(), FIRST, FakeNode()))

    assert sorted(found) == ["happened", "info", "jobs", "nodes", "requests"]
    assert found["info"]["shoal"] == "reef"
    assert [node["petname"] for node in found["nodes"]] == ["calm-heron-01"]
    assert found["jobs"]["total"] == 1
    assert breaches(ANSWERS["accept"], found["requests"]) == []
    assert found["requests"]["newcomers"][0]["code"] == "elk-42"
    assert [event["number"] for event in found["happened"]] == [1, 2]


def test_the_page_of_a_job_is_told_of_that_job_only() -> None:
    node = FakeNode()
    node.outputs.metrics.curves.note(
        TaskId("abc.main.0"), {"loss": 2.0, "step": 7.0}, 5.0
    )

    found = told("/api/stream?job=abc", FakeService(), 7, node)

    names = sorted(name for name, _ in found)
    assert names == [
        "curves",
        "happened",
        "info",
        "job",
        "output",
        "output",
        "output-end",
    ]
    by_name = dict(found)
    assert [event["number"] for event in by_name["happened"]] == [1]
    assert by_name["curves"] == {"abc.main.0": {"loss": [[5.0, 7.0, 2.0]]}}
    assert by_name["job"]["tasks"][0]["id"] == "abc.main.0"


def test_letters_that_came_in_two_pieces_are_whole() -> None:
    found = told("/api/stream?job=abc", FakeService(), 6, FakeNode())

    pieces = [
        each for name, data in found if name == "output" for each in data["pieces"]
    ]
    assert "".join(text for _, text in pieces) == "grüße\n"


def test_output_comes_with_the_time_of_each_part() -> None:
    times = [
        pb.LogTime(offset=90, at_s=1.0),
        pb.LogTime(offset=103, at_s=2.0),
        pb.LogTime(offset=400, at_s=9.0),  # After its end: a node that lies.
    ]
    piece = pb.LogPiece(offset=100, data=b"one\ntwo\n", times=times)

    assert list(streams.timed(piece)) == [(1.0, b"one"), (2.0, b"\ntwo\n")]
    piece.ClearField("times")
    assert list(streams.timed(piece)) == [(None, b"one\ntwo\n")]


def test_output_may_be_that_of_one_task_and_begins_near_its_end() -> None:
    service = FakeService()

    told("/api/stream?job=abc&task=abc.main.0", service, 6, FakeNode())

    assert service.asked == [
        pb.LogsRequest(
            job="abc",
            task="abc.main.0",
            follow=True,
            last_bytes=streams.LOG_BYTES,
            times=True,
        )
    ]


def test_all_of_the_output_is_shown_to_who_asks_up_to_a_limit() -> None:
    service = FakeService()

    told("/api/stream?job=abc&log_bytes=99999999999", service, 6, FakeNode())

    assert service.asked[0].last_bytes == streams.LOG_BYTES_MAX


def test_what_changes_is_told_when_there_is_news_and_nothing_else_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(streams, "LOOK_S", 0.0)
    service, node = FakeService(), FakeNode()

    async def visit(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> tuple[str, Any]:
        writer.write(request("/api/stream"))
        for _ in range(FIRST):
            await next_event(reader)
        service.job.state = pb.STATE_DONE
        node.news.tell()
        return await next_event(reader)

    name, document = visited(visit, make_page(service, node))

    assert name == "jobs"
    assert document["jobs"][0]["state"] == "done"


def test_nobody_looks_at_the_node_when_the_last_visitor_has_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(streams, "LOOK_S", 0.0)
    monkeypatch.setattr(streams, "TICK_S", 0.001)
    service = FakeService()
    looks = 0

    async def counted(request: pb.NodesRequest) -> pb.NodesReply:
        nonlocal looks
        looks += 1
        return pb.NodesReply()

    service.on_nodes = counted  # type: ignore[method-assign]

    async def visit(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> tuple[int, int]:
        writer.write(request("/api/stream"))
        await next_event(reader)
        writer.close()
        await tasks_end()
        before = looks
        await asyncio.sleep(0.05)
        return before, looks

    before, after = visited(visit, make_page(service))

    assert before > 0
    assert after == before
