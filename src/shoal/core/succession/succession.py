"""Keeping jobs at several nodes, so that one of them goes on when a scheduler is gone.

Theory of operation. A kept job has *members*: the scheduler that it was submitted to,
and its keepers, which are other nodes of the same owner. At each time at most one of
them *leads* the job: it schedules it in a *term*, a number that rises. The log of a job
is its journal entries. The leader sends it to the others (`Keep`), who have it on disk
before they answer (`Kept`), with the files that it names (`belongings`). What most
members have is *safe*: it outlives any minority.

    leader -- Keep(entries) --> keeper        keeper -- Kept(have) --> leader
    candidate -- Candidacy(term) --> member   member -- Ballot(granted) --> candidate
    leader -- Handover(to) --> members

- **Nothing acknowledged is lost.** The acknowledgement of a report, and the answer to a
  client, wait until the entries before them are safe. A client waits `KEPT_ANSWER_S` at
  most: its job is on the disk of this node in any case. So do the assignments of a job
  whose tasks run at most once: another leader must know that they may have begun.
- **One leader.** A member that hears nothing of the leader for `GONE_S` stands for the
  next term. A member promises a term to one candidate only (`Vowed`, on disk), never
  one below an earlier promise, and only to a log that has all that its own has. So a
  term has one leader, and that one has all that was safe. A candidate counts its own
  vote when it has the others: one that nobody answers changes nothing.
- **Sway.** The leader starts tasks only for `SWAY_S` after it sent what most members
  have answered. None of those promises a term to another for `GONE_S` after it heard
  that. So an old leader has stopped to start tasks before a new one begins, though
  neither can reach the other, and what its tasks report to it is never safe.
- **A new term begins with a whole log.** Its leader sends all of it again. A keeper
  goes on with the log it had until the new one has reached `base` entries, with all
  their files. Who takes a job up begins with the entries whose files it has: what came
  after those was never safe, and their workers say it again.
- **Restart.** A leader that restarts holds no sway. It stands for the next term; its
  own keepers let it, though they heard it a moment ago. Its log is what its book says.
- **Stepping down.** A leader that hears of a higher term lets the job go (`Ceded`), and
  keeps it for the new leader like any other member.
- **Handing over.** A leader that is about to leave starts nothing more, waits until a
  keeper has all of its log, and tells all members that this one may have the job. It
  stands at once, and nobody holds against it that the old leader was heard a moment
  ago. If it does not take the job, the old leader stands itself after `GONE_S`.
- **End.** When the end of a job is safe, the leader says so a few times, and all forget
  its log. Who missed that stands some time later, and is told then.

Durable are logs, promises, terms and ends (`kept_jobs`). Only kept jobs cost messages,
and entries of one turn go together. Logs of others are bounded by `JOBS_MAX` and
`LOG_BYTES_MAX`.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, final

import msgspec

from shoal.core.artifacts.events import DropKept, KeptFetched, KeptMissed
from shoal.core.deadlines import DeadlineHeap, Deadlines
from shoal.core.durability.compaction import job_entries
from shoal.core.durability.journal import (
    Ceded,
    Entry,
    JobKept,
    KeptOver,
    Led,
    Saved,
    Submitted,
    TreeHad,
    Vowed,
    decode,
    encode,
)
from shoal.core.durability.journal_repair import job_of
from shoal.core.events import Answer, Effect, Record, Send
from shoal.core.scheduling.notices import (
    Consequence,
    NeedChanged,
    Released,
    SavedElsewhere,
    TakenUp,
)
from shoal.core.succession.belongings import Belongings
from shoal.core.succession.kept_jobs import KeptJobs, KeptLog
from shoal.core.succession.leads import (
    BEATS_MAX,
    Held,
    JobKeeper,
    Lead,
    Parting,
    Stand,
    batch_of,
)
from shoal.core.timing import (
    BEAT_S,
    GONE_S,
    KEPT_ANSWER_S,
    RESEND_S,
    STAGGER_S,
    SWAY_S,
)
from shoal.errors import StoreError
from shoal.model.ids import JobId, NodeId
from shoal.model.text.bounds import AMOUNT_MAX
from shoal.protocol.limits import KEPT_BYTES_MAX
from shoal.protocol.messages import Acknowledgement, Assignment
from shoal.protocol.succession.messages import (
    MEMBERS_MAX,
    Ballot,
    Candidacy,
    Handover,
    Keep,
    Kept,
    ToKeeper,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shoal.core.membership.roster import Roster
    from shoal.core.scheduling.job_book import JobBook
    from shoal.model.ids import TaskId
    from shoal.model.job import Job

JOBS_MAX: Final = 256
LOG_BYTES_MAX: Final = 16 << 20
PARTINGS_MAX: Final = 5  # so often it is said that a job is over, within `GONE_S`
NOBODY: Final = NodeId("")
ALL: Final = AMOUNT_MAX
"""The size of a leader's own log, for ballots: nobody has more of its term."""


@final
class Succession:
    """Decides who schedules the jobs that several nodes keep."""

    def __init__(
        self,
        node: NodeId,
        roster: Roster,
        book: JobBook,
        heap: DeadlineHeap,
        journal: Iterable[Entry],
        now: float,
    ) -> None:
        """Go on with what the journal says was kept; jobs in `book` are our own."""
        self.counts: Counter[str] = Counter()
        self._node, self._roster, self._book = node, roster, book
        self._linked: dict[NodeId, None] = {}  # in the order in which they came
        self._led: dict[JobId, Lead] = {}
        self.others = KeptJobs(journal)
        self._logs, self._vows = self.others.logs, self.others.vows
        self._belongings = Belongings(node, heap)
        self._stands: dict[JobId, Stand] = {}
        self._free: list[Effect] = []  # that were held, and leave with this turn
        self._flushes: Deadlines[JobId] = Deadlines(heap)
        self._beats: Deadlines[JobId] = Deadlines(heap)
        self._lapses: Deadlines[JobId] = Deadlines(heap)
        self._watches: Deadlines[JobId] = Deadlines(heap)
        self._answers: Deadlines[JobId] = Deadlines(heap)
        self._partings: dict[JobId, Parting] = {}
        self._partings_due: Deadlines[JobId] = Deadlines(heap)
        for job, log in self._logs.items():
            self._watch(job, log, now)

    # What others may read.

    def leads(self, job: JobId) -> bool:
        """Whether this node holds sway over a job."""
        return job in self._led and job not in self._book.suspended

    def keepers_of(self, job: JobId) -> list[JobKeeper]:
        """Return who keeps a job of ours, and who of them has all of it."""
        lead = self._led.get(job)
        members = () if lead is None else lead.members
        found: list[JobKeeper] = []
        for node in members:
            if lead is not None and node != self._node:
                is_whole = lead.whole.get(node, 0) >= len(lead.entries)
                found.append(JobKeeper(node, is_whole, node not in self._linked))
        return found

    def whereabouts(self, job: JobId) -> NodeId | None:
        """Return who schedules a job that is kept here, or was; None if unknown."""
        if (log := self._logs.get(job)) is not None:
            return log.leader
        ceded = self.others.ceded.get(job)
        return self.others.over.get(job) or (None if ceded is None else ceded.to)

    def why_suspended(self, job: JobId) -> str:
        """Say why a job of ours starts no task for now; empty if it does."""
        lead = self._led.get(job)
        if lead is None or job not in self._book.suspended:
            return ""
        keepers = [m for m in lead.members if m != self._node]
        away = [m for m in keepers if m not in self._linked]
        return (
            f"its keepers are away: {len(away)} of {len(keepers)}; "
            f"{lead.needed} must answer before a task starts"
        )

    # Submission.

    def members_for(self, job: Job, now: float) -> tuple[NodeId, ...] | str:
        """Choose who keeps a job, this node first; or say why it cannot be kept."""
        if reason := self._unkeepable(job, now):
            return reason
        willing = [peer for peer in self._linked if self._may_keep(peer, now)]
        if len(willing) < job.keepers:
            return (
                f"it wants {job.keepers} keepers, which are other nodes of {job.owner} "
                f"that take jobs; {len(willing)} are linked to this one"
            )
        return (self._node, *willing[: job.keepers])

    def _unkeepable(self, job: Job, now: float) -> str:
        own = self._roster.owner_of(self._node, now)
        if job.keepers % 2 or not 0 < job.keepers < MEMBERS_MAX:
            return f"a job has 2 or 4 keepers, not {job.keepers}"
        if job.owner != own:
            return f"only jobs of {own} are kept by nodes of {own}"
        if job.schedule is not None or any(group.verify for group in job.groups):
            return "a job with a schedule, or with verified results, cannot be kept"
        if any(group.tasks[0].work.stdin != "none" for group in job.groups):
            return "a job with standard input cannot be kept: that comes to this node"
        size = len(encode(Submitted(job, 0.0))[1])
        if size > KEPT_BYTES_MAX // 2:
            most = KEPT_BYTES_MAX // 2
            return f"a job of {size} bytes is too large to be kept; the most is {most}"
        return ""

    def _may_keep(self, peer: NodeId, now: float) -> bool:
        admission = self._roster.get(peer, now)
        own = self._roster.owner_of(self._node, now)
        is_ours = admission is not None and admission.owner == own
        return is_ours and admission is not None and "scheduler" in admission.roles

    # Links.

    def on_linked(self, peer: NodeId, now: float) -> None:
        """Note a link; what a member missed is sent again at once."""
        self._linked[peer] = None
        for job, lead in self._led.items():
            if peer in lead.members and lead.elected:
                lead.sent.pop(peer, None)
                self._beats.set(job, now)

    def on_lost(self, peer: NodeId) -> None:
        """Note that a link is gone."""
        self._linked.pop(peer, None)

    def boot(self, now: float) -> list[Consequence]:
        """Stand for the jobs that an earlier life led."""
        follows: list[Consequence] = []
        for job, log in self._logs.items():
            follows += self._belongings.want(job, log)
        for record in self._book.jobs.values():
            job = record.job.id
            if record.members and job not in self.others.over:
                lead = Lead(
                    job=job, term=record.term, members=record.members, elected=False
                )
                self._led[job] = lead
                follows += self._stand(job, now)
        return follows

    # Leaving.

    def hand_over(self, now: float) -> list[Consequence]:
        """Let other members have the jobs that this node leads; start nothing more."""
        follows: list[Consequence] = []
        for lead in self._led.values():
            record = self._book.jobs.get(lead.job)
            if not lead.elected or record is None or record.state != "active":
                continue
            lead.leaving = True
            self._lapses.drop(lead.job)
            self._book.suspended[lead.job] = None
            follows += [*self._needs(lead.job), *self._yield(lead, now)]
        return follows

    @property
    def may_hand_over(self) -> bool:
        """Whether a job of ours has a keeper that could have it."""
        return any(
            any(member in self._linked for member in lead.members)
            for lead in self._led.values()
            if lead.job in self._book.jobs
            and self._book.jobs[lead.job].state == "active"
        )

    def _yield(self, lead: Lead, now: float) -> list[Consequence]:
        """Say who may have a job, if there is a member that has all of it."""
        whole = [
            member
            for member in lead.members
            if member in self._linked and lead.whole.get(member, 0) == len(lead.entries)
        ]
        if not whole:
            return []
        lead.elected, lead.yielded = False, True
        for deadlines in (self._flushes, self._beats, self._answers):
            deadlines.drop(lead.job)
        self._watches.set(lead.job, now + GONE_S)
        told = Handover(job=lead.job, term=lead.term, to=whole[0])
        return [Send(m, told) for m in lead.members if m != self._node]

    def _on_handover(
        self, peer: NodeId, told: Handover, now: float
    ) -> list[Consequence]:
        log = self._logs.get(told.job)
        if log is None or (log.leader, log.latest) != (peer, told.term):
            self.counts["handed over by no leader"] += 1
            return []
        log.leader = told.to
        return self._stand(told.job, now) if told.to == self._node else []

    # The leader's own entries.

    def watch(self, effects: list[Effect], now: float) -> list[Effect]:
        """Take the entries of kept jobs into their logs; hold back what waits for it.

        The answer has all effects that may leave now, in their order.
        """
        passed: list[Effect] = []
        for effect in effects:
            if type(effect) is Record:
                self._note(effect.entry, now)
                passed.append(effect)
            elif not self._holds(effect, now):
                passed.append(effect)
        free, self._free = self._free, []
        return passed + free

    def _note(self, entry: Entry, now: float) -> None:
        job = job_of(entry)
        if job is None or isinstance(entry, Led | Ceded):
            return  # It is not about what became of a job, or of no kept one.
        if isinstance(entry, Submitted) and entry.members:
            self._led[job] = Lead(job=job, term=1, members=entry.members)
            self._beats.set(job, now + BEAT_S)
        lead = self._led.get(job)
        if lead is None or not lead.elected:
            return
        lead.entries.append(encode(entry)[1])
        self._flushes.set_earlier(job, now)

    def _holds(self, effect: Effect, now: float) -> bool:
        """Hold an effect back if what it rests on is not safe."""
        if type(effect) is Answer:
            lead = self._led.get(effect.job)
            if lead is None or effect.refused or not lead.elected:
                return False
            lead.held.append(Held(len(lead.entries), effect))
            self._answers.set(effect.job, now + KEPT_ANSWER_S)
            return True
        if type(effect) is not Send:
            return False
        message = effect.message
        if type(message) is Acknowledgement and message.job:
            return self._holds_word(message.job, effect)
        if type(message) is Assignment and message.term:
            job = self._book.jobs[message.task.job].job
            return job.at_most_once and self._holds_word(job.id, effect)
        return False

    def _holds_word(self, job: JobId, effect: Send) -> bool:
        """Hold what a worker is told of a job until it is safe, or drop it.

        Who does not lead the job says nothing: the worker hears the one that does.
        """
        lead = self._led.get(job)
        if lead is None or not lead.elected:
            return job not in self.others.over
        if self._safe(lead) >= len(lead.entries):
            return False
        if all(held.effect != effect for held in lead.held):
            lead.held.append(Held(len(lead.entries), effect))
        return True

    def _safe(self, lead: Lead) -> int:
        others = (lead.whole.get(m, 0) for m in lead.members if m != self._node)
        return int(max(0, lead.most(others)))

    def _release(self, lead: Lead) -> None:
        """Let go what waited for entries that are safe now."""
        safe = self._safe(lead)
        self._free += [held.effect for held in lead.held if held.size <= safe]
        lead.held = [held for held in lead.held if held.size > safe]

    def _flush(self, lead: Lead, now: float, *, beat: bool = False) -> list[Effect]:
        """Send each member what it lacks, and that this node lives."""
        lead.beat += 1
        lead.beats[lead.beat] = now
        if len(lead.beats) > BEATS_MAX:
            del lead.beats[next(iter(lead.beats))]
        effects: list[Effect] = []
        for member in lead.members:
            if member != self._node:
                effects += self._send_log(lead, member, now, beat=beat)
        return effects

    def _send_log(
        self, lead: Lead, member: NodeId, now: float, *, beat: bool
    ) -> list[Effect]:
        have = lead.have.get(member, 0)
        sent, at = lead.sent.get(member, (have, now))
        start = have if now - at >= RESEND_S else max(have, sent)
        entries = batch_of(lead.entries, start)
        if not entries and not beat:
            return []
        end = start + len(entries)
        lead.sent[member] = (end, now if entries or sent <= have else at)
        keep = Keep(
            job=lead.job,
            term=lead.term,
            members=lead.members,
            base=lead.base,
            start=start,
            beat=lead.beat,
            entries=entries,
        )
        return [Send(member, keep)]

    # Messages.

    def on_message(
        self, peer: NodeId, message: ToKeeper, now: float
    ) -> list[Consequence]:
        """Take in what a member says; others are not heard."""
        if not self._may_keep(peer, now):
            self.counts["from a node of another owner"] += 1
            return []
        match message:
            case Keep():
                return self._on_keep(peer, message, now)
            case Kept():
                return self._on_kept(peer, message, now)
            case Candidacy():
                return self._on_candidacy(peer, message, now)
            case Ballot():
                return self._on_ballot(peer, message, now)
            case Handover():
                return self._on_handover(peer, message, now)

    def _on_keep(self, peer: NodeId, keep: Keep, now: float) -> list[Consequence]:
        job, log = keep.job, self._logs.get(keep.job)
        if job in self.others.over:
            return [Send(peer, _over(keep))]
        if not {self._node, peer} <= {*keep.members}:
            self.counts["not a member"] += 1
            return []
        if keep.over:
            # Whatever the term: most members have the end, so all later leaders have.
            let_go = self._let_go(job, peer, keep.term)
            return [*let_go, *self._drop(job, peer), Send(peer, _over(keep))]
        vowed = max(self._vowed(job), log.latest if log else 0)
        lead = self._led.get(job)
        if lead is not None:
            vowed = max(vowed, lead.term)
        if keep.term < vowed or (lead is not None and keep.term == lead.term):
            return [Send(peer, _kept(keep, 0, vowed))]
        if log is None and len(self._logs) >= JOBS_MAX:
            self.counts["too many kept"] += 1
            return []
        follows = self._let_go(job, peer, keep.term)
        log = self._logs.setdefault(job, KeptLog())
        log.heard_at = now
        self._watch(job, log, now)
        have = log.have(keep.term)
        news = keep.entries[max(0, have - keep.start) :] if keep.start <= have else ()
        size = sum(map(len, log.log.entries))
        if not _are_of(job, news) or size > LOG_BYTES_MAX:
            self.counts["entries refused"] += 1
            return follows
        if news or keep.term > log.latest:
            entry = JobKept(
                job, keep.term, peer, keep.members, keep.base, have, tuple(news)
            )
            log.take(entry)
            follows.append(Record(entry))
            follows += _saved_in(news, peer)
        have, lacking = log.have(keep.term), log.lacking(keep.term)
        kept = _kept(keep, have, keep.term, lacking)
        return [*follows, Send(peer, kept), *self._belongings.want(job, log)]

    def on_fetched(
        self, event: KeptFetched | KeptMissed, now: float
    ) -> list[Consequence]:
        """Note that files of a kept job are here, and tell its leader."""
        job, log = event.job, self._logs.get(event.job)
        self._belongings.on_fetched(event, now)
        if log is None or event.tree in log.held:
            return []
        if isinstance(event, KeptMissed):
            self.counts["files missed"] += 1
            return []
        had, term = TreeHad(job, event.tree), log.latest
        self.others.take(had)
        follows: list[Consequence] = [Record(had), *self._belongings.want(job, log)]
        if self._vowed(job) > term:
            return follows  # It keeps nothing more in this term.
        kept = Kept(
            job=job,
            term=term,
            have=log.have(term),
            beat=0,
            vowed=term,
            lacking=log.lacking(term),
        )
        return [*follows, Send(log.leader, kept)]

    def _drop(self, job: JobId, at: NodeId) -> list[Consequence]:
        """Forget a job that is over, with its files; its end is known there."""
        return [Record(self._forget(job, at)), DropKept(job)]

    def _let_go(self, job: JobId, to: NodeId, term: int) -> list[Consequence]:
        """Step down, if this node has scheduled a job that another leads now."""
        self._stands.pop(job, None)
        if self._led.pop(job, None) is None:
            return []
        for deadlines in (self._flushes, self._beats, self._lapses, self._answers):
            deadlines.drop(job)
        ceded = Ceded(job, to, term)
        self.others.take(ceded)
        return [Released(job), Record(ceded)]

    def _on_kept(self, peer: NodeId, kept: Kept, now: float) -> list[Consequence]:
        lead = self._led.get(kept.job)
        if lead is None or not lead.elected or peer not in lead.members:
            return []
        if kept.vowed > lead.term:
            # It promised a term that nobody leads: win it back with a later one.
            stands = kept.job in self._stands
            return [] if stands else self._stand(kept.job, now, kept.vowed)
        if kept.term != lead.term:
            return []
        have = min(kept.have, len(lead.entries))
        lead.have[peer] = max(lead.have.get(peer, 0), have)
        whole = have - min(have, kept.lacking)
        lead.whole[peer] = max(lead.whole.get(peer, 0), whole)
        if (sent_at := lead.beats.get(kept.beat)) is not None:
            lead.swayed[peer] = max(lead.swayed.get(peer, sent_at), sent_at)
        self._release(lead)
        if lead.leaving and (yielded := self._yield(lead, now)):
            return yielded
        follows = self._hold_sway(lead, now)
        if lead.have[peer] < len(lead.entries):
            follows += self._send_log(lead, peer, now, beat=False)
        return follows + self._end_if_over(lead, now)

    def _hold_sway(self, lead: Lead, now: float) -> list[Consequence]:
        """Let a job start tasks while most members have heard of us lately."""
        lapses = lead.most(lead.swayed.values()) + SWAY_S
        if lapses <= now or lead.leaving:
            return []
        self._lapses.set(lead.job, lapses)
        if lead.job not in self._book.suspended:
            return []
        del self._book.suspended[lead.job]
        return self._needs(lead.job)

    def _needs(self, job: JobId) -> list[Consequence]:
        record = self._book.jobs.get(job)
        groups = () if record is None else record.job.groups
        return [NeedChanged(group.id) for group in groups]

    def _end_if_over(self, lead: Lead, now: float) -> list[Consequence]:
        """Tell the others that a job is over, once its end is safe."""
        record = self._book.jobs.get(lead.job)
        if record is not None and record.state == "active":
            return []
        if self._safe(lead) < len(lead.entries):
            return []
        self._let_go_quietly(lead.job)
        keep = Keep(
            job=lead.job,
            term=lead.term,
            members=lead.members,
            base=lead.base,
            start=len(lead.entries),
            beat=lead.beat,
            over=True,
        )
        unheard = dict.fromkeys(m for m in lead.members if m != self._node)
        self._partings[lead.job] = Parting(keep, unheard)
        return [Record(self._forget(lead.job)), *self._part(lead.job, now)]

    def _part(self, job: JobId, now: float) -> list[Send]:
        """Say that a job is over to all who have not heard it, a few times."""
        parting = self._partings[job]
        parting.tries += 1
        if not parting.unheard or parting.tries > PARTINGS_MAX:
            del self._partings[job]
            return []
        self._partings_due.set(job, now + BEAT_S)
        return [Send(member, parting.keep) for member in parting.unheard]

    def _let_go_quietly(self, job: JobId) -> None:
        del self._led[job]
        self._stands.pop(job, None)
        self._book.suspended.pop(job, None)
        for deadlines in (self._flushes, self._beats, self._lapses, self._answers):
            deadlines.drop(job)

    def _forget(self, job: JobId, at: NodeId = NOBODY) -> KeptOver:
        self._stands.pop(job, None)
        self._watches.drop(job)
        self._belongings.forget(job)
        over = KeptOver(job, at)
        self.others.take(over)
        return over

    # Ballots.

    def _stand(self, job: JobId, now: float, above: int = 0) -> list[Consequence]:
        """Ask the other members for the next term, again and again until it is won."""
        members, log_term, size = self._position(job)
        term = max(self._vowed(job), log_term, above) + 1
        if (log := self._logs.get(job)) is not None:
            term = max(term, log.latest + 1)
        if (stand := self._stands.get(job)) is not None:
            term = max(term, stand.term)
        if stand is None or stand.term != term:
            self._stands[job] = Stand(term)
        # The first of the members comes first, so that two seldom stand at one time.
        pause_s = BEAT_S + STAGGER_S * members.index(self._node)
        self._watches.set(job, now + pause_s)
        asked = Candidacy(job=job, term=term, log_term=log_term, size=size)
        return [Send(m, asked) for m in members if m != self._node]

    def _position(self, job: JobId) -> tuple[tuple[NodeId, ...], int, int]:
        """Return the members of a job, and where the log here ends."""
        if (lead := self._led.get(job)) is not None:
            size = len(lead.entries) if lead.yielded else ALL
            return lead.members, lead.term, size
        log = self._logs[job]
        return log.members, log.term, log.log.whole

    def _vowed(self, job: JobId) -> int:
        vow = self._vows.get(job)
        return 0 if vow is None else vow.term

    def _on_candidacy(
        self, peer: NodeId, asked: Candidacy, now: float
    ) -> list[Consequence]:
        job, lead = asked.job, self._led.get(asked.job)
        if job in self.others.over:
            return [Send(peer, _ballot(asked, 0, over=True))]
        if lead is None and job not in self._logs:
            return []
        members, log_term, size = self._position(job)
        if peer not in members or (lead is not None and lead.elected):
            return []  # Who leads grants nothing: its beats say that it is there.
        vow = self._vows.get(job)
        if vow is not None and (vow.term, vow.candidate) == (asked.term, peer):
            return [Send(peer, _ballot(asked, vow.term, granted=True))]
        log = self._logs.get(job)
        latest = max(self._vowed(job), log_term, log.latest if log else 0)
        is_behind = (asked.log_term, asked.size) < (log_term, size)
        if asked.term <= latest or is_behind or self._hears_another(log, peer, now):
            return [Send(peer, _ballot(asked, latest))]
        vow = Vowed(job, asked.term, peer)
        self.others.take(vow)
        self._stands.pop(job, None)
        if log is not None:
            log.heard_at = now
            self._watch(job, log, now)
        else:
            self._watches.set(job, now + GONE_S)
        return [Record(vow), Send(peer, _ballot(asked, vow.term, granted=True))]

    def _hears_another(self, log: KeptLog | None, peer: NodeId, now: float) -> bool:
        """Whether a leader other than this candidate was heard a moment ago."""
        return log is not None and log.leader != peer and now - log.heard_at < GONE_S

    def _on_ballot(self, peer: NodeId, ballot: Ballot, now: float) -> list[Consequence]:
        job = ballot.job
        if ballot.over and (parting := self._partings.get(job)) is not None:
            parting.unheard.pop(peer, None)
            return []
        if ballot.over and (job in self._logs or job in self._led):
            let_go = self._let_go(job, peer, ballot.term)
            log = self._logs.get(job)
            return [*let_go, *self._drop(job, log.leader if log else peer)]
        stand = self._stands.get(job)
        if stand is None:
            return []
        if ballot.vowed > stand.term:
            del self._stands[job]
            return self._stand(job, now, ballot.vowed)
        members = self._position(job)[0]
        if not ballot.granted or ballot.term != stand.term or peer not in members:
            return []
        stand.granted[peer] = None
        if len(stand.granted) < len(members) // 2 or self._vowed(job) >= stand.term:
            return []
        return self._win(job, stand.term, now)

    def _win(self, job: JobId, term: int, now: float) -> list[Consequence]:
        """Schedule a job from now on, in a term that most members promised us."""
        del self._stands[job]
        log, before = self._logs.get(job), self._led.get(job)
        self._watches.drop(job)
        if before is not None:
            entries, members = before.entries, before.members
            if not before.elected:
                record = self._book.jobs[job]
                entries = [encode(e)[1] for e in job_entries(self._book, record)]
            led = Led(job, term)
            lead = msgspec.structs.replace(before, term=term, elected=True)
            lead.leaving = lead.yielded = False
        else:
            assert log is not None, "who stands leads a job or keeps it"
            entries, members = log.log.entries[: log.log.whole], log.members
            led = Led(job, term, tuple(entries))
            lead = Lead(job=job, term=term, members=members)
        lead.entries, lead.base = [*entries], len(entries)
        lead.have, lead.whole, lead.sent = {}, {}, {}
        self._belongings.forget(job)
        self._led[job] = lead
        if job in self._book.jobs:
            self._book.jobs[job].term = term
        self.others.take(led)
        self._beats.set(job, now)
        taken = [] if log is None else [TakenUp(led)]
        return [Record(led), *taken]

    # Deadlines.

    def due(self, now: float) -> list[Consequence]:
        """Send what is due, give up sway that has lapsed, stand for what was left."""
        follows: list[Consequence] = []
        for job in self._flushes.pop_due(now):
            follows += self._flush(self._led[job], now)
        for job in self._beats.pop_due(now):
            follows += self._flush(self._led[job], now, beat=True)
            self._beats.set(job, now + BEAT_S)
        for job in self._lapses.pop_due(now):
            self._book.suspended[job] = None
            follows += self._needs(job)
        for job in self._answers.pop_due(now):
            lead = self._led[job]
            late = [h for h in lead.held if type(h.effect) is Answer]
            self._free += [held.effect for held in late]
            lead.held = [held for held in lead.held if held not in late]
        for job in self._belongings.due(now):
            if (log := self._logs.get(job)) is not None:
                follows += self._belongings.want(job, log)
        for job in self._partings_due.pop_due(now):
            follows += self._part(job, now)
        for job in self._watches.pop_due(now):
            if job in self._logs or job in self._led:
                follows += self._stand(job, now)
        return follows

    def _watch(self, job: JobId, log: KeptLog, now: float) -> None:
        """Stand for a job when its leader is not heard of for long."""
        place = log.members.index(self._node) if self._node in log.members else 0
        log.heard_at = max(log.heard_at, now)
        self._watches.set(job, now + GONE_S + STAGGER_S * place)


def _are_of(job: JobId, entries: Iterable[bytes]) -> bool:
    """Whether all entries can be understood, and are about this job."""
    try:
        return all(job_of(decode(each)) == job for each in entries)
    except StoreError:
        return False


def _saved_in(entries: Iterable[bytes], leader: NodeId) -> list[SavedElsewhere]:
    """Return the newest checkpoint of each task that these entries name."""
    newest: dict[TaskId, SavedElsewhere] = {}
    for entry in map(decode, entries):
        if isinstance(entry, Saved):
            newest[entry.task] = SavedElsewhere(entry, leader)
    return list(newest.values())


def _kept(keep: Keep, have: int, vowed: int, lacking: int = 0) -> Kept:
    return Kept(
        job=keep.job,
        term=keep.term,
        have=have,
        beat=keep.beat,
        vowed=vowed,
        lacking=lacking,
    )


def _over(keep: Keep) -> Ballot:
    return Ballot(job=keep.job, term=keep.term, granted=False, vowed=0, over=True)


def _ballot(
    asked: Candidacy, vowed: int, *, granted: bool = False, over: bool = False
) -> Ballot:
    return Ballot(
        job=asked.job, term=asked.term, granted=granted, vowed=vowed, over=over
    )
