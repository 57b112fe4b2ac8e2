"""Bugs, planted one by one: a simulator that finds none of them finds nothing.

Each replaces one small method from outside, so that no trace of it is in the code
itself. Every bug must be found within SEEDS_MAX seeds that are clean without it.

What changes histories may move a bug to other seeds. The tests then search, which takes
long, until `python -m tests.sim.planted --record` has written down the new ones.
"""

import json
import math
import multiprocessing
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import click
import msgspec
from tests.sim import admission_bugs
from tests.sim.planted_channels import CHANNEL_BUGS
from tests.sim.planted_lending import LENDING_BUGS
from tests.sim.planted_migration import MIGRATION_BUGS
from tests.sim.planted_output import OUTPUT_BUGS
from tests.sim.planted_proximity import PROXIMITY_BUGS
from tests.sim.planted_upkeep import UPKEEP_BUGS

from shoal.core.admission import admission_control
from shoal.core.admission.admission_control import AdmissionControl
from shoal.core.admission.invitation_book import InvitationBook
from shoal.core.admission.join_requests import JoinAttempt, JoinRequests
from shoal.core.artifacts.events import (
    OutputsFetched,
    OutputsLost,
    PiecesStored,
    TreeRead,
)
from shoal.core.artifacts.piece_fetch import PieceFetch, Step
from shoal.core.artifacts.piece_serving import PieceServing
from shoal.core.artifacts.piece_sources import Source
from shoal.core.artifacts.provisions import Provisions
from shoal.core.artifacts.result_intake import ResultIntake
from shoal.core.artifacts.tree_fetch import TreeFetch
from shoal.core.calls import call_exchange
from shoal.core.calls.call_dispatcher import (
    Call,
    CallDispatcher,
    CallResult,
    LaneLost,
)
from shoal.core.calls.call_dispatcher import Effect as CallEffect
from shoal.core.calls.reliable_stream import ReliableStream
from shoal.core.discovery.announcement_log import AnnouncementLog
from shoal.core.discovery.load_gossip import LoadGossip
from shoal.core.discovery.neighbours import Neighbours
from shoal.core.dispatch import dispatcher as dispatch
from shoal.core.dispatch.assignment_sender import AssignmentSender
from shoal.core.dispatch.dispatcher import Dispatcher
from shoal.core.dispatch.run_states import TaskRun
from shoal.core.dispatch.verdicts import Verdict, judge
from shoal.core.durability.journal import Finished, Incarnated
from shoal.core.events import Answer, Effect, Record, StageTask, StartTask
from shoal.core.forwarding.forwarded_calls import CallForwarding
from shoal.core.leasing.attempt_bindings import AttemptBindings
from shoal.core.leasing.demand_age import DemandAges
from shoal.core.leasing.lease_lifecycle import LeaseLifecycle
from shoal.core.leasing.leases import Lease, LeaseBook
from shoal.core.leasing.worker import Worker
from shoal.core.mail import task_mail
from shoal.core.mail.mailbox import Mailbox
from shoal.core.mail.task_mail import TaskMail
from shoal.core.membership.members import Admission, Members
from shoal.core.negotiation.negotiator import GangRound, Negotiator
from shoal.core.records.records import TaskRecord
from shoal.core.scheduling import scheduler
from shoal.core.scheduling.job_book import JobBook
from shoal.core.scheduling.notices import Consequence
from shoal.model.ids import Attempt, BlobId, LeaseId, NodeId, OwnerId, TaskId
from shoal.model.job import Input, Job, Task
from shoal.model.resources import Allocation, Profile
from shoal.protocol.blobs import PieceWanted
from shoal.protocol.forwarding import ApiPiece
from shoal.protocol.mail import Mail
from shoal.protocol.messages import (
    Announcement,
    Assignment,
    Cancel,
    Demand,
    Grant,
    Outcome,
    Renew,
    Report,
    Rumour,
)
from shoal.sim.node.disk import Disk
from shoal.sim.seeds import run_seed

SEEDS_MAX: Final = 2_000
KNOWN: Final = Path(__file__).with_name("bug_seeds.json")
RECORDED_MAX: Final = 3
RECORD_S: Final = 20.0
"""Several seeds are recorded of each bug, unless one alone takes this long to find."""


class Bug(NamedTuple):
    """What is wrong, and the method of the class that is replaced to make it so."""

    name: str
    owner: Any
    method: str
    replacement: Callable[..., Any]


class Finding(NamedTuple):
    """The first seed that finds a bug, and by which promise; none if none does."""

    bug: str
    seed: int | None
    promise: str
    spent_s: float


_on_report = Dispatcher.on_report
_on_assignment = Worker._on_assignment
_on_cancel = Worker._on_cancel
_end = LeaseLifecycle.end
_on_renew = LeaseLifecycle.on_renew
_on_piece = CallForwarding._on_piece
_settle = ResultIntake.settle
_inputs_of = Provisions._inputs_of
_receive = Mailbox.receive
_on_lane_lost = CallDispatcher._on_lane_lost
_call_result = CallDispatcher._result
_start = Worker._start
_on_stored = PieceFetch.on_stored
_want = PieceFetch.want
_on_tree_read = TreeFetch.on_read
_learn = Neighbours._learn


def result_not_deduplicated(
    self: Dispatcher, peer: NodeId, report: Report, now: float
) -> list[Consequence]:
    """Write down every report of a success, known or not."""
    known = report.attempt in self._book.runs
    effects = _on_report(self, peer, report, now)
    task = _task_of(self, report)
    if known or task is None or report.outcome.exit_code != 0:
        return effects
    return [Record(Finished(task, "done", report.attempt, report.outcome)), *effects]


def _task_of(dispatcher: Dispatcher, report: Report) -> TaskId | None:
    for id_, record in dispatcher._book.tasks.items():
        if record.outcome == report.outcome and record.state == "done":
            return id_
    return None


def lost_dispatch_not_retried(
    self: AssignmentSender, attempt: Attempt, now: float
) -> list[Effect]:
    """Send an assignment once and hope."""
    return []


def duplicate_dispatch_run_twice(
    self: Worker, peer: NodeId, assignment: Assignment, now: float
) -> list[Effect]:
    """Start whatever is assigned, running or not."""
    run = self._runs.get(assignment.attempt)
    lease = self._book.get(run.lease) if run else None
    if lease is None:
        return _on_assignment(self, peer, assignment, now)
    start = StartTask(assignment.attempt, lease.id, assignment.task, lease.allocation)
    return [start]


def device_freed_before_the_kill(
    self: LeaseLifecycle,
    lease: Lease,
    verdict: Outcome,
    now: float,
    grace_s: float | None = None,
) -> list[Effect]:
    """Give the room back when the stop begins, not when it is done."""
    effects = _end(self, lease, verdict, now, grace_s)
    if lease.running is not None and not self._book.earmarked(lease):
        self._book.ledger.give(lease.taken)
        lease.taken = Allocation()
    return effects


def acknowledged_before_fsync(self: Disk, effects: list[Effect]) -> None:
    """Let answers to clients pass the barrier."""
    for effect in effects:
        if type(effect) is Record:
            self._write(effect)
        elif isinstance(effect, Answer) or not self._barrier.holds(effect):
            self._perform(effect)


def generation_not_persisted(generation: int) -> Incarnated:
    """Write down a generation that is not the one in use."""
    return Incarnated(generation - 1)


def gang_committed_in_part(self: Negotiator, round_: GangRound) -> bool:
    """Take a gang for committed when its first lease is."""
    return True


def offer_kept_after_withdrawal(
    self: Negotiator, peer: NodeId, leases: tuple[LeaseId, ...], now: float
) -> list[Consequence]:
    """Count on leases that the worker has withdrawn."""
    return []


def renewal_by_a_stranger_accepted(
    self: LeaseLifecycle, peer: NodeId, renew: Renew, now: float
) -> list[Effect]:
    """Extend any lease whose id is known, whoever says so."""
    for id_ in renew.leases:
        lease = self._book.get(id_)
        if lease is not None and lease.state == "committed":
            self._extend(lease, renew.lease_s, now)
    return _on_renew(self, peer, renew, now)


def preempted_task_counted_as_failed(
    job: Job,
    record: TaskRecord,
    run: TaskRun,
    outcome: Outcome,
    *,
    failures: int | None = None,
    ran_s: float = 0.0,
) -> Verdict:
    """Take a preemption for an exit that is worth another try."""
    verdict = judge(job, record, run, outcome, failures=failures, ran_s=ran_s)
    if outcome.kind == "preempted" and verdict.do == "again":
        return msgspec.structs.replace(verdict, counts="failure")
    return verdict


def quota_not_kept_by_the_worker(
    self: LeaseLifecycle, demand: Demand, admission: Admission
) -> tuple[Demand, str]:
    """Leave it to each scheduler to keep the quota of its owner."""
    return demand, ""


def line_not_waited_in(
    self: Worker, peer: NodeId, assignment: Assignment, now: float
) -> list[Effect]:
    """Start what is sent ahead while the one before it still runs."""
    lease = self._book.of(peer, assignment.lease)
    effects = _on_assignment(self, peer, assignment, now)
    if lease is None or assignment not in lease.line:
        return effects
    lease.line.remove(assignment)
    return [*effects, *self._start(lease, assignment, now)]


def called_back_and_run(
    self: Worker, peer: NodeId, cancel: Cancel, now: float
) -> list[Effect]:
    """Say that what waits in line will not start, and leave it there."""
    lease = self._book.of(peer, cancel.lease)
    line = [] if lease is None else list(lease.line)
    effects = _on_cancel(self, peer, cancel, now)
    if lease is not None:
        lease.line = line
    return effects


def attempt_of_two_leases(
    self: AttemptBindings, attempt: Attempt, lease: LeaseId
) -> bool:
    """Start an attempt on every lease that it is sent under."""
    return True


def age_believed(
    self: DemandAges, peer: NodeId, profile: Profile, claimed_s: float, now: float
) -> float:
    """Take whatever a scheduler says for its age."""
    return claimed_s


def leases_of_nothing_unbounded(self: LeaseBook, owner: OwnerId) -> str:
    """Give out leases as long as there is room for them."""
    return ""


def forged_rumour_believed(self: LoadGossip, rumour: Rumour, signature: bytes) -> bool:
    """Take every rumour for that of its worker."""
    return True


def revocation_forgotten(self: Members, grant: Grant) -> str | None:
    """Cut off a revoked node, and let it in when it is back."""
    return None


def piece_taken_twice(
    self: CallForwarding, peer: NodeId, piece: ApiPiece, now: float
) -> list[Effect]:
    """Take a repeated piece for the next one."""
    asked = self._asked.get((peer, piece.number))
    if asked is not None and piece.seq < asked.next_seq:
        piece = msgspec.structs.replace(piece, seq=asked.next_seq)
    return _on_piece(self, peer, piece, now)


def lost_piece_overlooked(
    self: CallForwarding, peer: NodeId, piece: ApiPiece, now: float
) -> list[Effect]:
    """Go on after a gap."""
    asked = self._asked.get((peer, piece.number))
    if asked is not None and piece.seq > asked.next_seq:
        asked.next_seq = piece.seq
    return _on_piece(self, peer, piece, now)


def call_run_for_anybody(self: CallForwarding, owner: OwnerId) -> bool:
    """Answer members of every owner."""
    return True


def silence_not_noticed(self: CallForwarding, now: float) -> list[Effect]:
    """Wait for an answer for ever."""
    for asked in self._asked.values():
        asked.gives_up_at = now + 1e9
    return self._beat(now) if self._beat_at is not None else []


def result_accepted_before_its_outputs(
    self: ResultIntake, run: TaskRun, report: Report, now: float
) -> list[Consequence]:
    """Accept every report at once."""
    return self._dispatcher.on_report(run.worker, report, now)


def lost_outputs_taken_for_fetched(
    self: ResultIntake, event: OutputsFetched | OutputsLost, now: float
) -> list[Consequence]:
    """Accept a result though its outputs cannot be had."""
    return _settle(self, OutputsFetched(event.attempt), now)


def held_report_forgotten(
    self: ResultIntake, event: OutputsFetched | OutputsLost, now: float
) -> list[Consequence]:
    """Drop a report when its outputs have come."""
    self._held.pop(event.attempt)
    return []


def last_output_not_handed_on(self: Provisions, task: Task) -> tuple[Input, ...]:
    """Start a step without the outputs of the last task that it needs."""
    return _inputs_of(self, task)[:-1]


def letter_not_sent_again(
    self: TaskMail, box: Mailbox, seq: int, now: float
) -> list[Effect]:
    """Send a letter once and hope."""
    return []


def letter_delivered_again(self: Mailbox, mail: Mail) -> str:
    """Forget which letters were taken before."""
    self._taken.pop((mail.sender, mail.origin or mail.attempt), None)
    return _receive(self, mail)


def letter_overtaken(self: Mailbox, seq: int) -> Mail:
    """Do not say which letter must be taken first."""
    return self.under_way[seq].mail


def letter_of_anybody_relayed(peer: NodeId, run: TaskRun) -> bool:
    """Believe every node that an attempt runs there."""
    return True


def letter_relayed_to_another_job(
    book: JobBook, run: TaskRun, record: TaskRecord
) -> bool:
    """Let tasks write to every task that this scheduler knows."""
    return True


def receipt_of_anybody_passed_on(self: TaskMail, peer: NodeId, run: TaskRun) -> bool:
    """Believe every node that a letter was taken."""
    return True


def letters_under_way_unbounded(self: Mailbox) -> bool:
    """Accept letters however few are taken."""
    return True


def batch_not_sent_again(self: ReliableStream[Any]) -> None:
    """Take what was sent for taken."""
    self._resend_at = None


def answered_call_kept(
    self: CallDispatcher,
    lane: Any,  # noqa: ANN401 - It is private there.
    call: Call,
    kind: int,
    body: bytes,
    *,
    own: bool,
) -> CallResult | None:
    """Keep a call that was answered among those of its lane."""
    result = _call_result(self, lane, call, kind, body, own=own)
    if result is not None:
        lane.out[call.id] = call
    return result


def losses_not_counted(self: CallDispatcher, event: LaneLost) -> list[CallEffect]:
    """Run a call again however often its lane was lost."""
    lane = self._lanes.get(event.lane)
    for call in lane.out.values() if lane is not None else ():
        call.losses = -1
    return _on_lane_lost(self, event)


def results_of_anybody_believed(peer: NodeId, run: TaskRun) -> bool:
    """Take results from every node."""
    return True


def calls_of_anybody_believed(peer: NodeId, attempt: Attempt) -> bool:
    """Let every node tell a lane what to do."""
    return True


def started_before_it_is_staged(
    self: Worker, lease: Lease, assignment: Assignment, now: float
) -> list[Effect]:
    """Start a task and hope that its code comes in time."""
    return [
        effect.start if isinstance(effect, StageTask) else effect
        for effect in _start(self, lease, assignment, now)
    ]


def wrong_piece_believed(
    self: PieceFetch, event: PiecesStored, now: float
) -> list[Step]:
    """Count a piece that is not of the blob as stored."""
    if event.wrong:
        event = PiecesStored(event.fetch, (*event.stored, *event.wrong))
    return _on_stored(self, event, now)


def fetch_never_given_up(self: PieceFetch, fetch: object) -> float:
    """Ask silent peers for ever."""
    return math.inf


def second_caller_forgotten(
    self: PieceFetch,
    token: int,
    blob: BlobId,
    sources: Iterable[NodeId],
    under: BlobId,
    now: float,
    *,
    lost_s: float = math.inf,
) -> list[Step]:
    """Answer only the first who wants a blob."""
    if blob in self._fetches:
        return []
    return _want(self, token, blob, sources, under, now, lost_s=lost_s)


def file_for_anybody(self: PieceServing, wanted: PieceWanted) -> bool:
    """Serve whatever is asked for."""
    return True


def tree_without_its_files(self: TreeFetch, event: TreeRead, now: float) -> list[Any]:
    """Take a tree for whole once its list is here."""
    return _on_tree_read(self, msgspec.structs.replace(event, missing=()), now)


def reads_without_bound(self: PieceServing) -> bool:
    """Read for all peers at once."""
    return True


def asked_for_all_at_once(self: Source, now: float) -> int:
    """Ask each peer for everything that it may have."""
    return 0 if now < self._resting_until else 1 << 30


def known_members_not_tried_again(self: Neighbours) -> list[Effect]:
    """Wait until others find us."""
    return []


def hearsay_remembered(
    self: Neighbours, peer: NodeId, addresses: tuple[str, ...]
) -> list[Effect]:
    """Remember whoever is named, linked or not."""
    is_linked = peer in self._linked
    self._linked[peer] = None
    effects = _learn(self, peer, addresses)
    if not is_linked:
        del self._linked[peer]
    return effects


def announcement_answered_again(
    self: AnnouncementLog, announcement: Announcement, now: float
) -> bool:
    """Take every announcement for a new one."""
    return False


BUGS: Final = (
    *(Bug(*bug) for bug in (*CHANNEL_BUGS, *UPKEEP_BUGS, *LENDING_BUGS)),
    *(Bug(*bug) for bug in (*PROXIMITY_BUGS, *OUTPUT_BUGS, *MIGRATION_BUGS)),
    Bug("result not de-duplicated", Dispatcher, "on_report", result_not_deduplicated),
    Bug(
        "lost dispatch not retried",
        AssignmentSender,
        "_again",
        lost_dispatch_not_retried,
    ),
    Bug(
        "duplicate dispatch run twice",
        Worker,
        "_on_assignment",
        duplicate_dispatch_run_twice,
    ),
    Bug(
        "device freed before the kill",
        LeaseLifecycle,
        "end",
        device_freed_before_the_kill,
    ),
    Bug("acknowledged before fsync", Disk, "submit", acknowledged_before_fsync),
    Bug("generation not persisted", scheduler, "Incarnated", generation_not_persisted),
    Bug(
        "gang committed in part",
        Negotiator,
        "_round_committed",
        gang_committed_in_part,
    ),
    Bug(
        "offer kept after withdrawal",
        Negotiator,
        "on_gone",
        offer_kept_after_withdrawal,
    ),
    Bug(
        "renewal by a stranger accepted",
        LeaseLifecycle,
        "on_renew",
        renewal_by_a_stranger_accepted,
    ),
    Bug(
        "preempted task counted as failed",
        dispatch,
        "judge",
        preempted_task_counted_as_failed,
    ),
    Bug(
        "quota not kept by the worker",
        LeaseLifecycle,
        "_within_quota",
        quota_not_kept_by_the_worker,
    ),
    Bug("line not waited in", Worker, "_on_assignment", line_not_waited_in),
    Bug("called back and run", Worker, "_on_cancel", called_back_and_run),
    Bug("attempt of two leases", AttemptBindings, "admits", attempt_of_two_leases),
    Bug("age believed", DemandAges, "believed", age_believed),
    Bug(
        "leases of nothing unbounded",
        LeaseBook,
        "_too_many",
        leases_of_nothing_unbounded,
    ),
    Bug("forged rumour believed", LoadGossip, "_is_genuine", forged_rumour_believed),
    Bug("revocation forgotten", Members, "_void", revocation_forgotten),
    Bug("piece taken twice", CallForwarding, "_on_piece", piece_taken_twice),
    Bug("lost piece overlooked", CallForwarding, "_on_piece", lost_piece_overlooked),
    Bug("call run for anybody", CallForwarding, "_is_ours", call_run_for_anybody),
    Bug("silence not noticed", CallForwarding, "_on_deadline", silence_not_noticed),
    Bug("started before it is staged", Worker, "_start", started_before_it_is_staged),
    Bug(
        "result accepted before its outputs",
        ResultIntake,
        "_on_whole_report",
        result_accepted_before_its_outputs,
    ),
    Bug(
        "lost outputs taken for fetched",
        ResultIntake,
        "settle",
        lost_outputs_taken_for_fetched,
    ),
    Bug(
        "held report forgotten",
        ResultIntake,
        "settle",
        held_report_forgotten,
    ),
    Bug(
        "last output not handed on",
        Provisions,
        "_inputs_of",
        last_output_not_handed_on,
    ),
    Bug("batch not sent again", ReliableStream, "_go_back", batch_not_sent_again),
    Bug("answered call run again", CallDispatcher, "_result", answered_call_kept),
    Bug("losses not counted", CallDispatcher, "_on_lane_lost", losses_not_counted),
    Bug(
        "results of anybody believed",
        call_exchange,
        "_runs",
        results_of_anybody_believed,
    ),
    Bug("calls of anybody believed", call_exchange, "_owns", calls_of_anybody_believed),
    Bug("letter not sent again", TaskMail, "_resend", letter_not_sent_again),
    Bug("letter delivered again", Mailbox, "receive", letter_delivered_again),
    Bug("letter overtaken", Mailbox, "copy_of", letter_overtaken),
    Bug("letter of anybody relayed", task_mail, "_runs", letter_of_anybody_relayed),
    Bug(
        "letter relayed to another job",
        task_mail,
        "_same_job",
        letter_relayed_to_another_job,
    ),
    Bug(
        "receipt of anybody passed on",
        TaskMail,
        "_works_for",
        receipt_of_anybody_passed_on,
    ),
    Bug(
        "letters under way unbounded",
        Mailbox,
        "can_send",
        letters_under_way_unbounded,
    ),
    Bug(
        "welcomed before it is on disk",
        AdmissionControl,
        "_on_signed",
        admission_bugs.welcomed_before_it_is_on_disk,
    ),
    Bug(
        "invitation taken back at once",
        AdmissionControl,
        "_take_back",
        admission_bugs.invitation_taken_back_at_once,
    ),
    Bug(
        "old invitation lets the revoked in",
        InvitationBook,
        "redeem",
        admission_bugs.old_invitation_lets_the_revoked_in,
    ),
    Bug(
        "introduced are not sent on",
        AdmissionControl,
        "_on_introduction",
        admission_bugs.introduced_are_not_sent_on,
    ),
    Bug(
        "forgotten stranger goes on",
        JoinAttempt,
        "hear",
        admission_bugs.forgotten_stranger_goes_on,
    ),
    Bug(
        "joined do not go along",
        admission_control,
        "_given",
        admission_bugs.joined_do_not_go_along,
    ),
    Bug("any secret opens", InvitationBook, "proved", admission_bugs.any_secret_opens),
    Bug(
        "stranger let in unasked",
        JoinRequests,
        "hear",
        admission_bugs.stranger_let_in_unasked,
    ),
    Bug("wrong piece believed", PieceFetch, "on_stored", wrong_piece_believed),
    Bug("fetch never given up", PieceFetch, "_gives_up_at", fetch_never_given_up),
    Bug("second caller forgotten", PieceFetch, "want", second_caller_forgotten),
    Bug("file for anybody", PieceServing, "_may_have", file_for_anybody),
    Bug("tree without its files", TreeFetch, "on_read", tree_without_its_files),
    Bug("reads without bound", PieceServing, "_may_read", reads_without_bound),
    Bug("asked for all at once", Source, "room", asked_for_all_at_once),
    Bug(
        "known members not tried again",
        Neighbours,
        "_knock",
        known_members_not_tried_again,
    ),
    Bug("hearsay remembered", Neighbours, "_learn", hearsay_remembered),
    Bug(
        "announcement answered again",
        AnnouncementLog,
        "repeats",
        announcement_answered_again,
    ),
)


@contextmanager
def planted(bug: Bug) -> Iterator[None]:
    """Have the bug in the code, for a while."""
    sound = getattr(bug.owner, bug.method)
    setattr(bug.owner, bug.method, bug.replacement)
    try:
        yield
    finally:
        setattr(bug.owner, bug.method, sound)


def find(bug: Bug, seeds: Iterable[int] = range(SEEDS_MAX)) -> Finding:
    """Return the first of some seeds that finds the bug, and the broken promise."""
    began = time.perf_counter()
    with planted(bug):
        for seed in seeds:
            outcome = run_seed(seed)
            if outcome.violations:
                spent_s = time.perf_counter() - began
                return Finding(bug.name, seed, outcome.violations[0].id, spent_s)
    return Finding(bug.name, None, "", time.perf_counter() - began)


def find_several(number: int) -> list[Finding]:
    """Find one of the bugs, by its number, by seeds known to or else the first that do.

    A seed that breaks a promise without the bug, or makes a machine raise, does not
    count.
    """
    bug, found, began = BUGS[number], list[Finding](), time.perf_counter()

    def candidates() -> Iterator[int]:
        for seed in dict.fromkeys([*known_seeds(bug), *range(SEEDS_MAX)]):
            if found and time.perf_counter() - began > RECORD_S:
                return
            yield seed

    seeds = candidates()
    while len(found) < RECORDED_MAX:
        finding = find(bug, seeds)
        if finding.seed is None:
            break
        if finding.promise != "RAISED" and not run_seed(finding.seed).violations:
            found.append(finding)
    return found or [Finding(bug.name, None, "", time.perf_counter() - began)]


def known_seeds(bug: Bug) -> list[int]:
    """Return the seeds that are known to find a bug."""
    known: dict[str, list[int]] = json.loads(KNOWN.read_bytes())
    return known.get(bug.name, [])


@click.command()
@click.option("--record", is_flag=True, help="Write the seeds down for the tests.")
def main(record: bool) -> None:
    """Print for each bug the seeds that found it; exit with 1 if one was not found."""
    known: dict[str, list[int]] = {}
    with multiprocessing.get_context("fork").Pool(2) as pool:
        for findings in pool.imap(find_several, range(len(BUGS))):
            first = findings[0]
            seeds = [each.seed for each in findings if each.seed is not None]
            known[first.bug] = seeds
            found = f"not found in {SEEDS_MAX} seeds"
            if seeds:
                found = f"found by {', '.join(map(str, seeds))}: {first.promise}"
            click.echo(f"{first.bug:<34} {found:<40} {first.spent_s:6.1f} s")
    missed = sum(not seeds for seeds in known.values())
    click.echo(f"{len(BUGS) - missed} of {len(BUGS)} planted bugs found")
    if record:
        KNOWN.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
