"""The journal: what is appended is there again, in order, and nothing else."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.unit.store.hosting import Host, fill, hosted, payloads

from shoal.errors import StoreError
from shoal.store.journal import BACKLOG_MAX, LAZY_S, Journal
from shoal.store.writer import WAL_BYTES


def test_an_empty_journal_has_no_rows(path: Path) -> None:
    with closing(Journal.open(path)) as journal:
        assert list(journal.rows()) == []
        assert journal.last == journal.synced == 0


def test_what_was_appended_is_there_in_the_next_life(path: Path) -> None:
    with hosted(path) as host:
        assert host.journal.append("job", b"one") == 1
        assert host.journal.append("job", b"two", within_s=LAZY_S) == 2

    with closing(Journal.open(path)) as journal:
        assert list(journal.rows()) == [(1, "job", b"one"), (2, "job", b"two")]
        assert journal.synced == 2


def test_numbers_go_on_in_the_next_life(path: Path) -> None:
    fill(path, b"one", b"two")

    with hosted(path) as host:
        assert host.journal.append("job", b"three") == 3
        host.sync()
        assert host.synced == [3]

    assert payloads(path) == [b"one", b"two", b"three"]


def test_nothing_is_synced_before_it_is_told(path: Path) -> None:
    with hosted(path) as host:
        host.journal.append("job", b"one")
        assert host.journal.synced == 0
        host.sync()

        assert host.synced == [1]
        assert host.journal.synced == 1


def test_all_that_waits_for_the_disk_goes_in_one_transaction(path: Path) -> None:
    with closing(Journal.open(path)) as journal:
        host = Host(journal)
        for _ in range(50):
            journal.append("job", b"one")
        host.start()
        host.sync()

        assert journal.commits == 1
        assert host.synced == [50]


def test_a_row_that_is_not_durable_goes_with_the_next_that_is(path: Path) -> None:
    with hosted(path) as host:
        host.journal.append("job", b"one", within_s=LAZY_S)
        host.journal.append("job", b"two")
        host.sync()

        assert host.synced == [2]
        assert host.journal.commits == 1


def test_a_row_that_is_not_durable_does_not_wait_for_ever(
    path: Path,
) -> None:
    with hosted(path) as host:
        host.journal.append("job", b"one", within_s=0.001)
        host.sync()

        assert host.synced == [1]


def test_rows_that_may_wait_a_little_are_written_together(path: Path) -> None:
    with hosted(path) as host:
        host.journal.append("job", b"one", within_s=0.05)
        host.journal.append("job", b"two", within_s=LAZY_S)
        host.journal.append("job", b"three", within_s=0.05)
        host.sync()

        assert host.synced == [3]
        assert host.journal.commits == 1


def test_a_host_with_too_long_a_backlog_is_behind(path: Path) -> None:
    with closing(Journal.open(path)) as journal:
        host = Host(journal)
        for _ in range(BACKLOG_MAX):
            journal.append("job", b"")
        before = journal.behind
        journal.append("job", b"")
        behind = journal.behind
        host.start()
        host.sync()

        assert (before, behind, journal.behind) == (False, True, False)


def test_an_event_loop_is_told_in_its_own_thread(path: Path) -> None:
    async def append() -> tuple[int, int]:
        loop = asyncio.get_running_loop()
        told: asyncio.Future[tuple[int, int]] = loop.create_future()
        with closing(Journal.open(path)) as journal:
            journal.start(
                loop.call_soon_threadsafe,
                on_synced=lambda seq: told.set_result((seq, threading.get_ident())),
                on_failed=told.set_exception,
            )
            journal.append("job", b"one")
            return await told

    assert asyncio.run(append()) == (1, threading.get_ident())


def test_a_journal_outlives_the_loop_that_listened(path: Path) -> None:
    loop = asyncio.new_event_loop()
    journal = Journal.open(path)
    journal.start(
        loop.call_soon_threadsafe, on_synced=lambda _: None, on_failed=lambda _: None
    )
    loop.close()
    journal.append("job", b"one")
    journal.close()

    assert payloads(path) == [b"one"]


def test_closing_twice_is_closing_once(path: Path) -> None:
    journal = Journal.open(path)
    journal.close()

    journal.close()


def test_the_log_does_not_grow_with_all_that_was_ever_written(path: Path) -> None:
    with hosted(path) as host:
        for _ in range(10):
            host.journal.append("job", bytes(4 << 20))
            host.sync()
        log = path.with_name(f"{path.name}-wal").stat().st_size

        assert log < WAL_BYTES + 2 * (4 << 20)


# Disks that refuse.


def test_a_full_disk_is_told_once_and_nothing_counts_after_it(path: Path) -> None:
    host = Host(Journal.open(path, bytes_max=64 << 10))
    host.start()
    for _ in range(100):
        host.journal.append("job", bytes(4_096))
        host.sync()
    for _ in range(3):
        host.journal.append("job", b"")

    with pytest.raises(StoreError, match="SQLITE_FULL") as raised:
        host.journal.close()

    assert [error.kind for error in host.failed] == ["disk"]
    assert "make room" in raised.value.hint
    assert 0 < host.journal.synced < 100
    assert host.journal._queue == []
    assert len(payloads(path)) == host.journal.synced


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_bug_in_the_writing_thread_is_told_too(path: Path) -> None:
    host = Host(Journal.open(path))
    host.start()
    host.journal.compact(("kept", bytes(1 // n)) for n in (1, 0))
    host.run_until(lambda: bool(host.failed))

    with pytest.raises(StoreError, match="ZeroDivisionError"):
        host.journal.close()

    assert [error.kind for error in host.failed] == ["bug"]


# Compaction.


def test_compaction_replaces_all_that_came_before_it(path: Path) -> None:
    with hosted(path) as host:
        for n in range(10):
            host.journal.append("job", b"%d" % n)
        host.compact(b"a", b"b")
        assert host.journal.since_snapshot == 0
        host.journal.append("job", b"after")

    with closing(Journal.open(path)) as journal:
        assert list(journal.rows()) == [
            (10, "kept", b"a"),
            (10, "kept", b"b"),
            (11, "job", b"after"),
        ]
        assert journal.last == 11
        assert journal.since_snapshot == 1


def test_what_is_appended_right_after_a_compaction_is_kept(path: Path) -> None:
    with closing(Journal.open(path)) as journal:
        host = Host(journal)
        journal.append("job", b"before")
        journal.compact([("kept", b"a")])
        journal.append("job", b"after")
        host.start()  # All three go into one transaction.
        host.run_until(lambda: not journal.compacting)

    assert payloads(path) == [b"a", b"after"]


def test_a_journal_is_compacted_again_and_again(path: Path) -> None:
    fill(path, b"x", b"y")
    for n in range(4):
        with hosted(path) as host:
            host.compact(*(b"%d" % m for m in range(n, 4)))
            host.journal.append("job", b"after %d" % n)

    assert payloads(path) == [b"3", b"after 3"]


def test_a_compaction_may_leave_nothing(path: Path) -> None:
    fill(path, b"x", b"y")
    with hosted(path) as host:
        host.compact()

    with closing(Journal.open(path)) as journal:
        assert list(journal.rows()) == []
        assert journal.last == 2


def test_entries_do_not_wait_for_the_end_of_a_compaction(path: Path) -> None:
    appended: list[int] = []

    def endless() -> Iterator[tuple[str, bytes]]:
        while not appended or host.journal.commits < 5:
            yield "kept", b"x" * 100_000

    with hosted(path) as host:
        host.journal.append("job", b"before")
        host.journal.compact(endless())
        appended.append(host.journal.append("job", b"during"))
        host.sync()
        assert host.journal.synced == 2
        host.run_until(lambda: not host.journal.compacting)

    assert payloads(path)[-1] == b"during"
    assert payloads(path)[0] == b"x" * 100_000


def test_a_compaction_that_was_cut_short_has_not_happened(path: Path) -> None:
    def stuck() -> Iterator[tuple[str, bytes]]:
        for n in range(40):
            yield "kept", b"%d" % n * 50_000
        host.journal._closing = True  # As if the process ended about here.
        yield "kept", bytes(1 << 20)
        yield "kept", b"never"

    fill(path, b"x", b"y")
    host = Host(Journal.open(path))
    host.start()
    host.journal.compact(stuck())
    host.journal.close()

    assert payloads(path) == [b"x", b"y"]
    with hosted(path) as again:
        again.compact(b"a")
    assert payloads(path) == [b"a"]


def test_room_in_the_log_is_no_part_of_what_a_crash_leaves(path: Path) -> None:
    log = path.with_name(f"{path.name}-wal")
    crashed = path.with_name("crashed")
    sizes: list[int] = []
    with hosted(path) as host:
        for number in range(40):
            host.journal.append("job", b"%d" % number)
            host.sync()
            sizes.append(log.stat().st_size)
        crashed.write_bytes(path.read_bytes())
        log.with_name("crashed-wal").write_bytes(log.read_bytes())

    assert sizes[-1] == sizes[-2] >= WAL_BYTES  # It grew ahead, and grows no more.
    assert payloads(crashed) == [b"%d" % number for number in range(40)]
