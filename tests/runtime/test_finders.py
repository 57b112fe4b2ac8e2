"""Finding others: what is told to whom, and the file of members."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any, cast

import pytest
from tests.runtime.virtual_time import run

from shoal.core.discovery.events import KeepMembers
from shoal.errors import UsageError
from shoal.model.ids import NodeId
from shoal.net.base import Listener
from shoal.net.link_selector import LinkSelector
from shoal.protocol.messages import AnyMessage, Goodbye, Revocation
from shoal.runtime.discovery.finders import TOLD_MAX, Finders, Finding, finding_of
from shoal.runtime.discovery.known_members import MembersFile, load_members

ANN, BOB = NodeId("ann"), NodeId("bob")
PLACE = "/ip4/192.0.2.7/tcp/4001/p2p/bob"


class Links:
    """Links that note what is sent."""

    def __init__(self, *connected: NodeId) -> None:
        self.peers = connected
        self.sent: list[tuple[NodeId, AnyMessage]] = []

    def send(self, peer: NodeId, message: AnyMessage) -> None:
        self.sent.append((peer, message))


def told(message: AnyMessage, *peers: NodeId) -> Sequence[tuple[NodeId, AnyMessage]]:
    """Return what is sent when a message is published to these linked peers."""
    links = Links(*peers)

    async def main() -> None:
        finder = Finders(
            cast("LinkSelector[Any, Any]", links),
            None,
            cast("Listener", None),
            Finding(),
            MembersFile(None),
            Random(1),
        )
        finder.publish(message)
        await finder.close()

    run(main())
    return links.sent


def test_publishing_tells_all_neighbours() -> None:
    assert told(Goodbye(), ANN, BOB) == [(ANN, Goodbye()), (BOB, Goodbye())]


def test_of_many_neighbours_only_some_are_told_but_all_of_a_revocation() -> None:
    crowd = [NodeId(f"n{n}") for n in range(2 * TOLD_MAX)]
    revocation = Revocation(node=BOB, shoal="reef", serial=1)

    assert len(told(Goodbye(), *crowd)) == TOLD_MAX
    assert len(told(revocation, *crowd)) == len(crowd)


def with_file(tmp_path: Path, act: Callable[[MembersFile], None]) -> Path:
    path = tmp_path / "peers.json"

    async def main() -> None:
        file = MembersFile(path)
        act(file)
        await file.close()

    asyncio.run(main())
    return path


def test_members_are_remembered_for_the_next_life(tmp_path: Path) -> None:
    def meet(file: MembersFile) -> None:
        file.keep(KeepMembers({ANN: ("/a",)}))
        file.keep(KeepMembers({ANN: ("/a",), BOB: (PLACE,)}))

    path = with_file(tmp_path, meet)

    assert list(load_members(path, [])) == [(BOB, (PLACE,)), (ANN, ("/a",))]


def test_a_broken_file_of_members_is_an_empty_one(tmp_path: Path) -> None:
    file = tmp_path / "peers.json"
    file.write_text("{]")

    assert list(load_members(file, [PLACE])) == [(BOB, (PLACE,))]


def test_a_way_that_does_not_exist_cannot_be_switched_off() -> None:
    assert not finding_of(["mdns"]).mdns
    with pytest.raises(UsageError, match="no way 'pigeons'"):
        finding_of(["pigeons"])
