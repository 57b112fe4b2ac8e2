"""A host obeys its machine: in order, behind the barrier, and on time."""

import asyncio
from collections.abc import Callable

import uvloop
from tests.runtime.virtual_time import run

from shoal.core.durability.journal import Entry, Incarnated
from shoal.core.events import (
    DeadlineReached,
    DrainEnded,
    DrainRequested,
    Effect,
    Event,
    MessageReceived,
    Provide,
    Record,
    SizeEstimated,
)
from shoal.model.ids import NodeId
from shoal.protocol.messages import Goodbye
from shoal.runtime.host import EVENTS_PER_TURN_MAX, INBOX_MAX, Host

DRAIN = DrainRequested(None)
DURABLE = Record(Incarnated(1))
LOOSE = Record(Incarnated(2), durable=False)


class Scripted:
    """A machine that answers as it is told, and remembers what it heard."""

    def __init__(self, answer: Callable[[Event], list[Effect]]) -> None:
        self.heard: list[tuple[float, Event]] = []
        self.deadline: float | None = None
        self._answer = answer

    def handle(self, event: Event, now: float) -> list[Effect]:
        """Answer by the script; a deadline that was reached is gone."""
        self.heard.append((now, event))
        if isinstance(event, DeadlineReached):
            self.deadline = None
        return self._answer(event)

    def next_deadline(self) -> float | None:
        """Return the deadline that the test has set."""
        return self.deadline


class Paper:
    """A journal that is synced when the test says so."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []

    def append(self, entry: Entry, *, durable: bool, within_s: float = 0.0) -> int:
        """Keep the entry."""
        assert isinstance(durable, bool)
        self.entries.append(entry)
        return len(self.entries)


def _said(n: int) -> Effect:
    return Provide((str(n),))


async def _turns(count: int = 4) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def _host(machine: Scripted, done: list[Effect]) -> tuple[Host, Paper]:
    paper = Paper()

    def fail(error: BaseException) -> None:
        raise error

    host = Host()
    host.start(machine, paper, done.append, on_failure=fail)
    return host, paper


def test_facts_are_told_in_order_and_effects_performed_in_order() -> None:
    async def story() -> None:
        done: list[Effect] = []
        machine = Scripted(
            lambda e: [_said(e.nodes)] if isinstance(e, SizeEstimated) else []
        )
        host, _ = _host(machine, done)
        for n in range(5):
            host.feed(SizeEstimated(n))
        await _turns()
        assert done == [_said(n) for n in range(5)]

    run(story())


def test_a_fact_that_came_before_the_machine_follows_the_first_ones() -> None:
    async def story() -> None:
        failures: list[BaseException] = []
        machine = Scripted(lambda _: [])
        host = Host()
        host.feed(SizeEstimated(3))
        host.feed_now(SizeEstimated(4))
        await _turns()
        first = (SizeEstimated(1), SizeEstimated(2))
        host.start(machine, Paper(), _ignore, on_failure=failures.append, first=first)
        await _turns()
        assert [event for _, event in machine.heard] == [
            SizeEstimated(n) for n in (1, 2, 3, 4)
        ]
        assert failures == []

    run(story())


def test_an_idle_machine_is_told_at_once_and_a_busy_one_in_turn() -> None:
    async def story() -> None:
        machine = Scripted(
            lambda e: [_said(e.nodes)] if isinstance(e, SizeEstimated) else []
        )
        done: list[Effect] = []
        failures: list[BaseException] = []

        def perform(effect: Effect) -> None:
            done.append(effect)
            if effect == _said(1):
                host.feed_now(SizeEstimated(2))
                assert effect is done[-1], "a machine was told a fact inside a fact"

        host = Host()
        host.start(machine, Paper(), perform, on_failure=failures.append)
        host.feed_now(SizeEstimated(1))
        assert done == [_said(1)]
        await _turns()
        assert done == [_said(1), _said(2)]
        host.feed(SizeEstimated(3))
        host.feed_now(SizeEstimated(4))
        assert done == [_said(1), _said(2)], "a fact has overtaken another"
        await _turns()
        assert done == [_said(n) for n in (1, 2, 3, 4)]
        host.close()
        host.feed_now(SizeEstimated(5))
        assert done[-1] == _said(4)
        assert not failures

    run(story())


def test_nothing_passes_a_durable_record_before_it_is_on_disk() -> None:
    async def story() -> None:
        done: list[Effect] = []
        answers = [[_said(0), DURABLE, _said(1)], [_said(2)], [DURABLE, _said(3)]]
        machine = Scripted(lambda _: answers.pop(0))
        host, paper = _host(machine, done)
        for _ in range(3):
            host.feed(DRAIN)
        await _turns()
        assert done == [_said(0)]
        host.synced(1)
        assert done == [_said(0), _said(1), _said(2)]
        host.synced(2)
        assert done[-1] == _said(3)
        assert len(paper.entries) == 2

    run(story())


def test_a_record_that_need_not_be_durable_holds_nothing_up() -> None:
    async def story() -> None:
        done: list[Effect] = []
        host, _ = _host(Scripted(lambda _: [LOOSE, _said(1)]), done)
        host.feed(DRAIN)
        await _turns()
        assert done == [_said(1)]

    run(story())


def test_a_deadline_is_told_when_it_comes_and_not_before() -> None:
    async def story() -> None:
        machine = Scripted(lambda _: [])
        host, _ = _host(machine, [])
        machine.deadline = 5.0
        host.feed(DRAIN)
        await asyncio.sleep(4.9)
        assert len(machine.heard) == 1
        await asyncio.sleep(0.2)
        assert machine.heard[1] == (5.0, DeadlineReached())

    run(story())


def test_a_deadline_that_moves_is_told_once_at_its_new_time() -> None:
    async def story() -> None:
        machine = Scripted(lambda _: [])
        host, _ = _host(machine, [])
        machine.deadline = 5.0
        host.feed(DRAIN)
        await asyncio.sleep(1.0)
        machine.deadline = 8.0
        host.feed(DrainEnded())
        await asyncio.sleep(20.0)
        assert [now for now, e in machine.heard if isinstance(e, DeadlineReached)] == [
            8.0
        ]

    run(story())


def test_a_flood_of_facts_does_not_keep_the_loop_from_its_other_work() -> None:
    async def story() -> None:
        machine = Scripted(lambda _: [])
        host, _ = _host(machine, [])
        for n in range(3 * EVENTS_PER_TURN_MAX):
            host.feed(SizeEstimated(n))
        await asyncio.sleep(0)
        assert len(machine.heard) == EVENTS_PER_TURN_MAX
        await _turns(10)
        assert len(machine.heard) == 3 * EVENTS_PER_TURN_MAX

    run(story())


def test_a_machine_that_raises_ends_the_host() -> None:
    async def story() -> None:
        failures: list[BaseException] = []
        machine = Scripted(lambda _: 1 / 0)  # type: ignore[arg-type, return-value]
        host = Host()
        host.start(machine, Paper(), _ignore, on_failure=failures.append)
        host.feed(DRAIN)
        await _turns()
        host.feed(DRAIN)
        await _turns()
        assert [type(error) for error in failures] == [ZeroDivisionError]
        assert len(machine.heard) == 1

    run(story())


def _ignore(_: Effect) -> None:
    pass


def test_a_full_inbox_drops_what_peers_say_and_never_what_happened_here() -> None:
    async def story() -> None:
        machine = Scripted(lambda _: [])
        host, _ = _host(machine, [])
        said = MessageReceived(NodeId("otter"), Goodbye())

        for _ in range(INBOX_MAX + 5):
            host.feed(said)
        host.feed(DRAIN)
        host.feed(said)
        await _turns(INBOX_MAX // EVENTS_PER_TURN_MAX + 2)

        assert host.dropped == 6
        assert len(machine.heard) == INBOX_MAX + 1
        assert machine.heard[-1][1] == DRAIN

    run(story())


def test_a_deadline_within_the_millisecond_does_no_harm_on_the_faster_loop() -> None:
    """uvloop calls soon what is due that soon, and its handle knows no time."""

    async def story() -> None:
        loop = asyncio.get_running_loop()
        failures: list[BaseException] = []

        def answer(event: Event) -> list[Effect]:
            if isinstance(event, SizeEstimated) and event.nodes:
                machine.deadline = loop.time() + 0.0004
                host.feed(SizeEstimated(event.nodes - 1))  # As performing may do.
            return []

        machine = Scripted(answer)
        host = Host()
        host.start(machine, Paper(), print, on_failure=failures.append)

        host.feed(SizeEstimated(50))
        async with asyncio.timeout(20):
            while DeadlineReached() not in [event for _, event in machine.heard]:  # noqa: ASYNC110
                await asyncio.sleep(0)

        assert failures == []

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(story())
