"""The monitor's screens as text, with a node that answers from memory.

SHOAL_REWRITE=1 writes the pictures beside this file anew; look at the difference.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from textual.pilot import Pilot

from shoal.api import shoal_pb2 as pb
from shoal.cli.monitor import tables
from shoal.cli.monitor.screens import Monitor
from shoal.cli.monitor.watching import MonitorCurves, Snapshot, look
from shoal.errors import NotAllowedError, NotFoundError, UnreachableError

PICTURES = Path(__file__).parent
SIZE = (110, 24)
OTTER = pb.NodeName(id="12D3KooWotter", petname="brave-otter-42")
HERON = pb.NodeName(id="12D3KooWheron", petname="calm-heron-07")
CROW = pb.NodeName(id="12D3KooWcrow", petname="old-crow-11")
EEL = pb.NodeName(id="12D3KooWeel", petname="shy-eel-50")
CROWS, EELS = "maple-elk-421", "heron-elk-170"  # Their codes.
USED = pb.Use(
    cpu_milli=5_000,
    memory_bytes=40 << 30,
    devices=[pb.DeviceUse(id="0", busy_milli=900), pb.DeviceUse(id="1")],
)
BOTH = [(CROW.id, False), (EEL.id, False)]


def told(task: str, since_s: float = 0.0) -> pb.CurvesReply:
    """Return a curve of three points, of which only later ones are wanted."""
    points = [p for p in ((10.0, 4.0), (11.0, 3.0), (12.0, 2.5)) if p[0] > since_s]
    if not points:
        return pb.CurvesReply()
    times, values = zip(*points, strict=True)
    curve = pb.Curve(task=task, name="loss", at_s=times, values=values)
    return pb.CurvesReply(curves=[curve])


class Memory:
    """A node that was asked everything before."""

    def __init__(self) -> None:
        self.cancelled: list[str] = []
        self.fails = False
        self.asked = pb.RequestsReply(shoal="reef")
        self.may_decide = True
        self.decided: list[tuple[str, bool]] = []
        self.codes: list[str] = []

    def nodes(self) -> pb.NodesReply:
        if self.fails:
            raise UnreachableError("no node is running", because="it was killed")
        total = pb.Amounts(cpu_milli=8_000, memory_bytes=64 << 30, gpu_milli=2_000)
        free = pb.Amounts(cpu_milli=2_000, memory_bytes=12 << 30, gpu_milli=500)
        gpu = pb.Device(id="0", model="RTX3090", memory_bytes=24 << 30)
        worker = pb.Node(
            name=HERON,
            worker=True,
            path="direct",
            rtt_us=800,
            total=total,
            free=free,
            devices=[gpu, gpu],
            active=3,
            used=USED,
            machine=pb.Amounts(cpu_milli=8_000, memory_bytes=64 << 30),
            withheld=pb.Amounts(memory_bytes=4 << 30),
        )
        away = pb.Node(name=CROW, away="it was stopped", away_since_s=1.0)
        return pb.NodesReply(nodes=[pb.Node(name=OTTER, self=True), worker, away])

    def jobs(self, *, jobs_max: int = 0, active_max: int = 0) -> pb.ListReply:
        return pb.ListReply(jobs=[self._done(), self.get("7k2f9q")], total=2)

    def _done(self) -> pb.Job:
        counts = pb.Counts(done=11, failed=1)
        return pb.Job(
            id="aaaaaa",
            name="sweep",
            state=pb.STATE_FAILED,
            counts=counts,
            reason="main.3: exit code 3",
        )

    def get(self, job: str, tasks_max: int = 0) -> pb.Job:
        task = pb.Task(id=f"{job}.main.0", metrics={"loss": 2.5})
        return pb.Job(
            id=job,
            name="train",
            state=pb.STATE_RUNNING,
            counts=pb.Counts(running=1),
            nodes=[HERON],
            fraction=0.5,
            tasks=[task],
        )

    def curves(self, job: str, since_s: float = 0.0) -> pb.CurvesReply:
        return told(f"{job}.main.0", since_s)

    def logs(self, request: pb.LogsRequest) -> Iterator[pb.LogPiece]:
        yield pb.LogPiece(
            task="7k2f9q.main.0", stream=pb.STREAM_STDOUT, data=b"epoch 1\nepo"
        )
        yield pb.LogPiece(task="7k2f9q.main.0", stream=pb.STREAM_STDOUT, data=b"ch 2\n")

    def cancel(self, job: str, reason: str = "") -> pb.CancelReply:
        self.cancelled.append(job)
        return pb.CancelReply()

    def explain(self, job: str, task: str = "") -> pb.ExplainReply:
        said = pb.TaskExplanation(task=f"{job}.main.0", state=pb.STATE_RUNNING)
        return pb.ExplainReply(tasks=[said])

    def requests(self) -> pb.RequestsReply:
        if not self.may_decide:
            raise NotAllowedError("this client may not call Requests")
        return self.asked

    def accept(
        self, node: str, *, code: str = "", decline: bool = False
    ) -> pb.AcceptReply:
        if not decline:
            self.codes.append(code)
        self.decided.append((node, decline))
        left = [one for one in self.asked.newcomers if one.name.id != node]
        if len(left) == len(self.asked.newcomers) and self.asked.near.name.id != node:
            raise NotFoundError(f"nobody called '{node}' waits for an answer")
        del self.asked.newcomers[:]
        self.asked.newcomers.extend(left)
        self.asked.ClearField("near")
        return pb.AcceptReply()


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Memory:
    monkeypatch.setattr(tables, "age", lambda _since: "2 min 5 s")
    monkeypatch.setattr("shoal.cli.nodes.nodes.age", lambda _since: "2 min 5 s")
    monkeypatch.setattr("shoal.cli.monitor.job_screen.age", lambda _since: "2 min 5 s")
    return Memory()


def screen_of(app: Monitor) -> str:
    """Return what is on the screen, without colours."""
    strips = app.screen._compositor.render_strips()  # pyright: ignore[reportPrivateUsage]
    return "\n".join(strip.text.rstrip() for strip in strips) + "\n"


def story(
    node: Memory,
    act: Callable[[Pilot[None]], Awaitable[None]],
    *,
    readonly: bool = False,
) -> str:
    """Run the monitor, do something in it, and return what is seen then."""

    async def run() -> str:
        app = Monitor(node, refresh_s=60.0, readonly=readonly)
        async with app.run_test(size=SIZE) as pilot:
            await settle(pilot)
            await act(pilot)
            await settle(pilot)
            return screen_of(app)

    return asyncio.run(run())


async def settle(pilot: Pilot[None]) -> None:
    """Wait until nobody is on the way with an answer."""
    await pilot.pause()
    await pilot.app.workers.wait_for_complete()
    await pilot.pause()


def check(name: str, seen: str) -> None:
    picture = PICTURES / f"{name}.txt"
    if os.environ.get("SHOAL_REWRITE"):
        picture.write_text(seen, encoding="utf-8")
    assert seen == picture.read_text(encoding="utf-8")


def test_nodes_and_jobs_are_on_one_screen(node: Memory) -> None:
    async def act(_pilot: Pilot[None]) -> None:
        pass

    check("first", story(node, act))


def test_a_job_has_a_page_with_curves_and_output(node: Memory) -> None:
    async def act(pilot: Pilot[None]) -> None:
        await pilot.press("enter")

    check("job", story(node, act))


def test_a_filter_leaves_what_contains_it(node: Memory) -> None:
    async def act(pilot: Pilot[None]) -> None:
        await pilot.press("slash", *"fail", "enter")

    seen = story(node, act)

    assert "aaaaaa" in seen
    assert "7k2f9q" not in seen


def test_a_job_is_cancelled_only_after_a_yes(node: Memory) -> None:
    async def no(pilot: Pilot[None]) -> None:
        await pilot.press("c", "n")

    async def yes(pilot: Pilot[None]) -> None:
        await pilot.press("c", "y")

    story(node, no)
    assert node.cancelled == []
    story(node, yes)
    assert node.cancelled == ["7k2f9q"]


def keys(*pressed: str) -> Callable[[Pilot[None]], Awaitable[None]]:
    """Press one key after another, or type a whole code."""

    async def act(pilot: Pilot[None]) -> None:
        for key in pressed:
            await pilot.press(*(key if key in {CROWS, EELS} else [key]))
            await settle(pilot)

    return act


@pytest.fixture
def besieged(node: Memory) -> Memory:
    """A node at whose door two machines wait."""
    for name, code in ((CROW, CROWS), (EEL, EELS)):
        node.asked.newcomers.add(name=name, has="16 CPU, 64 GiB", code=code)
    return node


def test_who_waits_to_be_let_in_is_seen(besieged: Memory) -> None:
    check("waiting", story(besieged, keys()))


def test_before_anybody_is_let_in_there_is_a_question(besieged: Memory) -> None:
    check("newcomer", story(besieged, keys("a")))

    assert besieged.decided == []


@pytest.mark.parametrize(
    ("pressed", "decided"),
    [
        (["a", CROWS, "enter"], [(CROW.id, False)]),
        (["a", "ctrl+d"], [(CROW.id, True)]),
        (["a", "escape"], []),
        (["a", "escape", EELS, "enter"], [(EEL.id, False)]),
        (["a", "escape", "escape"], []),
        (["a", CROWS, "enter", "enter"], [(CROW.id, False)]),  # The other is unseen.
        (["a", CROWS, "enter", "a", EELS, "enter"], BOTH),
        (["a", CROWS, "enter", "a"], [(CROW.id, False)]),
        (["a", "y", "enter", "enter"], []),
        (["a", EELS, "enter"], []),  # It is the code of the other.
    ],
)
def test_one_is_let_in_or_turned_away_by_one_answer(
    besieged: Memory, pressed: list[str], decided: list[tuple[str, bool]]
) -> None:
    story(besieged, keys(*pressed))

    assert besieged.decided == decided


def test_another_code_than_the_one_expected_is_said_to_be(besieged: Memory) -> None:
    seen = story(besieged, keys("a", EELS, "enter"))

    assert "somebody may be intercepting" in seen


def test_the_code_is_not_shown_where_it_is_to_be_typed(besieged: Memory) -> None:
    asked = story(besieged, keys("a"))
    told = story(besieged, keys())

    assert CROWS not in asked + told
    assert EELS not in asked + told


def told_after(node: Memory, *pressed: str, gone: bool = False) -> list[str]:
    """Return what the monitor tells its user when these keys are pressed."""
    told: list[str] = []

    async def act(pilot: Pilot[None]) -> None:
        *first, last = pressed
        await keys(*first)(pilot)
        if gone:
            del node.asked.newcomers[:]
        await keys(last)(pilot)
        notes = pilot.app._notifications  # pyright: ignore[reportPrivateUsage]
        told.extend(note.message for note in notes)

    story(node, act)
    return told


def test_what_became_of_an_answer_is_said(besieged: Memory) -> None:
    assert told_after(besieged, "a", CROWS, "enter") == ["old-crow-11 may join"]
    assert besieged.codes == [CROWS]
    assert told_after(besieged, "a", "ctrl+d") == ["shy-eel-50 was declined"]


def test_who_has_gone_before_the_answer_is_said_to_have(besieged: Memory) -> None:
    told = told_after(besieged, "a", CROWS, "enter", gone=True)

    assert told == [f"nobody called '{CROW.id}' waits for an answer"]


def test_a_monitor_that_only_shows_lets_nobody_in(besieged: Memory) -> None:
    seen = story(besieged, keys("a", "y"), readonly=True)

    assert "old-crow-11 wants to join" in seen
    assert "`shoal accept` answers" in seen
    assert "Accept" not in seen.splitlines()[-1]
    assert besieged.decided == []


@pytest.mark.parametrize("may_decide", [True, False])
def test_the_key_is_not_there_if_nobody_waits_or_others_decide(
    node: Memory, may_decide: bool
) -> None:
    node.may_decide = may_decide

    seen = story(node, keys("a", "y"))

    assert "Accept" not in seen
    assert "calm-heron-07" in seen
    assert node.decided == []


def test_who_was_let_in_agrees_by_the_same_key(node: Memory) -> None:
    node.asked.near.MergeFrom(
        pb.Near(name=CROW, shoal="lagoon", code=CROWS, state="accepted")
    )

    asked = story(node, keys("a", "d"))  # There is nothing to decline.
    agreed = told_after(node, "a", "y")

    assert 'old-crow-11 lets this machine join "lagoon"' in asked
    assert f"│   code   {CROWS}" in asked
    assert "[d]" not in asked
    assert node.decided == [(CROW.id, False)]
    assert agreed == ["joining old-crow-11"]


def test_what_a_newcomer_says_of_itself_hides_nothing(node: Memory) -> None:
    lie = "8 CPU\ncode   heron-170" + " " * 200 + "x" * 200
    node.asked.newcomers.add(name=CROW, has=lie, code=CROWS)

    seen = story(node, keys("a"))

    assert 'it says it lends "8 CPU code heron-170 ' in seen
    assert "│   code   heron-170" not in seen
    assert "Type the code shown on its screen:" in seen


def test_a_node_that_goes_away_is_said_and_the_monitor_stays(node: Memory) -> None:
    async def act(pilot: Pilot[None]) -> None:
        node.fails = True
        assert isinstance(pilot.app, Monitor)
        pilot.app._look()  # pyright: ignore[reportPrivateUsage]

    assert "no node is running: it was killed" in story(node, act)


def test_one_worker_is_shown_with_what_runs_there(node: Memory) -> None:
    picture = look(node, "calm-heron-07")

    assert [each.name.petname for each in picture.nodes] == ["calm-heron-07"]
    assert [job.id for job in picture.jobs] == ["7k2f9q"]
    assert look(node, "nobody") == Snapshot((), ())


def test_jobs_that_go_on_are_above_those_that_ended(node: Memory) -> None:
    one, ended = pb.Counts(waiting=1), pb.Counts(done=1)
    jobs = [pb.Job(id=id_, counts=one if id_ in "ac" else ended) for id_ in ("abcd")]
    node.jobs = lambda **_: pb.ListReply(jobs=jobs)  # type: ignore[method-assign]

    assert [job.id for job in look(node).jobs] == ["c", "a", "d", "b"]


def test_curves_begin_before_anybody_looked_and_go_on_from_there() -> None:
    curves = MonitorCurves()

    curves.note(told("j.main.0", curves.latest_s))
    curves.note(told("j.main.0", 0.0))  # Two looks at once bring the same.
    curves.note(pb.CurvesReply())
    curves.note(
        pb.CurvesReply(
            curves=[pb.Curve(task="j.main.0", name="loss", at_s=[13.0], values=[1.0])]
        )
    )

    assert list(curves) == [("loss", [4.0, 3.0, 2.5, 1.0])]
    assert curves.latest_s == 13.0


def test_curves_of_several_tasks_say_whose_they_are() -> None:
    curves = MonitorCurves()

    curves.note(pb.CurvesReply(curves=[*told("j.a.0").curves, *told("j.b.0").curves]))

    assert [name for name, _ in curves] == ["loss a.0", "loss b.0"]
