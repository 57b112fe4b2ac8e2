"""Whatever gets lost, repeated or restarted: one leads, and nothing safe is lost."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import cast

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from shoal.core.deadlines import DeadlineHeap
from shoal.core.durability.journal import EndCalled, Entry, Led, Submitted, decode
from shoal.core.events import Answer, Effect, Record, Send
from shoal.core.membership.roster import Roster
from shoal.core.scheduling.job_book import JobBook
from shoal.core.scheduling.notices import PartNotice, Released, TakenUp
from shoal.core.succession.succession import Succession
from shoal.model.ids import GroupId, JobId, NodeId, OwnerId, TaskId
from shoal.model.job import Group, Job, Task
from shoal.protocol.succession.messages import Ballot, Candidacy, Keep, Kept
from shoal.sim.node import trust

NODES = tuple(map(NodeId, ("a", "b", "c")))
OWNER, JOB = OwnerId("ann"), JobId("j")
MAIN = GroupId("j.main")
TASK = Task(id=TaskId("j.main.0"), job=JOB, group=MAIN)
KEPT = Job(id=JOB, owner=OWNER, groups=(Group(id=MAIN, tasks=(TASK,)),), keepers=2)


Cut = frozenset[tuple[NodeId, NodeId]]
PAIRS = tuple(combinations(NODES, 2))
ALONE = tuple([each for each in PAIRS if node in each] for node in NODES)
CUTS: tuple[Cut, ...] = tuple(
    frozenset([*pairs, *((b, a) for a, b in pairs)])
    for pairs in ([], *ALONE, *([pair] for pair in PAIRS))
)
"""Nobody is cut off, or one from all others, or two from each other."""


class Member:
    """One member: its machine, its book, and what is on its disk."""

    def __init__(self, node: NodeId, journal: list[Entry], now: float) -> None:
        self.node, self.journal = node, journal
        self.roster = Roster(trust.members(), trust.WALL_AT_START_S)
        for each in NODES:
            self.roster.meet(each, trust.grant(each, ("scheduler",), OWNER), 0.0)
        self.book = JobBook()
        for entry in journal:
            self.book.replay(entry, now, 0.0)
        self.heap = DeadlineHeap()
        self.machine = Succession(node, self.roster, self.book, self.heap, journal, now)
        for each in NODES:
            if each != node:
                self.machine.on_linked(each, now)


class Members(RuleBasedStateMachine):
    """Three members of a job; its log is numbers that a leader adds and answers."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.members = {node: Member(node, [], 0.0) for node in NODES}
        self.wire: list[tuple[NodeId, NodeId, Keep | Kept | Candidacy | Ballot]] = []
        self.leaders: dict[int, NodeId] = {1: NODES[0]}
        self.number = 0
        self.answered: set[str] = set()
        submitted = Submitted(KEPT, 0.0, members=NODES)
        first = self.members[NODES[0]]
        first.book.submit(submitted, 0.0)
        self.perform(first, [Record(submitted)])

    def perform(
        self, member: Member, follows: Sequence[object], *, late: bool = False
    ) -> None:
        """Do what a machine asks for; its disk loses nothing.

        An answer that is `late` is given whether it is safe or not.
        """
        effects: list[Effect] = []
        for each in follows:
            if isinstance(each, TakenUp):
                member.book.replay(each.led, self.now, 0.0)
            elif isinstance(each, Released):
                member.book.cede(each.job)
            elif not isinstance(each, PartNotice):
                effects.append(cast("Effect", each))
        for effect in member.machine.watch(effects, self.now):
            if isinstance(effect, Record):
                member.journal.append(effect.entry)
                self.check_leader(member, effect.entry)
            elif isinstance(effect, Send):
                message = effect.message
                assert isinstance(message, Keep | Kept | Candidacy | Ballot)
                self.wire.append((member.node, effect.peer, message))
            elif isinstance(effect, Answer) and not late:
                self.answered.add(str(effect.token))

    def check_leader(self, member: Member, entry: Entry) -> None:
        if not isinstance(entry, Led):
            return
        assert self.leaders.setdefault(entry.term, member.node) == member.node
        if entry.entries:
            has = [decode(each) for each in entry.entries]
            said = {each.trouble for each in has if isinstance(each, EndCalled)}
            assert self.answered <= said, "a new leader has all that was answered"

    @rule(node=st.sampled_from(NODES))
    def add(self, node: NodeId) -> None:
        """Let whoever holds sway add an entry, and answer for it when it is safe."""
        member = self.members[node]
        if not member.machine.leads(JOB):
            return
        self.number += 1
        entry = EndCalled(JOB, str(self.number))
        self.perform(member, [Record(entry), Answer(self.number, JOB)])

    @rule(place=st.integers(0, 1_000), keep=st.booleans())
    def deliver(self, place: int, keep: bool) -> None:
        """Deliver some message; it may come once more."""
        if not self.wire:
            return
        place %= len(self.wire)
        src, dst, message = self.wire[place]
        if not keep:
            del self.wire[place]
        member = self.members[dst]
        self.perform(member, member.machine.on_message(src, message, self.now))

    @rule(lost=st.sampled_from(NODES))
    def cut(self, lost: NodeId) -> None:
        """Lose all that is under way to and from a member."""
        self.wire = [each for each in self.wire if lost not in each[:2]]

    @rule(dt=st.sampled_from((0.5, 4.0, 25.0, 60.0)), cut=st.sampled_from(CUTS))
    def live(self, dt: float, cut: Cut) -> None:
        """Let time pass; all is heard at once, but for what is cut off meanwhile."""
        until = self.now + dt
        while True:
            self.deliver_all(cut)
            due = [(m.heap.next(), m.node) for m in self.members.values()]
            at, node = min((at, n) for at, n in [*due, (until, "")] if at is not None)
            if at >= until:
                break
            self.now = max(self.now, at)
            member = self.members[NodeId(node)]
            self.perform(member, member.machine.due(self.now), late=True)
            self.one_holds_sway()
        self.now = until

    def deliver_all(self, cut: Cut) -> None:
        while self.wire:
            src, dst, message = self.wire.pop(0)
            if (src, dst) not in cut:
                member = self.members[dst]
                self.perform(member, member.machine.on_message(src, message, self.now))

    @rule(node=st.sampled_from(NODES))
    def restart(self, node: NodeId) -> None:
        """Lose what a member has in memory, and what is on its way to it."""
        self.cut(node)
        member = self.members[node] = Member(node, self.members[node].journal, self.now)
        self.perform(member, member.machine.boot(self.now))

    @invariant()
    def one_holds_sway(self) -> None:
        holding = [n for n, m in self.members.items() if m.machine.leads(JOB)]
        assert len(holding) <= 1, holding


Members.TestCase.settings = settings(max_examples=40, stateful_step_count=30)
TestMembers = Members.TestCase
