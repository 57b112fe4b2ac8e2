"""Members that left stay known, until somebody forgets them."""

import asyncio
from pathlib import Path

import pytest

from shoal.model.ids import NodeId
from shoal.runtime.monitoring import seen_members
from shoal.runtime.monitoring.seen_members import SeenMember, SeenMembers

OTTER, HERON = NodeId("otter"), NodeId("heron")


class Life:
    """A node's memory of others, from its start to its end."""

    def __init__(self, path: Path, at_s: float) -> None:
        self.at_s = at_s
        self.seen = SeenMembers(path, lambda: self.at_s)

    @property
    def away(self) -> dict[NodeId, SeenMember]:
        return dict(self.seen.away())


def test_who_left_is_away_until_it_is_back_or_forgotten(tmp_path: Path) -> None:
    async def story() -> None:
        life = Life(tmp_path / "members.json", 1.0)
        life.seen.linked(OTTER)
        life.seen.linked(HERON)
        life.at_s = 2.0
        life.seen.parted(OTTER, "stopped")
        life.seen.parted(HERON, "lost")
        assert life.away == {
            OTTER: SeenMember(2.0, "stopped"),
            HERON: SeenMember(2.0, "lost"),
        }

        life.seen.linked(OTTER)

        assert [*life.away] == [HERON]
        assert not life.seen.forget(OTTER)  # It is here.
        assert life.seen.forget(HERON)
        assert not life.seen.forget(HERON)
        assert life.away == {}
        await life.seen.close()

    asyncio.run(story())


def test_the_next_life_knows_who_was_there(tmp_path: Path) -> None:
    path = tmp_path / "members.json"

    async def first() -> None:
        life = Life(path, 1.0)
        life.seen.linked(OTTER)
        life.seen.linked(HERON)
        life.seen.parted(HERON, "stopped")
        await life.seen.close()
        life.seen.parted(OTTER, "lost")  # As this node goes; the otter does not.

    asyncio.run(first())

    assert Life(path, 9.0).away == {
        OTTER: SeenMember(1.0, "unseen"),
        HERON: SeenMember(1.0, "stopped"),
    }
    path.write_text('{"otter": 7')
    assert Life(path, 9.0).away == {}


def test_not_more_are_kept_than_there_is_room_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seen_members, "KEPT_MAX", 3)

    async def story() -> None:
        life = Life(tmp_path / "members.json", 1.0)
        life.seen.linked(OTTER)  # The oldest, and here: it stays.
        for number in range(9):
            life.seen.linked(NodeId(str(number)))
            life.seen.parted(NodeId(str(number)), "lost")

        assert [*life.away] == ["8", "7"]
        life.seen.parted(OTTER, "lost")
        assert OTTER in life.away
        await life.seen.close()

    asyncio.run(story())
