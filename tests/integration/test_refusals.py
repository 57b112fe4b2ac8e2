"""Who is no member gets nowhere: not directly, by gossip, by the DHT, or by a relay."""

import time
from collections.abc import Iterator
from functools import partial
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
from tests.integration.live_shoal import LiveNode, eventually, promised

from shoal.api import shoal_pb2 as pb
from shoal.net.identity.identity import Identity

pytestmark = pytest.mark.integration

BAIT = ("--gpus", "0", "--models", "BAIT", "--memories", "16000")
REVOKED_S = 5.0

STAY = 2  # The gate, and the member that looks for workers.


class Reef:
    """A gate and a member that looks for workers; others come and go."""

    def __init__(self, made: Found) -> None:
        self._made = made
        self._net = ".".join(str(SystemRandom().randrange(1, 255)) for _ in range(2))
        self._last = 2
        self._jobs: list[str] = []
        self.gate = made.found("gate", f"127.{self._net}.1", "--no-worker", "--gate")
        self.asking = made.join(
            "asking", f"127.{self._net}.2", "--no-worker", gates=[self.gate]
        )
        eventually(
            lambda: self.gate.id in linked(self.asking), FOUND_S, self.asking.story
        )

    @property
    def stayed(self) -> tuple[LiveNode, LiveNode]:
        """Those who would be wrong to let anybody in."""
        return self.gate, self.asking

    def join(self, *args: str, **fields: object) -> LiveNode:
        """Start a node with a grant that has these fields, at an address of its own."""
        self._last += 1
        name, address = f"n{self._last}", f"127.{self._net}.{self._last}"
        return self._made.join(name, address, *args, gates=[self.gate], fields=fields)

    def restart(self, node: LiveNode) -> None:
        """Start a node again that was killed."""
        self._made.restart(node)

    def wants_bait(self) -> str:
        """Hand in a job that only a node with the bait could run."""
        spec = '{"command": ["true"], "resources": {"gpu": "BAIT:1"}}'
        job = f"bait-{SystemRandom().randrange(1 << 30)}"
        with self.asking.client() as client:
            client.submit(pb.SubmitRequest(job_id=job, json=spec))
        self._jobs.append(job)
        return job

    def serves(self, *args: str) -> bool:
        """Whether a member that comes now, by these ways, is found and runs a job.

        When it has, whoever was up before had all the time that it takes.
        """
        late = self.join(*args)
        job = submit(self.asking, "true")
        done = finished(self.asking, job).state == pb.STATE_DONE
        for node in self.stayed:
            eventually(partial(_is_linked, node, late), FOUND_S, node.story)
        return done

    def tidy(self) -> None:
        """End everything that a test has brought."""
        with self.asking.client() as client:
            for job in self._jobs:
                client.cancel(job)
        self._jobs.clear()
        for node in self._made.nodes[STAY:]:
            node.kill()
        del self._made.nodes[STAY:]


def _is_linked(node: LiveNode, other: LiveNode) -> bool:
    return other.id in linked(node)


@pytest.fixture(scope="module")
def lasting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reef]:
    with shoal(tmp_path_factory.mktemp("refusals")) as made:
        yield Reef(made)


@pytest.fixture
def reef(lasting: Reef) -> Iterator[Reef]:
    yield lasting
    lasting.tidy()


@pytest.mark.parametrize("ways", [(), ("direct",)], ids=["direct", "streams"])
def test_a_member_with_the_bait_would_be_found(
    reef: Reef, ways: tuple[str, ...]
) -> None:
    member = reef.join(*BAIT, *without(*ways))

    done = finished(reef.asking, reef.wants_bait())

    assert done.state == pb.STATE_DONE
    assert member.id in linked(reef.asking)


@pytest.mark.parametrize("ways", [(), ("direct",)], ids=["direct", "streams"])
def test_whose_grant_does_not_hold_is_refused_on_every_way(
    reef: Reef, ways: tuple[str, ...]
) -> None:
    flaws: dict[str, dict[str, object]] = {
        "expired": {"expires_wall_s": time.time() - 1.0},
        "forged": {"signer": Identity.from_seed(b"\x66" * 32)},
        "foreign": {"shoal": "lagoon"},
    }
    intruders = {
        flaw: reef.join(*BAIT, *without(*ways), **fields)
        for flaw, fields in flaws.items()
    }
    for intruder in intruders.values():
        eventually(partial(is_up, intruder), FOUND_S, intruder.story)

    job = reef.wants_bait()
    assert reef.serves(*without(*ways))

    seen = job_of(reef.asking, job)
    assert seen.state == pb.STATE_WAITING, seen
    for flaw, intruder in intruders.items():
        assert not linked(intruder), flaw
        for node in reef.stayed:
            assert intruder.id not in linked(node), flaw


def is_up(node: LiveNode) -> bool:
    return p2p_state(node) == "up"


@pytest.mark.parametrize("ways", [(), ("direct",)], ids=["direct", "streams"])
def test_who_is_revoked_is_cut_off_everywhere_and_stays_out(
    reef: Reef, ways: tuple[str, ...]
) -> None:
    bad, took_s = turned_out(reef, *ways)
    job = reef.wants_bait()
    bad.kill()
    reef.restart(bad)
    eventually(partial(is_up, bad), FOUND_S, bad.story)

    assert reef.serves(*without(*ways))
    assert job_of(reef.asking, job).state == pb.STATE_WAITING
    assert not any(bad.id in linked(node) for node in reef.stayed)
    if took_s >= REVOKED_S:
        promised(lambda: turned_out(reef, *ways)[1], REVOKED_S, tries=3)


def turned_out(reef: Reef, *ways: str) -> tuple[LiveNode, float]:
    """Let a member in and revoke it; return how long it takes to be cut off."""
    bad = reef.join(*BAIT, *without(*ways))
    nodes = reef.stayed
    eventually(lambda: all(bad.id in linked(n) for n in nodes), FOUND_S, bad.story)
    with reef.gate.client() as client:
        client.revoke(bad.id)
    gone = eventually(lambda: not any(bad.id in linked(n) for n in nodes), FOUND_S)
    return bad, gone
