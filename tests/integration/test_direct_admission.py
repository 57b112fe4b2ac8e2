import ssl
from collections.abc import Callable

import msgspec
import pytest
from tests.integration.direct_nodes import (
    Node,
    closed,
    eventually,
    node,
    numbered,
    run,
)
from tests.unit.net.shoals import Gatekeeper, granted, identity, revoked

from shoal.net.direct.settings import LinkSettings
from shoal.protocol.messages import Grant

pytestmark = pytest.mark.integration

BOB = identity(2)
BRIEF = LinkSettings(refuse_s=0.3)


class Careless(Gatekeeper):
    """Admits everybody, as a hostile node would."""

    def __call__(self, peer: object, grant: Grant | None) -> str | None:
        return None


def forged() -> Grant:
    return msgspec.structs.replace(granted(BOB.node), signature=bytes(64))


# The grant that bob shows, and what he is told.
BAD: dict[str, tuple[Callable[[], Grant], str]] = {
    "expired": (lambda: granted(BOB.node, expires_wall_s=1.0), "grant expired"),
    "forged": (forged, "signature of"),
    "self-made": (lambda: granted(BOB.node, BOB), "signed by a non-admin"),
    "of-another-node": (lambda: granted(identity(3).node), "grant is for"),
    "of-another-shoal": (
        lambda: granted(BOB.node, shoal="pond"),
        "not a member of this shoal",
    ),
    "too-large": (
        lambda: granted(
            BOB.node,
            BOB,
            roles=("admin",),
            delegation=granted(BOB.node, roles=("worker",)),
        ),
        "signed by a non-admin",
    ),
}


@pytest.mark.parametrize("flaw", BAD)
def test_a_node_without_a_valid_grant_gets_no_link_by_dialling(flaw: str) -> None:
    async def main() -> None:
        grant, told = BAD[flaw]
        ann, bob = await node(1), await node(2, grant=grant(), gatekeeper=Careless())
        bob.know(ann)

        bob.say(ann, numbered(1))
        await eventually(lambda: ann.links.counts["not admitted"])
        await eventually(lambda: bob.links.trouble(ann.id))

        assert f"it said: {told}" in bob.links.trouble(ann.id)
        await closed_without_a_link(ann, bob)

    run(main())


@pytest.mark.parametrize("flaw", BAD)
def test_a_node_without_a_valid_grant_gets_no_link_by_being_dialled(flaw: str) -> None:
    async def main() -> None:
        grant, told = BAD[flaw]
        ann, bob = await node(1), await node(2, grant=grant(), gatekeeper=Careless())
        ann.know(bob)

        ann.say(bob, numbered(1))
        await eventually(lambda: ann.links.counts["not admitted"])
        await eventually(lambda: bob.links.counts["closed by peer"])
        await eventually(lambda: ann.links.trouble(bob.id))

        assert told in ann.links.trouble(bob.id)
        await closed_without_a_link(ann, bob)

    run(main())


async def closed_without_a_link(ann: Node, bob: Node) -> None:
    await closed(ann, bob)
    assert ann.log.events == []
    assert bob.log.events == []
    assert ann.heard(bob) == []


def test_a_revoked_node_is_cut_off_and_does_not_come_back() -> None:
    async def main() -> None:
        gatekeeper = Gatekeeper()
        ann = await node(1, gatekeeper=gatekeeper, settings=BRIEF)
        bob = await node(2)
        bob.know(ann)
        bob.say(ann, numbered(1))
        await eventually(lambda: ann.heard(bob))

        gatekeeper.members.revoke(revoked(bob.id))
        ann.links.disconnect(bob.id, "revoked up to serial 0")
        await eventually(lambda: bob.log.count("lost", ann.id))
        said = bob.links.trouble(ann.id)
        bob.say(ann, numbered(2))
        await eventually(lambda: ann.links.counts["refused"])
        await eventually(lambda: ann.links.counts["not admitted"])

        assert said == "it said: revoked up to serial 0"
        await eventually(
            lambda: "is revoked up to serial 0" in bob.links.trouble(ann.id)
        )
        assert ann.log.events == [("connected", bob.id), ("lost", bob.id)]
        assert ann.heard(bob) == [numbered(1)]
        await closed(ann, bob)

    run(main())


def test_a_peer_that_was_cut_off_may_come_back_after_a_while() -> None:
    async def main() -> None:
        ann, bob = await node(1, settings=BRIEF), await node(2)
        ann.know(bob)
        bob.know(ann)
        bob.say(ann, numbered(1))
        await eventually(lambda: ann.heard(bob))

        ann.links.disconnect(bob.id, "too many demands")
        ann.say(bob, numbered(9))
        bob.say(ann, numbered(2))
        await eventually(lambda: len(ann.heard(bob)) == 2)

        assert ann.links.counts["dropped refused"] == 1
        assert ann.log.events == [
            (e, bob.id) for e in ("connected", "lost", "connected")
        ]
        await closed(ann, bob)

    run(main())


def test_the_wrong_node_at_an_address_gets_no_link() -> None:
    async def main() -> None:
        ann, bob, eve = await node(1), await node(2), await node(3)
        told = [address.rpartition("/p2p/")[0] for address in eve.links.addresses]
        ann.links.know(bob.id, told)

        ann.say(bob, numbered(1))
        await eventually(lambda: ann.links.counts["wrong id"])

        await closed(ann, bob, eve)
        assert eve.log.events == []

    run(main())


def test_a_node_shows_its_new_grant_on_links_that_come_up_later() -> None:
    async def main() -> None:
        ann, bob = await node(1), await node(2)
        renewed = granted(bob.id, serial=7)

        bob.links.renew(renewed)
        bob.know(ann)
        bob.say(ann, numbered(1))
        await eventually(lambda: ann.heard(bob))

        assert ann.log.grants[bob.id] == renewed
        await closed(ann, bob)

    run(main())


def test_versions_that_do_not_meet_make_no_link() -> None:
    async def main() -> None:
        ann, bob = await node(1), await node(2)
        hello = ann.links._hello
        ann.links._hello = msgspec.structs.replace(hello, versions=(7, 9))
        bob.know(ann)

        bob.say(ann, numbered(1))
        await eventually(
            lambda: bob.links.counts["version"] + ann.links.counts["version"]
        )

        await closed_without_a_link(ann, bob)

    run(main())


def test_ssl_of_this_python_does_what_links_need() -> None:
    assert ssl.HAS_TLSv1_3
