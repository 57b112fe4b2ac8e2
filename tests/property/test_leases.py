"""Holding, displacing and ending leases in any order: the ledger always adds up."""

from typing import Final

from hypothesis import given
from hypothesis import strategies as st

from shoal.core.leasing.leases import Lease, LeaseBook
from shoal.model.ids import NodeId, OwnerId, RequestId
from shoal.model.resources import Capacity, Device, GpuNeed, Ledger, Profile, total
from shoal.protocol.messages import Rank

CAPACITY: Final = Capacity(
    cpu_milli=4_000, memory_bytes=8, devices=(Device("g0", memory_bytes=8),)
)
PROFILES: Final = st.builds(
    Profile,
    cpu_milli=st.sampled_from([0, 1_000, 2_500, 4_000]),
    memory_bytes=st.integers(0, 8),
    gpu=st.none() | st.builds(GpuNeed, milli=st.sampled_from([250, 600, 1_000])),
)
STEPS: Final = st.one_of(
    st.tuples(st.just("hold"), PROFILES, st.integers(0, 3), st.booleans()),
    st.tuples(st.sampled_from(["commit", "close", "withdraw"]), st.integers(0, 30)),
)


def hold(book: LeaseBook, profile: Profile, priority: int, preempt: bool) -> None:
    rank = Rank(priority, 0.0, NodeId("s"), RequestId(f"r{len(book)}"))
    if worse := book.worse_offers(profile, rank):
        room = book.ledger.copy()
        for lease in worse:
            assert lease.state == "held"
            assert lease.rank < rank
            room.give(lease.taken)
        assert not isinstance(room.fit(profile), str), "what gives way makes room"
    book.hold(
        peer=NodeId("s"),
        profile=profile,
        rank=rank,
        owner=OwnerId("ann"),
        client=OwnerId(""),
        preempt=preempt,
        preemptible=True,
        now=0.0,
    )


def commit(lease: Lease) -> None:
    if lease.state == "held":
        lease.state = "displacing" if lease.victims else "committed"


def close(book: LeaseBook, lease: Lease) -> None:
    for winner in book.close(lease):
        assert winner.taken == winner.allocation, "it has all that it displaced for"
        if winner.state == "displacing":
            winner.state = "committed"


def check(book: LeaseBook) -> None:
    spare = Ledger(CAPACITY)
    spare.take(total(lease.taken for lease in book))
    assert spare.cpu_milli == book.ledger.cpu_milli
    assert spare.memory_bytes == book.ledger.memory_bytes
    assert spare.milli == book.ledger.milli
    assert spare.gpu_memory == book.ledger.gpu_memory
    for lease in book:
        if lease.state == "committed":
            assert lease.taken == lease.allocation


@given(st.lists(STEPS, max_size=40))
def test_the_ledger_adds_up_whatever_is_held_displaced_and_ended(
    steps: list[tuple[str, Profile, int, bool] | tuple[str, int]],
) -> None:
    book = LeaseBook(NodeId("w"), 1, CAPACITY)

    for step in steps:
        leases = list(book)
        if len(step) == 4:
            hold(book, step[1], step[2], step[3])
        elif leases:
            lease = leases[step[1] % len(leases)]
            if step[0] == "commit":
                commit(lease)
            elif step[0] == "close" or lease.state == "held":
                close(book, lease)
        check(book)

    for lease in list(book):
        close(book, lease)
        check(book)
    assert book.ledger.idle
    assert not book._earmarked
    assert not book._by_request
