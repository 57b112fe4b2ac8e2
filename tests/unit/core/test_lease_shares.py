"""Nobody takes all leases of a worker, however little it asks for."""

from random import Random

import pytest

from shoal.core.events import Booted, Effect, MessageReceived, Send
from shoal.core.leasing.leases import LEASES_MAX, OWNER_LEASES
from shoal.core.leasing.worker import Worker
from shoal.core.membership.roster import Roster
from shoal.model.ids import NodeId, OwnerId, RequestId
from shoal.model.resources import Capacity, GpuNeed, Profile
from shoal.model.text.bounds import AMOUNT_MAX
from shoal.protocol.messages import Commit, Demand, Offer, Rank, Refusal
from shoal.sim.node import trust

EVE, BOB = NodeId("eve"), NodeId("bob")
NOTHING = Profile()


def worker(*schedulers: NodeId, cpus: int = 4) -> Worker:
    roster = Roster(trust.members(), trust.WALL_AT_START_S)
    for node in schedulers:
        roster.meet(node, trust.grant(node, ("scheduler",), OwnerId(node)), 0.0)
    capacity = Capacity(cpu_milli=1_000 * cpus)
    made = Worker(NodeId("w"), capacity, roster, epoch=1, rng=Random(1))
    made.handle(Booted(), 0.0)
    return made


def ask(one: Worker, peer: NodeId, number: int, profile: Profile) -> Effect:
    """Ask for many, commit what is offered, and return the answer."""
    request = RequestId(f"{peer}/{number}")
    rank = Rank(0, 0.0, peer, request)
    demand = Demand(request=request, profile=profile, count=4_096, rank=rank)
    answer = one.handle(MessageReceived(peer, demand), 1.0)[-1]
    if isinstance(answer, Send) and isinstance(answer.message, Offer):
        leases = answer.message.leases
        commit = Commit(request=request, leases=leases, lease_s=60.0)
        one.handle(MessageReceived(peer, commit), 1.0)
    return answer


def take_all(one: Worker, peer: NodeId) -> Refusal:
    for number in range(100):
        answer = ask(one, peer, number, NOTHING)
        assert isinstance(answer, Send)
        if isinstance(answer.message, Refusal):
            return answer.message
    raise AssertionError("there was no end to it")


def test_an_owner_gets_so_many_leases_and_no_more() -> None:
    one = worker(EVE, BOB)

    refusal = take_all(one, EVE)

    assert len(one.leases.of_peer(EVE)) == OWNER_LEASES
    assert refusal.reason == "eve has 512 leases here; the most is 512"
    honest = ask(one, BOB, 1, Profile(cpu_milli=1_000))
    assert isinstance(honest, Send)
    assert isinstance(honest.message, Offer)


def test_however_many_take_all_they_can_there_are_leases_left() -> None:
    gang = [NodeId(f"e{n}") for n in range(10)]
    one = worker(*gang, BOB)

    for eve in gang:
        take_all(one, eve)

    assert len(one.leases) < LEASES_MAX - 64
    honest = ask(one, BOB, 1, Profile(cpu_milli=1_000))
    assert isinstance(honest, Send)
    assert isinstance(honest.message, Offer)


def test_an_owner_of_many_small_tasks_can_fill_a_large_machine() -> None:
    one = worker(EVE, cpus=64)

    take_all(one, EVE)

    assert len(one.leases.of_peer(EVE)) == 16 * 64


@pytest.mark.parametrize(
    "profile",
    [NOTHING, Profile(gpu=GpuNeed(count=0)), Profile(gpu=GpuNeed(milli=0))],
)
def test_a_demand_for_endless_nothing_costs_a_worker_no_time(profile: Profile) -> None:
    one = worker(EVE, BOB)
    request = RequestId("eve/1")
    rank = Rank(0, 9.0, EVE, request)
    endless = Demand(
        request=request, profile=profile, count=AMOUNT_MAX, rank=rank, wait_for_s=15.0
    )
    one.handle(MessageReceived(EVE, endless), 1.0)

    honest = ask(one, BOB, 1, Profile(cpu_milli=1_000))

    assert isinstance(honest, Send)
    assert isinstance(honest.message, Offer)
