"""What members of other owners may do at a node: what their grants say, and no more."""

import time
from collections.abc import Iterator

import pytest
from tests.integration.far_node import Far, far_node, refused

from shoal.blobs import packing
from shoal.net.identity.identity import Identity
from shoal.runtime.home import Home

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def far(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Far]:
    with far_node(tmp_path_factory.mktemp("far")) as found:
        yield found


@pytest.fixture(scope="module")
def secret_job(far: Far) -> str:
    """A job of the owner of the node, of which nobody else shall hear."""
    spec = ("--name", "hushed", "--output", "kept", "--", "sh", "-c")
    job = far.server.ok("submit", *spec, "echo deep | tee kept").strip()
    far.server.ok("wait", job)
    return job


@pytest.mark.parametrize("role", ["submit", "admin"])
def test_a_member_of_another_owner_finds_only_jobs_of_its_own(
    far: Far, secret_job: str, role: str
) -> None:
    mia = far.member(f"mia-{role}", role, owner=f"mia-{role}")
    mia.ok("run", "-q", "--", "true")

    [jobs, events, *said] = far.python(
        mia,
        f"""
        print([job.owner for job in client.jobs().jobs], client.jobs().total)
        print([event.text for event in client.events(pb.EventsRequest(latest=999))])
        for job in ({secret_job!r}, "n0where"):
            for call in (
                lambda: client.get(job),
                lambda: list(client.watch(job)),
                lambda: list(client.logs(pb.LogsRequest(job=job))),
                lambda: client.cancel(job),
                lambda: client.retry(pb.RetryRequest(job=job, job_id="again")),
                lambda: client.curves(job),
                lambda: client.explain(job),
                lambda: client.outputs(job),
            ):
                try:
                    print(call())
                except ShoalError as error:
                    print(str(error).replace(job, "it"), error.because, error.hint)
        """,
    )

    assert jobs == f"['mia-{role}'] 1"
    assert secret_job not in events
    assert "hushed" not in events
    assert all("no job 'it'" in each for each in said)
    assert said[:8] == said[8:]
    assert far.server.json("show", secret_job)["job"]["state"] == "done"


def test_a_job_of_another_owner_is_that_owners_by_its_priority_and_quota(
    far: Far,
) -> None:
    nell = far.member("nell", "submit", owner="nell", top_priority=3, quota_cpu_milli=1)

    job = nell.ok("submit", "--priority", "90", "--", "true").strip()
    own = nell.json("show", job)["job"]

    assert (own["owner"], own["priority"]) == ("nell", 3)
    assert "quota of nell" in nell.ok("explain", job)
    nell.ok("cancel", job)


def test_no_id_tells_whether_somebody_else_has_a_job_of_it(
    far: Far, secret_job: str
) -> None:
    omar = far.member("omar", "submit", owner="omar")

    [taken, again, owner] = far.python(
        omar,
        f"""
        asked = pb.SubmitRequest(job_id={secret_job!r}, json='{{"command": "true"}}')
        print(client.submit(asked).job.id)
        print(client.submit(asked).job.id)
        print(client.get({secret_job!r}).owner)
        """,
    )

    assert taken == again
    assert taken.startswith(f"{secret_job}-")
    assert owner == "omar"


def test_a_member_of_another_owner_gets_no_files_of_others(far: Far) -> None:
    folder = far.folder / "work"
    folder.mkdir()
    (folder / "data").write_text("of the owner of the node")
    far.server.ok("run", "-q", "--workdir", str(folder), "--", "true")
    [file] = packing.pack_workdir(folder, packing.Naming().name, 1 << 20).entries
    pia = far.member("pia", "submit", owner="pia")
    [missing, refusal] = far.python(
        pia,
        f"""
        print(*client.missing_blobs([{file.to!r}]).missing)
        try:
            print(list(client.get_blobs([{file.to!r}])))
        except ShoalError as error:
            print(str(error).splitlines()[0])
        """,
    )

    assert missing == file.to
    assert "there is no blob" in refusal
    # What it has itself, it sends, and uses.
    seen = pia("run", "-q", "--workdir", str(folder), "--", "cat", "data")
    assert seen == (0, "of the owner of the node", ""), seen


def test_an_admin_of_another_owner_rules_over_members_and_not_over_the_node(
    far: Far,
) -> None:
    quinn = far.member("quinn", "admin", owner="quinn")

    assert quinn("invite").code == 0
    refused(quinn("secret", "list"), "the node is of another owner")
    said = far.python(
        quinn,
        """
        for call in (lambda: client.shutdown(0.0), client.metrics):
            try:
                call()
            except ShoalError as error:
                print(error.because)
        """,
    )
    assert said == ["it is of quinn, and the node is of another owner"] * 2


def test_functions_of_a_member_run_in_its_name_and_get_no_secrets(far: Far) -> None:
    far.chief()("secret", "set", "FUNC", typed="water")
    rex = far.member("rex", "submit", owner="rex")
    said = far.python(
        rex,
        f"""
        def ask(**more):
            spec = json.dumps({{"command": "lane", **more}})
            yield pb.CallsRequest(pools=[pb.CallPool(id=1, spec=spec, lanes_max=1)])
            yield pb.CallsRequest(backlogs=[pb.CallBacklog(pool=1, waiting=1)])
            with connect({far.address!r}) as other:
                every = pb.ListRequest(interpreters=True)
                while not (jobs := other.jobs_like(every).jobs):
                    pass
            print(jobs[0].owner, jobs[0].name)
        try:
            list(client.calls(ask(secrets=["FUNC"])))
        except ShoalError as error:
            print(error.what)
        list(client.calls(ask()))
        """,
    )

    assert said[0] == "this client may not use the secrets of this node"
    assert set(said[1:]) == {"rex calls"}


LASTS_S = 8.0  # A grant, and so long enough for a busy machine to use it.

FOLLOW = """
    import time
    events = client.events(pb.EventsRequest(latest=1, follow=True))
    print(next(events).number, flush=True)
    try:
        list(events)
    except ShoalError as error:
        print(time.time(), error.what)
"""


def test_a_stream_of_a_member_ends_with_its_membership(far: Far) -> None:
    zoe = far.member("zoe", "submit", owner="zoe")
    zoe.ok("run", "-q", "--", "true")
    with far.program(zoe, FOLLOW) as follows:
        assert follows.stdout is not None
        follows.stdout.readline()
        far.server.ok("revoke", Identity.load(Home(zoe.path).key).node)
        revoked_s = time.time()

        ended_s = float(follows.stdout.readline().split()[0])

    assert ended_s - revoked_s < 1.0


def test_a_stream_of_a_member_ends_when_its_grant_expires(far: Far) -> None:
    far.member("abel", "submit", owner="abe").ok("run", "-q", "--", "true")
    until_s = time.time() + LASTS_S
    abe = far.member("abe", "submit", expires_s=LASTS_S, owner="abe")
    with far.program(abe, FOLLOW) as follows:
        assert follows.stdout is not None
        follows.stdout.readline()
        assert time.time() < until_s

        ended_s = float(follows.stdout.readline().split()[0])

    assert -0.1 < ended_s - until_s < 1.1
