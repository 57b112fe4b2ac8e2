"""Output that is kept for a link that may have lost it."""

from tests.unit.core.builders import attempt

from shoal.core.deadlines import DeadlineHeap
from shoal.core.leasing.output_replay import ECHO_BYTES_MAX, OutputReplay
from shoal.core.timing import LEASE_MAX_S
from shoal.model.ids import NodeId
from shoal.protocol.messages import Output

S = attempt(1).scheduler
PIECE = ECHO_BYTES_MAX // 4


def output(number: int) -> Output:
    data = bytes(PIECE)
    return Output(attempt=attempt(1), stream="stdout", offset=number * PIECE, data=data)


def test_the_latest_output_is_kept_in_order_and_within_its_bound() -> None:
    echoes = OutputReplay(DeadlineHeap())

    for number in range(6):
        echoes.said(output(number), 0.0)

    assert echoes.of(S) == [output(number) for number in range(2, 6)]
    assert echoes.of(NodeId("another")) == []


def test_output_is_forgotten_when_nothing_of_it_can_run_any_more() -> None:
    heap = DeadlineHeap()
    echoes = OutputReplay(heap)
    echoes.said(output(1), 0.0)
    echoes.said(output(2), 5.0)

    assert heap.next() == 5.0 + LEASE_MAX_S
    echoes.due(LEASE_MAX_S)
    assert len(echoes.of(S)) == 2

    echoes.due(5.0 + LEASE_MAX_S)
    assert echoes.of(S) == []
    assert heap.next() is None
