"""The driver of lanes, with a lane that has its last word."""

import asyncio
import socket
from pathlib import Path
from typing import cast

from tests.unit.drivers.orders import Watched, order

from shoal.drivers import Order, Watcher
from shoal.drivers.process import ProcessDriver
from shoal.drivers.python import FOLDER, SOCKET, LaneLine, PythonDriver
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

    async def run(self, _order: Order, _watcher: Watcher) -> Outcome:
        line = socket.socket(socket.AF_UNIX)
        line.connect(str(self._root / FOLDER / SOCKET))
        await self._desk.greeted.wait()
        line.sendall(len(LAST_WORD).to_bytes(4, "little") + LAST_WORD)
        line.close()
        return Outcome("exited", exit_code=0)


class Desk:
    """Remembers what a lane said."""

    def __init__(self) -> None:
        self.greeted = asyncio.Event()
        self.heard: list[bytes] = []

    def came(self, order: Order, line: LaneLine) -> "Desk":
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
        driver = PythonDriver(cast("ProcessDriver", Hasty(tmp_path, desk)))
        driver.desk = desk
        await driver.run(order(), Watched())
        return desk.heard

    assert asyncio.run(act()) == [LAST_WORD]
