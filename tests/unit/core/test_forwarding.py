"""A job goes to another scheduler: the two sides, message by message."""

from __future__ import annotations

from typing import cast

from msgspec.structs import replace

from shoal.core.deadlines import DeadlineHeap
from shoal.core.durability.journal import Ceded, Entry, Led, Submitted
from shoal.core.events import Effect, Record, Send
from shoal.core.membership.roster import Roster
from shoal.core.scheduling.job_book import JobBook
from shoal.core.scheduling.notices import PartNotice, Released, TakenUp
from shoal.core.succession.forwarding import is_bound
from shoal.core.succession.succession import FORWARD_S, Succession
from shoal.model.ids import GroupId, JobId, NodeId, OwnerId, TaskId
from shoal.model.job import Group, Job, Task, Work
from shoal.protocol.messages import AnyMessage
from shoal.protocol.succession.messages import Ballot, Candidacy, Keep
from shoal.sim.node import trust

FAR, NEAR, ANN = NodeId("far"), NodeId("near"), OwnerId("ann")
JOB, MAIN = JobId("j"), GroupId("j.main")
TASK = Task(id=TaskId("j.main.0"), job=JOB, group=MAIN)
PLAIN = Job(id=JOB, owner=ANN, groups=(Group(id=MAIN, tasks=(TASK,)),))


class Node:
    """One scheduler: its part that moves jobs, its book, and what is on its disk."""

    def __init__(self, node: NodeId, journal: list[Entry]) -> None:
        self.node, self.journal = node, journal
        roster = Roster(trust.members(), trust.WALL_AT_START_S)
        for each in (FAR, NEAR):
            roster.meet(each, trust.grant(each, ("scheduler",), ANN), 0.0)
        self.book = JobBook()
        for entry in journal:
            self.book.replay(entry, 0.0, 0.0)
        self.machine = Succession(node, roster, self.book, DeadlineHeap(), journal, 0.0)
        self.machine.on_linked(NEAR if node == FAR else FAR, 0.0)

    def turn(self, follows: list[object], now: float) -> list[AnyMessage]:
        """Apply what follows, as a scheduler does; return what is sent."""
        effects: list[Effect] = []
        for each in follows:
            if isinstance(each, TakenUp):
                self.book.replay(each.led, now, 0.0)
            elif isinstance(each, Released):
                self.book.cede(each.job)
            elif not isinstance(each, PartNotice):
                effects.append(cast("Effect", each))
        sent: list[AnyMessage] = []
        for effect in self.machine.watch(effects, now):
            if isinstance(effect, Record):
                self.journal.append(effect.entry)
            elif isinstance(effect, Send):
                sent.append(effect.message)
        return sent

    def due(self, now: float) -> list[AnyMessage]:
        return self.turn([*self.machine.due(now)], now)

    def hear(
        self, peer: NodeId, messages: list[AnyMessage], now: float
    ) -> list[AnyMessage]:
        said: list[AnyMessage] = []
        for message in messages:
            follows = self.machine.on_message(peer, message, now)  # type: ignore[arg-type]
            said += self.turn([*follows], now)
        return said

    @property
    def may_start(self) -> bool:
        return JOB in self.book.jobs and JOB not in self.book.suspended


def asked() -> tuple[Node, Node, list[AnyMessage]]:
    """Return both nodes, when the near one has all of the job and asks for it."""
    far, near = Node(FAR, [Submitted(PLAIN, 0.0)]), Node(NEAR, [])
    far.turn([*far.machine.forward(JOB, NEAR, 1.0)], 1.0)
    assert not far.may_start
    handed = far.hear(NEAR, near.hear(FAR, far.due(1.0), 1.0), 1.0)
    question = near.hear(FAR, handed, 1.1)
    assert [type(each) for each in question] == [Candidacy]
    return far, near, question


def test_the_first_node_lets_go_before_the_other_has_the_job() -> None:
    far, near, question = asked()

    granted = far.hear(NEAR, question, 1.2)
    assert JOB not in far.book.jobs
    assert far.journal[-1] == Ceded(JOB, NEAR, 2, forwarded=True)
    near.hear(FAR, granted, 1.3)

    assert near.may_start
    assert near.book.jobs[JOB].members == ()
    assert near.book.jobs[JOB].forwards == 1
    assert isinstance(near.journal[-1], Led)


def test_what_was_granted_is_granted_again_also_after_a_crash() -> None:
    far, near, question = asked()
    far.hear(NEAR, question, 1.2)  # The answer gets lost.

    far = Node(FAR, far.journal)
    assert JOB not in far.book.jobs
    again = far.hear(NEAR, question, 9.0)
    near.hear(FAR, again, 9.1)

    assert near.may_start


def test_a_node_that_crashed_before_it_let_go_has_the_job_and_says_so() -> None:
    far, near, question = asked()

    far = Node(FAR, far.journal)
    answer = far.hear(NEAR, question, 9.0)
    near.hear(FAR, answer, 9.1)

    assert far.may_start
    assert [each.over for each in answer if isinstance(each, Ballot)] == [True]
    assert JOB not in near.machine.others.logs


def test_a_job_stays_if_the_other_says_nothing_and_is_not_granted_then() -> None:
    far, near, question = asked()

    told = far.due(1.0 + FORWARD_S + 0.1)
    assert far.may_start
    assert any(isinstance(each, Keep) and each.over for each in told)
    answer = far.hear(NEAR, question, 10.0)

    assert [each.granted for each in answer if isinstance(each, Ballot)] == [False]
    near.hear(FAR, answer, 10.1)
    assert JOB not in near.book.jobs


def test_who_lacks_an_entry_is_not_let() -> None:
    far, _, [question] = asked()
    assert isinstance(question, Candidacy)

    assert far.hear(NEAR, [replace(question, size=question.size - 1)], 1.2) == []
    assert JOB in far.book.jobs


def test_what_is_said_twice_of_its_way_changes_nothing_at_its_end() -> None:
    far, near = Node(FAR, [Submitted(PLAIN, 0.0)]), Node(NEAR, [])
    far.turn([*far.machine.forward(JOB, NEAR, 1.0)], 1.0)
    log = far.due(1.0)
    handed = far.hear(NEAR, near.hear(FAR, log, 1.0), 1.0)
    near.hear(FAR, far.hear(NEAR, near.hear(FAR, handed, 1.1), 1.2), 1.3)
    assert near.may_start

    said = near.hear(FAR, log, 5.0)

    assert near.may_start
    assert all(isinstance(each, Ballot) and each.over for each in said)
    near.book.cede(JOB)  # As if it had ended, and was removed.
    near.hear(FAR, log, 6.0)
    assert JOB not in near.machine.others.logs


def test_a_node_keeps_no_job_that_has_the_name_of_one_of_its_own() -> None:
    far, near = Node(FAR, [Submitted(PLAIN, 0.0)]), Node(NEAR, [Submitted(PLAIN, 0.0)])
    far.turn([*far.machine.forward(JOB, NEAR, 1.0)], 1.0)

    assert near.hear(FAR, far.due(1.0), 1.0) == []
    assert JOB not in near.machine.others.logs


def test_jobs_that_belong_to_their_node_stay() -> None:
    piped = replace(TASK, work=Work(stdin="pipe"))
    calls = replace(TASK, work=Work(driver="python"))

    assert not is_bound(PLAIN)
    assert is_bound(replace(PLAIN, max_rtt_s=0.01))
    for task in (piped, calls):
        assert is_bound(replace(PLAIN, groups=(Group(id=MAIN, tasks=(task,)),)))
