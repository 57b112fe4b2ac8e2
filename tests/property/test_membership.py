"""Whatever is shown, forged or repeated: nobody gets more than the root gave."""

from itertools import permutations
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from tests.fake_keys import ROOT, SHOAL, granted, revoked, verify

from shoal.core.membership.members import Admission, Members
from shoal.model.ids import NodeId, OwnerId
from shoal.protocol.limits import DELEGATIONS_MAX
from shoal.protocol.messages import Grant, Revocation

NODES = st.sampled_from(["a", "b", "c", "d"])
ROLES = st.sampled_from(
    [("admin", "worker"), ("admin", "worker", "scheduler"), ("worker",)]
)
QUOTAS = st.none() | st.integers(0, 3)
SERIALS = st.integers(0, 3)
LIMITS = st.fixed_dictionaries(
    {
        "roles": ROLES,
        "top_priority": st.integers(0, 3),
        "quota_gpus": QUOTAS,
        "quota_cpu_milli": QUOTAS,
        "expires_wall_s": st.integers(1, 4).map(float),
        "serial": SERIALS,
    }
)


@st.composite
def chains(draw: st.DrawFn) -> list[Grant]:
    """Correctly signed grants, each by the node before; some give too much."""
    chain: list[Grant] = []
    for _ in range(draw(st.integers(1, DELEGATIONS_MAX + 2))):
        above = chain[-1] if chain else None
        fields: dict[str, Any] = draw(LIMITS) if draw(st.booleans()) else {}
        chain.append(granted(draw(NODES), above, **fields))
    return chain


@st.composite
def revocations(draw: st.DrawFn) -> Revocation:
    """A correctly signed revocation by the root or one of three admins."""
    admins: list[Grant | None] = [granted("a"), granted("b"), SUB_ADMIN]
    signer = draw(st.sampled_from([None, *admins]))
    return revoked(draw(NODES), signer, serial=draw(SERIALS))


SUB_ADMIN = granted("c", granted("a", serial=1))


def within(inner: int | None, outer: int | None) -> bool:
    return outer is None or (inner is not None and inner <= outer)


@given(chains())
def test_nobody_gets_more_than_any_of_those_who_vouch_for_it(
    chain: list[Grant],
) -> None:
    last = chain[-1]

    admission = Members(SHOAL, ROOT, verify).admit(last.node, last, 0.0)

    if isinstance(admission, Admission):
        assert len(chain) <= DELEGATIONS_MAX + 1
        for above in chain[:-1]:
            assert "admin" in above.roles
            assert set(admission.roles) <= set(above.roles)
            assert admission.top_priority <= above.top_priority
            assert within(admission.quota_gpus, above.quota_gpus)
            assert within(admission.quota_cpu_milli, above.quota_cpu_milli)
            assert admission.valid_for_s <= above.expires_wall_s


FORGED_VALUES: dict[str, Any] = {
    "node": NodeId("z"),
    "shoal": "lake",
    "roles": ("admin",),
    "owner": OwnerId("eve"),
    "top_priority": 100,
    "quota_gpus": 9,
    "quota_cpu_milli": 9,
    "serial": 9,
    "expires_wall_s": 9_999.0,
    "signer": NodeId("z"),
    "delegation": None,
    "signature": b"forged",
}


@given(st.integers(0, DELEGATIONS_MAX), st.sampled_from(sorted(FORGED_VALUES)))
def test_a_grant_with_one_forged_field_admits_nobody(forged: int, field: str) -> None:
    grant: Grant | None = None
    for depth in range(DELEGATIONS_MAX + 1):
        grant = granted(f"n{depth}", grant)
        if depth == forged:
            value = FORGED_VALUES[field]
            if getattr(grant, field) == value:
                value = granted("z")
            grant = msgspec.structs.replace(grant, **{field: value})
    assert grant is not None

    admission = Members(SHOAL, ROOT, verify).admit(grant.node, grant, 0.0)

    assert isinstance(admission, str)


@given(st.lists(revocations(), max_size=4), SERIALS, st.booleans())
def test_the_order_and_number_of_revocations_do_not_matter(
    spoken: list[Revocation], serial: int, early: bool
) -> None:
    verdicts: list[list[bool]] = []
    for order in permutations(spoken):
        them = Members(SHOAL, ROOT, verify)
        grants = [granted(name, serial=serial) for name in "abcd"]
        if early:
            for grant in grants:
                them.admit(grant.node, grant, 0.0)
        for revocation in [*order, *order]:
            them.revoke(revocation)
        answers = [them.admit(grant.node, grant, 0.0) for grant in grants]
        verdicts.append([isinstance(answer, Admission) for answer in answers])

    assert all(verdict == verdicts[0] for verdict in verdicts)


@given(st.lists(revocations(), max_size=6), SERIALS)
def test_a_member_that_the_root_revoked_stays_out(
    spoken: list[Revocation], serial: int
) -> None:
    them = Members(SHOAL, ROOT, verify)

    for revocation in spoken:
        them.revoke(revocation)

    for revocation in spoken:
        if revocation.delegation is None and revocation.serial >= serial:
            grant = granted(revocation.node, serial=serial)
            assert isinstance(them.admit(grant.node, grant, 0.0), str)
