"""Who has no business in a task tries its channels, and calls at the end of jobs."""

from __future__ import annotations

import json
import secrets
import socket
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attacks.negotiating import assignment, leased
from attacks.reef import eventually
from attacks.verdict import attack, must
from attacks.wire import CutOff, Link, Said
from shoal.net.identity.identity import Identity
from shoal.protocol.limits import SLOTS_MAX

if TYPE_CHECKING:
    from attacks.reef import Member, Reef

INSIDE = Path(__file__).parent / "inside"
UP_S = 20.0
LIFE = int(time.time())  # of a node that we claim to be
ITEM = b"D" + bytes(65_536)
LOOT = ("sh", "-c", "touch entered; cat prize; echo entered")


def opening(use: int, target: Any, **more: Any) -> Said:
    """Return the message that opens a channel with a program, or for another use."""
    program = {"kind": "program", "argv": list(LOOT)}
    return {
        "type": "channel-open",
        "channel": [LIFE, use, use % SLOTS_MAX],
        "use": more.pop("asks", program),
        **({"attempt": target} if target else {}),
        **more,
    }


def ends_of(link: Link, within_s: float = 5.0) -> list[Said]:
    """Return the first end of a channel, and all that follow soon."""
    try:
        first = link.hear("channel-end", within_s=within_s)
    except CutOff as over:
        return [{"reason": f"cut off: {over}"}]
    return [first, *link.all_heard("channel-end", for_s=0.5)]


def _prize(reef: Reef) -> tuple[str, list[Any]]:
    """Return a job of the lender that holds the prize, and the attempt that runs."""
    script = f"echo {reef.prize} > prize; echo up; exec sleep 120"
    job = reef.lender.submit("--", "sh", "-c", script)
    eventually(lambda: "up" in reef.lender("logs", job).out, UP_S)
    return job, [str(reef.lender.id), 1, 1]


def _untouched(reef: Reef, job: str) -> str:
    """Say that nobody has entered a job, as seen from inside, and end it."""
    seen = reef.lender("exec", job, "--", "ls").out
    reef.lender("cancel", job)
    must("entered" not in seen, f"somebody was in the task: {seen}")
    must("prize" in seen, f"the task was not looked at: {seen}")
    return seen


@attack("stranger", "only members open channels")
def opening_channels_without_a_grant(reef: Reef) -> str:
    job, attempt = _prize(reef)
    seen: list[str] = []
    for target, more in ((attempt, {}), (None, {"job": job}), (None, {"job": "last"})):
        stranger = Identity.generate()
        with Link(reef.lender.address, stranger, None) as link:
            link.say(opening(1, target, **more))
            link.say(_batch(1, (b"Dls\n",)))
            heard = link.all_heard("channel-batch", for_s=1.0)
        must(not heard, f"a stranger was answered: {heard[:1]}")
        seen.append(link.last_words or "nothing")
    _untouched(reef, job)
    return f"heard {seen[0][:80]}"


@attack("member", "a worker opens channels for the scheduler of the attempt alone")
def entering_tasks_of_another_scheduler(reef: Reef) -> str:
    job, _ = _prize(reef)
    member = reef.member(240)
    guesses = [
        [str(scheduler), generation, sequence]
        for scheduler in (reef.lender.id, member.identity.node)
        for generation in range(1, 4)
        for sequence in range(1, 12)
    ]
    with member.link(reef.lender) as link:
        for use, guess in enumerate(guesses, start=1):
            link.say(opening(use, guess))
        ended = ends_of(link)
        said = link.all_heard("channel-batch", for_s=1.0)
    items = [item for batch in said for item in batch.get("items", ())]
    must(not items, f"a channel was served: {items[:2]}")
    _untouched(reef, job)
    return f"{len(ended)} of {len(guesses)} refused: {ended[0]['reason'][:80]}"


@attack("member", "channels to a job are for nodes of its owner")
def entering_a_job_of_another_owner(reef: Reef) -> str:
    job, _ = _prize(reef)
    member = reef.member(241)
    names = (job, "last", "all", f"{job}.main.0", "")
    with member.link(reef.lender) as link:
        for use, name in enumerate(names, start=1):
            link.say(opening(use, None, job=name, task=""))
        ended = ends_of(link)
    done = member.at_api("exec", job, "--", *LOOT)
    shown = done.out + done.err
    must(done.code != 0, "exec at the API of the lender succeeded")
    must(reef.prize not in shown, f"exec shows the prize: {shown}")
    must(job not in done.out, f"exec shows the job: {done.out}")
    must(all(end["reason"] for end in ended), f"a channel was served: {ended}")
    _untouched(reef, job)
    return f"{ended[0]['reason'][:60]}; {done.err.strip().splitlines()[0][:60]}"


@attack("member", "items are taken from the node at the other end of a channel only")
def speaking_on_the_channels_of_others(reef: Reef) -> str:
    job, _ = _prize(reef)
    member = reef.member(242)
    with subprocess.Popen(
        ["shoal", "exec", job, "--", "cat"],
        env=reef.lender.env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as session:
        assert session.stdin is not None
        assert session.stdout is not None
        session.stdin.write(b"mine\n")
        session.stdin.flush()
        first = session.stdout.readline()
        now = int(time.time())
        with member.link(reef.lender) as link:
            for life in (0, 1, now - 1, now):
                for slot in range(4):
                    for by_opener in (True, False):
                        link.say(_batch(1, (b"Dforged\n",), life, slot, by_opener))
                        end = {"channel": [life, 1, slot], "by_opener": by_opener}
                        link.say({"type": "channel-end", "reason": "forged", **end})
            ended = ends_of(link)
        session.stdin.write(b"still mine\n")
        session.stdin.close()
        rest = session.stdout.read()
    must((first, rest) == (b"mine\n", b"still mine\n"), f"it read {first + rest!r}")
    must(session.wait() == 0, f"it ended with {session.returncode}")
    _untouched(reef, job)
    return f"the session was whole; {ended[0]['reason'][:60]}"


def _batch(
    use: int,
    items: tuple[bytes, ...],
    life: int | None = None,
    slot: int | None = None,
    by_opener: bool = True,
) -> Said:
    life = LIFE if life is None else life
    place = use % SLOTS_MAX if slot is None else slot
    return {
        "type": "channel-batch",
        "channel": [life, use, place],
        "by_opener": by_opener,
        "first": 0,
        "taken": 0,
        "items": list(items),
    }


@attack("member", "channels of a peer hold two windows each, and are counted")
def a_flood_of_channels_and_items(reef: Reef) -> str:
    member = reef.member(243)
    with member.link(reef.lender) as link:
        attempt = _own_task(member, link)
        before = reef.lender.memory()
        asks = {"kind": "program", "argv": ["sleep", "1000"]}
        for use in range(1, 4 * SLOTS_MAX):  # Each slot again and again.
            link.say(opening(use, attempt, asks=asks))
        latest = range(3 * SLOTS_MAX, 4 * SLOTS_MAX)
        for first in range(0, 600, 4):  # Into programs that read nothing.
            for use in latest[:6]:
                link.say({**_batch(use, (ITEM,) * 4), "first": first})
        link.settle()
        refused = link.all_heard("channel-end", for_s=1.0)
        serving = reef.serves()
        grown = (reef.lender.memory() - before) >> 20
    must(grown < 100, f"the node grew by {grown} MiB")
    sent = 600 * 6 * len(ITEM) >> 20
    why = refused[0]["reason"] if refused else "none refused"
    return f"grew by {grown} MiB of {sent} sent; {why[:50]}; {serving}"


def _own_task(member: Member, link: Link) -> list[Any]:
    """Run a task of a member at the lender; return its attempt."""
    lease = leased(link, member, f"c{secrets.token_hex(4)}")[0]
    order = assignment(member, lease, 1, ["sleep", "1000"])
    link.say(order)
    link.hear("started")
    return list(order["attempt"])


@attack("member", "a channel leads to ports of the task, and of nothing else")
def reaching_the_lenders_ports_through_a_task(reef: Reef) -> str:
    member = reef.member(244)
    with socket.create_server(("127.0.0.1", 0)) as own:
        own.settimeout(0.0)
        port = own.getsockname()[1]
        with member.link(reef.lender) as link:
            attempt = _own_task(member, link)
            for use, asked in enumerate((port, 22, 7_420), start=1):
                asks = {"kind": "port", "port": asked}
                link.say(opening(use, attempt, asks=asks))
            said = [
                item
                for batch in link.all_heard("channel-batch", for_s=4.0)
                for item in batch.get("items", ())
            ]
        try:
            own.accept()
            reached = True
        except BlockingIOError:
            reached = False
    must(not reached, "the task led to a port of the machine")
    kinds = {bytes(item[:1]) for item in said}
    must(b"R" not in kinds, f"a port was opened: {said}")
    why = next((bytes(item).decode(errors="replace") for item in said), "silence")
    return why.replace("\0", " ")[:90]


@attack("member", "what is called at the end of a job is for the owner of the node")
def calling_from_the_lenders_node_at_the_end_of_a_job(reef: Reef) -> str:
    member = reef.member(245)
    mark = reef.mark()
    seen: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as hook:
        hook.settimeout(0.0)
        url = f"http://127.0.0.1:{hook.getsockname()[1]}/"
        for what in ({"command": ["touch", str(mark)]}, {"webhook": url}):
            spec = json.dumps({"command": ["true"], "on_end": what})
            path = reef.folder / f"{secrets.token_hex(4)}.json"
            path.write_text(spec)
            done = member.at_api("submit", str(path))
            must(done.code != 0, f"the job was taken: {done.out}")
            seen.append(done.err.strip().splitlines()[0])
        time.sleep(1.0)
        must(not mark.exists(), "a command of a member ran at the lender")
        must(not _was_called(hook), "the lender called a member's webhook")
    return seen[0][:90]


@attack("member", "a command at the end of a job is words, and no shell sees them")
def injecting_into_a_command_at_the_end_of_a_job(reef: Reef) -> str:
    told, mark = reef.folder / f"told-{secrets.token_hex(4)}", reef.mark()
    name = f"$(touch {mark});`touch {mark}`&touch {mark}"
    spec = {
        "name": name[:100],
        "command": ["sh", "-c", f"echo '; touch {mark}' >&2; exit 3"],
        "on_end": {"command": ["tee", str(told)]},
    }
    path = reef.folder / f"{secrets.token_hex(4)}.json"
    path.write_text(json.dumps(spec))
    reef.lender("run", str(path))
    eventually(lambda: told.exists() and bool(told.read_text()), UP_S)
    report: dict[str, Any] = json.loads(told.read_text())
    must(not mark.exists(), "a name or a last line was run")
    return f"the report is data: {sorted(report)[:4]}"


def _was_called(hook: socket.socket) -> bool:
    try:
        hook.accept()
    except BlockingIOError:
        return False
    return True


FORBIDDEN = (
    *("Invite", "Requests", "Accept", "Revoke", "Drain", "Shutdown", "Forget"),
    *("RotateToken", "SetSecret", "ListSecrets", "RemoveSecret", "Inspect", "Metrics"),
    *("Forward", "ListEverywhere", "Remove", "Retry", "Usage", "Events", "Ping"),
    *("Channel", "NoSuchCall"),
)
"""What no task may call: all that concerns members, machines, and other jobs."""


@attack("task", "a task calls what concerns its own jobs, and nothing else")
def calling_the_node_from_inside_a_task(reef: Reef) -> str:
    other, _ = _prize(reef)
    asks = [f"{method}={other}" for method in ("Get", "Watch", "Logs", "Cancel")]
    asks += [f"{method}={other}" for method in ("Explain", "Curves", "Outputs")]
    job = reef.lender.submit(
        *("--cpus", "0.2", "--workdir", str(INSIDE), "--"),
        *("python3", "call_shoal.py", "Info", *FORBIDDEN, *asks),
    )
    reef.lender("wait", job)
    said = reef.lender("logs", job).out.splitlines()
    answers = dict(line.split(" ", 1) for line in said)
    must(answers["Info"].startswith("answer"), f"it called nothing: {said}")
    for ask in (*FORBIDDEN, *asks):
        must(answers[ask].startswith("error"), f"{ask} was answered: {answers[ask]}")
    must(reef.prize not in "".join(said), "a task read another job")
    _untouched(reef, other)
    return f"{len(FORBIDDEN)} calls refused: {answers['Shutdown'][:70]}"


@attack("task", "a machine of another owner cannot call in the name of a task")
def calling_home_from_the_machine_of_another(reef: Reef) -> str:
    job = reef.mallory.submit(
        *("--cpus", "0.2", "--workdir", str(INSIDE), "--"),
        *("python3", "call_shoal.py", "Info", "List"),
    )
    reef.mallory("wait", job)
    said = reef.mallory("logs", job).out
    must("Info no way" in said and "List no way" in said, f"it called home: {said}")
    return said.splitlines()[0][:90]


@attack("member", "only the worker that runs a task calls in its name, while it runs")
def calling_in_the_name_of_tasks(reef: Reef) -> str:
    job, _ = _prize(reef)
    ended = reef.lender.submit("--", "true")
    reef.lender("wait", ended)
    seen: list[str] = []
    for number, owner in ((246, "mallory"), (247, reef.owner)):
        member = reef.member(number, owner)
        with member.link(reef.lender) as link:
            for use in range(1, SLOTS_MAX):  # Attempts that run, and that have ended.
                guess = [str(reef.lender.id), 1, use]
                link.say(opening(use, guess, asks={"kind": "api"}))
                link.say(_batch(use, (b"D\x06\0\0\0\0List\0",)))
            refused = ends_of(link)
            said = link.all_heard("channel-batch", for_s=1.0)
        items = [item for batch in said for item in batch.get("items", ())]
        must(not items, f"a member was answered: {items[:2]}")
        seen.append(refused[0]["reason"])
    _untouched(reef, job)
    return f"refused: {seen[0][:80]}"
