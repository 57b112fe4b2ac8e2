"""What a scheduler asks of a worker."""

from shoal.core.negotiation.held_leases import LeaseShape
from shoal.core.negotiation.negotiator import OpenDemand, Wish
from shoal.model.ids import GroupId, NodeId, OwnerId, RequestId
from shoal.model.resources import Allocation, Profile
from shoal.policy.table.worker_table import TakenRoom
from shoal.protocol.messages import Rank

WORKER = NodeId("w")


def test_a_demand_names_the_devices_that_a_policy_chose_each_once() -> None:
    shape = LeaseShape(Profile(), "process", OwnerId("ann"), 0, preemptible=True)
    rank = Rank(0, 0.0, NodeId("s"), RequestId("s/1/1"))
    wish = Wish(group=GroupId("j.g"), shape=shape, profile=0, rank=rank)
    booked = [("gpu1", "gpu0"), (), ("gpu0", "gpu2")]

    ask = OpenDemand(
        worker=WORKER,
        wish=wish,
        takens=[
            None,
            *(TakenRoom(WORKER, 1, Allocation(0, 0, 0), 0, each) for each in booked),
        ],
    )

    assert ask.demand.devices == ("gpu1", "gpu0", "gpu2")
