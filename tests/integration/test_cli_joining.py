"""A second machine joins, by the commands that its user types."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.integration.cli_home import CliHome, homes
from tests.integration.live_shoal import eventually

pytestmark = pytest.mark.integration

Make = Callable[[str], CliHome]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    with homes(tmp_path) as make:
        yield make


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CliHome]:
    """A node that made a shoal, for tests that neither end it nor count its peers."""
    with homes(tmp_path_factory.mktemp("host")) as make:
        yield founded(make)


def nodes_of(home: CliHome) -> set[str]:
    found = home.json("nodes")["nodes"]
    return {node["petname"] for node in found if not node["away"]}


def joined_by(host: CliHome, second: CliHome, *grants: str) -> None:
    """Let a node join the shoal of another, and wait until both know it."""
    invitation = host.ok("invite", "-q", *grants).strip()
    second.ok("join", invitation, "--no-up")
    second.up("--listen", "127.0.0.1:0")
    eventually(lambda: second.info["petname"] in nodes_of(host))
    eventually(lambda: host.info["petname"] in nodes_of(second))


def founded(make: Make) -> CliHome:
    first = make("first")
    first.ok("init", "reef")
    first.up()
    return first


def test_two_nodes_share_the_tasks_of_a_job(make: Make) -> None:
    first, second = founded(make), make("second")
    invitation = first.ok("invite", "-q").strip()

    joined = second("join", invitation, "--listen", "127.0.0.1:0")
    eventually(lambda: len(nodes_of(first)) == 2)
    script = "sleep 1; echo on $SHOAL_TASK_ID"
    count = 2 * first.json("nodes")["nodes"][0]["total"]["cpu_milli"] // 1000
    job = first.ok("submit", "-q", "--array", str(count), "--", "sh", "-c", script)
    job = job.strip()
    ended = first("wait", job).code
    tasks = first.json("show", job)["tasks"]

    assert joined.code == 0
    assert 'joined "reef"' in joined.err
    assert ended == 0
    assert len({task["nodes"][0]["petname"] for task in tasks}) == 2
    assert len(first.ok("logs", job).splitlines()) == count


def test_an_invitation_works_once_and_then_no_more(make: Make, host: CliHome) -> None:
    second, third = make("second"), make("third")
    invitation = host.ok("invite", "-q").strip()
    second.ok("join", invitation, "--no-up")

    late = third("join", invitation, "--no-up")

    assert late.code == 1
    assert "the invitation is used up" in late.err


def test_an_invitation_outlives_a_crash_of_the_node_that_gave_it(make: Make) -> None:
    first, second, third = founded(make), make("second"), make("third")
    invitation = first.ok("invite", "-q").strip()
    first.kill()

    too_soon = second("join", invitation, "--no-up", "--wait", "0s")
    joining = second.start("join", invitation, "--no-up", "--wait", "60s")
    assert joining.stderr is not None
    said = ""
    while "waiting up to 60s" not in said:
        line = joining.stderr.readline()
        assert line, said
        said += line
    first.up()
    out, err = joining.communicate(timeout=120.0)
    late = third("join", invitation, "--no-up", "--wait", "0s")

    assert too_soon.code == 105
    assert "Connect call failed" in said
    assert joining.returncode == 0, out + err
    assert 'joined "reef"' in err
    assert late.code == 1
    assert "the invitation is used up" in late.err


def test_an_admin_stands_in_for_a_node_that_left_and_lets_in_once(make: Make) -> None:
    first, admin = founded(make), make("admin")
    to_admin = first.ok("invite", "-q", "--role", "admin").strip()
    admin.ok("join", to_admin, "--no-up")
    admin.up("--listen", "127.0.0.1:0")
    eventually(lambda: len(nodes_of(first)) == 2)
    invitation = first.ok("invite", "-q").strip()
    first.ok("down")

    let_in = make("second")("join", invitation, "--no-up", "--wait", "20s")
    late = make("third")("join", invitation, "--no-up", "--wait", "0s")
    first.up()
    eventually(lambda: len(nodes_of(first)) == 2)
    later = make("third")("join", invitation, "--no-up", "--wait", "0s")

    assert let_in.code == 0, let_in.err
    assert f"let in by {admin.info['petname']}" in let_in.err
    assert (late.code, later.code) == (1, 1)
    assert "the invitation is used up" in late.err
    assert "the invitation is used up" in later.err


def test_who_joined_with_a_quota_keeps_within_it_and_is_told_so(
    make: Make, host: CliHome
) -> None:
    second = make("second")
    joined_by(host, second, "--quota", "cpus=1", "--owner", "alice")

    long = second.ok("submit", "-q", "--cpus", "1", "--", "sleep", "60").strip()
    eventually(lambda: second.json("show", long)["job"]["state"] == "running")
    late = second.ok("submit", "-q", "--cpus", "1", "--", "true").strip()
    huge = second.ok("submit", "-q", "--cpus", "2", "--", "true").strip()
    reasons = [
        " ".join(second.json("explain", job)["tasks"][0]["why"]) for job in (late, huge)
    ]
    second.ok("cancel", long, huge)

    assert reasons == [
        (
            "quota of alice: 1 CPUs, 1 in use, 1 more wanted;"
            " wait until some of its tasks end"
        ),
        (
            "quota of alice: 1 CPUs, 1 in use, 2 more wanted;"
            " ask for less, or an admin for a larger quota"
        ),
    ]
    assert second("wait", late).code == 0


def test_a_typo_in_an_invitation_is_found(make: Make) -> None:
    done = make("second")("join", "shoal1-AAAAAAB", "--no-up")

    assert done.code == 2
    assert "that is not an invitation" in done.err


def test_a_node_that_is_turned_out_is_gone_and_may_not_come_back(
    make: Make, host: CliHome
) -> None:
    second = make("second")
    joined_by(host, second)
    petname = second.info["petname"]

    host.ok("revoke", second.info["node"][:20])

    eventually(lambda: petname not in nodes_of(host))
    second.ok("down")
    second.up()
    eventually(lambda: nodes_of(second) == {petname})
    assert petname not in nodes_of(host)


def test_only_who_may_invite_does(make: Make, host: CliHome) -> None:
    second = make("second")
    joined_by(host, second)

    done = second("invite")

    assert done.code == 106
    assert "may neither invite nor revoke" in done.err


def test_who_was_let_in_as_a_worker_is_told_that_it_cannot_submit(
    make: Make, host: CliHome
) -> None:
    second = make("second")
    invitation = host.ok("invite", "-q", "--role", "worker").strip()

    joined = second("join", invitation, "--listen", "127.0.0.1:0")
    refused = [second(verb, "--", "true") for verb in ("run", "submit", "plan")]

    assert "next: shoal nodes · shoal down" in joined.err
    assert {each.code for each in refused} == {106}
    for each in refused:
        assert 'this node may not submit jobs to the shoal "reef"' in each.err
        assert "why:   it was let in as worker only" in each.err


def test_a_node_makes_one_shoal_only(make: Make) -> None:
    first = make("first")
    first.ok("init", "reef")

    again = first("init", "lagoon")

    assert again.code == 1
    assert 'already belongs to the shoal "reef"' in again.err


def test_who_joined_finds_its_shoal_again_after_both_restarted(make: Make) -> None:
    first, second = founded(make), make("second")
    second.ok("join", first.ok("invite", "-q").strip(), "--listen", "127.0.0.1:0")
    eventually(lambda: len(nodes_of(first)) == 2)

    for home in (first, second):
        home.ok("down")
    for home in (first, second):
        home.up()

    eventually(lambda: len(nodes_of(first)) == 2)
