"""Winning leases for groups of tasks: demands, offers, commits.

Independent tasks are asked for worker by worker, and what is offered is committed at
once. A gang is won in rounds: offers are held until there are enough, then all are
committed; if one of them is gone by then, all are released and the gang tries again
later. No task of a gang starts before every one of its leases is committed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, final

import msgspec

from shoal.core.deadlines import DeadlineHeap, Deadlines
from shoal.core.events import Effect, Send
from shoal.core.holdings import Holding, Holdings, Shape
from shoal.core.timing import (
    ELASTIC_ROUND_S,
    KILL_S,
    LEASE_S,
    RESEND_MAX_S,
    RESEND_S,
    ROUND_S,
)
from shoal.model.ids import GroupId, LeaseId, NodeId, RequestId
from shoal.model.kinds import driver_of
from shoal.policy.workers import Taken, WorkerTable
from shoal.protocol.messages import (
    Commit,
    Committed,
    Demand,
    Grant,
    Offer,
    Rank,
    Refusal,
    Release,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

ASK_TRIES_MAX: Final = 4
COMMIT_MAX_S: Final = 180.0  # displaced tasks may need their grace


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked for, in whose name, and how it ranks against other demands."""

    group: GroupId
    shape: Shape
    profile: int
    rank: Rank
    grant: Grant | None = None
    wait_for_s: float = 0.0  # if there is no room, be remembered this long


class Ask(msgspec.Struct, kw_only=True):
    """A demand that one worker has not answered yet."""

    worker: NodeId
    wish: Wish
    takens: list[Taken | None]
    tries: int = 1

    @property
    def demand(self) -> Demand:
        """The message, the same each time it is sent."""
        shape = self.wish.shape
        return Demand(
            request=self.wish.rank.request,
            profile=shape.profile,
            count=len(self.takens),
            rank=self.wish.rank,
            driver=driver_of(shape.driver),
            preempt=shape.preempt,
            preemptible=shape.preemptible,
            owner=shape.owner,
            grant=self.wish.grant,
            wait_for_s=self.wish.wait_for_s,
            network=driver_of(shape.driver) != shape.driver,
        )


class Round(msgspec.Struct, kw_only=True):
    """One try to win all leases of a gang."""

    wish: Wish
    wanted: int
    least: int
    began_at: float
    phase: Literal["collecting", "committing"] = "collecting"
    asked: int = 0  # slots asked for and not answered yet
    leases: dict[LeaseId, None] = msgspec.field(default_factory=dict[LeaseId, None])
    refused: dict[NodeId, str] = msgspec.field(default_factory=dict[NodeId, str])

    @property
    def request(self) -> RequestId:
        """The id that all its demands share."""
        return self.wish.rank.request

    @property
    def missing(self) -> int:
        """How many more slots could be asked for."""
        return self.wanted - len(self.leases) - self.asked


_Key = tuple[Literal["ask", "commit", "round"], RequestId, NodeId]


@final
class Negotiator:
    """Everything between a decision to ask and a committed lease.

    What came of it is left in `secured`, `whole`, `failed` and `missed`, which the
    scheduler empties after every event.
    """

    def __init__(
        self,
        node: NodeId,
        holdings: Holdings,
        table: WorkerTable,
        heap: DeadlineHeap,
    ) -> None:
        self.secured: list[Holding] = []  # committed, for independent tasks
        self.whole: list[Round] = []  # gangs all of whose leases are committed
        self.failed: list[Round] = []  # gangs that must try again
        self.missed: list[GroupId] = []  # groups that lost a slot they had been offered
        self.refused: list[tuple[NodeId, Wish, str]] = []
        self.rounds: dict[RequestId, Round] = {}  # those that are being held
        self._node = node
        self._holdings = holdings
        self._table = table
        self._seq = 0
        self._asks: dict[tuple[RequestId, NodeId], Ask] = {}
        self._round_of: dict[GroupId, Round] = {}
        self._commits: dict[tuple[RequestId, NodeId], int] = {}  # tries so far
        self._pending: dict[GroupId, int] = {}
        self._deadlines: Deadlines[_Key] = Deadlines(heap)

    # Reading.

    @property
    def has_news(self) -> bool:
        """Whether the scheduler has anything to empty."""
        return bool(
            self.secured or self.refused or self.missed or self.whole or self.failed
        )

    def pending(self, group: GroupId) -> int:
        """Return how many slots are being won for a group."""
        return self._pending.get(group, 0)

    def round_of(self, group: GroupId) -> Round | None:
        """Return the round that is being held for a gang."""
        return self._round_of.get(group)

    def is_round(self, request: RequestId) -> bool:
        """Whether a request is that of a gang."""
        return request in self.rounds

    def asked_workers(self, request: RequestId) -> list[NodeId]:
        """Return who was asked under this request: asking again gets the same answer.

        Those who refused are not among them; the round knows them.
        """
        round_ = self.rounds.get(request)
        offered = [
            holding.worker
            for lease in (round_.leases if round_ else ())
            if (holding := self._holdings.get(lease)) is not None
        ]
        return offered + [worker for asked, worker in self._asks if asked == request]

    def workers_asked_by(self, shape: Shape) -> list[NodeId]:
        """Return who was asked for slots of this shape and has not answered yet."""
        return [ask.worker for ask in self._asks.values() if ask.wish.shape == shape]

    # Asking.

    def next_request(self, generation: int) -> RequestId:
        """Return an id that this scheduler never used, in this life or another."""
        self._seq += 1
        return RequestId(f"{self._node}/{generation}/{self._seq}")

    def ask(
        self, wish: Wish, worker: NodeId, takens: Sequence[Taken | None], now: float
    ) -> list[Effect]:
        """Ask one worker for as many slots as there are bookings."""
        ask = Ask(worker=worker, wish=wish, takens=list(takens))
        key = (wish.rank.request, worker)
        assert key not in self._asks
        self._asks[key] = ask
        self._holdings.reserve(wish.shape, len(takens))
        self._count(wish.group, len(takens))
        if round_ := self.rounds.get(wish.rank.request):
            round_.asked += len(takens)
        self._deadlines.set(("ask", *key), now + RESEND_S)
        return [Send(worker, ask.demand)]

    def begin_round(self, round_: Round, now: float) -> None:
        """Hold the offers to this request until there are enough."""
        self.rounds[round_.request] = round_
        self._round_of[round_.wish.group] = round_
        early = round_.least < round_.wanted
        wait_s = ELASTIC_ROUND_S if early else ROUND_S
        self._deadlines.set(("round", round_.request, self._node), now + wait_s)

    # Answers.

    def on_offer(self, peer: NodeId, offer: Offer, now: float) -> list[Effect]:
        """Take what is offered, if it was asked for and is still wanted."""
        ask = self._asks.pop((offer.request, peer), None)
        if ask is None:
            return self._turn_down(peer, offer)
        self._deadlines.drop(("ask", offer.request, peer))
        offered = tuple(self._genuine(peer, offer.leases))
        wanted = offered[: len(ask.takens)]
        holdings = [self._hold(ask, lease, now) for lease in wanted]
        effects: list[Effect] = []
        if surplus := offered[len(wanted) :]:
            effects.append(Send(peer, Release(leases=surplus)))
        short = len(ask.takens)
        if short:
            self._give_up_ask(
                ask, f"offered {len(wanted)}, asked {len(wanted) + short}"
            )
        round_ = self.rounds.get(offer.request)
        if round_ is None:
            return effects + self._commit(offer.request, peer, holdings, now)
        round_.asked -= len(holdings)
        for holding in holdings:
            round_.leases[holding.lease] = None
        return effects + self._advance(round_, now)

    def on_refusal(self, peer: NodeId, refusal: Refusal, now: float) -> list[Effect]:
        """Take a no: to a demand, or to a commit of some leases."""
        effects: list[Effect] = []
        if not refusal.leases:
            ask = self._asks.pop((refusal.request, peer), None)
            if ask is not None:
                self._deadlines.drop(("ask", refusal.request, peer))
                self._give_up_ask(ask, refusal.reason)
                if round_ := self.rounds.get(refusal.request):
                    effects += self._advance(round_, now)
        return effects + self.on_gone(peer, refusal.leases, now)

    def on_gone(
        self, peer: NodeId, leases: Sequence[LeaseId], now: float
    ) -> list[Effect]:
        """Forget uncommitted leases that no longer stand; a round may end by that."""
        effects: list[Effect] = []
        for lease in leases:
            holding = self._holdings.at(peer, lease)
            if holding is None or (holding.state == "committed" and not holding.gang):
                continue
            round_ = self.rounds.get(holding.request)
            if round_ is None and holding.state == "committed":
                continue  # The gang has started; its lease is the scheduler's care.
            self._lose(holding)
            if round_ is not None:
                round_.leases.pop(lease, None)
                effects += self._advance(round_, now)
        return effects

    def on_committed(
        self, peer: NodeId, committed: Committed, now: float
    ) -> list[Effect]:
        """Take leases as ours."""
        stray: list[LeaseId] = []
        for lease in committed.leases:
            holding = self._holdings.at(peer, lease)
            if holding is None:
                stray.append(lease)
            elif holding.state == "committing":
                self._secure(holding, now)
        self._holdings.heard(peer, now)
        effects: list[Effect] = []
        if stray:
            effects.append(Send(peer, Release(leases=tuple(stray))))
        if self._all_committed(committed.request, peer):
            self._commits.pop((committed.request, peer), None)
            self._deadlines.drop(("commit", committed.request, peer))
        if round_ := self.rounds.get(committed.request):
            effects += self._advance(round_, now)
        return effects

    def on_worker_lost(self, worker: NodeId, now: float) -> list[Effect]:
        """Give up whatever was being won at a worker."""
        effects: list[Effect] = []
        for request, peer in [key for key in self._asks if key[1] == worker]:
            ask = self._asks.pop((request, peer))
            self._deadlines.drop(("ask", request, peer))
            self._give_up_ask(ask, "the worker was lost")
            if round_ := self.rounds.get(request):
                effects += self._advance(round_, now)
        leases = [h.lease for h in self._holdings.all_at(worker)]
        return effects + self.on_gone(worker, leases, now)

    def abandon(self, group: GroupId) -> list[Effect]:
        """Stop winning slots for a group that needs no more."""
        for key in [k for k, ask in self._asks.items() if ask.wish.group == group]:
            # The offer may still come; it is turned down then.
            self._deadlines.drop(("ask", *key))
            self._drop_ask(self._asks.pop(key))
        if round_ := self.round_of(group):
            return self._fail(round_, report=False)
        return []

    # Deadlines.

    def due(self, now: float) -> list[Effect]:
        """Repeat what was not answered; end rounds whose time is up."""
        effects: list[Effect] = []
        for kind, request, worker in self._deadlines.pop_due(now):
            if kind == "ask":
                effects += self._ask_again(request, worker, now)
            elif kind == "commit":
                effects += self._commit_again(request, worker, now)
            elif round_ := self.rounds.get(request):
                effects += self._on_round_due(round_, now)
        return effects

    def _ask_again(
        self, request: RequestId, worker: NodeId, now: float
    ) -> list[Effect]:
        ask = self._asks.get((request, worker))
        if ask is None:
            return []  # What was due before it ended its round.
        if ask.tries >= ASK_TRIES_MAX:
            del self._asks[(request, worker)]
            self._give_up_ask(ask, "no answer")
            round_ = self.rounds.get(request)
            return self._advance(round_, now) if round_ else []
        ask.tries += 1
        self._deadlines.set(("ask", request, worker), now + RESEND_S)
        return [Send(worker, ask.demand)]

    def _on_round_due(self, round_: Round, now: float) -> list[Effect]:
        if round_.phase == "committing":
            if now - round_.began_at > COMMIT_MAX_S + KILL_S:
                return self._fail(round_)
            self._deadlines.set(("round", round_.request, self._node), now + ROUND_S)
            return []
        if len(round_.leases) >= round_.least:
            return self._commit_round(round_, now)
        ends_at = round_.began_at + ROUND_S
        if now >= ends_at:
            return self._fail(round_)
        self._deadlines.set(("round", round_.request, self._node), ends_at)
        return []

    # Rounds.

    def _advance(self, round_: Round, now: float) -> list[Effect]:
        """Go on with a round after something changed."""
        held = len(round_.leases)
        if round_.phase == "committing":
            if held < round_.least:
                return self._fail(round_)
            if self._round_committed(round_):
                self._end_round(round_)
                self.whole.append(round_)
            return []
        if held >= round_.wanted:
            return self._commit_round(round_, now)
        return []

    def _commit_round(self, round_: Round, now: float) -> list[Effect]:
        round_.phase = "committing"
        for key in [key for key in self._asks if key[0] == round_.request]:
            self._deadlines.drop(("ask", *key))
            self._drop_ask(self._asks.pop(key))
        self._deadlines.set(("round", round_.request, self._node), now + ROUND_S)
        by_worker: dict[NodeId, list[Holding]] = {}
        for lease in round_.leases:
            holding = self._holdings.get(lease)
            assert holding is not None, "a round forgets leases that are gone"
            by_worker.setdefault(holding.worker, []).append(holding)
        effects: list[Effect] = []
        for worker, holdings in by_worker.items():
            effects += self._commit(round_.request, worker, holdings, now)
        return effects

    def _round_committed(self, round_: Round) -> bool:
        return all(
            (holding := self._holdings.get(lease)) is not None
            and holding.state == "committed"
            for lease in round_.leases
        )

    def _fail(self, round_: Round, *, report: bool = True) -> list[Effect]:
        """Let go of everything a round has won; the gang tries again later."""
        self._end_round(round_)
        for key in [key for key in self._asks if key[0] == round_.request]:
            self._deadlines.drop(("ask", *key))
            self._drop_ask(self._asks.pop(key))
        holdings = [h for v in round_.leases if (h := self._holdings.get(v))]
        for holding in holdings:
            self._forget_commit(holding)
            if holding.state != "committed":
                self._count(round_.wish.group, -1)
        if report:
            self.failed.append(round_)
        return self._holdings.release(holdings)

    def _end_round(self, round_: Round) -> None:
        del self.rounds[round_.request]
        del self._round_of[round_.wish.group]
        self._deadlines.drop(("round", round_.request, self._node))

    # Single leases.

    def _hold(self, ask: Ask, lease: LeaseId, now: float) -> Holding:
        holding = Holding(
            lease=lease,
            worker=ask.worker,
            request=ask.wish.rank.request,
            group=ask.wish.group,
            shape=ask.wish.shape,
            profile=ask.wish.profile,
            taken=ask.takens.pop(),
            gang=ask.wish.rank.request in self.rounds,
        )
        self._holdings.reserve(holding.shape, -1)
        self._holdings.add(holding, now)
        return holding

    def _commit(
        self, request: RequestId, worker: NodeId, holdings: list[Holding], now: float
    ) -> list[Effect]:
        if not holdings:
            return []
        for holding in holdings:
            holding.state = "committing"
        self._commits[(request, worker)] = 1
        self._deadlines.set(("commit", request, worker), now + RESEND_S)
        return [self._commit_message(request, worker, holdings)]

    def _commit_again(
        self, request: RequestId, worker: NodeId, now: float
    ) -> list[Effect]:
        """Repeat a commit; committed leases of a waiting round are renewed by it."""
        mine = [h for h in self._holdings.all_at(worker) if h.request == request]
        open_ = [h for h in mine if h.state == "committing"]
        if not open_:
            self._commits.pop((request, worker), None)
            return []
        tries = self._commits[(request, worker)] = self._commits[(request, worker)] + 1
        wait_s = min(RESEND_MAX_S, LEASE_S / 4, RESEND_S * 2 ** min(tries, 8))
        self._deadlines.set(("commit", request, worker), now + wait_s)
        return [self._commit_message(request, worker, open_)]

    def _commit_message(
        self, request: RequestId, worker: NodeId, holdings: list[Holding]
    ) -> Send:
        leases = tuple(holding.lease for holding in holdings)
        return Send(worker, Commit(request=request, leases=leases, lease_s=LEASE_S))

    def _secure(self, holding: Holding, now: float) -> None:
        holding.state = "committed"
        holding.since = now
        self._count(holding.group, -1)
        if holding.request not in self.rounds:
            self.secured.append(holding)

    def _all_committed(self, request: RequestId, worker: NodeId) -> bool:
        return not any(
            holding.request == request and holding.state == "committing"
            for holding in self._holdings.all_at(worker)
        )

    def _lose(self, holding: Holding) -> None:
        if holding.state != "committed":
            self._count(holding.group, -1)
        self.missed.append(holding.group)
        self._holdings.drop(holding)
        self._forget_commit(holding)

    def _forget_commit(self, holding: Holding) -> None:
        key = (holding.request, holding.worker)
        others = self._holdings.all_at(holding.worker)
        if not any(h.request == holding.request and h is not holding for h in others):
            self._commits.pop(key, None)
            self._deadlines.drop(("commit", *key))

    def _genuine(self, peer: NodeId, leases: Sequence[LeaseId]) -> list[LeaseId]:
        """Return the leases that are new and begin with the name of their worker.

        So nobody can occupy the name of another worker's lease.
        """
        return [
            lease
            for lease in dict.fromkeys(leases)
            if lease.startswith(f"{peer}/") and self._holdings.get(lease) is None
        ]

    def _turn_down(self, peer: NodeId, offer: Offer) -> list[Effect]:
        unwanted = tuple(v for v in offer.leases if self._holdings.at(peer, v) is None)
        return [Send(peer, Release(leases=unwanted))] if unwanted else []

    def _give_up_ask(self, ask: Ask, reason: str) -> None:
        """Take it that a worker will not offer what it was asked for."""
        if round_ := self.rounds.get(ask.wish.rank.request):
            round_.refused[ask.worker] = reason
        self._drop_ask(ask)
        self.refused.append((ask.worker, ask.wish, reason))

    def _drop_ask(self, ask: Ask) -> None:
        """Give back the bookings of slots that were asked for and not offered."""
        for taken in ask.takens:
            if taken is not None:
                self._table.give(taken)
        self._holdings.reserve(ask.wish.shape, -len(ask.takens))
        self._count(ask.wish.group, -len(ask.takens))
        if round_ := self.rounds.get(ask.wish.rank.request):
            round_.asked -= len(ask.takens)
        ask.takens.clear()

    def _count(self, group: GroupId, slots: int) -> None:
        """Count slots that are being won for a group; only what is not 0 is kept."""
        pending = self._pending.get(group, 0) + slots
        if pending:
            self._pending[group] = pending
        else:
            self._pending.pop(group, None)
