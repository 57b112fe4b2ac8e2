"""Ballots: which member of a kept job may schedule it in the next term.

`succession` has the theory of operation. A promise is on disk before it is said
(`Vowed`), and whoever made it takes nothing more of an earlier term.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import msgspec

from shoal.core.deadlines import Deadlines
from shoal.core.durability.compaction import job_entries
from shoal.core.durability.journal import Led, Vowed, encode
from shoal.core.events import Record, Send
from shoal.core.scheduling.notices import Consequence, TakenUp
from shoal.core.succession.leads import Lead, Stand
from shoal.core.timing import BEAT_S, GONE_S, STAGGER_S
from shoal.model.text.bounds import AMOUNT_MAX
from shoal.protocol.succession.messages import Ballot, Candidacy

if TYPE_CHECKING:
    from shoal.core.deadlines import DeadlineHeap
    from shoal.core.scheduling.job_book import JobBook
    from shoal.core.succession.belongings import Belongings
    from shoal.core.succession.kept_jobs import KeptJobs, KeptLog
    from shoal.core.succession.leading import Leading
    from shoal.model.ids import JobId, NodeId

ASKS_SOON: Final = 4
ASK_AGAIN_S: Final = 60.0
"""Between two questions for a job that was to be forwarded here."""

ALL: Final = AMOUNT_MAX
"""The size of a leader's own log, for ballots: nobody has more of its term."""


@final
class Ballots:
    """Stands for jobs whose leader is gone, and promises terms to others."""

    def __init__(
        self,
        node: NodeId,
        book: JobBook,
        others: KeptJobs,
        leading: Leading,
        belongings: Belongings,
        heap: DeadlineHeap,
    ) -> None:
        """Stand for nothing yet."""
        self._node, self._book, self._others = node, book, others
        self._led, self._logs = leading.led, others.logs
        self._leading, self._belongings = leading, belongings
        self._stands: dict[JobId, Stand] = {}
        self._watches: Deadlines[JobId] = Deadlines(heap)

    def watch(self, job: JobId, log: KeptLog, now: float) -> None:
        """Stand for a job when its leader is not heard of for long."""
        place = log.members.index(self._node) if self._node in log.members else 0
        log.heard_at = max(log.heard_at, now)
        self._watches.set(job, now + GONE_S + STAGGER_S * place)

    def wait(self, job: JobId, now: float) -> None:
        """Stand for a job of ours if no other member has taken it after a while."""
        self._watches.set(job, now + GONE_S)

    def withdraw(self, job: JobId) -> None:
        """Stand for a job no longer."""
        self._stands.pop(job, None)

    def forget(self, job: JobId) -> None:
        """Forget a job that is over."""
        self._stands.pop(job, None)
        self._watches.drop(job)

    def stands_for(self, job: JobId) -> bool:
        """Whether this node wants to lead a job."""
        return job in self._stands

    def vowed(self, job: JobId) -> int:
        """Return the highest term of a job that was promised to anybody."""
        vow = self._others.vows.get(job)
        return 0 if vow is None else vow.term

    def stand(self, job: JobId, now: float, above: int = 0) -> list[Consequence]:
        """Ask the other members for the next term, again and again until it is won."""
        members, log_term, size = self._position(job)
        term = max(self.vowed(job), log_term, above) + 1
        if (log := self._logs.get(job)) is not None:
            term = max(term, log.latest + 1)
        if (stand := self._stands.get(job)) is not None:
            term = max(term, stand.term)
        if stand is None or stand.term != term:
            self._stands[job] = Stand(term)
        if log is not None and log.forward:
            # Its scheduler has it as long as it says nothing.
            stand = self._stands[job]
            stand.said += 1
            pause_s = BEAT_S if stand.said <= ASKS_SOON else ASK_AGAIN_S
            self._watches.set(job, now + pause_s)
            asked = Candidacy(job=job, term=term, log_term=log_term, size=size)
            return [Send(log.leader, asked)]
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

    def on_candidacy(
        self, peer: NodeId, asked: Candidacy, now: float
    ) -> list[Consequence]:
        """Promise a term to a candidate, or say why not."""
        job, lead = asked.job, self._led.get(asked.job)
        if job in self._others.over:
            return [Send(peer, ballot_for(asked, 0, over=True))]
        if lead is None and job not in self._logs:
            return []
        members, log_term, size = self._position(job)
        if peer not in members or (lead is not None and lead.elected):
            return []  # Who leads grants nothing: its beats say that it is there.
        vow = self._others.vows.get(job)
        if vow is not None and (vow.term, vow.candidate) == (asked.term, peer):
            return [Send(peer, ballot_for(asked, vow.term, granted=True))]
        log = self._logs.get(job)
        latest = max(self.vowed(job), log_term, log.latest if log else 0)
        is_behind = (asked.log_term, asked.size) < (log_term, size)
        if asked.term <= latest or is_behind or _hears_another(log, peer, now):
            return [Send(peer, ballot_for(asked, latest))]
        vow = Vowed(job, asked.term, peer)
        self._others.take(vow)
        self.withdraw(job)
        if log is not None:
            log.heard_at = now
            self.watch(job, log, now)
        else:
            self.wait(job, now)
        return [Record(vow), Send(peer, ballot_for(asked, vow.term, granted=True))]

    def on_ballot(self, peer: NodeId, ballot: Ballot, now: float) -> list[Consequence]:
        """Count a vote, and lead the job once most members gave theirs."""
        job = ballot.job
        stand = self._stands.get(job)
        if stand is None:
            return []
        if ballot.vowed > stand.term:
            del self._stands[job]
            return self.stand(job, now, ballot.vowed)
        members = self._position(job)[0]
        if not ballot.granted or ballot.term != stand.term or peer not in members:
            return []
        stand.granted[peer] = None
        if len(stand.granted) < len(members) // 2 or self.vowed(job) >= stand.term:
            return []
        return self._win(job, stand.term, now)

    def _win(self, job: JobId, term: int, now: float) -> list[Consequence]:
        """Schedule a job from now on, in a term that most members promised us."""
        del self._stands[job]
        log, before = self._logs.get(job), self._led.get(job)
        self._watches.drop(job)
        if log is not None and log.forward:
            return self._have_alone(job, log, term)
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
        if job in self._book.jobs:
            self._book.jobs[job].term = term
        self._others.take(led)
        self._leading.begin(lead, now)
        taken = [] if log is None else [TakenUp(led)]
        return [Record(led), *taken]

    def _have_alone(self, job: JobId, log: KeptLog, term: int) -> list[Consequence]:
        """Schedule a job that was forwarded here, and that nobody keeps."""
        entries = tuple(log.log.entries[: log.log.whole])
        led = Led(job, term, entries, alone=True)
        self._belongings.forget(job)
        self._others.take(led)
        return [Record(led), TakenUp(led)]

    def due(self, now: float) -> list[Consequence]:
        """Stand for what was left."""
        follows: list[Consequence] = []
        for job in self._watches.pop_due(now):
            if job in self._logs or job in self._led:
                follows += self.stand(job, now)
        return follows


def _hears_another(log: KeptLog | None, peer: NodeId, now: float) -> bool:
    """Whether a leader other than this candidate was heard a moment ago."""
    return log is not None and log.leader != peer and now - log.heard_at < GONE_S


def ballot_for(
    asked: Candidacy, vowed: int, *, granted: bool = False, over: bool = False
) -> Ballot:
    """Return the answer to a candidacy."""
    return Ballot(
        job=asked.job, term=asked.term, granted=granted, vowed=vowed, over=over
    )
