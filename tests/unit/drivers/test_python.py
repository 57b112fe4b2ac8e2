"""The driver of lanes, with a lane that has its last word."""

import asyncio
import socket
from pathlib import Path
from typing import cast

import pytest
from tests.unit.drivers.orders import Watched, order

from shoal.drivers import RunOrder, Watcher
from shoal.drivers.process import ProcessDriver
from shoal.drivers.python import FOLDER, LaneLine, PythonDriver
from shoal.protocol import call_items
from shoal.protocol.messages import Outcome

LAST_WORD = call_items.item(call_items.BACK, 7)


class Hasty:
    """A lane whose end is known before anybody has read what it said."""

    def __init__(self, root: Path, desk: "Desk") -> None:
        self._root = root
        self._desk = desk

    def prepare(self, _attempt: object) -> Path:
        return self._root

    async def run(self, order: RunOrder, _watcher: Watcher) -> Outcome:
        line = socket.socket(socket.AF_UNIX)
        line.connect(str(self._root / order.task.work.argv[-2]))
        await self._desk.greeted.wait()
        line.sendall(len(LAST_WORD).to_bytes(4, "little") + LAST_WORD)
        line.close()
        return Outcome("exited", exit_code=0)


class Desk:
    """Remembers what a lane said."""

    def __init__(self) -> None:
        self.greeted = asyncio.Event()
        self.heard: list[bytes] = []

    def came(self, order: RunOrder, line: LaneLine) -> "Desk":
        del order, line
        self.greeted.set()
        return self

    def said(self, items: list[bytes]) -> None:
        self.heard += items

    def slowed(self, *, slow: bool) -> None:
        pass

    def ended(self) -> None:
        pass


def test_what_a_lane_said_last_is_heard(tmp_path: Path) -> None:
    async def act() -> list[bytes]:
        desk = Desk()
        driver = PythonDriver(cast("ProcessDriver", Hasty(tmp_path, desk)), desk)
        await driver.run(order(), Watched())
        return desk.heard

    assert asyncio.run(act()) == [LAST_WORD]


@pytest.mark.parametrize("kind", ["file", "link", "folder"])
def test_a_lane_leaves_alone_what_the_user_has_under_its_name(
    tmp_path: Path, kind: str
) -> None:
    taken = tmp_path / FOLDER
    match kind:
        case "file":
            taken.write_text("of the user")
        case "link":
            (tmp_path / "elsewhere").mkdir()
            taken.symlink_to("elsewhere")
        case _:
            taken.mkdir()

    async def act() -> list[bytes]:
        desk = Desk()
        driver = PythonDriver(cast("ProcessDriver", Hasty(tmp_path, desk)), desk)
        await driver.run(order(), Watched())
        return desk.heard

    assert asyncio.run(act()) == [LAST_WORD]
    assert taken.is_file() or list(taken.iterdir()) == []
