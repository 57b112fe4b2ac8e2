from random import Random

from shoal.core.durability.journal import Entry, Incarnated
from shoal.core.events import Answer, Effect, Record
from shoal.model.ids import JobId
from shoal.sim.agenda import Agenda
from shoal.sim.node.disk import Disk


class Bench:
    """A disk and what came of it."""

    def __init__(self, seed: int = 0) -> None:
        self.agenda = Agenda()
        self.done: list[int] = []
        self.safe: list[int] = []
        self.disk = Disk(self.agenda, Random(seed), self._perform, self._safe)

    def _perform(self, effect: Effect) -> None:
        assert isinstance(effect, Answer)
        self.done.append(effect.token)

    def _safe(self, entries: object) -> None:
        assert isinstance(entries, list)
        self.safe += [number(entry) for entry in entries]


def number(entry: Entry) -> int:
    assert isinstance(entry, Incarnated)
    return entry.generation


def answer(token: int) -> Answer:
    return Answer(token, JobId("j"))


def record(generation: int, *, durable: bool = True) -> Record:
    return Record(Incarnated(generation), durable=durable)


def test_what_comes_before_a_durable_record_does_not_wait_for_it() -> None:
    bench = Bench()

    bench.disk.submit([answer(1), record(1), answer(2)])

    assert bench.done == [1]


def test_what_comes_after_a_durable_record_waits_until_it_is_safe() -> None:
    bench = Bench()

    bench.disk.submit([record(1), answer(1)])
    bench.disk.submit([answer(2)])
    bench.agenda.run(0.0001)
    assert bench.done == []
    bench.agenda.run(1.0)

    assert bench.safe == [1]
    assert bench.done == [1, 2]


def test_records_of_one_sync_let_their_effects_go_in_order() -> None:
    bench = Bench()

    bench.disk.submit([record(1), answer(1)])
    bench.disk.submit([record(2), answer(2), record(3), answer(3)])
    bench.agenda.run(1.0)

    assert bench.safe == [1, 2, 3]
    assert bench.done == [1, 2, 3]


def test_a_record_that_is_not_durable_holds_nothing_up() -> None:
    bench = Bench()

    bench.disk.submit([record(1, durable=False), answer(1)])

    assert bench.done == [1]
    assert bench.safe == []


def test_a_crash_loses_the_effects_behind_the_barrier() -> None:
    bench = Bench()
    bench.disk.submit([record(1), answer(1)])

    bench.disk.crash()
    bench.agenda.run(1.0)

    assert bench.done == []


def test_a_crash_keeps_what_was_synced_and_at_most_a_prefix_of_the_rest() -> None:
    kept: list[list[int]] = []
    for seed in range(40):
        bench = Bench(seed)
        bench.disk.submit([record(1)])
        bench.agenda.run(1.0)
        bench.disk.submit([record(2), record(3)])
        bench.disk.crash()
        kept.append([number(entry) for entry in bench.disk.entries])

    assert {tuple(numbers) for numbers in kept} == {(1,), (1, 2), (1, 2, 3)}


def test_a_disk_works_on_after_a_crash() -> None:
    bench = Bench()
    bench.disk.submit([record(1), answer(1)])
    bench.disk.crash()

    bench.disk.submit([record(2), answer(2)])
    bench.agenda.run(1.0)

    assert bench.done == [2]
    assert number(bench.disk.entries[-1]) == 2


def test_a_slow_disk_takes_long() -> None:
    bench = Bench()
    bench.disk.slow = True

    bench.disk.submit([record(1), answer(1)])
    bench.agenda.run(0.1)
    assert bench.done == []
    bench.agenda.run(5.0)

    assert bench.done == [1]
