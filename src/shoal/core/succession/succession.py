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
- **Forwarding.** A job that nobody keeps, and of which nothing runs, goes to another
  scheduler of its owner the same way, for the time as if that kept it. It starts
  nothing. When the other has all of it, and asks for it, the first node lets the job
  go (`Ceded`, on disk) and then grants the ballot, again whenever it is asked. Until
  then it may have the job back at any time. The other needs nobody after that (`Led`,
  alone). Which job goes where, `forwarding` decides.
- **End.** When the end of a job is safe, the leader says so a few times, and again to
  who is linked later; all forget its log. Who missed that stands some time later, and
  is told then. If nobody could tell, it leads the job to its end once more, and has it
  from then on: the one before lets it go.

Durable are logs, promises, terms and ends (`kept_jobs`). Only kept jobs cost messages,
and entries of one turn go together. Logs of others are bounded by `JOBS_MAX` and
`LOG_BYTES_MAX`.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, final

from msgspec.structs import replace

from shoal.core.artifacts.events import DropKept, KeptFetched, KeptMissed
from shoal.core.deadlines import DeadlineHeap, Deadlines
from shoal.core.durability.journal import (
    Ceded,
    Entry,
    JobKept,
    KeptOver,
    Saved,
    Submitted,
    TreeHad,
    decode,
    encode,
)
from shoal.core.durability.journal_repair import job_of
from shoal.core.events import Effect, Record, Send
from shoal.core.scheduling.notices import Consequence, Released, SavedElsewhere
from shoal.core.succession.ballots import Ballots, ballot_for
from shoal.core.succession.belongings import Belongings
from shoal.core.succession.forwarding import is_bound
from shoal.core.succession.kept_jobs import KeptJobs, KeptLog
from shoal.core.succession.leading import Leading
from shoal.core.succession.leads import JobKeeper, Lead, Parting
from shoal.core.timing import BEAT_S
from shoal.errors import StoreError
from shoal.model.ids import JobId, NodeId
from shoal.model.job import TaskArray
from shoal.protocol.limits import KEPT_BYTES_MAX
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
FORWARD_S: Final = 8.0  # a job stays, if the other says nothing of it for so long
NOBODY: Final = NodeId("")


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
        *,
        unasked: int = 0,
    ) -> None:
        """Go on with what the journal says was kept; jobs in `book` are our own.

        A job that says nothing of keepers has `unasked`, if so many are there.
        """
        self.counts: Counter[str] = Counter()
        self._unasked = unasked
        self._node, self._roster, self._book = node, roster, book
        self._linked: dict[NodeId, None] = {}  # in the order in which they came
        self.others = KeptJobs(journal)
        self._logs = self.others.logs
        self._leading = Leading(node, book, self.others, heap)
        self._led = self._leading.led
        self._belongings = Belongings(node, heap)
        self._ballots = Ballots(
            node, book, self.others, self._leading, self._belongings, heap
        )
        self._forwards: Deadlines[JobId] = Deadlines(heap)
        self._partings: dict[JobId, Parting] = {}
        self._partings_due: Deadlines[JobId] = Deadlines(heap)
        for job, log in self._logs.items():
            self._ballots.watch(job, log, now)

    # What others may read.

    def leads(self, job: JobId) -> bool:
        """Whether this node holds sway over a job."""
        return job in self._led and job not in self._book.suspended

    def keepers_of(self, job: JobId) -> list[JobKeeper]:
        """Return who keeps a job of ours, and who of them has all of it."""
        lead = self._led.get(job)
        members = () if lead is None or lead.forward else lead.members
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

    def was_forwarded(self, job: JobId) -> bool:
        """Whether this node let another scheduler have a job that nobody keeps."""
        ceded = self.others.ceded.get(job)
        return ceded is not None and ceded.forwarded

    def why_suspended(self, job: JobId) -> str:
        """Say why a job of ours starts no task for now; empty if it does."""
        lead = self._led.get(job)
        if lead is None or job not in self._book.suspended:
            return ""
        if lead.forward:
            return f"another scheduler takes it up: {lead.members[1]}"
        keepers = [m for m in lead.members if m != self._node]
        away = [m for m in keepers if m not in self._linked]
        return (
            f"its keepers are away: {len(away)} of {len(keepers)}; "
            f"{lead.needed} must answer before a task starts"
        )

    # Submission.

    def members_for(self, job: Job, now: float) -> tuple[NodeId, ...] | str:
        """Choose who keeps a job, this node first; or say why it cannot be kept.

        Who asks for no keepers has none. Who says nothing of them gets what this node
        gives unasked, and none where that cannot be.
        """
        if job.keepers is None and self._unasked:
            is_derived = any(isinstance(group.tasks, TaskArray) for group in job.groups)
            found = self._asked_of(replace(job, keepers=self._unasked), now)
            return (
                () if is_derived or is_bound(job) or isinstance(found, str) else found
            )
        return self._asked_of(job, now) if job.keepers else ()

    def _asked_of(self, job: Job, now: float) -> tuple[NodeId, ...] | str:
        wanted = job.keepers or 0
        if reason := self._unkeepable(job, now):
            return reason
        willing = [peer for peer in self._linked if self._may_keep(peer, now)]
        if len(willing) < wanted:
            return (
                f"it wants {wanted} keepers, which are other nodes of {job.owner} "
                f"that take jobs; {len(willing)} are linked to this one"
            )
        return (self._node, *willing[:wanted])

    def _unkeepable(self, job: Job, now: float) -> str:
        own = self._roster.owner_of(self._node, now)
        wanted = job.keepers or 0
        if wanted % 2 or not 0 < wanted < MEMBERS_MAX:
            return f"a job has 2 or 4 keepers, not {wanted}"
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
        self._leading.greet(peer, now)
        for job, parting in self._partings.items():
            if peer in parting.unheard:
                self._partings_due.set_earlier(job, now)

    def on_lost(self, peer: NodeId) -> None:
        """Note that a link is gone."""
        self._linked.pop(peer, None)

    def is_fellow(self, peer: NodeId, now: float) -> bool:
        """Whether a node is linked that may schedule jobs of this one's owner."""
        return peer in self._linked and self._may_keep(peer, now)

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
                follows += self._ballots.stand(job, now)
        return follows

    def watch(self, effects: list[Effect], now: float) -> list[Effect]:
        """Return those effects that may leave now; see `Leading.watch`."""
        return self._leading.watch(effects, now)

    # Leaving.

    def hand_over(self, now: float) -> list[Consequence]:
        """Let other members have the jobs that this node leads; start nothing more."""
        follows: list[Consequence] = []
        for lead in self._led.values():
            record = self._book.jobs.get(lead.job)
            if not lead.elected or record is None or record.state != "active":
                continue
            follows += [*self._leading.suspend(lead), *self._yield(lead, now)]
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
        told = Handover(job=lead.job, term=lead.term, to=whole[0])
        if lead.forward:
            return [Send(whole[0], told)]
        lead.elected, lead.yielded = False, True
        self._leading.hush(lead.job)
        self._ballots.wait(lead.job, now)
        return [Send(m, told) for m in lead.members if m != self._node]

    def _on_handover(
        self, peer: NodeId, told: Handover, now: float
    ) -> list[Consequence]:
        log = self._logs.get(told.job)
        if log is None or (log.leader, log.latest) != (peer, told.term):
            self.counts["handed over by no leader"] += 1
            return []
        if not log.forward:
            log.leader = told.to
        return self._ballots.stand(told.job, now) if told.to == self._node else []

    # Forwarding.

    @property
    def forwards(self) -> int:
        """How many jobs are on their way to other schedulers."""
        return sum(lead.forward for lead in self._led.values())

    def is_led(self, job: JobId) -> bool:
        """Whether a job of ours has keepers, or is on its way to another scheduler."""
        return job in self._led

    def needs(self, job: JobId) -> list[Consequence]:
        """Return the notices that a job may start tasks, or may not."""
        return self._leading.needs(job)

    def forward(self, job: JobId, to: NodeId, now: float) -> list[Consequence]:
        """Let another scheduler have a job that nobody keeps, if it takes it."""
        assert not self._book.jobs[job].members
        assert job not in self._led
        self._forwards.set(job, now + FORWARD_S)
        return self._leading.forward(job, to)

    def _keep_after_all(self, job: JobId, now: float) -> list[Consequence]:
        """Go on with a job that was to be forwarded; the other forgets it."""
        lead = self._led[job]
        self._forwards.drop(job)
        self.counts["not forwarded"] += 1
        follows = self._leading.resume(lead)
        return [*follows, *self._say_over(lead, now)]

    def _on_candidacy(
        self, peer: NodeId, asked: Candidacy, now: float
    ) -> list[Consequence]:
        job, lead = asked.job, self._led.get(asked.job)
        granted = Send(peer, ballot_for(asked, asked.term, granted=True))
        if lead is not None and lead.forward:
            has_all = (asked.log_term, asked.size) == (lead.term, len(lead.entries))
            if peer not in lead.members or not lead.elected or not has_all:
                return []  # It lacks something: that is on its way.
            self._forwards.drop(job)
            return [*self._let_go(job, peer, asked.term, forwarded=True), granted]
        ceded = self.others.ceded.get(job)
        if ceded is not None and ceded.forwarded:
            over = Send(peer, ballot_for(asked, 0, over=True))
            return [granted if ceded.to == peer else over]
        record = self._book.jobs.get(job)
        if record is not None and not record.members:
            return [Send(peer, ballot_for(asked, 0, over=True))]  # It stays here.
        return self._ballots.on_candidacy(peer, asked, now)

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
            return [*self._cede_end(peer, keep), Send(peer, _over(keep))]
        if not {self._node, peer} <= {*keep.members}:
            self.counts["not a member"] += 1
            return []
        if keep.over:
            # Whatever the term: most members have the end, so all later leaders have.
            let_go = self._let_go(job, peer, keep.term)
            return [*let_go, *self._drop(job, peer), Send(peer, _over(keep))]
        vowed = max(self._ballots.vowed(job), log.latest if log else 0)
        lead = self._led.get(job)
        if lead is not None:
            vowed = max(vowed, lead.term)
        if keep.term < vowed or (lead is not None and keep.term == lead.term):
            return [Send(peer, _kept(keep, 0, vowed))]
        if log is None and len(self._logs) >= JOBS_MAX:
            self.counts["too many kept"] += 1
            return []
        if lead is None and job in self._book.jobs:
            self.counts["another job has this name"] += 1
            return []
        follows = self._let_go(job, peer, keep.term)
        log = self._logs.setdefault(job, KeptLog())
        log.heard_at = now
        self._ballots.watch(job, log, now)
        have = log.have(keep.term)
        news = keep.entries[max(0, have - keep.start) :] if keep.start <= have else ()
        size = sum(map(len, log.log.entries))
        if not _are_of(job, news) or size > LOG_BYTES_MAX:
            self.counts["entries refused"] += 1
            return follows
        if news or keep.term > log.latest:
            about = (job, keep.term, peer, keep.members)
            entry = JobKept(*about, keep.base, have, tuple(news), keep.forward)
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
        if self._ballots.vowed(job) > term:
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

    def _let_go(
        self, job: JobId, to: NodeId, term: int, *, forwarded: bool = False
    ) -> list[Consequence]:
        """Step down, if this node has scheduled a job that another leads now."""
        self._ballots.withdraw(job)
        if self._leading.drop(job) is None:
            return []
        ceded = Ceded(job, to, term, forwarded)
        self.others.take(ceded)
        return [Released(job), Record(ceded)]

    def _cede_end(self, peer: NodeId, keep: Keep) -> list[Consequence]:
        """Let a job go that ended here, and again in a later term at who took it up.

        That one had not heard of the end, and has all of the job.
        """
        job, record = keep.job, self._book.jobs.get(keep.job)
        if not keep.over or record is None or peer not in record.members:
            return []
        if keep.term <= record.term:
            return []
        self._partings.pop(job, None)
        self._partings_due.drop(job)
        ceded = Ceded(job, peer, keep.term)
        self.others.take(ceded)
        return [Released(job), Record(ceded), Record(self._forget(job, peer))]

    def _on_kept(self, peer: NodeId, kept: Kept, now: float) -> list[Consequence]:
        lead = self._led.get(kept.job)
        if lead is None or not lead.elected or peer not in lead.members:
            return []
        if kept.vowed > lead.term:
            # It promised a term that nobody leads: win it back with a later one.
            stands = self._ballots.stands_for(kept.job)
            return [] if stands else self._ballots.stand(kept.job, now, kept.vowed)
        if kept.term != lead.term:
            return []
        self._leading.hear(lead, peer, kept)
        if lead.forward:
            self._forwards.set(lead.job, now + FORWARD_S)
        if lead.leaving and (yielded := self._yield(lead, now)):
            return yielded
        follows = self._leading.hold_sway(lead, now)
        if lead.have[peer] < len(lead.entries):
            follows += self._leading.send_log(lead, peer, now, beat=False)
        return follows + self._end_if_over(lead, now)

    def _on_ballot(self, peer: NodeId, ballot: Ballot, now: float) -> list[Consequence]:
        job = ballot.job
        if not ballot.over:
            return self._ballots.on_ballot(peer, ballot, now)
        if (parting := self._partings.get(job)) is not None:
            parting.unheard.pop(peer, None)
            return []
        lead = self._led.get(job)
        if lead is not None and lead.forward:
            return self._keep_after_all(job, now) if peer in lead.members else []
        if job not in self._logs and job not in self._led:
            return []
        let_go = self._let_go(job, peer, ballot.term)
        log = self._logs.get(job)
        return [*let_go, *self._drop(job, log.leader if log else peer)]

    def _end_if_over(self, lead: Lead, now: float) -> list[Consequence]:
        """Tell the others that a job is over, once its end is safe."""
        record = self._book.jobs.get(lead.job)
        if record is not None and record.state == "active":
            return []
        if not self._leading.is_safe(lead):
            return []
        self._forwards.drop(lead.job)
        self._leading.drop(lead.job)
        self._book.suspended.pop(lead.job, None)
        forgotten = [] if lead.forward else [Record(self._forget(lead.job))]
        return [*forgotten, *self._say_over(lead, now)]

    def _say_over(self, lead: Lead, now: float) -> list[Send]:
        """Tell the others of a job that they need not keep it."""
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
        if len(self._partings) > JOBS_MAX:
            self._partings_due.drop(oldest := next(iter(self._partings)))
            del self._partings[oldest]
        return self._part(lead.job, now)

    def _part(self, job: JobId, now: float) -> list[Send]:
        """Say that a job is over to all who have not heard it.

        A few times at first, and then whenever one of them is linked again.
        """
        parting = self._partings[job]
        parting.tries += 1
        if not parting.unheard:
            del self._partings[job]
            return []
        if parting.tries < PARTINGS_MAX:
            self._partings_due.set(job, now + BEAT_S)
        return [Send(member, parting.keep) for member in parting.unheard]

    def _forget(self, job: JobId, at: NodeId = NOBODY) -> KeptOver:
        self._ballots.forget(job)
        self._belongings.forget(job)
        over = KeptOver(job, at)
        self.others.take(over)
        return over

    # Deadlines.

    def due(self, now: float) -> list[Consequence]:
        """Send what is due, give up sway that has lapsed, stand for what was left."""
        follows = self._leading.due(now)
        for job in self._belongings.due(now):
            if (log := self._logs.get(job)) is not None:
                follows += self._belongings.want(job, log)
        for job in self._partings_due.pop_due(now):
            follows += self._part(job, now)
        for job in self._forwards.pop_due(now):
            follows += self._keep_after_all(job, now)
        return follows + self._ballots.due(now)


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
