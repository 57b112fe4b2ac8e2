"""Coordinate workers that average shares of the model themselves.

`Rounds` decides as ever who takes part, what counts and when a sync closes. Where it
orders to fetch or to average, this machine hands the order on: each share of a sync has
an owner among the workers, which fetches that share of every contribution, measures it
and averages it. So data goes from worker to worker, each sends as much as any other,
and only names, norms and check sums come here.

What counts is decided by the norms, which are known when all is fetched. Nearly always
it is everything. So once all have contributed, owners are told to average just that,
and report norms and outcomes together. Decided otherwise, they average once more.

Every worker has all weights and, as far as updates tell it, all momentum. So an owner
that is lost is replaced by any other, and nothing is kept for it anywhere else:

- If a sync is open, its shares go to others, who fetch them from the contributors. What
  a contributor took with it is left out by all.
- If the outcome was given out and somebody lacks it, the run goes on from what the most
  advanced worker has merged; if nobody has, the sync is open again.
- An owner that keeps all others waiting is relieved of its shares; so is one whose
  outcome most of the others cannot merge. The sync is then open again.

The weights come here only to be saved: at checkpoints, and at the end.
"""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING, Final, Literal, final

import msgspec

from shoal.train.diloco.events import (
    Average,
    Averaged,
    Effect,
    Event,
    Fetch,
    Fetched,
    Loaded,
    LoadFailed,
    LoadState,
    PartsLost,
    Published,
    PublishState,
    ReportMember,
    StatusReceived,
    UpdatesLost,
)
from shoal.train.diloco.messages import (
    Contribution,
    KeptState,
    Update,
    files_of,
    joined_check,
)
from shoal.train.diloco.outer import equal_workers
from shoal.train.diloco.roster.enrolled_worker import REPEAT_S
from shoal.train.diloco.rounds import Rounds
from shoal.train.diloco.rules import UPDATES_KEPT
from shoal.train.diloco.screening import CountedPart, presumed
from shoal.train.diloco.shares.assignment import assigned, shares_of
from shoal.train.diloco.shares.messages import (
    MARK,
    OPEN_MAX,
    Duties,
    Reduced,
    Reduction,
    ShareNorm,
    ShareOutcome,
    ShareReport,
    ShareSource,
    ShareWeight,
)

if TYPE_CHECKING:
    from shoal.train.diloco.messages import Status

Kind = Literal["weights", "checkpoint"]
TOGETHER_S: Final = 0.25
"""Workers finish at about the same time. An owner is told of contributions that come
within this time together, and at once when no more are to come."""

OFFER_S: Final = 60.0
"""Whoever does not offer its weights for so long is passed over: another is asked."""

FROM_HOST: Final = -1
"""The host is about to load weights, of an earlier life or run."""


class ReportReceived(msgspec.Struct, frozen=True):
    """A worker reported what it has done of its duties."""

    report: ShareReport


class StateUnsaved(msgspec.Struct, frozen=True):
    """A worker's state cannot be fetched."""

    worker: str


class DirectOwner(msgspec.Struct, frozen=True):
    """Send a worker its duties."""

    worker: str
    duties: Duties


class SaveState(msgspec.Struct, frozen=True):
    """Get all weights and save them; answered by `Published` or `StateUnsaved`."""

    worker: str
    kept: KeptState


class NoteBegun(msgspec.Struct, frozen=True):
    """Tell people that a run goes on without a centre, and from where."""

    kind: str
    syncs: int
    values: int


class NoteClosed(msgspec.Struct, frozen=True):
    """Tell people about a sync whose outcome all can fetch."""

    order: Average


SharedEvent = Event | ReportReceived | StateUnsaved
SharedEffect = Effect | DirectOwner | SaveState | NoteBegun | NoteClosed


class _Sync(msgspec.Struct):
    """A sync that is open: what was contributed, and how far its shares are."""

    wanted: dict[str, Contribution] = msgspec.field(
        default_factory=dict[str, Contribution]
    )
    norms: dict[tuple[str, str, int], ShareNorm] = msgspec.field(
        default_factory=dict[tuple[str, str, int], ShareNorm]
    )
    told: list[str] = msgspec.field(default_factory=list[str])  # to Rounds, by file
    order: Average | None = None
    parts: tuple[CountedPart, ...] = ()  # of the order, or as it is presumed to be
    number: int = 0  # of these parts
    outcomes: dict[int, tuple[str, ShareOutcome]] = msgspec.field(
        default_factory=dict[int, tuple[str, ShareOutcome]]
    )

    def found(self, worker: str, shares: int) -> list[ShareNorm]:
        """Return the norms of a contribution's shares that are known."""
        mark = self.wanted[worker].file[:MARK]
        marks = [(worker, mark, share) for share in range(shares)]
        return [self.norms[each] for each in marks if each in self.norms]


class _Asked(msgspec.Struct):
    """A request for weights: which worker offers them, after which sync."""

    worker: str
    syncs: int
    saving: bool = False
    since: float = 0.0


class _Turn(msgspec.Struct):
    """What comes of one event: facts for Rounds, and effects."""

    now: float
    facts: deque[SharedEvent]
    effects: list[SharedEffect] = msgspec.field(default_factory=list[SharedEffect])


@final
class ShareCoordinator:
    """Decides; the aggregator's host does it, in the order returned."""

    def __init__(self, rounds: Rounds, epoch: int) -> None:
        """Stand between `rounds` and its host; `epoch` is that of `rounds`."""
        self.rounds = rounds
        self.owners: tuple[str, ...] = ()  # by share
        self._epoch = epoch
        self._statuses: dict[str, Status] = {}  # of members
        self._reports: dict[str, ShareReport] = {}
        self._syncs: dict[int, _Sync] = {}
        # Who gives the outcome of a sync, by file.
        self._givers: dict[int, dict[str, str]] = {}
        self._asked: dict[Kind, _Asked] = {}
        self._offers = 0  # that were asked for
        self._here: int | None = None  # after how many syncs the host has the weights
        self._duties: dict[str, Duties] = {}
        self._told_at: dict[str, float] = {}
        self._untold: dict[str, float] = {}  # since when there is more to tell
        self._tell_at = math.inf  # what waits for more to be told with it
        self._seq = 0
        self._orders = 0
        self._relieved: list[str] = []
        self._came: dict[str, int] = {}  # how many syncs were closed then
        self._late_since: dict[str, float] = {}
        self._usual_s: float | None = None  # that a share takes on its way

    def handle(self, event: SharedEvent, now: float) -> list[SharedEffect]:
        """Take in one fact; return what to do about it. Raising is a bug."""
        turn = _Turn(now, deque([event]))
        while turn.facts:
            self._take(turn.facts.popleft(), turn)
            if self.rounds.shares:
                self._drop_lost(turn)
                self._note_done(turn)
                self._answer_offers(turn)
                self._relieve(turn)
                self._drop_spoiled(turn)
        if self.rounds.shares:
            again = event.status.worker if isinstance(event, StatusReceived) else ""
            self._presume()
            turn.effects += self._tell(again, now)
            assert len(self.owners) == self.rounds.shares
        return turn.effects

    def next_deadline(self) -> float | None:
        """When to deliver `RoundDeadline`, if ever."""
        due = [since + self._patience_s for since in self._late_since.values()]
        due += [
            each.since + OFFER_S
            for each in self._asked.values()
            if each.worker and not each.saving
        ]
        if self._tell_at < math.inf:
            due.append(self._tell_at)
        if (other := self.rounds.next_deadline()) is not None:
            due.append(other)
        return min(due, default=None)

    def _take(self, fact: SharedEvent, turn: _Turn) -> None:
        match fact:
            case ReportReceived():
                self._on_report(fact.report)
                return
            case StateUnsaved():
                if (asked := self._asked.get("checkpoint")) is not None:
                    asked.worker, asked.saving = "", False
                return
            case StatusReceived():
                self._on_status(fact.status, turn)
            case Loaded():
                self._here = fact.syncs if self._here == FROM_HOST else None
            case UpdatesLost(unmerged=True):
                self._syncs.clear()
                self._givers.clear()
            case Published(kind="checkpoint"):
                self._asked.pop("checkpoint", None)
            case _:
                pass
        for effect in self.rounds.handle(fact, turn.now):
            self._delegate(effect, turn)
        for past in [number for number in self._syncs if number < self.rounds.closed]:
            del self._syncs[past]

    # What Rounds orders.

    def _delegate(self, effect: Effect, turn: _Turn) -> None:
        """Hand an order on to workers, if it is theirs."""
        if isinstance(effect, LoadState):
            self._begin(effect, turn)
            return
        if not self.rounds.shares:
            turn.effects.append(effect)
            return
        match effect:
            case Fetch():
                self._want(effect.worker, effect.contribution, turn)
            case Average():
                sync = self._syncs[effect.sync]
                sync.order = effect
                self._let_count(sync, effect.parts)
            case PublishState():
                self._publish(effect, turn)
            case _:
                turn.effects.append(effect)

    def _begin(self, order: LoadState, turn: _Turn) -> None:
        """Decide by the size of the model whether there is a centre.

        Without one, weights stay where they are.
        """
        values = max((s.values for s in self._statuses.values()), default=0)
        self.rounds.shares = shares_of(self.rounds.rules, values)
        if not self.rounds.shares:
            turn.effects.append(order)
            return
        self._assign()
        if not order.worker:
            self._here = FROM_HOST
            turn.effects.append(order)
        elif order.kind == "checkpoint":  # Nobody keeps one without a centre.
            turn.facts.append(LoadFailed(order.worker))
        else:
            turn.facts.append(Loaded(order.syncs))
            turn.effects.append(NoteBegun(order.kind, order.syncs, values))

    def _want(self, worker: str, contribution: Contribution, turn: _Turn) -> None:
        """Let the owners fetch a contribution."""
        if len(contribution.shares) != self.rounds.shares:
            fault = "it is not cut into shares as it should be"
            turn.facts.append(Fetched(worker, contribution, fault=fault))
            return
        sync = self._syncs.setdefault(contribution.sync, _Sync())
        sync.wanted[worker] = contribution

    def _presume(self) -> None:
        """Let owners average what all have contributed, before it is judged.

        Nearly always it is judged to count, and then the outcome is there already. What
        is averaged in vain has no effect.
        """
        for number, sync in self._syncs.items():
            all_came = len(sync.wanted) == self._expected(number, sync)
            if sync.order is None and all_came:
                self._let_count(sync, presumed(sync.wanted))

    def _let_count(self, sync: _Sync, parts: tuple[CountedPart, ...]) -> None:
        """Let owners average these parts; go on if it is what they do already."""
        if [_counts(part) for part in parts] != [_counts(part) for part in sync.parts]:
            self._orders += 1
            sync.number = self._orders
            sync.outcomes.clear()
        sync.parts = parts

    def _publish(self, order: PublishState, turn: _Turn) -> None:
        """Let a worker offer its weights; begin again if none has any."""
        if self._loaded():
            self._asked[order.kind] = _Asked("", self.rounds.closed)
        elif self._here == self.rounds.closed:
            turn.effects.append(order)
        elif order.kind == "weights":
            turn.facts.append(UpdatesLost())

    # What workers say.

    def _on_status(self, status: Status, turn: _Turn) -> None:
        known = self._statuses.get(status.worker)
        if known is not None:
            if (status.life, status.seq) <= (known.life, known.seq):
                return
            if status.life > known.life:
                self._lose(status.worker, turn)
        if status.worker not in self._statuses:
            self._came[status.worker] = self.rounds.closed
        self._statuses[status.worker] = status

    def _on_report(self, report: ShareReport) -> None:
        status = self._statuses.get(report.worker)
        known = self._reports.get(report.worker)
        if status is None or status.life != report.life:
            return
        if known is not None and report.seq <= known.seq:
            return
        self._reports[report.worker] = report
        for reduced in report.reduced:
            if sync := self._syncs.get(reduced.sync):
                self._note(sync, report, reduced)

    def _note(self, sync: _Sync, report: ShareReport, reduced: Reduced) -> None:
        """Take in what an owner has measured and averaged."""
        for norm in reduced.norms:
            if self._owner_of(norm.share) == report.worker:
                sync.norms[norm.worker, norm.mark, norm.share] = norm
        if (report.heard[0], reduced.order) != (self._epoch, sync.number):
            return
        for outcome in reduced.outcomes:
            if self._owner_of(outcome.share) == report.worker:
                sync.outcomes[outcome.share] = report.worker, outcome

    def _owner_of(self, share: int) -> str:
        return self.owners[share] if share < len(self.owners) else ""

    def _note_done(self, turn: _Turn) -> None:
        """Tell Rounds what all owners have measured, and what all have averaged."""
        shares = len(self.owners)
        for number, sync in sorted(self._syncs.items()):
            for worker, contribution in sync.wanted.items():
                found = sync.found(worker, shares)
                if len(found) == shares and contribution.file not in sync.told:
                    sync.told.append(contribution.file)
                    turn.facts.append(_measured(worker, contribution, found))
            if sync.order is not None and len(sync.outcomes) == shares:
                self._close(number, sync.order, turn)

    def _close(self, number: int, order: Average, turn: _Turn) -> None:
        """Give the outcome of a sync out, and let newcomers own shares of the next."""
        sync = self._syncs.pop(number)
        found = [sync.outcomes[share] for share in range(len(self.owners))]
        check = joined_check([outcome.check for _, outcome in found])
        samples = [part.samples for part in order.parts]
        update = Update(
            number,
            f"{number}-{check}",
            check,
            sum(outcome.bytes for _, outcome in found),
            shares=tuple(outcome.file for _, outcome in found),
            workers=equal_workers(samples),
        )
        self._givers[number] = {outcome.file: giver for giver, outcome in found}
        self._givers.pop(number - UPDATES_KEPT, None)
        self._usual_s = max((norm.seconds for norm in sync.norms.values()), default=0.0)
        self._assign()
        turn.facts.append(Averaged(update))
        turn.effects.append(NoteClosed(order))

    # Owners.

    def _loaded(self) -> list[str]:
        """Return the workers that have all weights, in the order of their names."""
        here = sorted(self._statuses.items())
        return [name for name, said in here if said.loaded and not said.leaving]

    def _assign(self) -> None:
        """Give every share an owner that has the weights and is not slow.

        Whoever came in the open sync has time until the next: it may be gone by then.
        """
        loaded = self._loaded()
        trusted = [name for name in loaded if name not in self._relieved]
        stayed = [n for n in trusted if self._came[n] < self.rounds.closed]
        present = stayed or trusted or loaded or sorted(self._statuses)
        if present:
            self.owners = assigned(self.owners, present, self.rounds.shares)

    def _drop_lost(self, turn: _Turn) -> None:
        for name in sorted(self._statuses):
            if name not in self.rounds.members:
                self._lose(name, turn)
        if any(owner not in self._statuses for owner in self.owners):
            self._assign()

    def _lose(self, worker: str, turn: _Turn) -> None:
        """Go on without a worker, and without what only it had."""
        del self._statuses[worker], self._came[worker]
        self._reports.pop(worker, None)
        self._duties.pop(worker, None)
        self._untold.pop(worker, None)
        self._late_since.pop(worker, None)
        self._relieved = [name for name in self._relieved if name != worker]
        for number, sync in self._syncs.items():
            contribution = sync.wanted.get(worker)
            if contribution is not None and contribution.file not in sync.told:
                del sync.wanted[worker]
            if worker in self.owners:
                self._replace_owner(number, sync, turn)
        merged = [s.merged for s in self._statuses.values() if s.loaded]
        givers = self._givers.items()
        gone = tuple(n for n, given in givers if worker in given.values())
        if gone:
            unmerged = min(merged, default=0) <= max(gone)
            turn.facts.append(UpdatesLost(gone, unmerged))
            self._givers = {n: g for n, g in givers if n not in gone}
        self._assign()

    def _replace_owner(self, number: int, sync: _Sync, turn: _Turn) -> None:
        """Forget what is gone with the owner of a share: a new one has to get it."""
        sync.outcomes = {
            share: (giver, outcome)
            for share, (giver, outcome) in sync.outcomes.items()
            if giver in self._statuses
        }
        for name in [name for name in sync.wanted if name not in self._statuses]:
            del sync.wanted[name]
            sync.order, sync.parts = None, ()
            turn.facts.append(PartsLost(number, name))

    @property
    def _patience_s(self) -> float:
        """How long an owner may take after all the others are done."""
        rules = self.rounds.rules
        if self._usual_s is None:
            return rules.timeout_s
        return max(rules.timeout_least_s, rules.slack * self._usual_s)

    def _relieve(self, turn: _Turn) -> None:
        """Give the shares of an owner to others if these have long done their part."""
        late = self._late()
        for name in [name for name in self._late_since if name not in late]:
            del self._late_since[name]
        for name in late:
            since = self._late_since.setdefault(name, turn.now)
            others = [n for n in self._loaded() if n not in (name, *self._relieved)]
            if turn.now < since + self._patience_s or not others:
                continue
            del self._late_since[name]
            self._relieved.append(name)
            self._assign()
            reason = f"others waited for its share for {turn.now - since:.0f} s"
            sync = self.rounds.closed
            turn.effects.append(ReportMember("relieved", name, sync, reason))

    def _drop_spoiled(self, turn: _Turn) -> None:
        """Open a sync again if most others cannot merge what an owner gave.

        One alone may err, or lie.
        """
        given = [
            (n, *each) for n, files in self._givers.items() for each in files.items()
        ]
        for number, file, giver in given:
            others = [name for name in self._statuses if name != giver]
            said = [self._reports[name] for name in others if name in self._reports]
            accusers = [report for report in said if file in report.spoiled]
            if 2 * len(accusers) <= len(others):
                continue
            if giver not in self._relieved:
                self._relieved.append(giver)
                reason = "others cannot merge what it averaged"
                turn.effects.append(ReportMember("relieved", giver, number, reason))
                self._assign()
            del self._givers[number]
            turn.facts.append(UpdatesLost((number,)))
            return

    def _late(self) -> list[str]:
        """Return the owners that lack what the others have of the open sync.

        One contribution that is missing is not the fault of who waits for it.
        """
        sync = self._syncs.get(self.rounds.closed)
        if sync is None or not sync.wanted:
            return []
        late: list[str] = []
        for share, owner in enumerate(self.owners):
            marks = [(w, c.file[:MARK], share) for w, c in sync.wanted.items()]
            lacking = sum(mark not in sync.norms for mark in marks)
            is_behind = 2 * lacking > len(marks) or (
                sync.order is not None and share not in sync.outcomes
            )
            if is_behind and owner not in late:
                late.append(owner)
        return late if len(late) < len(set(self.owners)) else []

    # Weights, for newcomers and to be saved.

    def _answer_offers(self, turn: _Turn) -> None:
        loaded = self._loaded()
        for kind, asked in sorted(self._asked.items()):
            is_late = turn.now >= asked.since + OFFER_S and not asked.saving
            if asked.worker not in loaded or is_late or self._is_ahead(asked.worker):
                asked.since = turn.now
                if not loaded:
                    continue
                # By turns, so that all send alike.
                asked.worker, asked.saving = loaded[self._offers % len(loaded)], False
                asked.syncs = self.rounds.closed
                self._offers += 1
            offered = self._offered_by(asked.worker)
            if offered is None or offered.syncs < asked.syncs or asked.saving:
                continue
            if self._is_ahead(asked.worker):
                continue
            if kind == "weights":
                del self._asked[kind]
                holder = asked.worker
                found = Published(kind, offered.syncs, offered.file, holder)
                turn.facts.append(found)
            else:
                asked.saving = True
                turn.effects.append(SaveState(asked.worker, offered))

    def _offered_by(self, worker: str) -> KeptState | None:
        report = self._reports.get(worker)
        return report.offered if report else None

    def _is_ahead(self, worker: str) -> bool:
        """Whether a worker offers weights after syncs that nobody has closed.

        Whoever says so errs or lies. Another is asked, as long as there is one.
        """
        offered = self._offered_by(worker)
        return offered is not None and offered.syncs > self.rounds.closed

    # Telling.

    def _tell(self, again: str, now: float) -> list[SharedEffect]:
        """Send workers their duties, if they changed or must be repeated."""
        effects: list[SharedEffect] = []
        self._tell_at = math.inf
        for name in sorted(self._statuses):
            told = self._duties.get(name)
            wanted = self._duties_of(name)
            if told is None and not _has_any(wanted):
                continue
            if told is None or _asks_more(wanted, told):
                may_wait_until = self._untold.setdefault(name, now) + TOGETHER_S
                if now < may_wait_until and not _is_urgent(wanted, told):
                    self._tell_at = min(self._tell_at, may_wait_until)
                    continue
                del self._untold[name]
                self._seq += 1
                told = msgspec.structs.replace(wanted, seq=self._seq)
                self._duties[name] = told
            else:
                self._untold.pop(name, None)
                if again != name or not self._must_repeat(name, told, now):
                    continue
            self._told_at[name] = now
            effects.append(DirectOwner(name, told))
        return effects

    def _must_repeat(self, worker: str, told: Duties, now: float) -> bool:
        if not _has_any(told) or now < self._told_at[worker] + REPEAT_S:
            return False
        report = self._reports.get(worker)
        return report is None or report.heard != (told.epoch, told.seq)

    def _duties_of(self, worker: str) -> Duties:
        shares = tuple(n for n, owner in enumerate(self.owners) if owner == worker)
        reductions = [
            _reduction(number, sync, shares, self._expected(number, sync))
            for number, sync in sorted(self._syncs.items())
            if shares and sync.wanted
        ]
        offers = [each.syncs for each in self._asked.values() if each.worker == worker]
        return Duties(
            epoch=self._epoch,
            seq=0,
            life=self._statuses[worker].life,
            offer=max(offers, default=None),
            reductions=tuple(reductions[:OPEN_MAX]),
        )

    def _expected(self, number: int, sync: _Sync) -> int:
        """Return how many contributions a sync will have, as far as is known."""
        is_open = number == self.rounds.closed
        awaited = self.rounds.awaited if is_open else self.rounds.members
        return len({*sync.wanted, *awaited})


def _has_any(duties: Duties) -> bool:
    return bool(duties.reductions) or duties.offer is not None


def _is_urgent(wanted: Duties, told: Duties | None) -> bool:
    """Whether others wait for it: more than a contribution to fetch of several."""
    known = {each.sync: each for each in told.reductions} if told else {}
    offer = told.offer if told else None
    return wanted.offer != offer or any(
        each.is_complete or each.shares != known.get(each.sync, each).shares
        for each in wanted.reductions
        if each != known.get(each.sync)
    )


def _asks_more(wanted: Duties, told: Duties) -> bool:
    """Whether duties ask for anything that was not told.

    That a sync is over can wait until there is something to do in the next.
    """
    if (wanted.offer, wanted.life) != (told.offer, told.life):
        return True
    return any(each not in told.reductions for each in wanted.reductions)


def _reduction(
    number: int, sync: _Sync, shares: tuple[int, ...], expected: int
) -> Reduction:
    """Return what the owner of some shares is to do in a sync."""
    return Reduction(
        number,
        shares,
        tuple(
            ShareSource(
                worker,
                contribution.file[:MARK],
                tuple(files_of(contribution)[share] for share in shares),
            )
            for worker, contribution in sorted(sync.wanted.items())
        ),
        sync.number if sync.parts else 0,
        tuple(ShareWeight(p.worker, p.samples, p.scale) for p in sync.parts),
        expected,
    )


def _counts(part: CountedPart) -> tuple[str, str, int, float]:
    """Return what an average depends on."""
    return part.worker, part.contribution.file, part.samples, part.scale


def _measured(
    worker: str, contribution: Contribution, found: list[ShareNorm]
) -> Fetched:
    """Join what the owners found out about the shares of a contribution."""
    squares = sum(norm.squares for norm in found)
    return Fetched(
        worker,
        contribution,
        math.sqrt(squares) if squares >= 0 else math.nan,
        next((norm.fault for norm in found if norm.fault), ""),
        max(norm.seconds for norm in found),
    )
