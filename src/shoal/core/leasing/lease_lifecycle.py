"""The life of a lease: demand, offer, commit, renewal, end.

Nothing here knows what runs on a lease. When a lease must end while a task runs, the
worker is asked to stop the task first and closes the lease after that: devices are
freed last.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, final

from msgspec.structs import replace

from shoal.core.deadlines import DeadlineHeap, Deadlines
from shoal.core.events import Effect, Send, StopTask
from shoal.core.leasing.demand_age import DemandAges
from shoal.core.leasing.leases import Lease, LeaseBook, ids_of
from shoal.core.leasing.waitlist import SLOTS_PER_DEMAND_MAX, Waitlist
from shoal.core.membership.quotas import Quota, used_here
from shoal.core.timing import HOLD_S, LEASE_MAX_S, TENURE_S
from shoal.model.ids import Attempt, LeaseId, NodeId, OwnerId, RequestId
from shoal.protocol.messages import (
    Assignment,
    Commit,
    Committed,
    Demand,
    Occupied,
    Offer,
    Outcome,
    Preemption,
    Rank,
    Refusal,
    Renew,
    Renewed,
    Report,
    Waiting,
    Withdrawal,
)

if TYPE_CHECKING:
    from shoal.core.leasing.report_outbox import ReportOutbox
    from shoal.core.membership.members import Admission
    from shoal.model.resources import Profile

UNLIMITED: Final = Quota()

IsForeign = Callable[[tuple[OwnerId, ...]], bool]
Stop = Callable[[Attempt, Outcome, float | None], list[Effect]]
"""Stops an attempt, with this verdict and grace; None: the grace of its task."""


@final
class LeaseLifecycle:
    """Decides which scheduler gets room on a worker, and for how long."""

    def __init__(
        self, book: LeaseBook, stop: Stop, heap: DeadlineHeap, reports: ReportOutbox
    ) -> None:
        self.book = self._book = book
        self._stop = stop
        self._reports = reports
        self._waitlist = Waitlist()
        self._seniority = DemandAges()
        self._due: Deadlines[LeaseId] = Deadlines(heap)

    def waiting(self, now: float) -> tuple[Waiting, ...]:
        """Return the best of those for whom room is kept."""
        return self._waitlist.best(now) if self._waitlist else ()

    def due(self, now: float) -> list[Effect]:
        """End leases that were not renewed."""
        effects: list[Effect] = []
        for id_ in self._due.pop_due(now):
            lease = self._book.get(id_)
            assert lease is not None, "closing a lease drops its deadline"
            effects += self.end(lease, Outcome("lost", reason="the lease expired"), now)
        return effects

    def on_goodbye(
        self, peer: NodeId, now: float, is_kept: Callable[[Attempt | None], bool]
    ) -> list[Effect]:
        """End the leases of a scheduler that leaves, and drop its waiting demands.

        What runs for a kept job waits for the scheduler that takes the job up.
        """
        self._waitlist.forget(peer)
        left = [v for v in self._book.of_peer(peer) if not is_kept(v.running)]
        return self.on_release(peer, ids_of(left), now)

    def on_peer_lost(self, peer: NodeId) -> None:
        """Keep no room for a scheduler that may never come for it.

        It asks again soon if it does.
        """
        self._waitlist.forget(peer)

    def on_withdrawn(self, peer: NodeId, requests: tuple[RequestId, ...]) -> None:
        """Keep no room any more for what a scheduler has asked for in vain."""
        self._waitlist.withdraw(peer, requests)

    # Offers.

    def on_demand(
        self, peer: NodeId, demand: Demand, admission: Admission, now: float
    ) -> list[Effect]:
        """Offer as much of the demand as there is room for, or refuse with a reason.

        Of a claim only the wait is remembered: whoever sent it knows that there is no
        room, and needs no answer that says so.
        """
        standing = self._book.of_request(peer, demand.request)
        if standing:
            return self._repeat_offer(peer, demand.request, standing, now)
        asked = demand.profile
        demand, reason = self._within_quota(demand, admission)
        if reason:
            return [refuse(peer, demand.request, reason)]
        priority = admission.clamp(demand.rank.priority)
        age_s = self._seniority.believed(peer, asked, demand.rank.age_s, now)
        rank = Rank(priority, age_s, peer, demand.request)
        if demand.wait_for_s > 0 and not isinstance(self._book.idle.fit(asked), str):
            self._waitlist.remember(rank, demand, now)
        if demand.claim:
            return []
        held, effects, reason = self._hold(peer, demand, rank, admission, now)
        for lease in held:
            lease.asked = asked
        if held:
            offer = self._offer(demand.request, held, HOLD_S, now)
            return [*effects, Send(peer, offer)]
        return [*effects, refuse(peer, demand.request, reason)]

    def _within_quota(self, demand: Demand, admission: Admission) -> tuple[Demand, str]:
        """Return how much of a demand its owner's quota allows, or why nothing."""
        quota = Quota(admission.quota_gpus, admission.quota_cpu_milli)
        if quota == UNLIMITED or demand.count == 0:
            return demand, ""
        used = used_here(self._book, admission.owner)
        profile = quota.narrowed(demand.profile, used)
        count = quota.slots(profile, used, demand.count)
        if count == 0:
            return demand, quota.excess(admission.owner, profile, used, 1)
        return replace(demand, profile=profile, count=count), ""

    def _hold(
        self,
        peer: NodeId,
        demand: Demand,
        rank: Rank,
        admission: Admission,
        now: float,
    ) -> tuple[list[Lease], list[Effect], str]:
        held: list[Lease] = []
        withdrawn: list[Effect] = []
        reason = "0 tasks asked for"
        while len(held) < min(demand.count, SLOTS_PER_DEMAND_MAX):
            if reason := self._kept_for(demand.profile, rank, now):
                break
            lease = self._hold_one(peer, demand, rank, admission, now, preempt=False)
            if isinstance(lease, str):
                worse = self._book.worse_offers(demand.profile, rank)
                if worse:
                    why = f"{_described(rank)} goes first"
                    withdrawn += self._withdraw(worse, why, now)
                    continue
                if demand.preempt:
                    lease = self._hold_one(
                        peer, demand, rank, admission, now, preempt=True
                    )
            if isinstance(lease, str):
                reason = lease
                break
            lease.expires_at = now + HOLD_S
            self._due.set(lease.id, lease.expires_at)
            held.append(lease)
        return held, withdrawn, reason

    def _kept_for(self, profile: Profile, rank: Rank, now: float) -> str:
        """Return which better-ranked demand the room is kept for, if any."""
        found = self._book.ledger.fit(profile) if self._waitlist else ""
        if isinstance(found, str):
            return ""
        ahead = self._waitlist.ahead(rank, found, self._book.ledger, now)
        return "" if ahead is None else f"kept for {_described(ahead)}"

    def yield_idle(self, lease: Lease, now: float) -> list[Effect]:
        """End an idle lease if a better-ranked demand waits for its room."""
        if lease.idle and (reason := self._book.too_late(lease)):
            return self._preempt(lease, None, reason, now)
        if not self._waitlist:
            return []
        room = self._book.ledger.copy()
        room.give(lease.allocation)
        rank = lease.rank
        if now - (lease.committed_at or 0.0) > TENURE_S:
            rank = replace(rank, age_s=0.0)  # What it waited for, it had long ago.
        ahead = self._waitlist.ahead(rank, lease.allocation, room, now)
        if ahead is None or not lease.idle:
            return []
        return self._preempt(lease, None, f"{_described(ahead)} waits", now)

    def _hold_one(
        self,
        peer: NodeId,
        demand: Demand,
        rank: Rank,
        admission: Admission,
        now: float,
        *,
        preempt: bool,
    ) -> Lease | str:
        return self._book.hold(
            peer=peer,
            profile=demand.profile,
            rank=rank,
            owner=admission.owner,
            client=demand.owner,
            preempt=preempt,
            preemptible=demand.preemptible,
            now=now,
            devices=demand.devices,
        )

    def _repeat_offer(
        self, peer: NodeId, request: RequestId, standing: list[Lease], now: float
    ) -> list[Effect]:
        held = [lease for lease in standing if lease.state == "held"]
        if len(held) < len(standing):
            return []  # Some are committed: the offer was heard, this is an echo.
        valid_for_s = min(lease.expires_at for lease in held) - now
        return [Send(peer, self._offer(request, held, max(0.0, valid_for_s), now))]

    def _offer(
        self, request: RequestId, held: list[Lease], valid_for_s: float, now: float
    ) -> Offer:
        return Offer(
            request=request,
            leases=ids_of(held),
            valid_for_s=valid_for_s,
            displaces=sum(len(lease.victims) for lease in held),
            destroys=self._book.losses(held, now),
        )

    def _withdraw(self, offers: list[Lease], reason: str, now: float) -> list[Effect]:
        """Withdraw uncommitted offers."""
        effects: list[Effect] = []
        for lease in offers:
            withdrawal = Withdrawal(leases=(lease.id,), reason=reason)
            effects += [*self.close(lease, now), Send(lease.peer, withdrawal)]
        return effects

    # Leases.

    def on_commit(self, peer: NodeId, commit: Commit, now: float) -> list[Effect]:
        """Turn offers into leases; refuse the ones that no longer stand."""
        mine: list[LeaseId] = []
        gone: list[LeaseId] = []
        effects: list[Effect] = []
        for id_ in commit.leases:
            lease = self._book.of(peer, id_)
            if lease is None or lease.state == "ending":
                gone.append(id_)
                continue
            if lease.state == "held":
                effects += self._commit(lease, now)
            self._extend(lease, commit.lease_s, now)
            if lease.state == "committed":
                mine.append(id_)
        if mine:
            effects.append(
                Send(peer, Committed(request=commit.request, leases=tuple(mine)))
            )
        if gone:
            effects.append(
                refuse(peer, commit.request, "the offer no longer stands", tuple(gone))
            )
        return effects

    def _commit(self, lease: Lease, now: float) -> list[Effect]:
        self._waitlist.met(lease.rank)
        self._seniority.served(lease.peer, lease.asked, now)
        lease.committed_at = now
        lease.state = "displacing" if lease.victims else "committed"
        effects: list[Effect] = []
        for victim_id in lease.victims:
            victim = self._book.get(victim_id)
            assert victim is not None, "closing a victim takes it off the list"
            reason = f"priority {lease.rank.priority} > {victim.rank.priority}"
            effects += self._preempt(victim, None, reason, now)
        return effects

    def on_renew(self, peer: NodeId, renew: Renew, now: float) -> list[Effect]:
        """Renew leases of this peer, and report what runs on them.

        A lease that ended is not called gone while the report of what ran there is not
        acknowledged. If this overtook the report, the task would count as lost, and run
        again.
        """
        alive: list[Occupied] = []
        gone: list[LeaseId] = []
        for id_ in renew.leases:
            lease = self._book.of(peer, id_)
            if lease is None or lease.state == "held":
                gone.append(id_)
                continue
            if lease.state != "ending":
                self._extend(lease, renew.lease_s, now)
            alive.append(Occupied(id_, lease.running))
        for told in renew.saved:
            lease = self._book.of(peer, told.lease)
            if lease is not None and lease.running is not None:
                lease.saved(now - told.age_s)
        if gone:
            reported = self._reports.leases_of(peer)
            gone = [id_ for id_ in gone if id_ not in reported]
        return [Send(peer, Renewed(leases=tuple(alive), gone=tuple(gone)))]

    def adopt(self, lease: Lease, peer: NodeId, lease_s: float, now: float) -> None:
        """Let another scheduler have a lease, with what runs on it."""
        self._book.give_to(lease, peer)
        if lease.state != "ending":
            self._extend(lease, lease_s, now)

    def on_release(
        self, peer: NodeId, ids: tuple[LeaseId, ...], now: float
    ) -> list[Effect]:
        """End leases of this peer and the tasks on them."""
        effects: list[Effect] = []
        for id_ in ids:
            lease = self._book.of(peer, id_)
            if lease is not None and lease.state != "ending":
                verdict = Outcome("cancelled", reason="the lease was released")
                effects += self.end(lease, verdict, now)
        return effects

    def preempt_all(
        self, grace_s: float | None, reason: str, now: float
    ) -> list[Effect]:
        """End everything: withdraw offers, give notice to leases."""
        effects: list[Effect] = []
        for lease in list(self._book):
            if lease.state == "held":
                effects += self._withdraw([lease], reason, now)
            elif lease.state != "ending":
                effects += self._preempt(lease, grace_s, reason, now)
        return effects

    def preempt_foreign(
        self, is_foreign: IsForeign, grace_s: float, reason: str, now: float
    ) -> list[Effect]:
        """End what other owners have; what ends already ends as soon."""
        effects: list[Effect] = []
        for lease in [each for each in self._book if is_foreign(each.owners)]:
            if lease.state == "held":
                effects += self._withdraw([lease], reason, now)
            elif lease.state != "ending":
                effects += self._preempt(lease, grace_s, reason, now)
            elif lease.running is not None:
                verdict = Outcome("preempted", reason=reason)
                effects += self._stop(lease.running, verdict, grace_s)
        return effects

    def shorten(self, longest_s: int, now: float) -> list[Effect]:
        """Take tasks of at most this long from now on; what runs may go on."""
        self._book.shorten(longest_s)
        effects: list[Effect] = []
        for lease in list(self._book):
            reason = self._book.too_late(lease)
            if reason is None:
                continue
            if lease.state == "held":
                effects += self._withdraw([lease], reason, now)
            elif lease.idle:
                effects += self._preempt(lease, None, reason, now)
            else:
                effects += [refuse_attempt(lease.peer, a, reason) for a in lease.line]
                lease.line.clear()
        return effects

    def preempt_idle(self, reason: str, now: float) -> list[Effect]:
        """End everything on which no task runs: offers, and leases that wait."""
        effects: list[Effect] = []
        for lease in list(self._book):
            if lease.state == "held":
                effects += self._withdraw([lease], reason, now)
            elif lease.running is None and lease.state != "ending":
                effects += self._preempt(lease, None, reason, now)
        return effects

    def _preempt(
        self, lease: Lease, grace_s: float | None, reason: str, now: float
    ) -> list[Effect]:
        ending = self.end(lease, Outcome("preempted", reason=reason), now, grace_s)
        told_s = sum((e.grace_s for e in ending if isinstance(e, StopTask)), start=0.0)
        notice = Preemption(lease=lease.id, grace_s=told_s, reason=reason)
        return [Send(lease.peer, notice), *ending]

    def end(
        self, lease: Lease, verdict: Outcome, now: float, grace_s: float | None = None
    ) -> list[Effect]:
        """Close a lease once its task has been stopped.

        Attempts that wait on it are refused at once, so that they can run elsewhere.
        """
        effects = [
            refuse_attempt(lease.peer, each, "lease-ended") for each in lease.line
        ]
        lease.line.clear()
        if lease.running is None:
            return effects + self.close(lease, now)
        lease.state = "ending"
        self._due.drop(lease.id)
        return effects + self._stop(lease.running, verdict, grace_s)

    def close(self, lease: Lease, now: float) -> list[Effect]:
        """Free the resources of a lease on which nothing runs any more."""
        if lease.committed_at is not None:
            self._seniority.served(lease.peer, lease.asked, now)
        self._due.drop(lease.id)
        effects: list[Effect] = []
        for winner in self._book.close(lease):
            if winner.state == "displacing":
                winner.state = "committed"
                self._extend(winner, winner.lease_s, now)
                committed = Committed(request=winner.request, leases=(winner.id,))
                effects.append(Send(winner.peer, committed))
        return effects

    def _extend(self, lease: Lease, lease_s: float, now: float) -> None:
        lease.lease_s = min(lease_s, LEASE_MAX_S)
        lease.expires_at = now + lease.lease_s
        self._due.set(lease.id, lease.expires_at)


def refuse_attempt(peer: NodeId, assignment: Assignment, reason: str) -> Effect:
    """Refuse an assignment for good."""
    refusal = Refusal(
        attempt=assignment.attempt, leases=(assignment.lease,), reason=reason
    )
    return Send(peer, refusal)


def _described(rank: Rank) -> str:
    return f"priority {rank.priority}, age {rank.age_s:.1f} s"


def refuse(
    peer: NodeId,
    request: RequestId,
    reason: str,
    leases: tuple[LeaseId, ...] = (),
) -> Send:
    """Refuse a request for good."""
    return Send(peer, Refusal(request=request, reason=reason, leases=leases))


def answer_stale(peer: NodeId, assignment: Assignment) -> list[Effect]:
    """Say that an attempt is over: what was said before may have been lost."""
    outcome = Outcome("lost", reason="it was refused or has ended")
    report = Report(attempt=assignment.attempt, lease=assignment.lease, outcome=outcome)
    return [Send(peer, report)]


def in_turn(assignment: Assignment, lease: Lease) -> bool:
    """Whether all came that is before it on its lease; else it will be said again."""
    if assignment.after is None:
        return True
    return lease.fence is not None and assignment.after <= lease.fence
