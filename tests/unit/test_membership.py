import msgspec
import pytest
from tests.fake_keys import ROOT, SHOAL, granted, revoked, signed, verify

from shoal.core.membership import members as membership
from shoal.core.membership.members import (
    Admission,
    Members,
    grant_payload,
    revocation_payload,
)
from shoal.model.ids import NodeId, OwnerId
from shoal.protocol.messages import Grant, Revocation

A, B, C, D, E = (NodeId(name) for name in "abcde")


class CountedVerifier:
    """Verifies like the real one, and counts how often it had to."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, signer: NodeId, payload: bytes, signature: bytes) -> bool:
        self.calls += 1
        return verify(signer, payload, signature)


def members() -> Members:
    return Members(SHOAL, ROOT, verify)


def test_a_grant_of_the_root_admits_its_node_with_its_limits() -> None:
    grant = granted("a", roles=("worker",), quota_gpus=2, quota_cpu_milli=4_000)

    admission = members().admit(A, grant, 400.0)

    assert admission == Admission(
        node=A,
        owner=OwnerId("ann"),
        roles=("worker",),
        top_priority=50,
        quota_gpus=2,
        quota_cpu_milli=4_000,
        valid_for_s=600.0,
    )


OTHERS = granted("a", shoal="lake")
PLAIN = granted("b", roles=("scheduler",))
SECOND = granted("b", granted("a"))
DEEP = granted("e", granted("d", granted("c", SECOND)))

REFUSALS: list[tuple[Grant | None, str]] = [
    (None, "no grant"),
    (granted("b"), "grant is for b, not a"),
    (granted("a", expires_wall_s=488.0), "grant expired 12 s ago"),
    (granted("a", expires_wall_s=500.0), "grant expired 0 s ago"),
    (granted("a", expires_wall_s=float("nan")), "grant expired nan s ago"),
    (OTHERS, "another shoal: lake, not reef"),
    (granted("a", signer=B), "signed by a non-admin: b shows no grant"),
    (granted("a", signer=""), "signed by a non-admin: nobody shows no grant"),
    (granted("a", PLAIN), "signed by a non-admin: b is scheduler"),
    (
        granted("a", granted("b"), signer=C),
        "signed by a non-admin: c shows the grant of b",
    ),
    (granted("a", DEEP), "delegation deeper than 3"),
    (
        msgspec.structs.replace(granted("a"), top_priority=51),
        "signature of root does not verify",
    ),
    (
        granted("a", msgspec.structs.replace(granted("b"), top_priority=51)),
        "signature of root does not verify",
    ),
    (
        granted("a", granted("b", shoal="lake"), shoal="reef"),
        "another shoal: lake, not reef",
    ),
]


@pytest.mark.parametrize(("grant", "reason"), REFUSALS)
def test_a_grant_that_does_not_hold_is_refused_with_the_reason(
    grant: Grant | None, reason: str
) -> None:
    assert members().admit(A, grant, 500.0) == reason


BOSS = granted(
    "boss",
    roles=("admin", "worker"),
    top_priority=10,
    quota_gpus=4,
    quota_cpu_milli=8_000,
)

WIDENINGS: list[tuple[dict[str, object], str]] = [
    (
        {"roles": ("scheduler",)},
        "delegate boss gives role scheduler, has admin, worker",
    ),
    ({"top_priority": 11}, "delegate boss gives priority 11, has 10"),
    ({"quota_gpus": 5}, "delegate boss gives 5 gpus, has 4"),
    ({"quota_gpus": None}, "delegate boss gives unlimited gpus, has 4"),
    (
        {"quota_cpu_milli": None},
        "delegate boss gives unlimited thousandths of a cpu, has 8000",
    ),
    ({"expires_wall_s": 1_060.0}, "delegate boss gives 60 s more than it has"),
]


@pytest.mark.parametrize(("fields", "reason"), WIDENINGS)
def test_a_delegate_cannot_give_more_than_it_has(
    fields: dict[str, object], reason: str
) -> None:
    assert members().admit(A, granted("a", BOSS, **fields), 0.0) == reason


def test_a_delegate_can_give_all_that_it_has_and_to_another_owner() -> None:
    grant = granted("a", BOSS, owner=OwnerId("bob"))

    admission = members().admit(A, grant, 0.0)

    assert isinstance(admission, Admission)
    assert admission.owner == "bob"
    assert admission.quota_gpus == 4


def test_three_delegations_are_allowed() -> None:
    grant = granted("d", granted("c", SECOND))

    assert isinstance(members().admit(D, grant, 0.0), Admission)


def test_a_grant_is_verified_once_and_then_only_looked_up() -> None:
    verifier = CountedVerifier()
    them = Members(SHOAL, ROOT, verifier)
    for _ in range(3):
        them.admit(B, granted("b", granted("a")), 0.0)

    assert verifier.calls == 2


def test_time_is_checked_anew_for_a_grant_that_was_admitted() -> None:
    them = members()
    them.admit(A, granted("a"), 0.0)

    assert them.admit(A, granted("a"), 1_001.0) == "grant expired 1 s ago"


def test_a_refused_grant_does_not_replace_the_one_that_was_verified() -> None:
    verifier = CountedVerifier()
    them = Members(SHOAL, ROOT, verifier)
    them.admit(A, granted("a"), 10.0)

    them.admit(A, granted("a", signer=B), 10.0)
    them.admit(A, granted("a"), 10.0)

    assert verifier.calls == 1


def test_the_first_admitted_is_verified_anew_when_there_are_too_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(membership, "MEMBERS_MAX", 2)
    verifier = CountedVerifier()
    them = Members(SHOAL, ROOT, verifier)
    for name in ("a", "b", "c"):
        them.admit(NodeId(name), granted(name), 0.0)

    for name in ("c", "b", "a"):
        assert isinstance(them.admit(NodeId(name), granted(name), 0.0), Admission)

    assert verifier.calls == 4


def test_a_member_that_shows_a_newer_grant_pushes_nobody_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(membership, "MEMBERS_MAX", 2)
    verifier = CountedVerifier()
    them = Members(SHOAL, ROOT, verifier)
    them.admit(A, granted("a"), 0.0)
    them.admit(B, granted("b"), 0.0)

    them.admit(B, granted("b", serial=1), 0.0)
    them.admit(A, granted("a"), 0.0)

    assert verifier.calls == 3


def test_a_revocation_ends_a_membership_that_was_admitted() -> None:
    them = members()
    grant = granted("a", serial=3)
    them.admit(A, grant, 0.0)

    news = them.revoke(revoked("a", serial=3))

    assert news
    assert them.admit(A, grant, 0.0) == "a is revoked up to serial 3"


def test_a_grant_with_a_higher_serial_readmits_a_revoked_node() -> None:
    them = members()
    them.revoke(revoked("a", serial=3))

    assert isinstance(them.admit(A, granted("a", serial=4), 0.0), Admission)


def test_a_revocation_leaves_everybody_else_alone() -> None:
    them = members()
    them.admit(B, granted("b"), 0.0)

    them.revoke(revoked("a", serial=9))

    assert isinstance(them.admit(B, granted("b"), 0.0), Admission)


def test_a_repeated_or_older_revocation_is_no_news() -> None:
    them = members()

    assert them.revoke(revoked("a", serial=3))
    assert not them.revoke(revoked("a", serial=3))
    assert not them.revoke(revoked("a", serial=2))
    assert them.revoke(revoked("a", serial=4))
    assert them.revocations == (revoked("a", serial=4),)


def test_what_a_revoked_admin_granted_is_void() -> None:
    them = members()
    grant = granted("b", granted("a"))
    them.admit(B, grant, 0.0)

    them.revoke(revoked("a"))

    assert them.admit(B, grant, 0.0) == "a is revoked up to serial 0"


def test_an_admin_can_revoke_and_its_revocation_outlives_its_grant() -> None:
    them = members()

    assert them.revoke(revoked("c", granted("a", expires_wall_s=1.0)))
    assert them.admit(C, granted("c"), 500.0) == "c is revoked up to serial 0"


HOLLOW: list[Revocation] = [
    msgspec.structs.replace(revoked("a"), node=B),
    msgspec.structs.replace(revoked("a"), serial=1),
    msgspec.structs.replace(revoked("a"), signer=B),
    msgspec.structs.replace(revoked("a"), shoal="lake"),
    revoked("a", PLAIN),
    revoked("a", msgspec.structs.replace(granted("b"), top_priority=99)),
    revoked("a", granted("e", DEEP)),
    revoked("root", granted("b")),
    revoked("root"),
]


@pytest.mark.parametrize("revocation", HOLLOW)
def test_a_revocation_without_authority_changes_nothing(
    revocation: Revocation,
) -> None:
    them = members()

    assert not them.revoke(revocation)
    assert them.revocations == ()


@pytest.mark.parametrize("root_first", [True, False])
def test_revocations_of_an_admin_whom_the_root_revoked_are_void_in_any_order(
    root_first: bool,
) -> None:
    them = members()
    orders = [revoked("a"), revoked("c", granted("a"), serial=99)]

    for revocation in orders if root_first else reversed(orders):
        them.revoke(revocation)

    assert isinstance(them.admit(C, granted("c"), 0.0), Admission)
    assert them.revocations == (revoked("a"),)


def test_two_admins_that_revoke_each_other_are_both_out() -> None:
    them = members()

    them.revoke(revoked("b", granted("a")))
    them.revoke(revoked("a", granted("b")))

    assert them.admit(A, granted("a"), 0.0) == "a is revoked up to serial 0"
    assert them.admit(B, granted("b"), 0.0) == "b is revoked up to serial 0"


def test_admins_cannot_use_up_the_room_for_revocations_of_the_root(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(membership, "REVOCATIONS_MAX", 4)
    monkeypatch.setattr(membership, "REVOCATIONS_BY_ADMINS_MAX", 2)
    them = members()

    by_admin = [them.revoke(revoked(f"n{n}", granted("a"))) for n in range(3)]
    by_root = [them.revoke(revoked(f"n{n}")) for n in range(3)]

    assert by_admin == [True, True, False]
    assert by_root == [True, True, False]


def test_a_priority_is_clamped_to_the_best_that_is_granted() -> None:
    admission = members().admit(A, granted("a", top_priority=10), 0.0)

    assert isinstance(admission, Admission)
    assert admission.clamp(99) == 10
    assert admission.clamp(-5) == -5
    assert admission.clamp(-1_000) == -100


OTHER_VALUES: dict[str, object] = {
    "node": B,
    "shoal": "lake",
    "roles": ("gate",),
    "owner": OwnerId("bob"),
    "top_priority": 49,
    "quota_gpus": 1,
    "quota_cpu_milli": 1,
    "serial": 1,
    "expires_wall_s": 999.0,
    "signer": B,
    "delegation": granted("b"),
}


@pytest.mark.parametrize(
    "field", [f for f in Grant.__struct_fields__ if f != "signature"]
)
def test_every_field_of_a_grant_is_signed(field: str) -> None:
    grant = granted("a")

    other = msgspec.structs.replace(grant, **{field: OTHER_VALUES[field]})

    assert grant_payload(other) != grant_payload(grant)


@pytest.mark.parametrize(
    "field", [f for f in Revocation.__struct_fields__ if f != "signature"]
)
def test_every_field_of_a_revocation_is_signed(field: str) -> None:
    revocation = revoked("a")

    other = msgspec.structs.replace(revocation, **{field: OTHER_VALUES[field]})

    assert revocation_payload(other) != revocation_payload(revocation)


def test_the_signed_bytes_survive_the_wire_and_whole_seconds() -> None:
    grant = signed(granted("b", granted("a"), expires_wall_s=900))

    copy = msgspec.msgpack.decode(msgspec.msgpack.encode(grant), type=Grant)

    assert grant_payload(copy) == grant_payload(grant)
