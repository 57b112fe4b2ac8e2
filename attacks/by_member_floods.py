"""A hostile member: it takes room, time and memory that others need."""

from __future__ import annotations

import secrets
import time
from typing import TYPE_CHECKING

import msgspec

from attacks.negotiating import all_room, assignment, demand, leased
from attacks.verdict import attack, must
from attacks.wire import CutOff, Said
from shoal.core.proximity.probing import PEER_BYTES
from shoal.net.direct.frames import FrameKind, framed

if TYPE_CHECKING:
    from attacks.reef import Member, Reef
    from attacks.wire import Link


TEN_YEARS_S = 10 * 365 * 86_400
LONG_S = 60.0


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
        link.settle()
        began = time.monotonic()
        serving = reef.serves()
        took = time.monotonic() - began
    must(took < 10.0, f"a job waited {took:.0f} s")
    return f"{serving}, after {took:.1f} s"


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
        link.raw(framed(FrameKind.MESSAGES, bytes(body)))
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
        framed(FrameKind.MESSAGES, b"\x91" * 900_000),
        framed(FrameKind.MESSAGES, b"\xdd\xff\xff\xff\xff"),
        framed(FrameKind.MESSAGES, b"\x91\x81\xa4type\xdb\xff\xff\xff\xff"),
        bytes((FrameKind.PING,)) + (1 << 23).to_bytes(3, "big"),
        bytes((9,)) + bytes(3),
        framed(FrameKind.MESSAGES, msgspec.msgpack.encode([{"type": "hello"}] * 5_000)),
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


@attack("member", "a worker answers others, whatever number somebody asks for")
def waiting_for_more_tasks_than_there_are_atoms(reef: Reef) -> str:
    member = reef.member(270)
    with member.link(reef.lender) as link:
        most = (1 << 53) - 1
        for n in range(4):
            endless = {"profile": {}, "count": most, "wait_for_s": LONG_S}
            link.say(demand(member, f"e{n}", **endless))
        began = time.monotonic()
        serving = reef.serves()
        took = time.monotonic() - began
    must(took < 20.0, f"others waited {took:.0f} s")
    return f"{serving}, after {took:.1f} s"


@attack("member", "no room is kept for what could never be met")
def waiting_for_more_than_the_machine_has(reef: Reef) -> str:
    member = reef.member(271)
    with member.link(reef.lender) as link:
        began = time.monotonic()
        vast = {"profile": {"cpu_milli": 10**9}, "wait_for_s": LONG_S}
        old = {"rank": [0, 9.0, member.identity.node, "v"]}
        link.say(demand(member, "v", **vast, **old))
        link.hear("refusal")
        serving = reef.serves()
        took = time.monotonic() - began
    must(took < 8.0, f"others waited {took:.0f} s")
    return f"{serving}, after {took:.1f} s"


@attack("member", "probes stay within the share of a member, however many it wants")
def probes_without_end(reef: Reef) -> str:
    member = reef.member(249)
    somewhere = {"type": "position", "x_us": 10_000_000, "error_milli": 0, "uplink": 20}
    with member.link(reef.lender) as link:
        for n in range(256):
            link.say(somewhere, {"type": "probe-wanted", "probe": n, "size": 229_376})
        pieces = link.all_heard("probe-piece", for_s=3.0)
        got = sum(len(piece["data"]) for piece in pieces)
        serving = reef.serves()
    must(got <= PEER_BYTES, f"{got} bytes of probes for one member")
    return f"{got >> 10} of {256 * 224:,} KiB; {serving}"
