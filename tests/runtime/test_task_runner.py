"""Whatever a driver or its artifacts do: it ends one attempt, and no more."""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Self, cast

import msgspec
import pytest
from tests.runtime import virtual_time

from shoal.core.artifacts.events import StagingEnded
from shoal.core.durability.crash_suspects import Subject
from shoal.core.events import Event, StageTask, StartTask, StopTask, TaskEnded
from shoal.core.lending.events import DeviceMeasured
from shoal.drivers import Calls, Driver, RunOrder, Stream, Watcher
from shoal.errors import ShoalError
from shoal.model.ids import Attempt, GroupId, JobId, LeaseId, NodeId, TaskId
from shoal.model.job import Task, Work
from shoal.model.resources import Allocation, DeviceShare
from shoal.protocol.messages import Outcome
from shoal.runtime.artifacts.artifacts import Artifacts
from shoal.runtime.channels.task_visits import TaskVisits
from shoal.runtime.durability.crash_notes import CrashNotes, Window
from shoal.runtime.home import Home
from shoal.runtime.host import Host
from shoal.runtime.leasing import task_runner
from shoal.runtime.leasing.task_faults import TRACEBACKS_MAX, TaskFaults
from shoal.runtime.leasing.task_runner import TaskRunner
from shoal.runtime.mail.mail_calls import MailCalls
from shoal.runtime.monitoring.event_log import EventLog

ANN = NodeId("ann")
PLACES = ("stage", "prepare", "run", "unload")


class World:
    """A driver, artifacts and mail in one; each place raises what it is told to."""

    name = "process"
    not_isolated = ()
    node = ANN

    def __init__(self, home: Path) -> None:
        self.writes = [b"hello"]
        self.raises: dict[str, Exception] = {}
        self.cleared: list[Attempt] = []
        self.clear_fails = 0
        self.stopped: list[Attempt] = []
        self.foreign: set[Attempt] = set()
        self.discarded: list[Attempt] = []
        self.told: list[Event] = []
        self.over = asyncio.Event()
        self.arrival = asyncio.Event()  # whether code and data come
        self.arrival.set()
        self.event_log = EventLog()
        self.handling = CrashNotes(Home(home))
        self.task_faults = TaskFaults(self.event_log)
        self.tasks = TaskRunner(
            {"process": cast("Driver", self)},
            cast("Host", self),
            cast("Artifacts", self),
            cast("MailCalls", self),
            cast("TaskVisits", self),
            self.handling,
            self.task_faults,
        )

    def feed(self, event: Event) -> None:
        self.told.append(event)
        self.over.set()

    feed_now = feed

    def _at(self, place: str) -> None:
        if place in self.raises:
            raise self.raises[place]

    # A driver.

    async def run(self, order: RunOrder, watcher: Watcher) -> Outcome:
        del order
        for piece in self.writes:
            await watcher.wrote("stdout", 0, piece)
        self._at("run")
        return Outcome("exited", exit_code=0)

    async def clear(self, attempt: Attempt) -> None:
        self.cleared.append(attempt)
        if self.clear_fails:
            self.clear_fails -= 1
            raise ShoalError("it does not end")

    def stop(self, attempt: Attempt, grace_s: float) -> None:
        del grace_s
        self.stopped.append(attempt)

    async def discard(self, *attempts: Attempt) -> None:
        self._at("discard")
        self.discarded += attempts

    def kept(self, attempt: Attempt, stream: Stream) -> Path:
        raise NotImplementedError

    # Artifacts, and their staging.

    @property
    def staging(self) -> Self:
        return self

    async def stage(self, _driver: Driver, _start: StartTask) -> None:
        self._at("stage")
        await self.arrival.wait()

    def prepare(self, _driver: Driver, effect: StartTask, mail: Calls) -> RunOrder:
        self._at("prepare")
        return RunOrder(attempt=effect.attempt, task=effect.task, calls=mail)

    def is_foreign(self, effect: StartTask) -> bool:
        return effect.attempt in self.foreign

    def stdout_of(self, _order: RunOrder) -> AbstractContextManager[None]:
        return nullcontext()

    async def unload(
        self, _driver: Driver, _order: RunOrder, outcome: Outcome, _stdout: None
    ) -> Outcome:
        self._at("unload")
        return outcome

    # Mail.

    def open(self, attempt: Attempt, task: Task) -> None: ...

    def calls_of(self, attempt: Attempt) -> Calls:
        async def nothing(call: Mapping[str, object]) -> dict[str, object]:
            return {}

        return nothing

    def begin(self, attempt: Attempt, driver: Driver) -> None: ...

    def open_api(self, attempt: Attempt, connection: socket.socket) -> None: ...

    def end(self, attempt: Attempt) -> None: ...


def start(number: int = 1, job: str = "j") -> StartTask:
    task = Task(
        id=TaskId(f"{job}.main.{number}"),
        job=JobId(job),
        group=GroupId(f"{job}.main"),
        work=Work(workdir="tree:x"),
    )
    return StartTask(Attempt(ANN, 1, number), LeaseId("l"), task, Allocation())


def played(home: Path, story: Callable[[World], Awaitable[None]]) -> World:
    home.mkdir(exist_ok=True)

    async def main() -> World:
        world = World(home)
        async with asyncio.timeout(20):
            await story(world)
        world.handling.close()
        return world

    return asyncio.run(main())


def ends(world: World) -> list[Outcome]:
    return [
        event.outcome
        if isinstance(event, TaskEnded)
        else Outcome("not-started", reason=event.reason)
        for event in world.told
        if isinstance(event, TaskEnded)
        or (isinstance(event, StagingEnded) and event.reason)
    ]


async def run_one(world: World, effect: StartTask) -> Outcome:
    before = len(ends(world))
    world.tasks.stage(StageTask(effect))
    while StagingEnded(effect.attempt) not in world.told and len(ends(world)) == before:
        world.over.clear()
        await world.over.wait()
    if len(ends(world)) == before:
        world.tasks.start(effect)
    while len(ends(world)) == before:
        world.over.clear()
        await world.over.wait()
    return ends(world)[-1]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    "error",
    [ValueError("bad pattern"), RecursionError(), OSError(28, "disk full"), KeyError()],
    ids=lambda error: type(error).__name__,
)
def test_what_raises_for_one_attempt_ends_it_with_a_reason_and_no_other(
    tmp_path: Path, place: str, error: Exception, capsys: pytest.CaptureFixture[str]
) -> None:
    async def story(world: World) -> None:
        world.raises[place] = error
        await run_one(world, start(1))
        world.raises.clear()
        await run_one(world, start(2))

    world = played(tmp_path, story)
    bad, good = ends(world)

    assert bad.kind == ("not-started" if place in ("stage", "prepare") else "lost")
    assert type(error).__name__ in bad.reason
    assert good == Outcome("exited", exit_code=0)
    assert len(world.tasks) == 0
    assert world.task_faults.count == 1
    assert "Traceback" in capsys.readouterr().err


def test_devices_are_not_free_before_nothing_of_a_failed_run_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_runner, "CLEAR_AGAIN_S", 0.0)

    async def story(world: World) -> None:
        world.raises["run"] = ShoalError("its container cannot be removed")
        world.clear_fails = 3
        await run_one(world, start())

    world = played(tmp_path, story)

    assert len(world.cleared) == 4
    assert [outcome.kind for outcome in ends(world)] == ["lost"]


def test_people_who_watch_are_told_of_each_mishap_and_the_log_is_not_filled(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def story(world: World) -> None:
        world.raises["prepare"] = ValueError("again")
        for number in range(TRACEBACKS_MAX + 5):
            await run_one(world, start(number))
        told = [each async for each in world.event_log.follow(99, on=False)]
        assert {each.what for each in told} == {"mishap"}
        assert told[0].task == "j.main.0"

    world = played(tmp_path, story)

    assert world.task_faults.count == TRACEBACKS_MAX + 5
    assert capsys.readouterr().err.count("Traceback") == TRACEBACKS_MAX


def test_an_attempt_that_is_stopped_as_it_is_started_does_not_run(
    tmp_path: Path,
) -> None:
    async def story(world: World) -> None:
        world.tasks.start(start())
        world.tasks.stop(StopTask(start().attempt, 0.0))
        await world.over.wait()

    assert [end.kind for end in ends(played(tmp_path, story))] == ["not-started"]


def test_an_attempt_that_is_stopped_while_it_is_staged_never_starts(
    tmp_path: Path,
) -> None:
    async def story(world: World) -> None:
        world.foreign.add(start().attempt)
        world.arrival.clear()
        world.tasks.stage(StageTask(start()))
        await asyncio.sleep(0)
        world.tasks.stop(StopTask(start().attempt, 0.0))
        await world.over.wait()
        await world.tasks.close()

    world = played(tmp_path, story)

    assert world.told == [StagingEnded(start().attempt, "stopped before it started")]
    assert world.discarded == [start().attempt]


def test_nothing_is_left_of_an_attempt_that_was_staged_and_then_stopped(
    tmp_path: Path,
) -> None:
    async def story(world: World) -> None:
        world.foreign.add(start().attempt)
        world.tasks.stage(StageTask(start()))
        await world.over.wait()
        world.tasks.stop(StopTask(start().attempt, 0.0))
        await world.tasks.close()

    world = played(tmp_path, story)

    assert world.told == [StagingEnded(start().attempt)]
    assert world.discarded == [start().attempt]


def test_a_job_of_which_the_node_died_twice_is_not_started_a_third_time(
    tmp_path: Path,
) -> None:
    async def die(world: World) -> None:
        await Window(world.handling, ANN, TaskId("bad.main.1")).open("start")
        # The process is killed here: nothing is closed, nothing is said.

    async def live(world: World) -> None:
        await run_one(world, start(1, "bad"))
        await run_one(world, start(2, "good"))

    played(tmp_path, die)
    played(tmp_path, die)
    world = played(tmp_path, live)
    later = played(tmp_path, live)

    for each in (world, later):
        bad, good = ends(each)
        assert bad.kind == "not-started"
        assert "died 2 times in a row" in bad.reason
        assert good.kind == "exited"


def test_what_ran_well_between_two_deaths_is_started_again(tmp_path: Path) -> None:
    async def die(world: World) -> None:
        await Window(world.handling, ANN, TaskId("j.main.1")).open("start")

    async def live(world: World) -> None:
        await run_one(world, start(1))

    played(tmp_path, die)
    played(tmp_path, live)
    played(tmp_path, die)

    assert [end.kind for end in ends(played(tmp_path, live))] == ["exited"]


def test_a_node_that_knows_what_it_dies_of_blames_nothing_else(tmp_path: Path) -> None:
    async def die(world: World) -> None:
        window = Window(world.handling, ANN, TaskId("near.main.1"))
        await window.open("start")
        world.handling.blame(Subject(ANN, TaskId("bad.main.1")))
        window.close()

    async def look(world: World) -> None:
        await asyncio.sleep(0)
        assert world.handling.refusal(ANN, JobId("bad"))
        assert not world.handling.refusal(ANN, JobId("near"))

    played(tmp_path, die)
    played(tmp_path, die)
    played(tmp_path, look)


def test_notes_that_make_no_sense_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "handling").write_bytes(b"\xff\n{}\n[1]\n" + b"x" * 99_999)
    (tmp_path / "suspects.json").write_bytes(b"\xff{")

    async def live(world: World) -> None:
        await run_one(world, start())

    assert [end.kind for end in ends(played(tmp_path, live))] == ["exited"]


def test_folders_of_other_owners_are_removed_when_their_task_has_ended(
    tmp_path: Path,
) -> None:
    own, strange = start(1), start(2)

    async def story(world: World) -> None:
        world.foreign.add(strange.attempt)
        for effect in (own, strange):
            world.over.clear()
            world.tasks.start(effect)
            await world.over.wait()
        await world.tasks.close()

    world = played(tmp_path, story)

    assert len(ends(world)) == 2
    assert world.discarded == [strange.attempt]


def test_a_node_that_is_closed_blames_nothing_and_raises_nothing(
    tmp_path: Path,
) -> None:
    handling = CrashNotes(Home(tmp_path))
    handling.close()

    handling.blame(Subject(ANN, TaskId("j.main.1")))
    handling.end(Subject(ANN, TaskId("j.main.1")))


def test_nothing_is_started_when_the_node_ends(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        await world.tasks.close()
        world.tasks.start(start())
        await asyncio.sleep(0)
        assert len(world.tasks) == 0

    assert played(tmp_path, story).told == []


def test_the_end_of_a_task_says_what_it_took_of_its_own_gpus(tmp_path: Path) -> None:
    shares = (DeviceShare("0", 1_000, 0), DeviceShare("1", 500, 0))
    whole = msgspec.structs.replace(start(1), allocation=Allocation(shares=shares))

    async def story(world: World) -> None:
        ran = asyncio.Event()
        finish = asyncio.Event()

        async def run(order: RunOrder, watcher: Watcher) -> Outcome:
            del order, watcher
            ran.set()
            await finish.wait()
            return Outcome("exited", exit_code=0)

        world.run = run  # type: ignore[method-assign]
        running = asyncio.create_task(run_one(world, whole))
        await ran.wait()
        world.tasks.measured([DeviceMeasured("0", 9, 7), DeviceMeasured("1", 50, 50)])
        world.tasks.measured([DeviceMeasured("0", 9, 5), DeviceMeasured("2", 90, 90)])
        finish.set()
        assert (await running).gpu_memory_bytes == 7  # of a shared one nobody knows

    played(tmp_path / "home", story)


@pytest.mark.parametrize(
    ("node", "least_s", "most_s"), [(ANN, 0.0, 0.2), (NodeId("bob"), 2.9, 3.1)]
)
def test_a_task_writes_slowly_to_other_nodes_only(
    tmp_path: Path, node: NodeId, least_s: float, most_s: float
) -> None:
    async def main() -> float:
        world = World(tmp_path)
        world.node = node
        world.writes = [bytes(1 << 19)] * 32
        await run_one(world, start())
        world.handling.close()
        return asyncio.get_running_loop().time()

    assert least_s <= virtual_time.run(main()) <= most_s


def test_tasks_of_this_node_do_not_take_all_of_its_time_by_writing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_runner, "OUTPUT_HERE_BYTES_S", 1 << 20)

    async def main() -> float:
        world = World(tmp_path)
        world.writes = [bytes(1 << 16)] * 32
        for number in (1, 2):
            world.tasks.start(start(number))
        while len(ends(world)) < 2:
            world.over.clear()
            await world.over.wait()
        world.handling.close()
        return asyncio.get_running_loop().time()

    assert virtual_time.run(main()) > 3.5
