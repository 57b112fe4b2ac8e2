"""How long tasks of other nodes ran here, told now and then while they run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from shoal.core.events import Tell
from shoal.core.housekeeping.events import MeteredRun, RunsMetered

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from shoal.core.events import Effect
    from shoal.core.leasing.leases import Lease
    from shoal.model.ids import Attempt, JobId, LeaseId, NodeId


class MeteredTask(Protocol):
    """An attempt whose time is counted."""

    lease: LeaseId
    job: JobId
    metered_at: float | None  # its time was counted up to here, once it began


def lent(
    runs: Mapping[Attempt, MeteredTask],
    node: NodeId,
    lease_of: Callable[[MeteredTask], Lease],
    now: float,
) -> list[Effect]:
    """Tell how long tasks of nodes other than `node` ran since the last time."""
    metered: list[MeteredRun] = []
    for attempt, run in runs.items():
        if run.metered_at in (None, now) or attempt.scheduler == node:
            continue
        lease = lease_of(run)
        spent_s, run.metered_at = now - run.metered_at, now
        metered.append(
            MeteredRun(
                kind="lent",
                owner=lease.owners[-1],
                node=attempt.scheduler,
                job=run.job,
                spent_s=max(0.0, spent_s),
                cpu_milli=lease.allocation.cpu_milli,
                gpu_milli=sum(share.milli for share in lease.allocation.shares),
            )
        )
    return [Tell(RunsMetered(tuple(metered)))] if metered else []
