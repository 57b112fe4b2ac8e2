"""What a job took once is asked for when it runs again."""

from shoal.core.durability.journal import Entry, decode, encode
from shoal.core.events import DeadlineReached, Record, Tell
from shoal.core.housekeeping import past_needs
from shoal.core.housekeeping.events import NeedSeen
from shoal.core.housekeeping.past_needs import PastNeeds, needs_kept, without_past
from shoal.core.membership.roster import Roster
from shoal.model.derive import derive
from shoal.model.ids import JobId, NodeId, OwnerId
from shoal.model.job import Job
from shoal.model.spec.submission import load_spec
from shoal.protocol.messages import Outcome
from shoal.sim.node import trust

GIB = 1 << 30
HERE, FRIEND, STRANGER = NodeId("here"), NodeId("friend"), NodeId("stranger")
ANN = OwnerId("ann")


def derived(text: str, id_: str = "j") -> Job:
    return derive(load_spec(text, "yaml"), JobId(id_), ANN)


def empty(journal: tuple[Entry, ...] = ()) -> PastNeeds:
    roster = Roster(trust.members(), wall_at_zero_s=trust.WALL_AT_START_S)
    roster.meet(FRIEND, trust.grant(FRIEND, ("worker",), ANN), now=0.0)
    other = OwnerId("bob")
    roster.meet(STRANGER, trust.grant(STRANGER, ("worker",), other), now=0.0)
    return PastNeeds(HERE, roster, journal)


def ran(needs: PastNeeds, job: Job, memory: int, at: NodeId = FRIEND) -> None:
    took = Outcome("exited", exit_code=0, memory_bytes=memory, gpu_memory_bytes=GIB)
    for effect in past_needs.need_seen(job.groups[0], job.owner, at, took):
        assert isinstance(effect, Tell)
        assert isinstance(effect.event, NeedSeen)
        needs.handle(effect.event, 1.0)


def asked(needs: PastNeeds, text: str) -> int:
    return needs.fill(derived(text, "k")).groups[0].tasks[0].profiles[0].memory_bytes


def test_the_same_program_asks_for_the_most_that_it_took() -> None:
    needs = empty()
    ran(needs, derived("command: [python, train.py]"), 3 * GIB)
    ran(needs, derived("command: [python, train.py]"), 2 * GIB)

    assert asked(needs, "command: [python, train.py]") == 3 * GIB
    assert asked(needs, "command: [python, train.py, --batch, '64']") == 0


def test_params_files_and_gangs_of_another_size_are_other_work() -> None:
    text = "recipe: ddp\nnodes: 2\nparams: {program: mine.py, batch: %d}\n"
    needs = empty()
    ran(needs, derived(text % 8), 3 * GIB)

    assert asked(needs, text % 8) == 3 * GIB
    assert asked(needs, text % 16) == 0
    assert asked(needs, (text % 8).replace("nodes: 2", "nodes: 4")) == 0


def test_the_tasks_of_an_array_share_what_one_took() -> None:
    text = "command: [work, '{index}']\narray: %d\n"
    needs = empty()
    ran(needs, derived(text % 3), 3 * GIB)

    again = needs.fill(derived(text % 5)).groups[0]

    assert [t.profiles[0].memory_bytes for t in again.tasks] == [3 * GIB] * 5
    assert {t.memory_from for t in again.tasks} == {"runs"}


def test_a_job_that_says_what_it_needs_is_believed() -> None:
    text = "command: [train]\nresources: {ram: 1GB, gpu: 24GB}\n"
    needs = empty()
    ran(needs, derived(text), 3 * GIB)

    assert needs.fill(derived(text)) == derived(text)


def test_what_it_took_of_a_gpu_is_asked_for_each() -> None:
    text = "command: [train]\nresources: {gpu: 2}\n"
    needs = empty()
    ran(needs, derived(text), 3 * GIB)

    task = needs.fill(derived(text)).groups[0].tasks[0]

    assert task.profiles[0].gpu is not None
    assert task.profiles[0].gpu.memory_min_bytes == GIB
    assert task.gpu_memory_from == "runs"


def test_a_machine_of_another_owner_is_not_believed() -> None:
    needs = empty()
    ran(needs, derived("command: [train]"), 900 * GIB, at=STRANGER)

    assert asked(needs, "command: [train]") == 0

    ran(needs, derived("command: [train]"), GIB, at=HERE)
    assert asked(needs, "command: [train]") == GIB


def test_little_is_not_worth_to_be_kept() -> None:
    needs = empty()
    took = Outcome("exited", exit_code=0, memory_bytes=200 << 20)
    job = derived("command: [train]")

    assert past_needs.need_seen(job.groups[0], ANN, FRIEND, took) == []
    assert asked(needs, "command: [train]") == 0


def test_a_job_handed_in_twice_is_the_same_whatever_was_seen_between() -> None:
    text = "command: [train]\nresources: {gpu: 1}\n"
    needs = empty()
    ran(needs, derived(text), 3 * GIB)
    filled = needs.fill(derived(text))

    assert filled != derived(text)
    assert without_past(filled) == derived(text)


def test_a_new_life_knows_what_was_seen() -> None:
    needs = empty()
    ran(needs, derived("command: [train]"), 3 * GIB)
    due = needs.next_deadline()
    assert due is not None
    effects = needs.handle(DeadlineReached(), due)
    entries = tuple(
        decode(encode(e.entry)[1]) for e in effects if isinstance(e, Record)
    )

    assert len(entries) == 1
    assert asked(empty(entries), "command: [train]") == 3 * GIB
    assert asked(empty(tuple(needs_kept(entries))), "command: [train]") == 3 * GIB


def test_only_so_many_kinds_are_kept() -> None:
    needs = empty()
    for number in range(past_needs.KINDS_MAX + 10):
        needs.handle(
            NeedSeen(kind=str(number), owner=ANN, worker=HERE, memory_bytes=GIB), 1.0
        )

    assert len(needs.rows) == past_needs.KINDS_MAX
    assert needs.rows[0].kind == "10"
