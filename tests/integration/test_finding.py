"""Real nodes find each other by each way alone, and work goes on when a way dies."""

from collections.abc import Callable, Iterator
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
    runs,
    shoal,
    submit,
    until,
    without,
)
from tests.integration.live_shoal import LiveNode, eventually
from tests.integration.multicast import multicast_works

from shoal.api import shoal_pb2 as pb

pytestmark = pytest.mark.integration

Address = Callable[[int], str]


@pytest.fixture
def reef(tmp_path: Path) -> Iterator[Found]:
    with shoal(tmp_path) as made:
        yield made


@pytest.fixture
def address() -> Address:
    """Give every node an address of its own, which no other test uses."""
    net = ".".join(str(SystemRandom().randrange(1, 255)) for _ in range(2))
    return lambda n: f"127.{net}.{n}"


def is_linked(node: LiveNode, other: LiveNode) -> bool:
    return other.id in linked(node)


def gate_and_two(
    reef: Found, address: Address, *ways: str
) -> tuple[LiveNode, LiveNode, LiveNode]:
    """Start a gate, a scheduler that lends nothing, and a worker."""
    off = without(*ways)
    gate = reef.found("gate", address(1), "--no-worker", *off)
    asking = reef.join("asking", address(2), "--no-worker", *off)
    worker = reef.join("worker", address(3), *off)
    for node in (asking, worker):
        eventually(partial(is_linked, node, gate), FOUND_S, node.story)
    return gate, asking, worker


def test_by_gossip_with_no_address_but_a_gates(reef: Found, address: Address) -> None:
    gate, asking, worker = gate_and_two(reef, address, "peers", "dht", "mdns")
    assert set(linked(asking)) == {gate.id}

    job = finished(asking, submit(asking, "echo found"))

    assert job.state == pb.STATE_DONE
    assert linked(asking)[worker.id] == "direct"


def test_by_the_dht_with_gossip_switched_off(reef: Found, address: Address) -> None:
    gate, asking, worker = gate_and_two(reef, address, "peers", "gossip", "mdns")
    assert set(linked(asking)) == {gate.id}

    job = finished(asking, submit(asking, "echo found"))

    assert job.state == pb.STATE_DONE
    assert linked(asking)[worker.id] == "direct"


def test_by_asking_a_gate_without_libp2p_at_all(reef: Found, address: Address) -> None:
    _, asking, worker = gate_and_two(reef, address, "p2p")

    job = finished(asking, submit(asking, "echo found"))

    assert job.state == pb.STATE_DONE
    assert linked(asking)[worker.id] == "direct"
    assert p2p_state(asking) == "off"


def test_on_the_local_network_without_any_gate(reef: Found, address: Address) -> None:
    if not multicast_works():
        pytest.skip("multicast does not come back on this machine: no mDNS to test")
    off = without("gates", "gossip", "dht")
    founder = reef.found("founder", address(1), "--no-worker", "--gate", *off)
    asking = reef.join("asking", address(2), "--no-worker", "--gate", *off)
    worker = reef.join("worker", address(3), "--gate", *off)

    job = finished(asking, submit(asking, "echo found"))

    assert job.state == pb.STATE_DONE
    assert linked(asking)[worker.id] == "direct"
    eventually(lambda: founder.id in linked(worker), FOUND_S, worker.story)


def test_by_streams_when_nobody_takes_direct_links(
    reef: Found, address: Address
) -> None:
    gate = reef.found("gate", address(1), "--no-worker", "--gate")
    asking = reef.join("asking", address(2), "--no-worker")
    worker = reef.join("worker", address(3), *without("direct"), gates=[gate])

    job = finished(asking, submit(asking, "echo found"))

    assert job.state == pb.STATE_DONE
    assert linked(asking)[worker.id] in ("stream", "relay")


def test_a_host_of_libp2p_that_dies_is_started_again_and_work_goes_on(
    reef: Found, address: Address, tmp_path: Path
) -> None:
    gate = reef.found("gate", address(1), "--no-worker", "--gate")
    worker = reef.join("worker", address(3), *without("direct"), gates=[gate])
    asking = reef.join("asking", address(2), "--no-worker", start=False)
    reef.restart(asking, failpoint="libp2p.turn:12:raise")

    job = submit(asking, until(tmp_path / "struck"))
    assert runs(asking, job) == worker.id
    assert linked(asking)[worker.id] in ("stream", "relay")
    eventually(lambda: "failpoint libp2p.turn" in asking.log(), FOUND_S)
    (tmp_path / "struck").touch()
    done = finished(asking, job)

    assert done.state == pb.STATE_DONE
    assert job_of(asking, job).tasks[0].attempts == 1
    eventually(lambda: p2p_state(asking) == "up", FOUND_S, asking.story)
    assert linked(asking)[gate.id] == "direct"


def test_losing_the_only_gate_hurts_nothing_and_members_find_each_other_again(
    reef: Found, address: Address, tmp_path: Path
) -> None:
    gate, asking, worker = gate_and_two(reef, address)
    job = submit(asking, until(tmp_path / "lost"))
    assert runs(asking, job) == worker.id

    gate.kill()
    eventually(lambda: gate.id not in linked(asking), FOUND_S, asking.story)
    (tmp_path / "lost").touch()
    first = finished(asking, job)
    second = finished(asking, submit(asking, "true"))

    assert [first.state, second.state] == [pb.STATE_DONE] * 2
    assert job_of(asking, job).tasks[0].attempts == 1

    for node in (asking, worker):
        with node.client() as client:
            client.shutdown(0.0)
        assert node.process is not None
        node.process.wait(FOUND_S)

    for node in (asking, worker):
        reef.restart(node)

    assert finished(asking, submit(asking, "true")).state == pb.STATE_DONE
