"""A hostile worker: it offers its machine to alice, and returns what it likes."""

from __future__ import annotations

import contextlib
import os
import pickle
import secrets
import struct
import subprocess
import threading
import time
from typing import TYPE_CHECKING, Any

import msgspec

from attacks.reef import COMMAND_S, READY_S, eventually, on_terminal, soon
from attacks.verdict import attack, must
from attacks.wire import CutOff, Said
from shoal.protocol import call_items
from shoal.protocol.blob_hashing import name_of_bytes

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from attacks.reef import Done, Member, Reef

ESCAPES = "\x1b[2J\x1b]0;owned\x07\x9b31m\u202eevil"
ONLY_HERE = ("--label", "rogue=yes")
PIECE = 49_152


class Rogue:
    """A worker of mallory's, by hand. It takes what is asked of it, and lies."""

    def __init__(self, reef: Reef, number: int, **more: Any) -> None:
        self.member: Member = reef.member(number, **more)
        self.blobs: dict[str, bytes] = {}
        self.assigned: list[Said] = []
        self.answers: Callable[[Rogue, Said], list[Said]] = lambda _, order: [
            report(order)
        ]
        self.calls: Callable[[Rogue, Said], list[Said]] = lambda *_: []
        self.claimed: Said = {"cpu_milli": 8_000, "memory_bytes": 8 << 30}
        self.name = "rogue"
        self.labels: list[list[str]] = [["rogue", "yes"]]
        self.drivers = ["process", "python"]
        self._reef = reef
        self._leases = 0
        self.said_all = threading.Event()  # All answers to some assignment.
        self._over = threading.Event()

    def __enter__(self) -> Rogue:  # noqa: PYI034
        self.link = self.member.link(self._reef.alice, name=self.name)
        self.link.say(self.inventory())
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()
        known = soon(self._is_known, 4.0)
        assert known, "alice never heard of this worker"
        return self

    def _is_known(self) -> bool:
        return self.member.identity.node in self._reef.alice("nodes", "--json").out

    def __exit__(self, *_: object) -> None:
        self._over.set()
        with contextlib.suppress(OSError):
            self.link.say({"type": "goodbye"})
        self.link.close()
        self._thread.join(5.0)

    def inventory(self) -> Said:
        """Return what we say that we have."""
        return {
            "type": "inventory",
            "epoch": 1,
            "seq": int(time.time()),
            "capacity": self.claimed | {"labels": self.labels},
            "load": self.claimed,
            "drivers": self.drivers,
        }

    def keep(self, data: bytes) -> str:
        """Serve bytes under their right name."""
        name = name_of_bytes(data)
        self.blobs[name] = data
        return name

    def _serve(self) -> None:
        kinds = (
            "inquiry",
            "demand",
            "commit",
            "assignment",
            "renew",
            "piece-wanted",
            "call-batch",
        )
        while not self._over.is_set():
            try:
                said = self.link.hear(*kinds, within_s=0.2)
            except TimeoutError:
                continue
            except CutOff:
                return
            for answer in self._answers_to(said):
                self.link.say(answer)
            if said["type"] == "assignment":
                self.said_all.set()

    def _answers_to(self, said: Said) -> list[Said]:
        match said["type"]:
            case "inquiry":
                return [self.inventory()]
            case "demand":
                count = min(int(said["count"]), 16)
                first, self._leases = self._leases, self._leases + count
                leases = [
                    f"{self.member.identity.node}/{first + n}" for n in range(count)
                ]
                return [
                    {
                        "type": "offer",
                        "request": said["request"],
                        "leases": leases,
                        "valid_for_s": 30.0,
                    }
                ]
            case "commit":
                return [
                    {
                        "type": "committed",
                        "request": said["request"],
                        "leases": said["leases"],
                    }
                ]
            case "renew":
                return [
                    {
                        "type": "renewed",
                        "leases": [[lease, None] for lease in said["leases"]],
                    }
                ]
            case "assignment":
                self.assigned.append(said)
                began = {
                    "type": "started",
                    "attempt": said["attempt"],
                    "lease": said["lease"],
                }
                return [began, *self.answers(self, said)]
            case "piece-wanted":
                return self._pieces(said)
            case _:
                return self.calls(self, said)

    def _pieces(self, said: Said) -> list[Said]:
        data = self.blobs.get(said["blob"])
        if data is None:
            return [{"type": "piece-refusal", "blob": said["blob"]}]
        return [
            {
                "type": "blob-piece",
                "blob": said["blob"],
                "level": 0,
                "index": index,
                "data": data[index * PIECE : (index + 1) * PIECE],
            }
            for level, index in said["pieces"]
            if level == 0
        ]


def report(order: Said, **outcome: Any) -> Said:
    """Return how an attempt ended, or is said to have."""
    return {
        "type": "report",
        "attempt": order["attempt"],
        "lease": order["lease"],
        "outcome": {"kind": "exited", "exit_code": 0} | outcome,
    }


def tree(*entries: tuple[str, str, str]) -> bytes:
    """Return a list of files as it is on the wire."""
    return msgspec.msgpack.encode([1, secrets.token_bytes(16), list(entries)])


def is_clean(text: str) -> bool:
    """Whether a terminal would do nothing at a worker's word."""
    return not any(
        bad in text for bad in ("\x1b[2J", "\x1b]0;owned", "\x9b31m", "\u202e", "\x07")
    )


@attack("worker", "texts of other nodes do nothing to a terminal")
def escape_sequences_in_names_and_reasons(reef: Reef) -> str:
    rogue = Rogue(reef, 301)
    rogue.name = f"rogue{ESCAPES}"[:100]
    rogue.answers = lambda _, order: [
        {
            "type": "output",
            "attempt": order["attempt"],
            "stream": "stdout",
            "offset": 0,
            "data": ESCAPES.encode(),
        },
        {
            "type": "progress",
            "attempt": order["attempt"],
            "seq": 1,
            "metrics": {f"loss{ESCAPES}": 1.0},
        },
        report(order, kind="exited", exit_code=3, reason=f"it failed {ESCAPES}"),
    ]
    plain = Rogue(reef, 302)
    plain.answers = lambda _, order: [
        {
            "type": "progress",
            "attempt": order["attempt"],
            "seq": 1,
            "metrics": {"loss\x1b[2J": 1.0},
        },
        report(
            order, kind="exited", exit_code=3, reason="it failed \x1b[2J\x1b]0;owned"
        ),
    ]
    screens: dict[str, str] = {}
    for each in (rogue, plain):
        try:
            with each:
                job = reef.alice.submit(*ONLY_HERE, "--", "true")
                soon(lambda: bool(each.assigned), 5.0)  # noqa: B023
                soon(lambda: "failed" in reef.alice("ps", "--all").out, 2.0)
                for args in (
                    ("nodes",),
                    ("show", job),
                    ("explain", job),
                    ("events",),
                    ("ps", "--all"),
                    ("logs", job),
                ):
                    screens[args[0]] = on_terminal(reef.alice, *args)
        except (AssertionError, OSError, CutOff) as error:
            screens["turned away"] = str(error)
        reef.alice("cancel", "--all")
    for name, text in screens.items():
        must(is_clean(text), f"{name} prints {text[-200:]!r}")
    return f"{', '.join(screens)}: clean"


@attack("worker", "a result of another owner's worker runs no code at the caller's")
def a_pickle_that_runs_code(reef: Reef) -> str:
    return called(reef, 311, lambda n, evil: call_items.item(call_items.VALUE, n, evil))


@attack("worker", "an exception of another owner's worker runs no code either")
def an_exception_that_runs_code(reef: Reef) -> str:
    return called(
        reef, 312, lambda n, evil: call_items.item(call_items.RAISED, n, evil)
    )


class _Evil:
    """Pickles as an order to run a command."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.mark}",)


def called(reef: Reef, number: int, item: Callable[[int, bytes], bytes]) -> str:
    """Let alice call a function at a hostile worker; return how that ended for her."""
    mark = reef.mark()
    rogue = Rogue(reef, number)
    pickled = pickle.dumps(_Evil(mark), 5)
    beside = struct.pack("<BIQ", 1, 1, len(pickled)) + pickled
    evils = [pickled, b"\0" + pickled, beside]
    state = {"first": 0, "calls": 0}

    def answer(_: Rogue, said: Said) -> list[Said]:
        items = [bytes(one) for one in said.get("items", ())]
        out: list[bytes] = []
        for kind, call in map(call_items.head, items):
            if kind == call_items.CALL:
                out.append(item(call, evils[state["calls"] % len(evils)]))
                state["calls"] += 1
        return [batch(said["attempt"], out, said["first"] + len(items))]

    def batch(attempt: Any, items: list[bytes], taken: int) -> Said:
        first, state["first"] = state["first"], state["first"] + len(items)
        task = rogue.assigned[-1]["task"]["id"]
        return {
            "type": "result-batch",
            "task": task,
            "attempt": attempt,
            "first": first,
            "taken": taken,
            "items": items,
        }

    def begin(_: Rogue, order: Said) -> list[Said]:
        ready = call_items.item(call_items.READY, 0, b"3.11")
        return [batch(order["attempt"], [ready], 0)]

    rogue.answers, rogue.calls = begin, answer
    program = (
        "import shoal\n"
        "client = shoal.Client(start=False, lanes=1)\n"
        "for _ in range(3):\n"
        "    try: print('got', repr(client.submit(pow, 2, 3).result(timeout=3)))\n"
        "    except BaseException as error: print(type(error).__name__, error)\n"
        "import os, sys; sys.stdout.flush(); os._exit(0)\n"
    )
    with _without_lender(reef), rogue:
        done = subprocess.run(
            ["python", "-c", program],
            env=reef.alice.env,
            capture_output=True,
            text=True,
            timeout=COMMAND_S,
            check=False,
        )
        assigned = len(rogue.assigned)
    must(not mark.exists(), "the caller ran the worker's code")
    assert assigned, f"the call never came to the worker: {done}"
    said = (done.stdout + done.stderr).strip().splitlines()
    return f"{assigned} lanes; the caller saw: {said[-1] if said else 'nothing'}"


@contextlib.contextmanager
def _without_lender(reef: Reef) -> Any:
    """Let nobody but attackers serve: the lender's machine is not to be had."""
    reef.lender.down()
    try:
        yield
    finally:
        reef.lender.up()
        assert soon(lambda: reef.alice("run", "--", "true").code == 0, 30.0)


@attack("worker", "pulling outputs writes below the target only")
def outputs_that_climb_out_of_their_folder(reef: Reef) -> str:
    good = pulled(reef, [[("result", "file")]])
    assert (reef.folder / "target1-0" / "result").exists(), f"nothing came: {good}"
    mark = reef.folder / "climbed"
    up = "../../../../../../.." + str(mark)
    shapes = [
        [(up, "file")],
        [("a/../../climbed", "file")],
        [(str(mark), "file")],
        [("a", str(reef.folder)), ("a/climbed", "file")],
        [("a", ".."), ("a/climbed", "file")],
        [("a", "b"), ("b", "../.."), ("b/climbed", "file")],
        [("x\0y", "file")],
        [("a", "file"), ("a", "/etc")],
        [("", "file")],
        [("..", "folder")],
        [("a/./b", "file")],
    ]
    seen = pulled(reef, shapes)
    must(not mark.exists(), "a file was written outside")
    return "; ".join(dict.fromkeys(seen))


def pulled(reef: Reef, shapes: list[list[tuple[str, str]]]) -> list[str]:
    """Let alice pull trees of these shapes; return what her commands said."""
    rogue = Rogue(reef, 340)
    blob = rogue.keep(b"evil")
    trees = [
        rogue.keep(tree(*(entry(path, what, blob) for path, what in shape)))
        for shape in shapes
    ]
    rogue.answers = lambda _, order: [
        report(order, outputs={".": trees[int(order["task"]["work"]["argv"][1])]})
    ]
    said: list[str] = []
    with rogue:
        jobs = [
            reef.alice.submit(*ONLY_HERE, "--output", "*", "--", "echo", str(number))
            for number in range(len(shapes))
        ]
        assert soon(lambda: len(rogue.assigned) >= len(jobs), 20.0), "none came"
        soon(lambda: _have_ended(reef, jobs), 3.0)
        for number, job in enumerate(jobs):
            target = str(reef.folder / f"target{len(jobs)}-{number}")
            done = reef.alice("pull", job, "--to", target)
            said += (done.err.strip() or done.out.strip()).splitlines()[:1]
        reef.alice("cancel", "--all")
    return said


def entry(path: str, what: str, blob: str) -> tuple[str, str, str]:
    """Return an entry of a tree: a file, a folder, or else a link to there."""
    match what:
        case "file":
            return path, "file", blob
        case "folder":
            return path, "folder", ""
        case _:
            return path, "link", what


def waited(reef: Reef, job: str, *args: str) -> Done:
    """Run a command of alice's when a job has ended, or soon."""
    soon(lambda: _have_ended(reef, [job]), 2.0)
    return reef.alice(*args)


def _have_ended(reef: Reef, jobs: list[str]) -> bool:
    listed = reef.alice.json("ps", "--all")["jobs"]
    open_ = [job["id"] for job in listed if job["state"] in ("waiting", "running")]
    return not set(jobs) & set(open_)


@attack("worker", "what comes is what its name says")
def blobs_that_are_not_what_they_claim(reef: Reef) -> str:
    rogue = Rogue(reef, 331)
    right = name_of_bytes(b"right")
    rogue.blobs[right] = b"wrong"
    listed = rogue.keep(tree(("result", "file", right)))
    rogue.answers = lambda _, order: [report(order, outputs={".": listed})]
    target = reef.folder / "lied"
    with rogue:
        job = reef.alice.submit(*ONLY_HERE, "--output", "out", "--", "true")
        soon(lambda: bool(rogue.assigned), 5.0)
        done = waited(reef, job, "pull", job, "--to", str(target))
    reef.alice("cancel", "--all")
    found = [path.read_bytes() for path in target.glob("**/*") if path.is_file()]
    must(b"wrong" not in found, "bytes were taken that do not match their name")
    return (done.err.strip() or "nothing was pulled").splitlines()[0]


@attack("worker", "a result is that of who was given the task, and comes once")
def reports_of_tasks_of_others(reef: Reef) -> str:
    job = reef.alice.submit("--", "sleep", "2")
    rogue = Rogue(reef, 332)
    with rogue:
        for sequence in range(1, 60):
            attempt = [reef.alice.id, 1, sequence]
            for generation in (0, 1, 2):
                rogue.link.say(
                    report(
                        {
                            "attempt": [reef.alice.id, generation, sequence],
                            "lease": "x/1",
                        },
                        exit_code=66,
                    )
                )
            rogue.link.say(
                {
                    "type": "output",
                    "attempt": attempt,
                    "stream": "stdout",
                    "offset": 0,
                    "data": b"forged",
                }
            )
        done = reef.alice("wait", job)
    out = reef.alice("logs", job).out
    must(done.code == 0, f"a forged report ended the job: {done}")
    must("forged" not in out, "forged output was taken")
    return "the job ended as it ended"


@attack("worker", "of two results of a task the first counts, once")
def two_results_for_one_task(reef: Reef) -> str:
    rogue = Rogue(reef, 333)
    rogue.answers = lambda _, order: [
        report(order, exit_code=0),
        report(order, exit_code=9),
        report(order, exit_code=0),
    ]
    with rogue:
        job = reef.alice.submit(*ONLY_HERE, "--", "true")
        soon(lambda: bool(rogue.assigned), 5.0)
        done = reef.alice("wait", job)
    must(done.code == 0, f"it was counted again: {done}")
    return "counted once"


@attack("worker", "a worker that lies about its room delays work, and loses none")
def claiming_room_that_is_not_there(reef: Reef) -> str:
    rogue = Rogue(reef, 334)
    rogue.claimed = {"cpu_milli": 1 << 50, "memory_bytes": 1 << 52}
    rogue.labels = []
    rogue.answers = lambda _, order: [
        {"type": "refusal", "attempt": order["attempt"], "reason": "changed my mind"}
    ]
    with rogue:
        began = time.monotonic()
        done = reef.alice(
            "run", "--array", "12", "--", "sh", "-c", "sleep 0.3; echo up"
        )
        took = time.monotonic() - began
    ran = done.out.count("up")
    assert rogue.assigned, "nothing came to this worker"
    must(done.code == 0, f"{ran} of 12 tasks ran: {done.err}")
    return f"12 tasks ran in {took:.1f} s, {len(rogue.assigned)} came here first"


@attack("worker", "output of a worker is bounded at the scheduler")
def output_without_end(reef: Reef) -> str:
    rogue = Rogue(reef, 335)

    def flood(_: Rogue, order: Said) -> list[Said]:
        return [
            {
                "type": "output",
                "attempt": order["attempt"],
                "stream": "stdout",
                "offset": n << 40,
                "data": b"x" * 32_000,
            }
            for n in range(2_000)
        ] + [
            {
                "type": "progress",
                "attempt": order["attempt"],
                "seq": n,
                "metrics": {f"m{n}-{m}" + "y" * 90: 1.0 for m in range(200)},
            }
            for n in range(200)
        ]

    rogue.answers = flood
    before, disk = reef.alice.memory(), reef.alice.disk()
    with rogue:
        reef.alice.submit(*ONLY_HERE, "--", "true")
        eventually(rogue.said_all.is_set, READY_S, "the flood never ended")
        rogue.link.settle()
        grown, filled = reef.alice.memory() - before, reef.alice.disk() - disk
    reef.alice("cancel", "--all")
    must(grown < 96 << 20, f"memory grew by {grown >> 20} MiB")
    must(filled < 256 << 20, f"the disk holds {filled >> 20} MiB more")
    return f"+{max(grown, 0) >> 20} MiB of memory, +{max(filled, 0) >> 20} of disk"


@attack("worker", "a worker gets secrets of tasks that it runs, and no others")
def a_secret_for_whoever_asks(reef: Reef) -> str:
    reef.alice.ok("secret", "set", "PRIZE", typed=reef.prize)
    rogue = Rogue(reef, 336)
    with rogue:
        reef.alice("run", "--", "true")
        heard = str(rogue.assigned)
    must(reef.prize not in heard, "a secret came with a task that named none")
    return "none came"


@attack("worker", "a silent worker costs seconds, and no work")
def taking_a_task_and_saying_nothing(reef: Reef) -> str:
    rogue = Rogue(reef, 337)
    rogue.labels = []

    def vanish(rogue: Rogue, _: Said) -> list[Said]:
        rogue.link.close()
        return []

    rogue.answers = vanish
    with rogue:
        began = time.monotonic()
        done = reef.alice(
            "run", "--array", "12", "--", "sh", "-c", "sleep 0.3; echo up"
        )
        took = time.monotonic() - began
    assert rogue.assigned, "nothing came to this worker"
    must(done.code == 0, f"{done.out.count('up')} of 12 tasks ran: {done.err}")
    return f"12 tasks ran in {took:.1f} s; {len(rogue.assigned)} were given to it"
