"""Reports are repeated until they are acknowledged."""

from itertools import pairwise

from tests.unit.core.builders import attempt

from shoal.core.deadlines import DeadlineHeap
from shoal.core.events import Send
from shoal.core.leasing.output_outbox import OutputOutbox
from shoal.core.leasing.report_outbox import ReportOutbox
from shoal.core.timing import REPORT_KEEP_S, RESEND, RESEND_S
from shoal.model.ids import LeaseId, NodeId
from shoal.protocol.messages import Outcome, Report

S = NodeId("s")


def report(sequence: int = 1) -> Report:
    outcome = Outcome("exited", exit_code=0)
    return Report(attempt=attempt(sequence), lease=LeaseId("w/1/1"), outcome=outcome)


def in_(_: NodeId) -> bool:
    """Nobody is out of the shoal."""
    return False


def outbox(heap: DeadlineHeap) -> ReportOutbox:
    return ReportOutbox(heap, OutputOutbox(NodeId("w"), 1, heap))


AGAIN = Send(S, report())


def test_a_report_is_repeated_with_back_off() -> None:
    heap = DeadlineHeap()
    reports = outbox(heap)
    reports.add(report(), 0.0)

    times: list[float] = []
    while (at := heap.next()) is not None and at < 60.0:
        assert reports.due(at, in_) == [AGAIN]
        times.append(at)

    pauses = [round(later - earlier, 6) for earlier, later in pairwise(times)]
    assert times[0] == RESEND_S
    assert pauses == sorted(pauses)
    assert pauses[-1] == RESEND.most_s


def test_only_its_own_scheduler_acknowledges_a_report() -> None:
    reports = outbox(DeadlineHeap())
    reports.add(report(), 0.0)

    reports.acknowledge(NodeId("thief"), [attempt(1)])
    assert len(reports) == 1

    reports.acknowledge(S, [attempt(1), attempt(2)])
    assert len(reports) == 0
    assert reports.due(99.0, in_) == []


def test_a_scheduler_that_reconnects_for_ever_does_no_harm() -> None:
    reports = outbox(DeadlineHeap())
    reports.add(report(), 0.0)

    for n in range(1_100):
        reports.hasten(S, n * 0.01)
        assert reports.due(n * 0.01, in_) == [AGAIN]


def test_a_report_that_nobody_wants_is_dropped_in_the_end() -> None:
    reports = outbox(DeadlineHeap())
    reports.add(report(), 0.0)

    assert reports.due(REPORT_KEEP_S + 1.0, in_) == []
    assert len(reports) == 0


def test_who_is_out_of_the_shoal_gets_no_report() -> None:
    reports = outbox(DeadlineHeap())
    reports.add(report(), 0.0)

    assert reports.due(99.0, S.__eq__) == []
    assert len(reports) == 0
    assert reports.complete
