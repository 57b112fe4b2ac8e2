"""A grant that ends soon is renewed by an admin, while the links stay up."""

import time
from pathlib import Path

import pytest
from tests.integration.found_shoal import linked, shoal
from tests.integration.live_shoal import LiveNode, eventually

from shoal.api import shoal_pb2 as pb
from shoal.core.durability.audit_chain import read
from shoal.protocol.messages import Grant
from shoal.runtime.durability.audit_log import lines
from shoal.runtime.membership import shoal_membership

pytestmark = pytest.mark.integration
SOON_S = 20.0
QUIET = ("--without", "p2p", "--no-web")


def grant_of(node: LiveNode) -> Grant:
    known = shoal_membership.load(node.home)
    assert known is not None
    return known.grant


def test_a_grant_that_ends_soon_is_renewed_and_no_link_is_lost(tmp_path: Path) -> None:
    now = time.time()
    short = {
        "roles": ("worker",),
        "serial": int(now - 600),
        "expires_wall_s": now + 60.0,
    }
    with shoal(tmp_path) as reef:
        boss = reef.found("boss", "127.0.4.1", "--no-worker", *QUIET)
        worker = reef.join("worker", "127.0.4.2", *QUIET, fields=short)
        eventually(
            lambda: grant_of(worker).expires_wall_s > now + 500.0, SOON_S, worker.story
        )
        still = linked(boss)
        renewed = grant_of(worker)
        noted = [read(line) for line in lines(boss.home)]
        happened = [event.what for event in events(boss)]

    assert worker.id in still, "the link stays up"
    assert renewed.roles == ("worker",)
    assert [one.target for one in noted if one and one.what == "renew"] == [worker.id]
    assert happened.count("linked") == 1
    assert "lost" not in happened


def events(node: LiveNode) -> list[pb.Event]:
    with node.client() as client:
        return list(client.events(pb.EventsRequest(latest=100)))
