"""What a job names for its end is called at least once, and only after its end."""

import asyncio
import http.server
import threading
from pathlib import Path
from random import Random
from typing import ClassVar

import msgspec
import pytest
from tests.unit.core.test_retention import WALL_S, job

from shoal.core.deadlines import DeadlineHeap
from shoal.core.durability.compaction import compacted
from shoal.core.durability.journal import EndCalled, Entry, Submitted
from shoal.core.events import Effect, Record
from shoal.core.housekeeping.end_calls import (
    ANSWER_S,
    CALLS_MAX,
    PAUSE_MAX_S,
    TRIES_MAX,
    EndCalls,
)
from shoal.core.housekeeping.events import CallEnd, EndCallEnded
from shoal.core.housekeeping.retention import KeepRule, Retention
from shoal.core.scheduling.job_book import JobBook
from shoal.model.ids import JobId, TaskId
from shoal.model.job import OnEnd
from shoal.runtime.housekeeping.end_callers import post, run

HOOK = OnEnd(webhook="http://127.0.0.1:1/x")


class Life:
    """A book and its calls, from the entries of earlier lives."""

    def __init__(self, journal: list[Entry], now: float) -> None:
        self.journal = journal
        self.book = JobBook(WALL_S)
        for entry in journal:
            self.book.replay(entry, now, WALL_S)
        self.heap = DeadlineHeap()
        self.calls = EndCalls(self.book, self.heap, now)

    def submit(self, name: str, on_end: OnEnd | None = HOOK) -> None:
        made = msgspec.structs.replace(job(name), on_end=on_end)
        self.journal += self.book.submit(Submitted(made, WALL_S), 0.0)

    def end(self, name: str, now: float) -> list[str]:
        self.journal += self.book.finish(TaskId(f"{name}.main.0"), "done", now)
        return self.called(self.calls.look(now))

    def answer(self, name: str, trouble: str, now: float) -> list[str]:
        return self.called(self.calls.on_event(EndCallEnded(JobId(name), trouble), now))

    def called(self, effects: list[Effect]) -> list[str]:
        self.journal += [each.entry for each in effects if isinstance(each, Record)]
        return [each.report.job for each in effects if isinstance(each, CallEnd)]


def test_a_job_is_called_for_once_it_has_ended_and_no_more_after_that() -> None:
    life = Life([], 0.0)
    life.submit("a")
    life.submit("quiet", on_end=None)
    assert life.called(life.calls.look(1.0)) == []

    assert life.end("quiet", 2.0) == []
    assert life.end("a", 3.0) == ["a"]
    assert life.answer("a", "", 4.0) == []

    assert life.journal[-1] == EndCalled(JobId("a"))
    assert life.heap.next() is None
    assert Life(life.journal, 5.0).heap.next() is None
    assert Life(compacted(life.book), 5.0).heap.next() is None


def test_a_crash_between_the_end_and_the_call_repeats_it_with_the_same_key() -> None:
    life = Life([], 0.0)
    life.submit("a")
    life.journal += life.book.finish(TaskId("a.main.0"), "done", 1.0)
    [first] = life.calls.look(1.0)

    for journal in (life.journal, compacted(life.book)):
        again = Life(list(journal), 100.0)
        [second] = again.calls.due(100.0)
        assert isinstance(first, CallEnd)
        assert isinstance(second, CallEnd)
        assert first.report.key == second.report.key


def test_a_call_that_fails_is_tried_again_ever_later_and_given_up() -> None:
    life = Life([], 0.0)
    life.submit("a")
    now, pauses = 1.0, list[float]()
    assert life.end("a", now) == ["a"]
    for _ in range(TRIES_MAX - 1):
        life.answer("a", "no route", now)
        due = life.heap.next()
        assert due is not None
        pauses.append(due - now)
        now = due
        assert life.called(life.calls.due(now)) == ["a"]
    life.answer("a", "no route", now)

    assert pauses == sorted(pauses)
    assert pauses[-1] <= PAUSE_MAX_S
    [given_up] = [each for each in life.journal if isinstance(each, EndCalled)]
    assert "no route" in given_up.trouble
    assert life.heap.next() is None


def test_a_host_that_never_answers_holds_up_nothing() -> None:
    life = Life([], 0.0)
    names = [f"j{n}" for n in range(CALLS_MAX + 2)]
    for name in names:
        life.submit(name)
    under_way = [each for name in names for each in life.end(name, 1.0)]
    assert under_way == names[:CALLS_MAX]

    assert life.called(life.calls.due(3.0)) == []
    life.called(life.calls.due(1.0 + ANSWER_S))
    assert life.called(life.calls.due(5.0 + ANSWER_S)) == names[CALLS_MAX:]


@pytest.mark.parametrize("seed", range(30))
def test_whatever_crashes_every_end_is_called_and_nothing_else(seed: int) -> None:
    rng = Random(seed)
    journal: list[Entry] = []
    life, now = Life(journal, 0.0), 0.0
    ended: set[str] = set()
    made: list[str] = []
    answered: set[str] = set()
    for name in (f"j{n}" for n in range(6)):
        life.submit(name)
    for _ in range(400):
        now += rng.choice((0.1, 5.0, 400.0))
        calls = life.called(life.calls.due(now))
        alive = [each for each in life.book.jobs if each not in ended]
        if alive and rng.random() < 0.3:
            name = rng.choice(alive)
            ended.add(name)
            calls += life.end(name, now)
        made += calls
        assert set(made) <= ended
        for name in calls:
            if rng.random() < 0.5:
                trouble = rng.choice(("", "", "refused"))
                answered |= set() if trouble else {name}
                life.answer(name, trouble, now)
        if rng.random() < 0.1:
            life = Life(journal, now)
    open_ = {
        each for each in ended if life.book.is_call_open(life.book.jobs[JobId(each)])
    }

    assert set(made) >= ended - open_
    assert answered <= set(made)


def test_retention_waits_for_a_call_that_is_open() -> None:
    life = Life([], 0.0)
    life.submit("a")
    life.end("a", 1.0)
    retention = Retention(life.book, KeepRule(jobs=0), life.heap)
    retention.look(5_000.0)
    assert retention.due(5_000.0) == []

    life.answer("a", "", 5_001.0)
    assert retention.due(5_100.0) != []


class Hook(http.server.BaseHTTPRequestHandler):
    """A web server that redirects one path, and takes all others."""

    got: ClassVar[list[tuple[str, str, bytes]]] = []

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        Hook.got.append((self.path, self.headers["Idempotency-Key"], body))
        self.send_response(302 if self.path == "/away" else 204)
        self.send_header("Location", "/elsewhere")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Say nothing."""


def test_a_webhook_is_posted_and_a_redirect_not_followed() -> None:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hook) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        base = f"http://127.0.0.1:{server.server_port}"
        post(f"{base}/hook?x=1", b"{}", "a.1")
        with pytest.raises(OSError, match="answered 302"):
            post(f"{base}/away", b"{}", "a.2")
        server.shutdown()

    assert Hook.got == [("/hook?x=1", "a.1", b"{}"), ("/away", "a.2", b"{}")]


def test_a_command_gets_the_report_and_no_shell(tmp_path: Path) -> None:
    told = tmp_path / "told"
    asyncio.run(run(("tee", str(told)), b'{"job": "a; rm -rf ~"}'))
    assert told.read_bytes() == b'{"job": "a; rm -rf ~"}'
    with pytest.raises(OSError, match="exited with 1"):
        asyncio.run(run(("false",), b""))
