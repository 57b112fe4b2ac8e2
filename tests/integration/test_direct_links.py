import asyncio

import pytest
from tests.integration.direct_nodes import (
    LOOPS,
    closed,
    eventually,
    node,
    numbered,
    numbers,
    run,
)

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("loop", LOOPS)
def test_two_nodes_exchange_messages(loop: str) -> None:
    async def main() -> None:
        ann, bob = await node(1), await node(2)
        ann.know(bob)

        ann.say(bob, numbered(1))
        await eventually(lambda: bob.heard(ann))
        bob.say(ann, numbered(2))
        await eventually(lambda: ann.heard(bob))

        assert bob.heard(ann) == [numbered(1)]
        assert ann.heard(bob) == [numbered(2)]
        assert ann.log.events == [("connected", bob.id)]
        assert bob.log.events == [("connected", ann.id)]
        grant = bob.log.grants[ann.id]
        assert grant is not None
        assert grant.node == ann.id
        await closed(ann, bob)
        assert ann.links.counts["up"] == bob.links.counts["up"] == 1

    run(main(), loop)


@pytest.mark.parametrize("loop", LOOPS)
def test_what_is_sent_in_one_turn_arrives_in_one_frame(loop: str) -> None:
    async def main() -> None:
        ann, bob = await node(1), await node(2)
        ann.know(bob)
        ann.say(bob, numbered(0))
        await eventually(lambda: bob.heard(ann))

        for number in range(1, 101):
            ann.say(bob, numbered(number))
        await eventually(lambda: len(bob.heard(ann)) == 101)

        assert bob.log.frames == [1, 100]
        await closed(ann, bob)

    run(main(), loop)


@pytest.mark.parametrize("loop", LOOPS)
def test_ten_thousand_messages_each_way_arrive_in_order(loop: str) -> None:
    async def main() -> None:
        ann, bob = await node(1), await node(2)
        ann.know(bob)
        ann.say(bob, numbered(0))
        await eventually(lambda: ann.is_linked(bob) and bob.is_linked(ann))

        for number in range(1, 10_000):
            ann.say(bob, numbered(number))
            bob.say(ann, numbered(number))
            if number % 7 == 0:
                await asyncio.sleep(0)
        bob.say(ann, numbered(10_000))
        await eventually(lambda: len(bob.heard(ann)) == len(ann.heard(bob)) == 10_000)

        assert numbers(bob.heard(ann)) == list(range(10_000))
        assert numbers(ann.heard(bob)) == list(range(1, 10_001))
        await closed(ann, bob)

    run(main(), loop)
