"""A hostile member: it has a grant of its own, and says to others what it likes."""

from __future__ import annotations

import secrets
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from attacks.verdict import Broken, attack, must
from attacks.wire import CutOff, Said
from shoal.core.membership import revocation_payload
from shoal.model.ids import NodeId
from shoal.net.frames import Kind, framed
from shoal.protocol.messages import Revocation
from shoal.runtime import membership

if TYPE_CHECKING:
    from attacks.reef import Member, Reef
    from attacks.wire import Link

TEN_YEARS_S = 10 * 365 * 86_400
LONG_S = 60.0


def demand(member: Member, request: str, **more: Any) -> Said:
    """Return a demand for one small task."""
    wanted: Said = {
        "type": "demand",
        "request": request,
        "profile": {"cpu_milli": 100, "memory_bytes": 64 << 20},
        "count": 1,
        "rank": [0, 0.0, member.identity.node, request],
        "owner": member.grant.owner,
    }
    return wanted | more


def leased(link: Link, member: Member, request: str, **more: Any) -> list[str]:
    """Return leases that a worker has given us."""
    link.say(demand(member, request, **more))
    said = link.hear("offer", "refusal")
    until = time.monotonic() + 5.0
    while said["type"] == "refusal" and time.monotonic() < until:
        time.sleep(0.1)  # What an attack before held takes a moment to be free.
        request += "+"
        link.say(demand(member, request, **more))
        said = link.hear("offer", "refusal")
    assert said["type"] == "offer", said["reason"]
    leases = said["leases"]
    link.say({"type": "commit", "request": request, "leases": leases, "lease_s": 30.0})
    return list(link.hear("committed")["leases"])


def all_room(link: Link, member: Member) -> list[str]:
    """Return leases of all the CPUs that a worker has, in halves."""
    half = {"profile": {"cpu_milli": 500}}
    taken = leased(link, member, "all", **half)
    for n in range(64):
        link.say(demand(member, f"all{n}", **half))
        said = link.hear("offer", "refusal")
        if said["type"] == "refusal":
            break
        taken += said["leases"]
        link.say(
            {
                "type": "commit",
                "request": f"all{n}",
                "leases": said["leases"],
                "lease_s": 60.0,
            }
        )
        link.hear("committed")
    return taken


def assignment(
    member: Member, lease: str, sequence: int, argv: list[str], **task: Any
) -> Said:
    """Return the order to run a program."""
    work = {"argv": argv} | task.pop("work", {})
    more = task.pop("more", {})
    order: Said = {
        "type": "assignment",
        "lease": lease,
        "attempt": [member.identity.node, 1, sequence],
        "task": {"id": "j.g.0", "job": "j", "group": "j.g", "work": work} | task,
    }
    order.update(more)
    return order


def ran(reef: Reef, number: int, argv: list[str], **task: Any) -> str:
    """Have the lender run a program; return what it said of that."""
    member = reef.member(number)
    with member.link(reef.lender) as link:
        lease = leased(link, member, f"r{number}")[0]
        link.say(assignment(member, lease, 1, argv, **task))
        link.say({"type": "inquiry", "request": "seen"})  # In order: it comes after.
        try:
            link.hear("inventory")
            said = link.hear("started", "report", "refusal", "staging", within_s=1.0)
            if said["type"] not in ("report", "refusal"):
                said = link.hear("report", "refusal", within_s=20.0)
        except CutOff as cut:
            return f"cut off: {cut}"
        except TimeoutError:
            return "no answer: the frame was void"
    if said["type"] == "refusal":
        return f"refused: {said['reason']}"
    outcome = said["outcome"]
    told = outcome.get("reason") or outcome.get("exit_code")
    return f"{outcome['kind']}: {told}"


def shifted(mark: Path, fields: int) -> str:
    """Return a text whose NULs would move an own command into fields that follow."""
    command = ["/bin/sh", "-c", f"touch {mark}"]
    return "\0".join(["x", *[""] * fields, "0", "0", "0", "0", "0", *command])


@attack("member", "ids hold no NUL; a task runs in its sandbox or not at all")
def a_nul_in_a_task_id_shifts_the_order_for_the_warden(reef: Reef) -> str:
    mark = reef.mark()
    seen: list[str] = []
    for fields in (4, 9, 10, 13):
        evil = shifted(mark, fields)[:190]
        ids = {"id": evil, "job": "j", "group": "j.g"}
        seen.append(ran(reef, 100 + fields, ["true"], **ids))
        must(not mark.exists(), f"a command ran outside the sandbox: {fields} fields")
    return seen[-1]


@attack("member", "paths and variables hold no NUL")
def a_nul_in_paths_variables_and_arguments(reef: Reef) -> str:
    mark = reef.mark()
    evil = shifted(mark, 4)
    seen = [
        ran(reef, 121, ["true"], work={"env": {"A": evil}}),
        ran(reef, 122, ["true", evil]),
        ran(reef, 123, ["true"], work={"setup": ["true", evil]}),
        ran(reef, 124, ["true"], more={"checkpoint_path": evil[:4000]}),
        ran(reef, 125, ["true"], work={"workdir": evil}),
        ran(reef, 126, ["true"], work={"env": {evil[:120]: "a"}}),
        ran(reef, 127, ["true"], work={"outputs": [evil]}),
    ]
    must(not mark.exists(), f"a command ran outside the sandbox: {seen}")
    must(not any(said == "exited: 0" for said in seen), f"a NUL was taken: {seen}")
    return f"{seen[0]}; {reef.serves()}"


@attack("member", "an id never becomes a path outside of its folder")
def ids_and_names_that_climb_out_of_folders(reef: Reef) -> str:
    up = "../" * 8 + "tmp/shoal-climbed"
    before = set(reef.folder.iterdir())
    seen = [
        ran(reef, 131, ["true"], id=up, job=up, group=up),
        ran(reef, 132, ["true"], work={"recipe": f"{up}.py", "argv": []}),
        ran(reef, 133, ["sh", "-c", "echo x > out"], work={"outputs": ["../../*"]}),
        ran(reef, 134, ["true"], work={"workdir": up}),
        ran(reef, 135, ["true"], work={"driver": up}),
    ]
    must(not Path("/tmp/shoal-climbed").exists(), "a file was made outside")
    fresh = {path.name for path in set(reef.folder.iterdir()) - before}
    strange = {name for name in fresh if not name.startswith("member")}
    must(not strange, f"new beside the homes: {strange}")
    return f"{seen[0]}; {seen[2]}"


@attack("member", "a checkpoint is written below the work directory only")
def a_checkpoint_path_that_climbs_out(reef: Reef) -> str:
    seen = [
        ran(reef, 136, ["true"], more={"checkpoint_path": "../../../../etc/evil"}),
        ran(reef, 137, ["true"], more={"checkpoint_path": "/etc/evil"}),
    ]
    must(not Path("/etc/evil").exists(), "a file was made in /etc")
    return "; ".join(seen)


@attack("member", "an attempt runs once, whatever leases it is sent for")
def one_attempt_on_two_leases(reef: Reef) -> str:
    member = reef.member(140)
    with member.link(reef.lender) as link:
        one = leased(link, member, "a")[0]
        two = leased(link, member, "b")[0]
        first = assignment(member, one, 1, ["sleep", "2"])
        again = assignment(
            member, one, 2, ["sleep", "1"], more={"after": [member.identity.node, 1, 1]}
        )
        other = again | {"lease": two, "after": None}
        link.say(first)
        link.say(again, other, other, again)
        ends = link.all_heard("report", for_s=5.0)
    must(reef.lender.alive, f"the node ended: {reef.lender.log()}")
    mine = [end for end in ends if end["attempt"][2] == 2]
    codes = {str(end["outcome"]) for end in mine}
    must(len(codes) <= 1, f"one attempt has {len(codes)} ends: {codes}")
    return f"{len(ends)} reports; {reef.serves()}"


@attack("member", "no spec of a member ends a node")
def output_patterns_and_folders_that_nobody_expects(reef: Reef) -> str:
    patterns = [
        "x\\",
        "[",
        "**/**/**",
        "a" * 4_000,
        "\udc80".encode("utf-8", "surrogatepass").decode("utf-8", "replace"),
        "",
        ".",
        "/",
        "~",
        "{a,b",
    ]
    for number, pattern in enumerate(patterns):
        ran(reef, 150 + number, ["true"], work={"outputs": [pattern]})
        must(reef.lender.alive, f"the pattern {pattern[:20]!r} ended the node")
    for command in ("mkdir .shoal", "touch .shoal", "ln -s / .shoal", "mkfifo out"):
        ran(reef, 170, ["sh", "-c", command], work={"outputs": ["out", "*"]})
        must(reef.lender.alive, f"{command} ended the node")
    return reef.serves()


@attack("member", "an own job with a bad pattern is refused, and never ends its node")
def a_user_submits_a_pattern_that_ends_in_a_backslash(reef: Reef) -> str:
    done = reef.lender("run", "--output", "x\\", "--", "true")
    must(reef.lender.alive, "the node of the user ended")
    folder = reef.folder / "with-dot-shoal"
    folder.mkdir(exist_ok=True)
    (folder / ".shoal").write_text("a file")
    reef.lender("run", "--workdir", str(folder), "--", "true")
    must(reef.lender.alive, "a file .shoal ended the node")
    return f"{done.err.strip().splitlines()[:1]}; {reef.serves()}"


@attack("member", "by certificate one sees one's own owner's jobs only")
def reading_jobs_of_the_lender_at_its_api(reef: Reef) -> str:
    member = reef.member(180)
    reef.job = reef.lender.submit("--", "echo", f"the prize is {reef.prize}")
    reef.lender("wait", reef.job)
    seen = {
        "ps": member.at_api("ps", "--all"),
        "logs": member.at_api("logs", reef.job),
        "show": member.at_api("show", reef.job, "--json"),
        "events": member.at_api("events", "--json"),
        "explain": member.at_api("explain", reef.job),
        "pull": member.at_api("pull", reef.job, "--to", str(reef.folder / "stolen")),
    }
    for name, done in seen.items():
        must(reef.prize not in done.out + done.err, f"{name} shows the output")
        must(reef.job not in done.out, f"{name} shows the job: {done.out[:200]}")
    return seen["logs"].err.strip().splitlines()[0]


@attack("member", "nobody cancels or repeats a job of another owner")
def cancelling_a_job_of_the_lender_at_its_api(reef: Reef) -> str:
    job = reef.lender.submit("--", "sleep", "60")
    member = reef.member(181)
    done = member.at_api("cancel", job)
    member.at_api("retry", reef.job)
    time.sleep(0.3)
    state = reef.lender.json("show", job)["job"]["state"]
    reef.lender("cancel", job)
    must(state in ("waiting", "running", "active"), f"the job is {state}")
    return done.err.strip().splitlines()[0] if done.err else str(done.code)


@attack("member", "a job submitted by certificate is that of the certificate's owner")
def submitting_as_the_lender_at_its_api(reef: Reef) -> str:
    member = reef.member(182, top_priority=0)
    done = member.at_api("submit", "--priority", "90", "--json", "--", "true")
    if done.code:
        return done.err.strip().splitlines()[0]
    jobs = reef.lender.json("ps", "--all")["jobs"]
    foreign = [job for job in jobs if job.get("owner") == "mallory"]
    must(bool(foreign), f"the lender submitted it: {jobs[-1]}")
    high = [job for job in foreign if int(job.get("priority", 0)) > 0]
    must(not high, f"it has the priority {high}")
    return "it ran as mallory's, with her top priority"


@attack("member", "secrets go to work of their owner only")
def asking_for_a_secret_of_the_lender(reef: Reef) -> str:
    member = reef.member(183)
    done = member.at_api("run", "--secret", "PRIZE", "--", "sh", "-c", "echo $PRIZE")
    must(reef.prize not in done.out + done.err, "a job printed the secret")
    program = (
        "import json, os, shoal\n"
        "from shoal.client.options import Options\n"
        "before = Options.spec\n"
        "Options.spec = lambda self: json.dumps(\n"
        "    {**json.loads(before(self)), 'secrets': ['PRIZE']})\n"
        "client = shoal.Client(start=False)\n"
        "print(client.submit(lambda: dict(os.environ)).result(timeout=20))\n"
    )
    called = subprocess.run(
        ["python", "-c", program],
        capture_output=True,
        text=True,
        env=reef.mallory.env
        | {
            "SHOAL_HOME": str(member.home.path),
            "SHOAL_NODE": f"{reef.lender.host}:4002",
        },
        timeout=60,
        check=False,
    )
    must(reef.prize not in called.stdout + called.stderr, "a function got the secret")
    said = (done.err.strip() or "no secret").splitlines()[0]
    return f"{said}; {called.stderr.strip().splitlines()[-1:]}"


@attack("member", "a revoked member is out, whatever clock signed its grant")
def a_grant_of_a_clock_that_was_ahead(reef: Reef) -> str:
    ahead = int(time.time()) + TEN_YEARS_S
    member = reef.member(190, serial=ahead)
    link = member.link(reef.lender)
    done = reef.lender("revoke", member.identity.node)
    must(link.over.wait(5.0), f"it is still linked; revoke said {done}")
    at_api = member.at_api("nodes")
    must(at_api.code != 0, f"the API lets it in; revoke said {done.out}{done.err}")
    return f"{at_api.err.strip().splitlines()[0]}; revoke exited {done.code}"


@attack("member", "a revocation reaches every member, however many there are")
def hiding_behind_a_hundred_revocations(reef: Reef) -> str:
    many = 100
    ids = [reef.member(1_000 + n).identity.node for n in range(3)]
    witness = reef.member(199, owner="witness")
    with witness.link(reef.lender) as link:
        for n in range(many):
            voided = ids[n] if n < len(ids) else f"{ids[0][:-6]}{n:06}"
            link.say(revocation(reef, voided))
    with witness.link(reef.lender) as link:
        told = link.all_heard("revocation", for_s=4.0)
    names = {one["node"] for one in told}
    must(len(names) >= many, f"{len(names)} of {many} revocations were told")
    return f"{len(names)} were told"


def revocation(reef: Reef, node: str) -> Said:
    """Return a revocation that the root has signed."""
    unsigned = Revocation(
        node=NodeId(node), shoal="reef", serial=int(time.time()), signer=reef.root.node
    )
    signature = reef.root.sign(revocation_payload(unsigned))
    signed = msgspec.structs.replace(unsigned, signature=signature)
    found: Said = msgspec.to_builtins(signed, builtin_types=(bytes,))
    return found


@attack("member", "a stream of the API ends when its caller is revoked")
def a_stream_that_outlives_revocation(reef: Reef) -> str:
    member = reef.member(191)
    told = member.at_api(
        "submit",
        "-q",
        "--",
        "sh",
        "-c",
        "for i in $(seq 80); do echo $i; sleep 0.1; done",
    )
    must(told.code == 0 or "not" in told.err, f"{told}")
    if told.code:
        return told.err.splitlines()[0]
    job = told.out.strip()
    process = subprocess.Popen(
        ["shoal", "logs", "-f", job],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=reef.mallory.env
        | {
            "SHOAL_HOME": str(member.home.path),
            "SHOAL_NODE": f"{reef.lender.host}:4002",
        },
    )
    assert process.stdout is not None
    assert process.stdout.readline()
    reef.lender.ok("revoke", member.identity.node)
    try:
        process.wait(5.0)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        raise Broken("it still read the log five seconds later") from None
    finally:
        reef.lender("cancel", job)
    return "the stream was cut"


@attack("member", "every lease costs something: no member takes them all")
def thousands_of_leases_of_size_zero(reef: Reef) -> str:
    member = reef.member(200)
    got = 0
    with member.link(reef.lender) as link:
        for n in range(64):
            link.say(demand(member, f"z{n}", profile={}, count=4_096))
        for message in link.all_heard("offer", for_s=3.0):
            got += len(message["leases"])
            request, leases = message["request"], message["leases"]
            link.say(
                {
                    "type": "commit",
                    "request": request,
                    "leases": leases,
                    "lease_s": 30.0,
                }
            )
        serving = reef.serves()
        link.say({"type": "goodbye"})
    must(got < 1_024, f"{got} leases of size zero")
    return f"{got} leases; {serving}"


@attack("member", "a claimed age overtakes nobody")
def claiming_an_age_of_ten_years(reef: Reef) -> str:
    hog, honest, liar = reef.member(210), reef.member(211, "o1"), reef.member(212)
    with (
        hog.link(reef.lender) as holds,
        honest.link(reef.lender) as waits,
        liar.link(reef.lender) as lies,
    ):
        taken = all_room(holds, hog)
        waits.say(waiting(honest, 5.0))
        waits.hear("refusal")
        lies.say(waiting(liar, TEN_YEARS_S))
        lies.hear("refusal")
        turns = []
        for lease in taken[:2]:  # Once a stranger may be lucky, but not in a row.
            holds.say({"type": "release", "leases": [lease]})
            turns.append(_next_served((lies, liar, TEN_YEARS_S), (waits, honest, 6.0)))
        holds.say({"type": "release", "leases": taken})
    must("o1" in turns, f"room went to {turns}, while the honest scheduler waited")
    return f"room went to {turns}"


def _next_served(*rivals: tuple[Link, Member, float]) -> str:
    """Let these ask in turn until one gets a lease; return whose it is."""
    until = time.monotonic() + 5.0
    while time.monotonic() < until:
        for link, member, age_s in rivals:
            wanted = waiting(member, age_s)
            link.say(wanted)
            said = link.hear("offer", "refusal")
            if said["type"] == "offer":
                request, leases = wanted["request"], said["leases"]
                link.say(
                    {
                        "type": "commit",
                        "request": request,
                        "leases": leases,
                        "lease_s": 60.0,
                    }
                )
                link.hear("committed")
                return str(member.grant.owner)
    return "nobody"


def waiting(member: Member, age_s: float) -> Said:
    """Return a demand of this age that waits if there is no room."""
    request = f"q{secrets.token_hex(3)}"
    rank = [0, float(age_s), member.identity.node, request]
    return demand(
        member, request, profile={"cpu_milli": 500}, wait_for_s=LONG_S, rank=rank
    )


@attack("member", "what others say of a worker hides it from nobody")
def a_forged_rumour_with_a_high_epoch(reef: Reef) -> str:
    member = reef.member(220)
    lie = [reef.lender.id, 1 << 50, 1 << 50, 8, 0, 0, 0, 0, 0, True]
    load = {"cpu_milli": 0, "memory_bytes": 0, "active": 9, "draining": True}
    with member.link(reef.alice) as link:
        link.say(
            {"type": "load-digests", "rumours": [lie]},
            {
                "type": "load-digest",
                "node": reef.lender.id,
                "epoch": 1 << 50,
                "seq": 1 << 50,
                "load": load,
            },
            {"type": "inventory-changed", "epoch": 1 << 50, "seq": 1, "load": load},
        )
        time.sleep(0.3)
        began = time.monotonic()
        serving = reef.serves()
        took = time.monotonic() - began
    must(took < 10.0, f"a job waited {took:.0f} s")
    return f"{serving}, after {took:.1f} s"


@attack("member", "only what was asked for is answered")
def answers_to_questions_that_nobody_asked(reef: Reef) -> str:
    member = reef.member(221)
    grant = msgspec.to_builtins(member.grant, builtin_types=(bytes,))
    with member.link(reef.lender) as link:
        for request in ("", "1", f"{reef.lender.id}/1", f"{reef.lender.id}/self"):
            link.say(
                {"type": "welcome", "request": request, "grant": grant},
                {
                    "type": "offer",
                    "request": request,
                    "leases": ["x/1"],
                    "valid_for_s": 60.0,
                },
                {"type": "committed", "request": request, "leases": ["x/1"]},
                {"type": "admission-heard", "request": request, "nonce": b"x" * 32},
                {"type": "invitation-taken", "request": request},
                {"type": "peers-known", "request": request, "peers": []},
                {
                    "type": "reservation",
                    "request": request,
                    "valid_for_s": 9.0,
                    "bytes_max": 1,
                    "circuits_max": 1,
                },
            )
    return reef.serves()


@attack("member", "who may submit only signs no grants")
def signing_a_grant_for_a_friend(reef: Reef) -> str:
    member, friend = reef.member(222), reef.member(223)
    forged = msgspec.structs.replace(
        friend.grant,
        delegation=member.grant,
        top_priority=100,
        signature=b"",
        roles=("scheduler", "worker", "gate", "admin"),
    )
    made = membership.issue(member.identity, forged)
    try:
        with friend._replace(grant=made).link(reef.lender) as link:
            link.say(demand(friend, "f"))
            link.hear("offer", within_s=2.0)
    except (CutOff, TimeoutError, OSError) as error:
        return f"turned away: {error}"
    raise Broken("a member made a member")


@attack("member", "who may submit only revokes nobody")
def revoking_others(reef: Reef) -> str:
    member = reef.member(224)
    unsigned = Revocation(
        node=reef.alice.id,
        shoal="reef",
        serial=1 << 40,
        signer=member.identity.node,
        delegation=member.grant,
    )
    signature = member.identity.sign(revocation_payload(unsigned))
    signed = msgspec.structs.replace(unsigned, signature=signature)
    with member.link(reef.lender) as link:
        link.say(msgspec.to_builtins(signed, builtin_types=(bytes,)))
        link.all_heard("none", for_s=0.3)
    return reef.serves()


@attack("member", "a priority above the grant's counts for nothing")
def demanding_with_a_priority_above_the_grant(reef: Reef) -> str:
    high, low = reef.member(225, top_priority=0), reef.member(226, "o2")
    with low.link(reef.lender) as holds, high.link(reef.lender) as wants:
        taken = all_room(holds, low)
        wants.say(
            demand(
                high,
                "P",
                profile={"cpu_milli": 500},
                preempt=True,
                rank=[100, 0.0, high.identity.node, "P"],
            )
        )
        said = wants.hear("offer", "refusal")
        holds.say({"type": "release", "leases": taken})
    must(said["type"] == "refusal", f"it displaces others: {said}")
    return str(said["reason"])


@attack("member", "a quota in a grant is kept by every worker")
def demanding_more_than_the_quota(reef: Reef) -> str:
    member = reef.member(227, quota_cpu_milli=500)
    got = 0
    with member.link(reef.lender) as link:
        for n in range(8):
            link.say(demand(member, f"k{n}", profile={"cpu_milli": 250}))
            said = link.hear("offer", "refusal")
            got += len(said.get("leases", ())) if said["type"] == "offer" else 0
    must(got <= 2, f"{got} leases of 250 within a quota of 500")
    return f"{got} leases"


@attack("member", "a lease obeys who holds it, and nobody else")
def using_leases_of_another(reef: Reef) -> str:
    owner, thief = reef.member(230, "o3"), reef.member(231)
    mark = reef.mark()
    with owner.link(reef.lender) as mine, thief.link(reef.lender) as other:
        lease = leased(mine, owner, "m")[0]
        mine.say(assignment(owner, lease, 1, ["sleep", "2"]))
        mine.hear("started")
        attempt = [owner.identity.node, 1, 1]
        other.say(
            assignment(thief, lease, 1, ["touch", str(mark)]),
            {"type": "cancel", "attempt": attempt, "lease": lease, "grace_s": 0.0},
            {"type": "release", "leases": [lease]},
            {"type": "renew", "leases": [lease], "lease_s": 0.001},
            {"type": "acknowledgement", "attempts": [attempt]},
        )
        end = mine.hear("report")
    must(end["outcome"]["kind"] == "exited", f"its task was ended: {end}")
    must(end["outcome"].get("exit_code") == 0, f"its task was hurt: {end}")
    return "the task ended as its owner meant it to"


@attack("member", "an attempt is that of the scheduler that sent it")
def attempts_in_the_name_of_another_scheduler(reef: Reef) -> str:
    member = reef.member(232)
    with member.link(reef.lender) as link:
        lease = leased(link, member, "n")[0]
        forged = assignment(member, lease, 1, ["true"])
        forged["attempt"] = [reef.alice.id, 1 << 40, 1]
        link.say(forged)
        said = link.all_heard("started", for_s=1.0)
    must(not said, "it runs under another scheduler's name")
    return reef.serves()


@attack("member", "nodes of one owner ask each other about jobs, and no other node")
def forwarded_calls_of_another_owner(reef: Reef) -> str:
    member = reef.member(233)
    with member.link(reef.lender) as link:
        for method in ("List", "Logs", "Cancel", "Shutdown", "SetSecret", "Invite"):
            link.say(
                {
                    "type": "api-request",
                    "call": 1,
                    "method": method,
                    "request": b"",
                    "data": b"",
                    "id": "1",
                }
            )
            link.say(
                {
                    "type": "api-call",
                    "call": 1,
                    "method": method,
                    "request": b"",
                    "data": b"",
                    "id": "1",
                }
            )
        heard = [
            message
            for kind in ("api-answer", "api-part", "api-response")
            for message in link.all_heard(kind, for_s=0.3)
        ]
    must(reef.prize not in str(heard), f"it answered {heard}")
    return f"{len(heard)} answers; {reef.serves()}"


@attack("member", "frames of any bytes cost their sender the link, and nothing else")
def frames_that_are_nearly_right(reef: Reef) -> str:
    member = reef.member(240)
    before = reef.lender.memory()
    cuts = 0
    good = msgspec.msgpack.encode(
        [
            demand(member, "g"),
            assignment(member, "l", 1, ["true"]),
            {"type": "goodbye", "reason": "x" * 100},
        ]
    )
    link = None
    for n in range(400):
        if link is None or link.over.is_set():
            try:
                link = member.link(reef.lender)
            except (CutOff, OSError, TimeoutError, EOFError):
                cuts += 1
                time.sleep(0.02)
                continue
        body = bytearray(good)
        for _ in range(n % 7):
            body[secrets.randbelow(len(body))] = secrets.randbelow(256)
        link.raw(framed(Kind.MESSAGES, bytes(body)))
    if link is not None:
        link.close()
    grown = reef.lender.memory() - before
    must(grown < 64 << 20, f"memory grew by {grown >> 20} MiB")
    return f"cut off {cuts} times; {reef.serves()}"


@attack("member", "nesting and sizes are bounded before they cost anything")
def bombs_of_nesting_and_size(reef: Reef) -> str:
    member = reef.member(241)
    before = reef.lender.memory()
    bombs = [
        framed(Kind.MESSAGES, b"\x91" * 900_000),
        framed(Kind.MESSAGES, b"\xdd\xff\xff\xff\xff"),
        framed(Kind.MESSAGES, b"\x91\x81\xa4type\xdb\xff\xff\xff\xff"),
        bytes((Kind.PING,)) + (1 << 23).to_bytes(3, "big"),
        bytes((9,)) + bytes(3),
        framed(Kind.MESSAGES, msgspec.msgpack.encode([{"type": "hello"}] * 5_000)),
    ]
    for bomb in bombs:
        try:
            with member.link(reef.lender) as link:
                for _ in range(3):
                    link.raw(bomb)
                link.over.wait(1.0)
        except (CutOff, OSError, TimeoutError, EOFError):
            time.sleep(0.1)
    grown = reef.lender.memory() - before
    must(grown < 64 << 20, f"memory grew by {grown >> 20} MiB")
    return f"+{max(grown, 0) >> 20} MiB; {reef.serves()}"


@attack("member", "memory is bounded for each peer, whatever it says")
def a_flood_of_requests(reef: Reef) -> str:
    member = reef.member(242)
    before = reef.lender.memory()
    with member.link(reef.lender) as link:
        for n in range(60):
            link.say(
                *(
                    demand(
                        member,
                        f"{n}-{m}" + "y" * 100,
                        profile={"cpu_milli": 10**9},
                        wait_for_s=LONG_S,
                    )
                    for m in range(500)
                )
            )
    grown = reef.lender.memory() - before
    must(grown < 64 << 20, f"memory grew by {grown >> 20} MiB")
    return f"30,000 demands, +{max(grown, 0) >> 20} MiB; {reef.serves()}"


@attack("member", "blobs that never become whole are within the limit of the cache")
def parts_of_blobs_that_never_end(reef: Reef) -> str:
    member = reef.member(243)
    before = reef.lender.disk("cache")
    with member.link(reef.lender) as link:
        lease = leased(link, member, "c", count=1)[0]
        size = 40 << 20
        for n in range(12):
            blob = f"{secrets.token_hex(32)}-{size}"
            order = assignment(member, lease, n + 1, ["true"], work={"workdir": blob})
            link.say(order)
            for wanted in link.all_heard("piece-wanted", for_s=0.2):
                for level, index in wanted["pieces"]:
                    link.say(
                        {
                            "type": "blob-piece",
                            "blob": wanted["blob"],
                            "level": level,
                            "index": index,
                            "data": secrets.token_bytes(49_152),
                        }
                    )
            link.say({"type": "cancel", "attempt": order["attempt"], "lease": lease})
    grown = reef.lender.disk("cache") - before
    must(grown < 70 << 20, f"{grown >> 20} MiB of parts in a cache of 64 MB")
    return f"+{max(grown, 0) >> 20} MiB"


@attack("member", "letters reach tasks of one's own jobs only")
def letters_to_tasks_of_others(reef: Reef) -> str:
    member = reef.member(244)
    with member.link(reef.lender) as link:
        for to in (f"{reef.job}.main.0", "x" * 190, "j.g.0"):
            link.say(
                {
                    "type": "mail",
                    "attempt": [member.identity.node, 1, 1],
                    "seq": 1,
                    "to": to,
                    "data": b"evil",
                    "sender": to,
                    "receiver": [reef.alice.id, 1, 1],
                }
            )
        heard = link.all_heard("mail-receipt", for_s=0.5)
    taken = [one for one in heard if one["what"] == "taken"]
    must(not taken, f"a letter was taken: {taken}")
    return f"{len(heard)} receipts, none taken; {reef.serves()}"


@attack(
    "member", "a lender whose journal has vanished says so, and does not begin anew"
)
def a_home_whose_journal_has_vanished(reef: Reef) -> str:
    node = reef.mallory
    node.down()
    kept = {path: path.read_bytes() for path in node.home.path.glob("journal.db*")}
    for path in kept:
        path.unlink()
    try:
        process = subprocess.run(
            ["shoal", "up", "-q", *node.args],
            env=node.env,
            capture_output=True,
            text=True,
            timeout=8,
            check=False,
        )
    except subprocess.TimeoutExpired:
        code, said = 0, ""
    else:
        code, said = process.returncode, process.stderr
    for path in node.home.path.glob("journal.db*"):
        path.unlink()
    for path, data in kept.items():
        path.write_bytes(data)
    node.up()
    must(code != 0, "it started without its journal, and forgot its jobs")
    must("journal" in said, f"it does not say why: {said}")
    return said.strip().splitlines()[0]


@attack("member", "a node lets in as many members as its grants say: no ghosts")
def the_same_identity_from_many_places(reef: Reef) -> str:
    member = reef.member(245)
    links = [member.link(reef.lender) for _ in range(1)]
    for _ in range(20):
        try:
            links.append(member.link(reef.lender))
        except (CutOff, OSError, TimeoutError, EOFError):
            continue
    alive = [link for link in links if not link.over.wait(0.3)]
    for link in links:
        link.close()
    must(len(alive) <= 2, f"{len(alive)} links of one node are up")
    return f"{len(alive)} of {len(links)} links stay; {reef.serves()}"
