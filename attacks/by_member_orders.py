"""A hostile member: it gives orders to workers that no honest scheduler would."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import TYPE_CHECKING

from attacks.negotiating import assignment, demand, leased, ran
from attacks.verdict import attack, must

if TYPE_CHECKING:
    from attacks.reef import Reef


def shifted(mark: Path, fields: int) -> str:
    """Return a text whose NULs would move an own command into fields that follow."""
    command = ["/bin/sh", "-c", f"touch {mark}"]
    return "\0".join(["x", *[""] * fields, "0", "0", "0", "0", "0", *command])


@attack("member", "ids hold no NUL; a task runs in its sandbox or not at all")
def a_nul_in_a_task_id_shifts_the_order_for_the_supervisor(reef: Reef) -> str:
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


@attack("member", "variables of a task do nothing outside of its sandbox")
def variables_that_the_loader_obeys(reef: Reef) -> str:
    mark = reef.mark()
    seen = ran(
        reef,
        250,
        ["true"],
        work={
            "env": {
                "LD_DEBUG": "statistics",
                "LD_DEBUG_OUTPUT": str(mark),
                "LD_PRELOAD": str(mark),
                "BASH_ENV": str(mark),
                "PYTHONSTARTUP": str(mark),
            }
        },
    )
    found = list(mark.parent.glob(f"{mark.name}*"))
    must(not found, f"the loader wrote outside: {found}")
    return seen


@attack("member", "a task gets the network that its demand was judged by")
def asking_for_no_network_and_using_it(reef: Reef) -> str:
    with socket.socket() as service:
        service.bind((reef.lender.host, 0))
        service.listen()
        port = service.getsockname()[1]
        reach = f"exec 3<>/dev/tcp/{reef.lender.host}/{port}"
        seen = ran(reef, 251, ["bash", "-c", reach], work={"network": True})
    must(seen != "exited: 0", "a foreign task reached a service of the lender")
    return seen


@attack("member", "the owner of a demand is that of the grant, whatever it says")
def demanding_in_the_name_of_the_lender(reef: Reef) -> str:
    member = reef.member(252)
    with member.link(reef.lender) as link:
        owner = reef.lender.id
        link.say(demand(member, "own", owner=owner, network=True))
        said = link.hear("offer", "refusal")
    must(said["type"] == "refusal", f"it is served as the lender's own: {said}")
    return str(said["reason"])


@attack("member", "an order for a lease that is not there yet never starts")
def orders_for_leases_that_are_still_to_come(reef: Reef) -> str:
    member, mark = reef.member(253), "guessed"
    with member.link(reef.lender) as link:
        first = leased(link, member, "one")[0]
        node, _, number = first.rpartition("/")
        later = f"{node}/{int(number) + 1}"
        guess = assignment(member, later, 1, ["echo", mark])
        link.say(guess)
        answer = link.hear("refusal")
        second = leased(link, member, "two")[0]
        link.say(guess)
        link.say({"type": "inquiry", "request": "seen"})
        link.hear("inventory")
        started = link.all_heard("started", for_s=0.7)
    must(not started, f"it started on {second} after it was refused")
    return str(answer["reason"])
