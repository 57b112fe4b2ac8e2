"""A hostile member: it wants more than its grant gives it."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from attacks.negotiating import all_room, demand
from attacks.reef import API, eventually
from attacks.verdict import Broken, attack, must
from attacks.wire import CutOff, Said
from shoal.core.membership.members import revocation_payload
from shoal.model.ids import NodeId
from shoal.protocol.messages import Revocation
from shoal.runtime.membership import shoal_membership

if TYPE_CHECKING:
    from attacks.reef import Reef


TEN_YEARS_S = 10 * 365 * 86_400


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
        "import json, os, sys, shoal\n"
        "from shoal.client.options import CallOptions\n"
        "before = CallOptions.spec\n"
        "CallOptions.spec = lambda self: json.dumps(\n"
        "    {**json.loads(before(self)), 'secrets': sys.argv[1:]})\n"
        "client = shoal.Client(os.environ['SHOAL_NODE'], start=False)\n"
        "print(client.submit(lambda: dict(os.environ)).result(timeout=20))\n"
    )

    def call(*secrets: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["python", "-c", program, *secrets],
            capture_output=True,
            text=True,
            env=reef.mallory.env
            | {
                "SHOAL_HOME": str(member.home.path),
                "SHOAL_NODE": f"{reef.lender.host}:{API}",
            },
            timeout=60,
            check=False,
        )

    honest, called = call(), call("PRIZE")
    assert "SHOAL_JOB_ID" in honest.stdout, honest.stderr
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
    made = shoal_membership.issue(member.identity, forged)
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


@attack("member", "a grant is renewed as it is, for its own node, and when it is due")
def asking_for_a_better_grant(reef: Reef) -> str:
    member, other = reef.member(260), reef.member(261, "o4")
    better = msgspec.structs.replace(member.grant, top_priority=100)
    late = reef.grant(member.identity, "mallory", expires_wall_s=time.time() - 5)
    seen: list[str] = []
    with member.link(reef.lender) as link:
        for n, grant in enumerate((member.grant, better, other.grant, late)):
            shown = msgspec.to_builtins(grant, builtin_types=(bytes,))
            link.say({"type": "grant-wanted", "request": f"g{n}", "grant": shown})
            try:
                said = link.hear("grant-renewed", within_s=2.0)
            except (TimeoutError, CutOff):
                seen.append("no answer")
                continue
            must(not said.get("grant"), f"it was given a grant: {said}")
            seen.append(str(said.get("reason", "")))
    return "; ".join(seen)


@attack("member", "a grant that nobody asked for changes nothing")
def giving_a_grant_to_a_node(reef: Reef) -> str:
    member = reef.member(262)
    before = reef.alice.home.membership.read_bytes()
    weaker = shoal_membership.issue(
        member.identity,
        msgspec.structs.replace(reef.grant(reef.alice.identity, "mallory"), serial=9),
    )
    given = msgspec.to_builtins(weaker, builtin_types=(bytes,))
    with member.link(reef.alice) as link:
        for request in ("", "1", "renewal/1", f"{reef.alice.id}/renewal/1"):
            link.say({"type": "grant-renewed", "request": request, "grant": given})
        link.all_heard("none", for_s=0.3)
    must(reef.alice.home.membership.read_bytes() == before, "her grant is another")
    return reef.serves()


@attack("member", "what was done at a node cannot be unwritten without a trace")
def changing_a_line_of_the_audit_log(reef: Reef) -> str:
    _deed(reef)
    head = reef.lender.json("audit", "--verify")["head"]
    _deed(reef)
    path = max((reef.lender.home.path / "audit").glob("*.jsonl"))
    data = path.read_bytes()
    lines = data.splitlines(keepends=True)
    inner = next(n for n, line in enumerate(lines) if b"AUDITED" in line)
    try:
        path.write_bytes(b"".join((*lines[:inner], *lines[inner + 1 :])))
        without_a_line = reef.lender("audit", "--verify")
        path.write_bytes(b"".join(lines[:inner]))
        without_the_end = reef.lender("audit", "--verify", "--head", head)
    finally:
        path.write_bytes(data)
    must(without_a_line.code != 0, "a line was cut out, and nobody saw it")
    must(without_the_end.code != 0, "the end was cut off, and nobody saw it")
    return (without_a_line.out + without_a_line.err).strip().splitlines()[0]


def _deed(reef: Reef) -> None:
    """Do something at the lender's node that the audit log must tell of."""
    reef.lender.ok("secret", "set", "AUDITED", typed="x")


@attack("member", "a token is in no argument of any process")
def reading_tokens_from_arguments(reef: Reef) -> str:
    secret = (reef.lender.home.path / "api.token").read_bytes().strip()
    looked = 0
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            text = path.read_bytes()
        except OSError:
            continue
        looked += 1
        must(secret not in text, f"{path} shows the token")
    return f"{looked} processes, none shows it"


@attack("member", "where tasks cannot be confined, other owners are refused")
def a_lender_without_bubblewrap(reef: Reef) -> str:
    bare = reef.folder / "bin"
    bare.mkdir(exist_ok=True)
    for name in ("sh", "true", "touch", "env", "prlimit", "setpriv"):
        found = shutil.which(name)
        if found is not None and not (bare / name).exists():
            (bare / name).symlink_to(found)
    args = ("--label", "bare=yes", "--no-web")
    node = type(reef.lender)(reef.folder, "bare", f"{reef.net}.7", args)
    reef.settle(node.home, reef.grant(node.identity, "bare"))
    node.env["PATH"] = f"{Path(sys.executable).parent}:{bare}"
    mark = reef.mark()
    node.up()
    try:
        eventually(lambda: node.id in reef.mallory("nodes", "--json").out, 20.0)
        only = ("--label", "bare=yes")
        job = reef.mallory.submit(*only, "--", "touch", str(mark))
        why = ""
        for _ in range(10):
            why = reef.mallory("explain", job).out
            if "bubblewrap" in why or mark.exists():
                break
        reef.mallory("cancel", job)
        own = node("run", *only, "--", "touch", str(mark.with_suffix(".own")))
    finally:
        node.down()
    must(not mark.exists(), "a foreign task ran unconfined")
    must("bubblewrap" in why, f"explain does not say why: {why}")
    assert own.code == 0, f"its own owner is not served: {own}"
    return next(line.strip() for line in why.splitlines() if "bubblewrap" in line)
