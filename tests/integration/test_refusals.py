"""Who is no member gets nowhere: not directly, by gossip, by the DHT, or by a relay."""

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from random import SystemRandom

import pytest
from tests.integration.found_shoal import (
    FOUND_S,
    Found,
    finished,
    job_of,
    linked,
    p2p_state,
    shoal,
    submit,
    without,
)
from tests.integration.live_shoal import LiveNode, eventually

from shoal.api import shoal_pb2 as pb
from shoal.net.identity import Identity

pytestmark = pytest.mark.integration

BAIT = ("--gpus", "0", "--models", "BAIT", "--memories", "16000")
REVOKED_S = 5.0

Reef = tuple[Found, LiveNode, LiveNode, str]


@pytest.fixture
def reef(tmp_path: Path) -> Iterator[Reef]:
    """Start a gate and a member that looks for workers; the last is where to listen."""
    net = ".".join(str(SystemRandom().randrange(1, 255)) for _ in range(2))
    with shoal(tmp_path) as made:
        gate = made.found("gate", f"127.{net}.1", "--no-worker", "--gate")
        asking = made.join("asking", f"127.{net}.2", "--no-worker", gates=[gate])
        eventually(lambda: gate.id in linked(asking), FOUND_S, asking.story)
        yield made, gate, asking, f"127.{net}.3"


def wants_bait(node: LiveNode) -> str:
    """Hand in a job that only one node could run."""
    spec = '{"command": ["true"], "resources": {"gpu": "BAIT:1"}}'
    with node.client() as client:
        job = f"bait-{SystemRandom().randrange(1 << 30)}"
        client.submit(pb.SubmitRequest(job_id=job, json=spec))
    return job


@pytest.mark.parametrize("ways", [(), ("direct",)], ids=["direct", "streams"])
def test_a_member_with_the_bait_would_be_found(
    reef: Reef, ways: tuple[str, ...]
) -> None:
    made, gate, asking, address = reef
    member = made.join("member", address, *BAIT, *without(*ways), gates=[gate])

    done = finished(asking, wants_bait(asking))

    assert done.state == pb.STATE_DONE
    assert member.id in linked(asking)


@pytest.mark.parametrize("ways", [(), ("direct",)], ids=["direct", "streams"])
def test_whose_grant_does_not_hold_is_refused_on_every_way(
    reef: Reef, ways: tuple[str, ...]
) -> None:
    made, gate, asking, address = reef
    flaws: dict[str, dict[str, object]] = {
        "expired": {"expires_wall_s": time.time() - 1.0},
        "forged": {"signer": Identity.from_seed(b"\x66" * 32)},
        "foreign": {"shoal": "lagoon"},
    }
    intruders = {
        flaw: made.join(
            *(flaw, f"{address}{n}", *BAIT, *without(*ways)),
            gates=[gate],
            fields=fields,
        )
        for n, (flaw, fields) in enumerate(flaws.items())
    }
    for intruder in intruders.values():
        eventually(partial(is_up, intruder), FOUND_S, intruder.story)

    job = wants_bait(asking)
    _let_it_try(asking)

    assert job_of(asking, job).state == pb.STATE_WAITING, job_of(asking, job)
    for flaw, intruder in intruders.items():
        assert not linked(intruder), flaw
        for node in (gate, asking):
            assert intruder.id not in linked(node), flaw
    assert finished(asking, _of_anybody(made, asking, gate)).state == pb.STATE_DONE


def is_up(node: LiveNode) -> bool:
    return p2p_state(node) == "up"


def _let_it_try(node: LiveNode) -> None:
    """Wait as long as a member needs to be found, twice over."""
    with node.client() as client:
        began = client.info().up_s
    eventually(lambda: _up_s(node) > began + 12.0, 2 * FOUND_S)


def _up_s(node: LiveNode) -> float:
    with node.client() as client:
        return float(client.info().up_s)


def _of_anybody(made: Found, asking: LiveNode, gate: LiveNode) -> str:
    """Show that the shoal works on: a member that comes now runs a job."""
    address = direct_host(asking).rpartition(".")[0] + ".9"
    made.join("late", address, gates=[gate])
    return submit(asking, "true")


def direct_host(node: LiveNode) -> str:
    with node.client() as client:
        return str(client.info().addresses[0].split("/")[2])


@pytest.mark.parametrize("ways", [(), ("direct",)], ids=["direct", "streams"])
def test_who_is_revoked_is_cut_off_everywhere_and_stays_out(
    reef: Reef, ways: tuple[str, ...]
) -> None:
    made, gate, asking, address = reef
    bad = made.join("bad", address, *BAIT, *without(*ways), gates=[gate])
    nodes = (gate, asking)
    eventually(lambda: all(bad.id in linked(n) for n in nodes), FOUND_S, bad.story)

    with gate.client() as client:
        client.revoke(bad.id)
    took_s = eventually(lambda: not any(bad.id in linked(n) for n in nodes), FOUND_S)
    job = wants_bait(asking)
    bad.kill()
    made.restart(bad)
    eventually(partial(is_up, bad), FOUND_S, bad.story)
    _let_it_try(asking)

    assert took_s < REVOKED_S
    assert job_of(asking, job).state == pb.STATE_WAITING
    assert not any(bad.id in linked(node) for node in nodes)
