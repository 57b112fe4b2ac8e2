"""Winning leases for groups of tasks: demands, offers, commits.

Theory of operation. The matcher decides whom to ask for what; the negotiator sends the
`Demand` and repeats it until the worker answers, `ASK_TRIES_MAX` times at most.

For *independent tasks* whatever a worker offers is committed at once:

    Demand -> Offer -> Commit -> Committed       `Won`, one for each lease
    Demand -> Refusal, or nothing                `Refused`

A *gang* is won in a round, under one request id for all workers:

    collecting   offers are held until `wanted` have come, or `least` by the deadline;
                 not so long if nobody is left to ask (`despair`)
    committing   all are committed; demands still open are dropped
    then         `GangReady` when the last is committed; `GangFailed`, and all leases
                 released, when fewer than `least` are left or time runs out

A task that displaces others asks more workers than it needs, and takes the offers that
destroy least (`displacing`).

So no task of a gang starts before all its leases are committed. Of several gangs that
compete for the same workers, the one of the best `Rank` wins: workers withdraw offers
that are not committed yet in its favour. The others fail, rest, and try again.

Who finds no room claims it at full workers, which keep room for it for a while. They do
not answer: that they are full is known. Once a gang starts elsewhere, or wants no more,
they are told (`Release.requests`).

A commit is repeated, with back-off, until the worker confirms or denies it: it may wait
for displaced tasks to end. Offers that nobody asked for are turned down, and a lease
must carry the name of its worker, so no peer can give away another's.

Nothing here is durable: after a restart open demands are asked anew under new ids, and
leases that nobody confirms expire at their workers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, final

import msgspec

from shoal.core.deadlines import DeadlineHeap, Deadlines
from shoal.core.events import Effect, Send
from shoal.core.negotiation.displacing import (
    CHOICE_S,
    DisplacingChoice,
    Price,
    dearest,
    price_of,
)
from shoal.core.negotiation.held_leases import HeldLease, HeldLeases, LeaseShape
from shoal.core.scheduling.notices import (
    Consequence,
    GangFailed,
    GangReady,
    NeedChanged,
    Refused,
    Won,
)
from shoal.core.timing import (
    ELASTIC_ROUND_S,
    KEPT_LEASE_S,
    KILL_S,
    LEASE_S,
    RESEND,
    RESEND_S,
    ROUND_S,
)
from shoal.model.backoff import Backoff
from shoal.model.ids import GroupId, LeaseId, NodeId, RequestId
from shoal.model.kinds import driver_of
from shoal.policy.table.worker_table import TakenRoom, WorkerTable
from shoal.protocol.messages import (
    Commit,
    Committed,
    Demand,
    Offer,
    Rank,
    Refusal,
    Release,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

ASK_TRIES_MAX: Final = 4
DESPAIR_S: Final = 0.05  # until a round ends that nobody is left to ask for
COMMIT_MAX_S: Final = 180.0  # displaced tasks may need their grace
COMMIT: Final = Backoff(RESEND_S, min(RESEND.most_s, LEASE_S / 4))


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked for, for which group, and how it ranks against other demands."""

    group: GroupId
    shape: LeaseShape
    profile: int
    rank: Rank
    wait_for_s: float = 0.0  # if there is no room, how long to be remembered


class OpenDemand(msgspec.Struct, kw_only=True):
    """A demand that its worker has not answered yet."""

    worker: NodeId
    wish: Wish
    takens: list[TakenRoom | None]
    tries: int = 1

    @property
    def demand(self) -> Demand:
        """The message; every repeat is the same."""
        return _demand(self.wish, len(self.takens), self._devices())

    def _devices(self) -> tuple[str, ...]:
        """Return the devices that a policy asked for, each once, in its order."""
        named = [device for taken in self.takens if taken for device in taken.devices]
        return tuple(dict.fromkeys(named))


class GangRound(msgspec.Struct, kw_only=True):
    """One try to win all leases of a gang at once."""

    wish: Wish
    wanted: int
    least: int
    began_at: float
    moves: bool = False  # the gang runs, and would move there: no other place will do
    chooses: bool = False  # more are asked than it wants: it takes the cheapest
    phase: Literal["collecting", "committing"] = "collecting"
    despairs: bool = False  # nobody is left to ask, as far as is known
    asked: int = 0  # slots asked for and not answered yet
    leases: dict[LeaseId, Price] = msgspec.field(default_factory=dict[LeaseId, Price])
    refused: dict[NodeId, str] = msgspec.field(default_factory=dict[NodeId, str])

    @property
    def request(self) -> RequestId:
        """The id that all its demands share."""
        return self.wish.rank.request

    @property
    def missing(self) -> int:
        """How many slots are neither held nor asked for."""
        return self.wanted - len(self.leases) - self.asked


_Key = tuple[Literal["ask", "commit", "round", "choice"], RequestId, NodeId]


@final
class Negotiator:
    """Everything between a decision to ask and a committed lease."""

    def __init__(
        self,
        node: NodeId,
        generation: int,
        holdings: HeldLeases,
        table: WorkerTable,
        heap: DeadlineHeap,
    ) -> None:
        """Name requests after the node and its generation, so no id is used twice."""
        self.rounds: dict[RequestId, GangRound] = {}  # under way
        self._node = node
        self._generation = generation
        self._holdings = holdings
        self._table = table
        self._seq = 0
        self._asks: dict[tuple[RequestId, NodeId], OpenDemand] = {}
        self._round_of: dict[GroupId, GangRound] = {}
        self._choices: dict[RequestId, DisplacingChoice] = {}
        self._commits: dict[tuple[RequestId, NodeId], int] = {}  # tries so far
        self._pending: dict[GroupId, int] = {}
        # Where room may be kept for gangs, for what request, and until when.
        self._kept: dict[GroupId, dict[NodeId, tuple[RequestId, float]]] = {}
        self._deadlines: Deadlines[_Key] = Deadlines(heap)

    # Reading.

    def pending(self, group: GroupId) -> int:
        """Return how many slots of a group are asked for or being committed."""
        return self._pending.get(group, 0)

    def round_of(self, group: GroupId) -> GangRound | None:
        """Return the round that is under way for a gang."""
        return self._round_of.get(group)

    def is_shared(self, request: RequestId) -> bool:
        """Whether several workers are asked under one request."""
        return self._collects(request) is not None

    def asked_workers(self, request: RequestId) -> list[NodeId]:
        """Return the workers that were asked under this request and have not refused.

        To ask one again under the same request would get the same answer.
        """
        round_ = self.rounds.get(request)
        offered = [
            holding.worker
            for lease in (round_.leases if round_ else ())
            if (holding := self._holdings.get(lease)) is not None
        ]
        return offered + [worker for asked, worker in self._asks if asked == request]

    def workers_asked_by(self, shape: LeaseShape) -> list[NodeId]:
        """Return the workers that have yet to answer a demand of this shape."""
        return [ask.worker for ask in self._asks.values() if ask.wish.shape == shape]

    # Asking.

    def next_request(self) -> RequestId:
        """Return an id that this scheduler has never used, in any life."""
        self._seq += 1
        return RequestId(f"{self._node}/{self._generation}/{self._seq}")

    def rank(self, priority: int, age_s: float) -> Rank:
        """Return the rank of a new request."""
        return Rank(priority, age_s, self._node, self.next_request())

    def ask(
        self, wish: Wish, worker: NodeId, takens: Sequence[TakenRoom | None], now: float
    ) -> list[Effect]:
        """Ask one worker for one slot per booking."""
        ask = OpenDemand(worker=worker, wish=wish, takens=list(takens))
        key = (wish.rank.request, worker)
        assert key not in self._asks
        self._asks[key] = ask
        self._holdings.reserve(wish.shape, len(takens))
        self._count(wish.group, len(takens))
        if collects := self._collects(wish.rank.request):
            collects.asked += len(takens)
        self._deadlines.set(("ask", *key), now + RESEND_S)
        return [Send(worker, ask.demand)]

    def claim(
        self,
        wish: Wish,
        rooms: Mapping[NodeId, int],
        now: float,
        *,
        withdrawn: bool = False,
    ) -> list[Effect]:
        """Let full workers know who waits, for so many slots of each.

        Nobody answers. A claim that is lost is made up for by the next. One that is to
        be `withdrawn` ends when its group starts, or wants no more; others run out.
        """
        effects: list[Effect] = []
        for worker, count in rooms.items():
            if withdrawn:
                self._note_kept(wish, worker, now)
            demand = msgspec.structs.replace(_demand(wish, count), claim=True)
            effects.append(Send(worker, demand))
        return effects

    def begin_round(self, round_: GangRound, now: float) -> None:
        """Begin a round: offers to its request are held until there are enough."""
        self.rounds[round_.request] = round_
        self._round_of[round_.wish.group] = round_
        early = round_.least < round_.wanted
        wait_s = ELASTIC_ROUND_S if early else ROUND_S
        self._deadlines.set(("round", round_.request, self._node), now + wait_s)

    def despair(self, round_: GangRound, now: float) -> None:
        """Let a round end soon that cannot win, as nobody is left to ask.

        What it holds is what others lack. They would wait for it, each for the other's,
        until the time of the round is up.
        """
        if not round_.despairs:
            round_.despairs = True
            ends_at = min(now + DESPAIR_S, round_.began_at + ROUND_S)
            self._deadlines.set(("round", round_.request, self._node), ends_at)

    def begin_choice(self, wish: Wish, wanted: int, now: float) -> None:
        """Begin to collect offers to a request, of which the cheapest are taken."""
        request = wish.rank.request
        self._choices[request] = DisplacingChoice(
            group=wish.group, request=request, wanted=wanted
        )
        self._deadlines.set(("choice", request, self._node), now + CHOICE_S)

    # Answers.

    def on_offer(self, peer: NodeId, offer: Offer, now: float) -> list[Consequence]:
        """Take an offer that was asked for; turn down any other."""
        ask = self._asks.pop((offer.request, peer), None)
        if ask is None:
            return [*self._turn_down(peer, offer)]
        self._deadlines.drop(("ask", offer.request, peer))
        offered = tuple(self._genuine(peer, offer.leases))
        wanted = offered[: len(ask.takens)]
        holdings = [self._hold(ask, lease, now) for lease in wanted]
        follows: list[Consequence] = []
        if surplus := offered[len(wanted) :]:
            follows.append(Send(peer, Release(leases=surplus)))
        if short := len(ask.takens):
            why = f"offered {len(wanted)}, asked {len(wanted) + short}"
            follows.append(self._give_up_ask(ask, why))
        collects = self._collects(offer.request)
        if collects is None:
            return [*follows, *self._commit(offer.request, peer, holdings, now)]
        collects.asked -= len(holdings)
        price = price_of(offer)
        for holding in holdings:
            collects.leases[holding.lease] = price
        return follows + self._go_on(offer.request, now)

    def on_refusal(
        self, peer: NodeId, refusal: Refusal, now: float
    ) -> list[Consequence]:
        """Take the refusal of a demand, or of a commit of some leases."""
        follows: list[Consequence] = []
        if not refusal.leases:
            ask = self._asks.pop((refusal.request, peer), None)
            if ask is not None:
                self._deadlines.drop(("ask", refusal.request, peer))
                follows.append(self._give_up_ask(ask, refusal.reason))
                follows += self._go_on(refusal.request, now)
        return follows + self.on_gone(peer, refusal.leases, now)

    def on_gone(
        self, peer: NodeId, leases: Sequence[LeaseId], now: float
    ) -> list[Consequence]:
        """Forget uncommitted leases that a worker gave up; that may end a round."""
        follows: list[Consequence] = []
        for lease in leases:
            holding = self._holdings.at(peer, lease)
            if holding is None or (holding.state == "committed" and not holding.gang):
                continue
            round_ = self.rounds.get(holding.request)
            if round_ is None and holding.state == "committed":
                continue  # The gang has started: the dispatcher deals with its leases.
            follows.append(self._lose(holding))
            if round_ is not None:
                round_.leases.pop(lease, None)
                follows += self._advance(round_, now)
        return follows

    def on_committed(
        self, peer: NodeId, committed: Committed, now: float
    ) -> list[Consequence]:
        """Take committed leases as ours."""
        follows: list[Consequence] = []
        stray: list[LeaseId] = []
        for lease in committed.leases:
            holding = self._holdings.at(peer, lease)
            if holding is None:
                stray.append(lease)
            elif holding.state == "committing":
                follows += self._secure(holding, now)
        self._holdings.heard(peer, now)
        if stray:
            follows.append(Send(peer, Release(leases=tuple(stray))))
        if self._all_committed(committed.request, peer):
            self._commits.pop((committed.request, peer), None)
            self._deadlines.drop(("commit", committed.request, peer))
        if round_ := self.rounds.get(committed.request):
            follows += self._advance(round_, now)
        return follows

    def on_worker_lost(self, worker: NodeId, now: float) -> list[Consequence]:
        """Give up everything that was being won at a worker."""
        follows: list[Consequence] = []
        for request, peer in [key for key in self._asks if key[1] == worker]:
            ask = self._asks.pop((request, peer))
            self._deadlines.drop(("ask", request, peer))
            follows.append(self._give_up_ask(ask, "the worker was lost"))
            follows += self._go_on(request, now)
        leases = [h.lease for h in self._holdings.all_at(worker)]
        return follows + self.on_gone(worker, leases, now)

    def abandon(self, group: GroupId) -> list[Effect]:
        """Stop asking for slots of a group that needs none."""
        for key in [k for k, ask in self._asks.items() if ask.wish.group == group]:
            # An offer that still comes will be turned down.
            self._deadlines.drop(("ask", *key))
            self._drop_ask(self._asks.pop(key))
        round_ = self.round_of(group)
        ended = self._let_go(round_) if round_ else []
        for choice in [c for c in self._choices.values() if c.group == group]:
            self._end_choice(choice)
            ended += self._give_back(choice.leases)
        return [*ended, *self._withdraw(group)]

    # Deadlines.

    def due(self, now: float) -> list[Consequence]:
        """Repeat what was not answered; end rounds whose time is up."""
        follows: list[Consequence] = []
        for kind, request, worker in self._deadlines.pop_due(now):
            if kind == "ask":
                follows += self._ask_again(request, worker, now)
            elif kind == "commit":
                follows += self._commit_again(request, worker, now)
            elif kind == "choice":
                self._choices[request].is_over = True
                follows += self._go_on(request, now)
            elif round_ := self.rounds.get(request):
                follows += self._on_round_due(round_, now)
        return follows

    def _ask_again(
        self, request: RequestId, worker: NodeId, now: float
    ) -> list[Consequence]:
        ask = self._asks.get((request, worker))
        if ask is None:
            return []  # Its round ended at this same moment.
        if ask.tries >= ASK_TRIES_MAX:
            del self._asks[(request, worker)]
            refused = self._give_up_ask(ask, "no answer")
            return [refused, *self._go_on(request, now)]
        ask.tries += 1
        self._deadlines.set(("ask", request, worker), now + RESEND_S)
        return [Send(worker, ask.demand)]

    def _on_round_due(self, round_: GangRound, now: float) -> list[Consequence]:
        if round_.phase == "committing":
            if now - round_.began_at > COMMIT_MAX_S + KILL_S:
                return self._fail(round_)
            self._deadlines.set(("round", round_.request, self._node), now + ROUND_S)
            return []
        if len(round_.leases) >= round_.least:
            return [*self._commit_round(round_, now)]
        ends_at = round_.began_at + ROUND_S
        despairs, round_.despairs = round_.despairs and not round_.asked, False
        if now >= ends_at or despairs:
            return self._fail(round_)
        self._deadlines.set(("round", round_.request, self._node), ends_at)
        return []

    # What several workers are asked for together.

    def _collects(self, request: RequestId) -> GangRound | DisplacingChoice | None:
        return self.rounds.get(request) or self._choices.get(request)

    def _go_on(self, request: RequestId, now: float) -> list[Consequence]:
        """Go on after one of the workers that were asked together answered."""
        if round_ := self.rounds.get(request):
            return self._advance(round_, now)
        choice = self._choices.get(request)
        return self._choose(choice, now) if choice and choice.is_settled else []

    def _choose(self, choice: DisplacingChoice, now: float) -> list[Consequence]:
        """Commit the cheapest offers, and release the others."""
        self._end_choice(choice)
        known = [lease for lease in choice.leases if self._holdings.get(lease)]
        effects = self._give_back(dearest(choice.leases, known, choice.wanted))
        held = [h for lease in known if (h := self._holdings.get(lease)) is not None]
        effects += self._commit_all(choice.request, held, now)
        return [*effects, NeedChanged(choice.group)]

    def _end_choice(self, choice: DisplacingChoice) -> None:
        del self._choices[choice.request]
        self._deadlines.drop(("choice", choice.request, self._node))
        self._drop_asks(choice.request)

    def _drop_asks(self, request: RequestId) -> None:
        """Wait no longer for answers; an offer that still comes is turned down."""
        for key in [key for key in self._asks if key[0] == request]:
            self._deadlines.drop(("ask", *key))
            self._drop_ask(self._asks.pop(key))

    def _give_back(self, leases: Iterable[LeaseId]) -> list[Effect]:
        """Release leases that were won and are not wanted."""
        holdings = [h for lease in leases if (h := self._holdings.get(lease))]
        for holding in holdings:
            self._forget_commit(holding)
            if holding.state != "committed":
                self._count(holding.group, -1)
        return self._holdings.release(holdings)

    def _commit_all(
        self, request: RequestId, held: Iterable[HeldLease], now: float
    ) -> list[Effect]:
        by_worker: dict[NodeId, list[HeldLease]] = {}
        for holding in held:
            by_worker.setdefault(holding.worker, []).append(holding)
        effects: list[Effect] = []
        for worker, holdings in by_worker.items():
            effects += self._commit(request, worker, holdings, now)
        return effects

    # Rounds.

    def _advance(self, round_: GangRound, now: float) -> list[Consequence]:
        """Go on with a round after its leases changed."""
        held = len(round_.leases)
        if round_.phase == "committing":
            if held < round_.least:
                return self._fail(round_)
            if self._round_committed(round_):
                self._end_round(round_)
                return [GangReady(round_), *self._withdraw(round_.wish.group)]
            return []
        if held >= round_.wanted and not (round_.chooses and round_.asked):
            return [*self._commit_round(round_, now)]
        return []

    def _commit_round(self, round_: GangRound, now: float) -> list[Effect]:
        round_.phase = "committing"
        self._drop_asks(round_.request)
        self._deadlines.set(("round", round_.request, self._node), now + ROUND_S)
        surplus = dearest(round_.leases, round_.leases, round_.wanted)
        effects = self._give_back(surplus)
        for lease in surplus:
            del round_.leases[lease]
        held = [h for lease in round_.leases if (h := self._holdings.get(lease))]
        assert len(held) == len(round_.leases), "a round forgets leases that are gone"
        return effects + self._commit_all(round_.request, held, now)

    def _round_committed(self, round_: GangRound) -> bool:
        return all(
            (holding := self._holdings.get(lease)) is not None
            and holding.state == "committed"
            for lease in round_.leases
        )

    def _fail(self, round_: GangRound) -> list[Consequence]:
        """End a round in vain; the gang tries again later."""
        return [*self._let_go(round_), GangFailed(round_)]

    def _let_go(self, round_: GangRound) -> list[Effect]:
        """End a round, and release everything it has won."""
        self._end_round(round_)
        self._drop_asks(round_.request)
        return self._give_back(round_.leases)

    def _end_round(self, round_: GangRound) -> None:
        del self.rounds[round_.request]
        del self._round_of[round_.wish.group]
        self._deadlines.drop(("round", round_.request, self._node))

    def _note_kept(self, wish: Wish, worker: NodeId, now: float) -> None:
        """Note that a worker may keep room for a gang; forget what is long over."""
        for group, kept in list(self._kept.items()):
            if all(until < now for _, until in kept.values()):
                del self._kept[group]
        until = now + wish.wait_for_s
        self._kept.setdefault(wish.group, {})[worker] = (wish.rank.request, until)

    def _withdraw(self, group: GroupId) -> list[Effect]:
        """Tell workers that a gang waits no more; those it won get a `Commit`."""
        return [
            Send(worker, Release(leases=(), requests=(request,)))
            for worker, (request, _) in self._kept.pop(group, {}).items()
        ]

    # Single leases.

    def _hold(self, ask: OpenDemand, lease: LeaseId, now: float) -> HeldLease:
        holding = HeldLease(
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
        self, request: RequestId, worker: NodeId, holdings: list[HeldLease], now: float
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
        """Repeat a commit that its worker has not confirmed."""
        mine = [h for h in self._holdings.all_at(worker) if h.request == request]
        open_ = [h for h in mine if h.state == "committing"]
        if not open_:
            self._commits.pop((request, worker), None)
            return []
        tries = self._commits[(request, worker)] = self._commits[(request, worker)] + 1
        self._deadlines.set(("commit", request, worker), now + COMMIT.pause_s(tries))
        return [self._commit_message(request, worker, open_)]

    def _commit_message(
        self, request: RequestId, worker: NodeId, holdings: list[HeldLease]
    ) -> Send:
        leases = tuple(holding.lease for holding in holdings)
        is_kept = any(holding.shape.kept for holding in holdings)
        lease_s = KEPT_LEASE_S if is_kept else LEASE_S
        return Send(worker, Commit(request=request, leases=leases, lease_s=lease_s))

    def _secure(self, holding: HeldLease, now: float) -> list[Consequence]:
        holding.state = "committed"
        holding.since = now
        self._count(holding.group, -1)
        return [] if holding.request in self.rounds else [Won(holding)]

    def _all_committed(self, request: RequestId, worker: NodeId) -> bool:
        return not any(
            holding.request == request and holding.state == "committing"
            for holding in self._holdings.all_at(worker)
        )

    def _lose(self, holding: HeldLease) -> NeedChanged:
        """Forget a lease that its worker gave up; its group needs another."""
        if holding.state != "committed":
            self._count(holding.group, -1)
        self._holdings.drop(holding)
        self._forget_commit(holding)
        return NeedChanged(holding.group)

    def _forget_commit(self, holding: HeldLease) -> None:
        key = (holding.request, holding.worker)
        others = self._holdings.all_at(holding.worker)
        if not any(h.request == holding.request and h is not holding for h in others):
            self._commits.pop(key, None)
            self._deadlines.drop(("commit", *key))

    def _genuine(self, peer: NodeId, leases: Sequence[LeaseId]) -> list[LeaseId]:
        """Return the leases that are new, and that this peer may name.

        A lease begins with the name of its worker: no peer can occupy another's.
        """
        return [
            lease
            for lease in dict.fromkeys(leases)
            if lease.startswith(f"{peer}/") and self._holdings.get(lease) is None
        ]

    def _turn_down(self, peer: NodeId, offer: Offer) -> list[Effect]:
        unwanted = tuple(v for v in offer.leases if self._holdings.at(peer, v) is None)
        return [Send(peer, Release(leases=unwanted))] if unwanted else []

    def _give_up_ask(self, ask: OpenDemand, reason: str) -> Refused:
        """Close a demand that its worker will not meet."""
        if round_ := self.rounds.get(ask.wish.rank.request):
            round_.refused[ask.worker] = reason
        self._drop_ask(ask)
        return Refused(ask.worker, ask.wish, reason)

    def _drop_ask(self, ask: OpenDemand) -> None:
        """Give back the bookings of slots that were not offered."""
        for taken in ask.takens:
            if taken is not None:
                self._table.give(taken)
        self._holdings.reserve(ask.wish.shape, -len(ask.takens))
        self._count(ask.wish.group, -len(ask.takens))
        if collects := self._collects(ask.wish.rank.request):
            collects.asked -= len(ask.takens)
        ask.takens.clear()

    def _count(self, group: GroupId, slots: int) -> None:
        """Add to the slots that are being won for a group."""
        pending = self._pending.get(group, 0) + slots
        if pending:
            self._pending[group] = pending
        else:
            self._pending.pop(group, None)


def _demand(wish: Wish, count: int, devices: tuple[str, ...] = ()) -> Demand:
    shape = wish.shape
    return Demand(
        request=wish.rank.request,
        profile=shape.profile,
        count=count,
        rank=wish.rank,
        driver=driver_of(shape.driver),
        preempt=shape.preempt,
        preemptible=shape.preemptible,
        owner=shape.owner,
        wait_for_s=wish.wait_for_s,
        network=driver_of(shape.driver) != shape.driver,
        devices=devices,
    )
