"""The logs of a grid: short, and long enough for whoever is not far behind."""

from tests.unit.policy.pools import table_of, worker

from shoal.model.ids import NodeId
from shoal.policy.table.grid import LOG_MIN

A = NodeId("a")


def test_a_log_keeps_as_many_changes_as_anybody_may_be_behind() -> None:
    table = table_of(worker("a"))
    log = table.grid.losses

    for us in range(5 * LOG_MIN):
        table.set_path_cost(A, us)

        kept = min(log.end, LOG_MIN)
        assert log.since(log.end - kept) == [0] * kept
        assert len(log.rows) <= 2 * LOG_MIN + 4

    assert log.end == 1 + 5 * LOG_MIN
