"""What the standard library promises of executors and futures, kept in the shoal."""

import asyncio
import concurrent.futures
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import (
    FIRST_COMPLETED,
    FIRST_EXCEPTION,
    BrokenExecutor,
    CancelledError,
)
from pathlib import Path

import pytest
from tests.integration.calling import WAIT_S, client, eventually, node

import shoal

pytestmark = pytest.mark.integration


def double(x: int) -> int:
    return 2 * x


def fail(text: str) -> None:
    raise ValueError(text)


def sleep_and_return(seconds: float, value: int) -> int:
    time.sleep(seconds)
    return value


def all_of_them(*args: object, **kwargs: object) -> tuple[object, object]:
    return args, kwargs


@pytest.fixture(scope="module")
def shoal_client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[shoal.Client]:
    with (
        node(tmp_path_factory.mktemp("home")),
        client(lanes=2, cpu=0.5, idle_s=600) as made,
    ):
        yield made


@pytest.fixture
def executor(shoal_client: shoal.Client) -> Iterator[shoal.Executor]:
    with shoal_client.executor() as made:
        yield made


def test_a_function_gets_all_its_arguments(executor: shoal.Executor) -> None:
    assert executor.submit(pow, 2, 5).result(WAIT_S) == 32
    assert executor.submit(int, "ff", base=16).result(WAIT_S) == 255
    found = executor.submit(all_of_them, 1, self=2, fn=3, gpu=4, retries=5)
    assert found.result(WAIT_S) == ((1,), {"self": 2, "fn": 3, "gpu": 4, "retries": 5})


def test_map_keeps_the_order_and_ends_with_the_shortest(
    executor: shoal.Executor,
) -> None:
    assert list(executor.map(pow, range(10), range(10))) == [n**n for n in range(10)]
    assert list(executor.map(pow, [2, 3, 4], [1, 2])) == [2, 9]
    assert list(executor.map(double, [])) == []


@pytest.mark.parametrize("chunksize", [1, 3, 7, 100, None])
def test_map_gives_the_same_in_chunks(
    executor: shoal.Executor, chunksize: int | None
) -> None:
    found = executor.map(double, range(50), chunksize=chunksize)

    assert list(found) == [2 * n for n in range(50)]


def test_map_refuses_chunks_of_nothing(executor: shoal.Executor) -> None:
    with pytest.raises(ValueError, match="chunksize"):
        executor.map(double, range(3), chunksize=0)


def test_map_raises_where_the_result_would_be(executor: shoal.Executor) -> None:
    found = executor.map(divmod, [1, 1, 1, 1], [2, 3, 0, 5])

    assert next(found) == (0, 1)
    assert next(found) == (0, 1)
    with pytest.raises(ZeroDivisionError):
        next(found)


def test_map_times_out(executor: shoal.Executor) -> None:
    found = executor.map(sleep_and_return, [0, 0, 12], [1, 2, 3], timeout=4)

    results: list[int] = []
    with pytest.raises(TimeoutError):
        results.extend(found)


def test_a_result_that_takes_too_long_times_out(executor: shoal.Executor) -> None:
    future = executor.submit(sleep_and_return, 1.5, 7)

    with pytest.raises(TimeoutError):
        future.result(timeout=0.05)
    with pytest.raises(TimeoutError):
        future.exception(timeout=0.05)
    assert future.result(WAIT_S) == 7


def test_an_exception_comes_with_the_traceback_of_the_other_side(
    executor: shoal.Executor,
) -> None:
    future = executor.submit(fail, "no luck")

    error = future.exception(WAIT_S)

    assert isinstance(error, ValueError)
    assert error.args == ("no luck",)
    assert "in fail" in str(error.__cause__)
    assert "raise ValueError(text)" in str(error.__cause__) or "fail" in str(
        error.__cause__
    )
    with pytest.raises(ValueError, match="no luck"):
        future.result()


def test_callbacks_are_called_with_the_future(executor: shoal.Executor) -> None:
    seen: list[object] = []
    done = threading.Event()
    future = executor.submit(double, 4)

    future.add_done_callback(seen.append)
    future.add_done_callback(lambda _: 1 // 0)  # It is logged, and harms nobody.
    future.add_done_callback(lambda _: done.set())

    assert done.wait(WAIT_S)
    assert seen == [future]
    future.add_done_callback(seen.append)
    assert seen == [future, future]


def test_wait_and_as_completed_know_our_futures(executor: shoal.Executor) -> None:
    quick = executor.submit(double, 1)
    slow = executor.submit(sleep_and_return, 2.0, 5)

    first = concurrent.futures.wait(
        [quick, slow], timeout=WAIT_S, return_when=FIRST_COMPLETED
    )
    assert quick in first.done
    order = list(concurrent.futures.as_completed([slow, quick], timeout=WAIT_S))
    assert order[-1] is slow
    bad = executor.submit(fail, "x")
    ended = concurrent.futures.wait([bad], WAIT_S, return_when=FIRST_EXCEPTION)
    assert ended.done == {bad}


def test_a_call_that_was_not_sent_can_be_cancelled(
    shoal_client: shoal.Client,
) -> None:
    with shoal_client.executor(lanes=1, cpu=0.4) as executor:
        blocking = executor.submit(sleep_and_return, 1.0, 1)
        eventually(blocking.running)
        futures = [executor.submit(double, n) for n in range(100)]

        assert futures[-1].cancel()
        assert futures[-1].cancelled()
        assert futures[-1].done()
        with pytest.raises(CancelledError):
            futures[-1].result()
        assert not blocking.cancel()
        assert blocking.result(WAIT_S) == 1
        assert [f.result(WAIT_S) for f in futures[:-1]] == [2 * n for n in range(99)]


def test_after_its_end_an_executor_takes_nothing(shoal_client: shoal.Client) -> None:
    executor = shoal_client.executor()
    future = executor.submit(sleep_and_return, 0.2, 3)

    executor.shutdown()
    executor.shutdown()

    assert future.done()
    assert future.result() == 3
    with pytest.raises(RuntimeError, match="shutdown"):
        executor.submit(double, 1)
    with pytest.raises(RuntimeError, match="shutdown"):
        executor.map(double, [1])


def test_the_end_need_not_wait(shoal_client: shoal.Client) -> None:
    executor = shoal_client.executor()
    futures = [executor.submit(sleep_and_return, 0.3, n) for n in range(4)]

    executor.shutdown(wait=False)

    assert [future.result(WAIT_S) for future in futures] == [0, 1, 2, 3]


def test_the_end_can_cancel_what_has_not_begun(shoal_client: shoal.Client) -> None:
    executor = shoal_client.executor(lanes=1, cpu=0.4)
    futures = [executor.submit(sleep_and_return, 0.2, n) for n in range(60)]

    executor.shutdown(cancel_futures=True)

    cancelled = [future for future in futures if future.cancelled()]
    others = [future for future in futures if not future.cancelled()]
    assert len(cancelled) >= 30
    assert all(future.done() and future.exception() is None for future in others)


def test_an_event_loop_can_run_functions_in_it(executor: shoal.Executor) -> None:
    async def program() -> list[int]:
        loop = asyncio.get_running_loop()
        first = await loop.run_in_executor(executor, double, 4)
        return [first, await executor.submit(double, 5)]

    assert asyncio.run(program()) == [8, 10]


def test_many_threads_may_use_one_executor(executor: shoal.Executor) -> None:
    def use(start: int) -> list[int]:
        futures = [executor.submit(double, n) for n in range(start, start + 200)]
        return [future.result(WAIT_S) for future in futures]

    with concurrent.futures.ThreadPoolExecutor(8) as threads:
        found = list(threads.map(use, range(0, 1600, 200)))

    assert [x for row in found for x in row] == [2 * n for n in range(1600)]


def test_a_program_that_ends_waits_for_its_executor(shoal_client: shoal.Client) -> None:
    program = """
import shoal, time
def late(path):
    time.sleep(0.5)
    print("apple")
    return "apple"
client = shoal.Client(start=False, cpu=0.1)
future = client.executor().submit(late, 1)
future.add_done_callback(lambda f: print(f.result(), flush=True))
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )

    assert (done.returncode, done.stdout) == (0, "apple\n"), done.stderr


def test_a_client_cannot_be_pickled(shoal_client: shoal.Client) -> None:
    with pytest.raises(TypeError, match="Client cannot be pickled"):
        shoal_client.submit(double, shoal_client)


def test_results_are_not_kept_alive(executor: shoal.Executor, tmp_path: Path) -> None:
    found = executor.map(double, range(5))
    assert next(found) == 0
    del found  # What has not begun is cancelled, and nothing hangs.
    assert executor.submit(double, 21).result(WAIT_S) == 42


times_loaded = 0
tables: dict[str, int] = {}


class Model:
    """What a program keeps in a class rather than in a variable."""

    weight = 0


def load(name: str, table: dict[str, int]) -> None:
    global times_loaded  # noqa: PLW0603 - That is what initializers do.
    times_loaded += 1
    tables[name] = table[name]
    Model.weight = table[name]


def loaded(_: int) -> tuple[int, int, int]:
    return times_loaded, tables["a"], Model.weight


def loaded_too(_: int) -> tuple[int, int, int]:
    return times_loaded, tables["a"], Model.weight


def test_an_initializer_runs_once_in_each_interpreter_for_all_functions(
    shoal_client: shoal.Client,
) -> None:
    args = ("a", {"a": 5})
    with shoal_client.executor(initializer=load, initargs=args) as executor:
        single = [executor.submit(loaded, n).result(WAIT_S) for n in range(4)]
        many = list(executor.map(loaded, range(40), chunksize=5, timeout=WAIT_S))
        others = [executor.submit(loaded_too, n).result(WAIT_S) for n in range(4)]
        shown = repr(executor.submit(loaded, 1))

    assert shown.startswith("<Future loaded: ")
    assert {*single, *many, *others} == {(1, 5, 5)}


def test_an_initializer_that_fails_breaks_its_executor_and_no_other(
    shoal_client: shoal.Client,
) -> None:
    executor = shoal_client.executor(initializer=load, initargs=("b", {}))

    with pytest.raises(BrokenExecutor, match=r"initializer.*KeyError: 'b'"):
        executor.submit(loaded, 1).result(WAIT_S)

    with pytest.raises(BrokenExecutor, match="KeyError: 'b'"):
        executor.submit(loaded, 2)
    assert shoal_client.executor().submit(abs, -1).result(WAIT_S) == 1
