"""Nodes behind routers that let nobody in, in network namespaces with NAT."""

import hashlib
import os
import urllib.request
from pathlib import Path

import pytest
from tests.integration.cli_home import CliHome
from tests.integration.found_shoal import (
    FOUND_S,
    Found,
    finished,
    job_of,
    linked,
    runs,
    submit,
    until,
)
from tests.integration.live_shoal import eventually
from tests.integration.namespaces import Internet
from tests.integration.test_interactive import forwarded, run_with

from shoal.api import shoal_pb2 as pb

pytestmark = pytest.mark.integration


def test_a_hole_is_punched_where_routers_keep_ports(
    net: Internet, reef: Found, tmp_path: Path
) -> None:
    public, there = net.machine("gate", 10)
    gate = reef.found("gate", public, "--no-worker", prefix=there)
    where, there = net.home("one", 21)
    asking = reef.join("asking", where, "--no-worker", prefix=there, gates=[gate])
    where, there = net.home("two", 22)
    worker = reef.join("worker", where, prefix=there, gates=[gate])

    job = submit(asking, until(tmp_path / "punched"))
    assert runs(asking, job) == worker.id
    eventually(lambda: linked(asking).get(worker.id) == "stream", FOUND_S, asking.story)
    (tmp_path / "punched").touch()
    done = finished(asking, job)

    assert done.state == pb.STATE_DONE
    assert job_of(asking, job).tasks[0].attempts == 1
    assert linked(worker)[asking.id] == "stream"


def test_a_gate_that_dies_hurts_nothing_that_runs_through_it(
    net: Internet, reef: Found, tmp_path: Path
) -> None:
    public, there = net.machine("gate1", 10)
    one = reef.found("gate1", public, "--no-worker", prefix=there)
    public, there = net.machine("gate2", 11)
    args = ("--no-worker", "--gate")
    two = reef.join("gate2", public, *args, prefix=there, gates=[one])
    where, there = net.home("one", 21, symmetric=True)
    asking = reef.join("asking", where, "--no-worker", prefix=there, gates=[one, two])
    where, there = net.home("two", 22, symmetric=True)
    worker = reef.join("worker", where, prefix=there, gates=[one, two])

    job = submit(asking, until(tmp_path / "lost"))
    assert runs(asking, job) == worker.id
    assert linked(asking)[worker.id] == "relay"
    one.kill()
    eventually(lambda: one.id not in linked(asking), FOUND_S, asking.story)
    (tmp_path / "lost").touch()
    done = finished(asking, job)

    assert done.state == pb.STATE_DONE
    assert job_of(asking, job).tasks[0].attempts == 1
    assert linked(asking)[worker.id] == "relay"


def test_two_behind_nat_work_through_a_gate_and_outlive_the_circuits_between_them(
    net: Internet, reef: Found
) -> None:
    public, there = net.machine("gate", 10)
    args = ("--no-worker", "--relay", "time=8s")
    gate = reef.found("gate", public, *args, prefix=there)
    where, there = net.home("one", 21, symmetric=True)
    asking = reef.join("asking", where, "--no-worker", prefix=there, gates=[gate])
    where, there = net.home("two", 22, symmetric=True)
    worker = reef.join("worker", where, prefix=there, gates=[gate])

    script = "python3 -m http.server 8123 2> /dev/null & "
    script += "for n in 1 2 3 4 5 6; do echo part $n; sleep 3; done; kill $!"
    job = submit(asking, script)
    assert runs(asking, job) == worker.id
    assert linked(asking)[worker.id] == "relay"
    assert linked(asking)[gate.id] == "direct"
    home, data = CliHome(asking.home.path), os.urandom(3_000_000)
    counted = "for n in 1 2 3 4 5; do echo word $n; sleep 2; done"
    inside = home("exec", job, "--", "sh", "-c", counted)
    with forwarded(home, job, "0:8123") as port:
        place = f"http://127.0.0.1:{port}/"
        with urllib.request.urlopen(place, timeout=FOUND_S) as page:
            listing = page.read()
    code, digest, talk = run_with(home, data, "--cpus", "0.5", "--", "sha256sum")
    done = finished(asking, job)
    said = home.ok("logs", job)

    assert inside.out == "".join(f"word {n}\n" for n in range(1, 6)), inside
    assert b"Directory listing" in listing
    assert (code, digest.split()[0]) == (0, hashlib.sha256(data).hexdigest()), talk
    assert done.state == pb.STATE_DONE
    assert job_of(asking, job).tasks[0].attempts == 1
    assert said.split("\n") == [*(f"part {n}" for n in range(1, 7)), ""]


def test_whom_a_node_behind_nat_invited_is_let_in_at_a_gate(
    net: Internet, reef: Found
) -> None:
    where, behind = net.home("one", 21, symmetric=True)
    host = reef.found("host", where, "--no-worker", prefix=behind, start=False)
    public, there = net.machine("gate", 10)
    gate = reef.join("gate", public, "--no-worker", "--gate", prefix=there)
    reef.tell(host, gate)
    reef.restart(host)
    eventually(lambda: gate.id in linked(host), FOUND_S, host.story)
    _, elsewhere = net.home("two", 22, symmetric=True)
    guest, late = reef.guest("guest", elsewhere), reef.guest("late")
    inviting = CliHome(host.home.path, behind)

    def names_the_gate() -> bool:
        return any(public in each for each in inviting.json("invite")["addresses"])

    eventually(names_the_gate, FOUND_S, host.story)
    text = inviting.ok("invite", "-q").strip()
    joined, again = (
        CliHome(node.home.path, elsewhere)("join", "--no-up", text)
        for node in (guest, late)
    )
    reef.restart(guest)
    done = finished(host, submit(host, "echo found"))

    assert joined.code == 0, joined.err
    assert again.code == 1
    assert "the invitation is used up" in again.err
    assert done.state == pb.STATE_DONE
    assert linked(host)[guest.id] == "relay"
