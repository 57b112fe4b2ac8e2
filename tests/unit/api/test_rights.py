import time
from contextvars import copy_context

import pytest
from tests.unit.net.shoals import Gatekeeper, granted, identity, revoked

from shoal.api import shoal_pb2 as pb
from shoal.api.server.rights import (
    FORWARDED,
    NEEDED,
    OWN,
    Rights,
    check_neighbour,
    check_on_end,
    check_secrets,
    check_submitter,
)
from shoal.api.server.rights import member as called_by
from shoal.api.server.tls_door import Guest
from shoal.api.service.callers import Caller, Way
from shoal.core.membership.members import Admission
from shoal.errors import NotAllowedError
from shoal.model.derive import derive
from shoal.model.ids import JobId, OwnerId
from shoal.model.job import Job, OnEnd
from shoal.model.spec.submission import load_spec
from shoal.net.identity.certificates import Shown
from shoal.protocol.messages import Role
from shoal.runtime.membership.grant_signing import ROLES
from shoal.runtime.membership.shoal_membership import ShoalMembership

ANN, BOB = identity(1), identity(2)
FAR = "unix-abstract:shoal-1"
NEAR = "unix-abstract:shoal-2"
OWNER = OwnerId("ann")
TOKEN = "secret.print"


def rights(
    shown: Shown | None, gate: Gatekeeper | None = None, owner: OwnerId = OWNER
) -> Rights:
    found = Rights(TOKEN, owner, (gate or Gatekeeper()).verify)
    found.guests = {FAR: Guest(shown), NEAR: Guest(None, is_far=False)}
    return found


def member(*roles: Role) -> Shown:
    return Shown(ANN.node, granted(ANN.node, roles=roles))


def allowed(shown: Shown, owner: OwnerId = OWNER) -> set[str]:
    found = set[str]()
    for method in NEEDED:
        try:
            rights(shown, owner=owner).check(method, FAR, "")
        except NotAllowedError:
            continue
        found.add(method)
    return found


def test_every_call_of_the_proto_has_a_role() -> None:
    methods = pb.DESCRIPTOR.services_by_name["Shoal"].methods

    assert set(NEEDED) == {method.name for method in methods}


def test_roles_allow_more_and_more() -> None:
    worker = allowed(member(*ROLES["worker"]))
    submit = allowed(member(*ROLES["submit"]))
    admin = allowed(member(*ROLES["admin"]))

    assert worker == {"Info", "Nodes", "Ping", "Inspect"}
    assert worker < submit < admin == set(NEEDED)
    assert not submit & {"Invite", "Revoke", "Shutdown", "SetSecret", "ListSecrets"}


def test_an_admin_of_another_owner_may_let_in_and_revoke_and_no_more() -> None:
    submit = allowed(member(*ROLES["submit"]), OwnerId("bob"))
    admin = allowed(member(*ROLES["admin"]), OwnerId("bob"))

    assert admin - submit == {"Invite", "Requests", "Accept", "Revoke"}
    assert not admin & OWN


def test_a_member_calls_in_the_name_of_its_owner_by_its_grant() -> None:
    shown = member(*ROLES["admin"])

    own = rights(shown).check("Submit", FAR, "")
    other = rights(shown, owner=OwnerId("bob")).check("Submit", FAR, "")
    user = rights(shown).check("Submit", FAR, f"Bearer {TOKEN}")

    assert (own.owner, own.grant, own.is_own) == ("ann", shown.grant, True)
    assert own.uses_secrets
    assert (other.owner, other.grant, other.is_own) == ("ann", shown.grant, False)
    assert not other.uses_secrets
    assert (user.owner, user.grant, user.is_own) == (None, None, True)


def test_a_call_that_nobody_thought_of_is_for_admins() -> None:
    with pytest.raises(NotAllowedError):
        rights(member("scheduler")).check("Unheard", FAR, "")


@pytest.mark.parametrize("peer", [FAR, NEAR])
@pytest.mark.parametrize("shown", ["Bearer secret", f"Bearer {TOKEN}"])
def test_the_token_is_enough_for_everything(peer: str, shown: str) -> None:
    rights(None).check("Shutdown", peer, shown)


@pytest.mark.parametrize("shown", ["", "Bearer", "Bearer x", "Bearer .print", "secret"])
def test_without_the_token_a_client_of_this_machine_is_unknown(shown: str) -> None:
    with pytest.raises(NotAllowedError, match="does not know this client"):
        rights(member("admin")).check("Info", NEAR, shown)


def test_a_wrong_token_is_not_made_good_by_a_certificate() -> None:
    with pytest.raises(NotAllowedError, match="not its token"):
        rights(member("admin")).check("Info", FAR, "Bearer guessed")


def test_who_shows_nothing_at_the_door_is_unknown() -> None:
    with pytest.raises(NotAllowedError, match="certificate of a member"):
        rights(None).check("Info", FAR, "")


@pytest.mark.parametrize("peer", ["unix:", "unix-abstract:", "ipv4:127.0.0.1:9", ""])
def test_nobody_is_let_in_by_the_kind_of_its_connection(peer: str) -> None:
    with pytest.raises(NotAllowedError, match="does not know this client"):
        rights(member("admin")).check("Info", peer, "")


@pytest.mark.parametrize(
    ("shown", "words"),
    [
        (Shown(BOB.node, granted(ANN.node)), "grant is for"),
        (Shown(ANN.node, None), "no grant"),
        (Shown(ANN.node, granted(ANN.node, signer=BOB)), "non-admin"),
        (
            Shown(ANN.node, granted(ANN.node, expires_wall_s=time.time() - 9)),
            "expired",
        ),
    ],
)
def test_a_grant_that_does_not_hold_opens_nothing(shown: Shown, words: str) -> None:
    with pytest.raises(NotAllowedError, match=words):
        rights(shown).check("Info", FAR, "")


def test_a_revocation_acts_on_connections_that_are_open() -> None:
    gate = Gatekeeper()
    open_ = rights(member("scheduler"), gate)
    open_.check("Submit", FAR, "")

    gate.members.revoke(revoked(ANN.node))

    with pytest.raises(NotAllowedError, match="revoked"):
        open_.check("Submit", FAR, "")


def own(*roles: Role) -> ShoalMembership:
    grant = granted(ANN.node, roles=roles)
    return ShoalMembership(shoal="reef", root=grant.signer, grant=grant)


def test_a_node_that_was_let_in_to_work_takes_no_jobs_that_would_wait_for_ever() -> (
    None
):
    check_submitter(own(*ROLES["member"]), None)

    with pytest.raises(NotAllowedError, match="let in as worker only"):
        check_submitter(own(*ROLES["worker"]), None)


def test_a_node_that_was_turned_out_hears_why_its_job_is_not_taken() -> None:
    with pytest.raises(NotAllowedError, match="any more: it is revoked") as caught:
        check_submitter(own(*ROLES["member"]), "it is revoked")

    assert "shoal join --leave" in caught.value.hint


# Other nodes of the same owner.


def admitted(owner: str = "ann", *roles: Role) -> Admission:
    return Admission(
        node=ANN.node,
        owner=OwnerId(owner),
        roles=roles or ROLES["member"],
        top_priority=0,
        quota_gpus=None,
        quota_cpu_milli=None,
        valid_for_s=60.0,
    )


def asks(admission: Admission, method: str) -> None:
    def check() -> None:
        check_neighbour("otter", admission, OwnerId("ann"), method)

    copy_context().run(check)  # As a task does: what it may see of secrets ends there.


def test_a_command_at_the_end_of_a_job_is_for_the_user_of_the_node_alone() -> None:
    def job(on_end: OnEnd | None) -> Job:
        return Job(id=JobId("j"), owner=OwnerId("ann"), groups=(), on_end=on_end)

    command, hook = OnEnd(command=("true",)), OnEnd(webhook="http://127.0.0.1/")
    check_on_end(job(command), Caller())
    ways: tuple[Way, ...] = ("token", "certificate", "link")
    for way in ways:
        own = Caller(way=way, owner=OwnerId("ann"), is_own=True)
        check_on_end(job(hook), own)
        with pytest.raises(NotAllowedError, match="may not have a command run"):
            check_on_end(job(command), own)
        other = Caller(way=way, owner=OwnerId("bob"), is_own=False)
        check_on_end(job(None), other)
        for asked in (command, hook):
            with pytest.raises(NotAllowedError, match="anything called"):
                check_on_end(job(asked), other)


def test_only_an_admin_of_the_same_owner_drains_another_node() -> None:
    asks(admitted("ann", *ROLES["admin"]), "Drain")
    with pytest.raises(NotAllowedError, match="may not drain"):
        asks(admitted(), "Drain")


@pytest.mark.parametrize("method", sorted(FORWARDED - {"Drain"}))
def test_a_node_of_the_same_owner_may_ask_all_about_jobs(method: str) -> None:
    asks(admitted(), method)


@pytest.mark.parametrize("method", [*sorted({*NEEDED} - FORWARDED), "Unheard", ""])
def test_a_node_does_nothing_else_for_another_though_it_be_an_admin(
    method: str,
) -> None:
    with pytest.raises(NotAllowedError, match="does not call"):
        asks(admitted("ann", *ROLES["admin"]), method)


def test_what_gives_or_takes_is_never_asked_of_another_node() -> None:
    never = {"Submit", "Calls", "PutBlobs", "Invite", "Accept", "Revoke"}
    never |= {"Shutdown", "SetSecret", "ListSecrets", "RemoveSecret", "Forward"}

    assert not FORWARDED & never


@pytest.mark.parametrize("method", sorted(NEEDED))
def test_a_node_of_another_owner_is_told_nothing(method: str) -> None:
    with pytest.raises(NotAllowedError, match="not of the same owner") as caught:
        asks(admitted("bob", *ROLES["admin"]), method)

    assert "shoal invite --mine" in caught.value.hint


def test_a_node_that_only_works_may_not_ask_though_it_be_of_the_same_owner() -> None:
    with pytest.raises(NotAllowedError, match="may not ask about jobs"):
        asks(admitted("ann", "worker"), "List")


@pytest.mark.parametrize(("role", "may"), [("member", False), ("admin", True)])
def test_only_an_admin_has_another_node_use_its_secrets(role: str, may: bool) -> None:
    spec = load_spec('{"command": "true", "secrets": ["KEY"]}', "json")
    job = derive(spec, JobId("j"), OwnerId("ann"))

    def retried() -> bool:
        admission = admitted("ann", *ROLES[role])
        check_neighbour("otter", admission, OwnerId("ann"), "Retry")
        try:
            check_secrets(job, called_by(admission, None, OwnerId("ann"), way="link"))
        except NotAllowedError:
            return False
        return True

    assert copy_context().run(retried) == may
