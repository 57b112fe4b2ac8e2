"""The leader's side of kept jobs: their logs, what is safe of them, and sway.

`succession` has the theory of operation. The log of a job is its journal entries, as
they leave with the effects of each turn. What must not be said before they are safe is
held back here, and leaves with a later turn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import msgspec

from shoal.core.deadlines import Deadlines
from shoal.core.durability.compaction import job_entries
from shoal.core.durability.journal import Ceded, Led, Submitted, encode
from shoal.core.durability.journal_repair import job_of
from shoal.core.events import Answer, Effect, Record, Send
from shoal.core.scheduling.notices import Consequence, NeedChanged
from shoal.core.succession.leads import BEATS_MAX, Held, Lead, batch_of
from shoal.core.timing import BEAT_S, KEPT_ANSWER_S, RESEND_S, SWAY_S
from shoal.protocol.messages import Acknowledgement, Assignment
from shoal.protocol.succession.messages import Keep

if TYPE_CHECKING:
    from shoal.core.deadlines import DeadlineHeap
    from shoal.core.durability.journal import Entry
    from shoal.core.scheduling.job_book import JobBook
    from shoal.core.succession.kept_jobs import KeptJobs
    from shoal.model.ids import JobId, NodeId
    from shoal.protocol.succession.messages import Kept


@final
class Leading:
    """Sends logs of the jobs that this node leads, and knows what is safe of them."""

    def __init__(
        self, node: NodeId, book: JobBook, others: KeptJobs, heap: DeadlineHeap
    ) -> None:
        """Lead nothing yet."""
        self.led: dict[JobId, Lead] = {}
        self._node, self._book, self._others = node, book, others
        self._free: list[Effect] = []  # that were held, and leave with this turn
        self._fresh: list[Lead] = []  # forwarded from the end of this turn on
        self._flushes: Deadlines[JobId] = Deadlines(heap)
        self._beats: Deadlines[JobId] = Deadlines(heap)
        self._lapses: Deadlines[JobId] = Deadlines(heap)
        self._answers: Deadlines[JobId] = Deadlines(heap)

    # What is held back.

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
        for lead in self._fresh:
            self._begin_forward(lead, now)
        free, self._free, self._fresh = self._free, [], []
        return passed + free

    def _note(self, entry: Entry, now: float) -> None:
        job = job_of(entry)
        if job is None or isinstance(entry, Led | Ceded):
            return  # It is not about what became of a job, or of no kept one.
        if isinstance(entry, Submitted) and entry.members:
            self.led[job] = Lead(job=job, term=1, members=entry.members)
            self._beats.set(job, now + BEAT_S)
        lead = self.led.get(job)
        if lead is None or not lead.elected:
            return
        lead.entries.append(encode(entry)[1])
        self._flushes.set_earlier(job, now)

    def _holds(self, effect: Effect, now: float) -> bool:
        """Hold an effect back if what it rests on is not safe."""
        if type(effect) is Answer:
            lead = self.led.get(effect.job)
            if lead is None or effect.refused or not lead.elected or lead.forward:
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
            return self._holds_start(message.task.job, effect)
        return False

    def _holds_start(self, job: JobId, effect: Send) -> bool:
        """Drop an assignment that is said again without a lead, as after a restart.

        Another member may lead by now. Whoever wins the lead says it again. What runs
        at most once waits until others know of it.
        """
        if self._book.jobs[job].job.at_most_once:
            return self._holds_word(job, effect)
        lead = self.led.get(job)
        return lead is None or not lead.elected

    def _holds_word(self, job: JobId, effect: Send) -> bool:
        """Hold what a worker is told of a job until it is safe, or drop it.

        Who does not lead the job says nothing: the worker hears the one that does.
        """
        lead = self.led.get(job)
        if lead is not None and lead.forward:
            return False  # It is this node's alone until the other has it.
        if lead is None or not lead.elected:
            return job not in self._others.over
        if self.is_safe(lead):
            return False
        if all(held.effect != effect for held in lead.held):
            lead.held.append(Held(len(lead.entries), effect))
        return True

    def is_safe(self, lead: Lead) -> bool:
        """Whether most members have the whole log of a job."""
        return self._safe(lead) >= len(lead.entries)

    def _safe(self, lead: Lead) -> int:
        others = (lead.whole.get(m, 0) for m in lead.members if m != self._node)
        return int(max(0, lead.most(others)))

    # What members are told, and what they have.

    def begin(self, lead: Lead, now: float) -> None:
        """Lead a job that was won, with its whole log."""
        self.led[lead.job] = lead
        self._beats.set(lead.job, now)

    def forward(self, job: JobId, to: NodeId) -> list[Consequence]:
        """Offer a job that nobody keeps to another scheduler; start nothing of it.

        What is sent is the job as it is at the end of this turn.
        """
        members = (self._node, to)
        lead = Lead(job=job, term=1, members=members, elected=False, forward=True)
        self.led[job] = lead
        self._fresh.append(lead)
        return self.suspend(lead)

    def _begin_forward(self, lead: Lead, now: float) -> None:
        record = self._book.jobs.get(lead.job)
        if record is None or self.led.get(lead.job) is not lead:
            self.led.pop(lead.job, None)
            return
        submitted, *others = job_entries(self._book, record)
        assert isinstance(submitted, Submitted)
        again = msgspec.structs.replace(submitted, forwards=submitted.forwards + 1)
        lead.entries = [encode(entry)[1] for entry in (again, *others)]
        lead.base, lead.elected = len(lead.entries), True
        self._beats.set(lead.job, now)

    def greet(self, peer: NodeId, now: float) -> None:
        """Send a member that is linked again what it missed, at once."""
        for job, lead in self.led.items():
            if peer in lead.members and lead.elected:
                lead.sent.pop(peer, None)
                self._beats.set(job, now)

    def hear(self, lead: Lead, peer: NodeId, kept: Kept) -> None:
        """Note what a member has; let go what waited for that."""
        have = min(kept.have, len(lead.entries))
        lead.have[peer] = max(lead.have.get(peer, 0), have)
        whole = have - min(have, kept.lacking)
        lead.whole[peer] = max(lead.whole.get(peer, 0), whole)
        if (sent_at := lead.beats.get(kept.beat)) is not None:
            lead.swayed[peer] = max(lead.swayed.get(peer, sent_at), sent_at)
        safe = self._safe(lead)
        self._free += [held.effect for held in lead.held if held.size <= safe]
        lead.held = [held for held in lead.held if held.size > safe]

    def hold_sway(self, lead: Lead, now: float) -> list[Consequence]:
        """Let a job start tasks while most members have heard of us lately."""
        lapses = lead.most(lead.swayed.values()) + SWAY_S
        if lapses <= now or lead.leaving:
            return []
        self._lapses.set(lead.job, lapses)
        if lead.job not in self._book.suspended:
            return []
        del self._book.suspended[lead.job]
        return self.needs(lead.job)

    def suspend(self, lead: Lead) -> list[Consequence]:
        """Start nothing more of a job that another member is to have."""
        lead.leaving = True
        self._lapses.drop(lead.job)
        self._book.suspended[lead.job] = None
        return self.needs(lead.job)

    def resume(self, lead: Lead) -> list[Consequence]:
        """Keep a job that was to be forwarded: no other scheduler has it."""
        self.drop(lead.job)
        self._book.suspended.pop(lead.job, None)
        return self.needs(lead.job)

    def needs(self, job: JobId) -> list[Consequence]:
        """Return the notices that a job may start tasks, or may not."""
        record = self._book.jobs.get(job)
        groups = () if record is None else record.job.groups
        return [NeedChanged(group.id) for group in groups]

    def hush(self, job: JobId) -> None:
        """Tell the members of a job nothing more."""
        for deadlines in (self._flushes, self._beats, self._answers):
            deadlines.drop(job)

    def drop(self, job: JobId) -> Lead | None:
        """Lead a job no longer; return what was known, if it was led."""
        lead = self.led.pop(job, None)
        if lead is not None:
            self.hush(job)
            self._lapses.drop(job)
        return lead

    def send_log(
        self, lead: Lead, member: NodeId, now: float, *, beat: bool
    ) -> list[Effect]:
        """Send a member what it lacks, or that this node lives."""
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
            forward=lead.forward,
        )
        return [Send(member, keep)]

    def _flush(self, lead: Lead, now: float, *, beat: bool = False) -> list[Effect]:
        """Send each member what it lacks, and that this node lives."""
        lead.beat += 1
        lead.beats[lead.beat] = now
        if len(lead.beats) > BEATS_MAX:
            del lead.beats[next(iter(lead.beats))]
        effects: list[Effect] = []
        for member in lead.members:
            if member != self._node:
                effects += self.send_log(lead, member, now, beat=beat)
        return effects

    def due(self, now: float) -> list[Consequence]:
        """Send what is due, give up sway that has lapsed, answer who waits too long."""
        follows: list[Consequence] = []
        for job in self._flushes.pop_due(now):
            follows += self._flush(self.led[job], now)
        for job in self._beats.pop_due(now):
            follows += self._flush(self.led[job], now, beat=True)
            self._beats.set(job, now + BEAT_S)
        for job in self._lapses.pop_due(now):
            self._book.suspended[job] = None
            follows += self.needs(job)
        for job in self._answers.pop_due(now):
            lead = self.led[job]
            late = [h for h in lead.held if type(h.effect) is Answer]
            self._free += [held.effect for held in late]
            lead.held = [held for held in lead.held if held not in late]
        return follows
