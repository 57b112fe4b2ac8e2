import asyncio
import sys

import pytest

from shoal.net.event_loop import loop_factory


async def module() -> str:
    return type(asyncio.get_running_loop()).__module__


def test_uvloop_is_used_where_it_is_installed() -> None:
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        assert runner.run(module()).startswith("uvloop")


def test_without_uvloop_the_loop_of_asyncio_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "uvloop", None)

    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        assert runner.run(module()).startswith("asyncio")
