"""Check promises about processes, leases and gangs: I4, I5, I6, I10 and GANG."""

from __future__ import annotations

from typing import Final, final

import msgspec

from shoal.core.events import Effect, MessageReceived
from shoal.core.timing import KILL_S, LEASE_MAX_S
from shoal.model.ids import Attempt, JobId, LeaseId, NodeId, TaskId
from shoal.model.job import Job
from shoal.model.resources import Capacity, total
from shoal.protocol.messages import (
    Assignment,
    Commit,
    Committed,
    Offer,
    Preemption,
    Refusal,
    Renew,
    Report,
)
from shoal.sim.checkers.journals import Journals
from shoal.sim.checkers.violations import Violations
from shoal.sim.node.driver import SimProcess
from shoal.sim.node.host import SimHost
from shoal.sim.opinions import Opinions

SLACK_S: Final = 5.0
"""How late a slow node may end something that has expired."""


class LeaseTruth(msgspec.Struct, kw_only=True):
    """A lease as offered by its worker and extended by its owner."""

    owner: NodeId
    expires_at: float  # on the worker's clock, by the owner's requests
    lease_s: float = 0.0
    committed: bool = False


@final
class Processes:
    """Checks starts against devices, and leases against their owners."""

    def __init__(
        self, violations: Violations, journals: Journals, jobs: dict[JobId, Job]
    ) -> None:
        self.leases: dict[LeaseId, LeaseTruth] = {}
        self._violations = violations
        self._journals = journals
        self._jobs = jobs
        self._started: dict[Attempt, NodeId] = {}
        self._over: dict[Attempt, NodeId] = {}  # and the worker that reported it
        self._assigned: dict[Attempt, None] = {}  # sent before; later ones are repeats
        self._alive: dict[TaskId, int] = {}  # processes per task, on all nodes

    # Processes.

    def started(self, host: SimHost, process: SimProcess) -> None:
        """Check a process that just started."""
        start = process.start
        self._check_devices(host)
        if start.attempt in self._started:
            what = f"{start.attempt} runs on {host.id} a second time"
            self._violations.report("I4", what)
        if self._over.get(start.attempt) == host.id:
            what = f"{host.id} starts {start.attempt}, which it said is over"
            self._violations.report("I4", what)
        self._started[start.attempt] = host.id
        task = start.task
        self._alive[task.id] = alive = self._alive.get(task.id, 0) + 1
        job = self._jobs.get(task.job)
        if alive > 1 and job is not None and job.at_most_once:
            self._violations.report("I6", f"{task.id} runs {alive} times at once")
        lease = self.leases.get(start.lease)
        owner = host.id if lease is None else lease.owner
        if owner != start.attempt.scheduler:
            what = f"{start.attempt} runs on {start.lease}, which is of {owner}"
            self._violations.report("I10", what)

    def said_over(self, host: SimHost, peer: NodeId, message: object) -> None:
        """Note that a worker reported or refused an attempt."""
        assert isinstance(message, Report | Refusal)
        if message.attempt is not None:
            self._over[message.attempt] = host.id

    def reaped(self, host: SimHost, process: SimProcess) -> None:
        """Note that a process ended."""
        self._alive[process.start.task.id] -= 1

    def _check_devices(self, host: SimHost) -> None:
        capacity = host.spec.capacity or Capacity()
        processes = host.driver.processes.values()
        used = total(process.start.allocation for process in processes)
        if used.cpu_milli > capacity.cpu_milli:
            what = f"{host.id} runs {used.cpu_milli} of {capacity.cpu_milli} milli cpus"
            self._violations.report("I5", what)
        if used.memory_bytes > capacity.memory_bytes:
            self._violations.report("I5", f"{host.id} runs out of memory")
        devices = {device.id: device for device in capacity.devices}
        for share in used.shares:
            device = devices.get(share.device)
            if device is None or share.milli > 1_000:
                what = (
                    f"{share.milli} thousandths of {share.device} of {host.id} in use"
                )
                self._violations.report("I5", what)
            elif share.memory_bytes > device.memory_bytes:
                what = f"memory of {share.device} of {host.id} is used twice"
                self._violations.report("I5", what)

    def sweep(self, hosts: list[SimHost], opinions: Opinions) -> None:
        """Check that no lease or process outlives a lease's expiry."""
        for host in hosts:
            leases, processes = opinions.leases(host), host.driver.processes
            if not host.up or not (leases or processes):
                continue
            now = host.clock()
            for process in processes.values():
                self._check_process(host, process, now)
            for lease in leases:
                if lease.state == "committed" and lease.peer != host.id:
                    self._check_lease(host, lease.id, now)

    def _check_lease(self, host: SimHost, id_: LeaseId, now: float) -> None:
        late_s = now - self.leases[id_].expires_at
        if late_s > SLACK_S:
            what = f"{host.id} keeps {id_} for {late_s:.1f} s after its end"
            self._violations.report("I6", what)

    def _check_process(self, host: SimHost, process: SimProcess, now: float) -> None:
        start = process.start
        if start.attempt.scheduler == host.id:
            return  # Talk within one node is not seen.
        lease = self.leases.get(start.lease)
        if lease is None:
            what = f"{start.attempt} runs on {start.lease}, which was never offered"
            self._violations.report("I6", what)
            return
        grace_s = start.task.grace_s + KILL_S + SLACK_S
        late_s = now - lease.expires_at - grace_s
        if late_s > 0:
            what = f"{start.attempt} runs {late_s:.1f} s beyond {start.lease}"
            self._violations.report("I6", what)

    # Leases.

    def offered(self, host: SimHost, peer: NodeId, message: object) -> None:
        """Note the owner and expiry of offered leases."""
        assert isinstance(message, Offer)
        for lease in message.leases:
            expires_at = host.clock() + message.valid_for_s
            known = self.leases.get(lease)
            if known is None:
                self.leases[lease] = LeaseTruth(owner=peer, expires_at=expires_at)
            elif known.owner != peer:
                what = f"{lease} of {known.owner} is offered to {peer}"
                self._violations.report("I10", what)

    def extended(
        self, host: SimHost, event: MessageReceived, effects: list[Effect]
    ) -> None:
        """Note that a lease's owner committed or renewed it."""
        message = event.message
        assert isinstance(message, Commit | Renew)
        for id_ in message.leases:
            lease = self.leases.get(id_)
            if lease is not None and lease.owner == event.peer:
                lease.lease_s = min(message.lease_s, LEASE_MAX_S)
                lease.expires_at = max(lease.expires_at, host.now_local + lease.lease_s)

    def committed(self, host: SimHost, peer: NodeId, message: object) -> None:
        """Note that a worker committed leases; their time counts from now."""
        assert isinstance(message, Committed)
        for id_ in message.leases:
            lease = self.leases.get(id_)
            if lease is None or lease.owner != peer:
                self._violations.report("I10", f"{id_} is committed to {peer}")
            else:
                lease.committed = True
                lease.expires_at = max(lease.expires_at, host.now_local + lease.lease_s)

    def preempted(self, host: SimHost, peer: NodeId, message: object) -> None:
        """Note that a preempted lease has its grace left."""
        assert isinstance(message, Preemption)
        lease = self.leases.get(message.lease)
        if lease is not None:
            over_at = host.clock() + message.grace_s
            lease.expires_at = max(lease.expires_at, over_at)

    # Gangs.

    def assigned(self, host: SimHost, peer: NodeId, message: object) -> None:
        """Check that a gang starts only with all its leases committed."""
        assert isinstance(message, Assignment)
        if message.attempt in self._assigned:
            return  # Repeats start nothing.
        self._assigned[message.attempt] = None
        truth = self._journals.truth(host.id)
        group = truth.groups.get(message.task.group)
        if group is None or group.gang_min == 0:
            return
        places = truth.together.get(message.attempt, ())
        open_ = [
            place.lease
            for place in places
            if place.worker != host.id  # Talk within one node is not seen.
            if not (known := self.leases.get(place.lease)) or not known.committed
        ]
        if open_:
            what = f"{message.attempt} of gang {group.id} starts"
            self._violations.report("GANG", f"{what}, {open_} not committed")
        together = truth.strength.get(message.attempt, 0)
        if together < group.gang_min:
            what = f"gang {group.id} starts with {together} < {group.gang_min}"
            self._violations.report("GANG", what)
