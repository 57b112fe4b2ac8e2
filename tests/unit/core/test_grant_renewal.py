"""A grant is renewed with the same rights, and by nobody who may not."""

from typing import Final

import msgspec
import pytest

from shoal.core.events import GrantSigned, KeepGrant, Send, SignGrant
from shoal.core.membership.grant_renewal import (
    ANSWER_S,
    SIGNING_MAX,
    GrantRenewal,
    life_of,
    renewed,
    same_rights,
)
from shoal.core.membership.members import TERM, Members
from shoal.core.membership.roster import Roster
from shoal.model.ids import NodeId, OwnerId, RequestId
from shoal.protocol.grants import Grant, GrantRenewed, GrantWanted, Role
from shoal.protocol.messages import Hello
from shoal.sim.node import trust

START: Final = trust.WALL_AT_START_S
LIFE_S: Final = 900.0
ADMIN, ANN, BOB = map(NodeId, ("admin", "ann", "bob"))


def grant(node: NodeId, *roles: Role, life_s: float = LIFE_S) -> Grant:
    return trust.grant(
        node, roles, OwnerId("lab"), valid_for_s=life_s, serial=int(START)
    )


def node(
    id_: NodeId, own: Grant, now: float = 0.0, *met: Grant
) -> tuple[GrantRenewal, Roster]:
    roster = Roster(Members(trust.SHOAL, trust.ROOT, trust.verify), START)
    machine = GrantRenewal(id_, own, roster)
    roster.meet(id_, own, now)
    machine.booted(now)
    for each in met:
        roster.meet(each.node, each, now)
        machine.connected(each.node, now)
    return machine, roster


def longer(old: Grant, wall_s: float, **changes: object) -> Grant:
    made = renewed(old, old, is_root=True, revoked_up_to=-1, wall_s=wall_s)
    assert isinstance(made, Grant)
    changed = msgspec.structs.replace(made, signer=trust.ROOT, **changes)
    return trust.sign_grant(changed, trust.ROOT)


def asked(machine: GrantRenewal, now: float) -> GrantWanted:
    [effect] = machine.on_deadline(now)
    assert isinstance(effect, Send)
    assert isinstance(effect.message, GrantWanted)
    return effect.message


def test_it_asks_when_a_third_of_the_life_is_left() -> None:
    machine, _ = node(ANN, grant(ANN, "worker"), 0.0, grant(ADMIN, "admin"))

    due = machine.next_deadline()

    assert due is not None
    assert 600.0 <= due <= 630.0
    assert machine.on_deadline(due - 1.0) == []
    assert asked(machine, due).grant == machine.grant


def test_the_new_grant_is_kept_and_shown_on_all_links() -> None:
    old = grant(ANN, "worker")
    machine, _ = node(ANN, old, 0.0, grant(ADMIN, "admin"), grant(BOB, "worker"))
    request = asked(machine, 640.0).request
    new = longer(old, START + 640.0)

    effects = machine.on_answer(ADMIN, GrantRenewed(request=request, grant=new), 640.0)

    assert effects == [
        KeepGrant(new),
        Send(ADMIN, Hello(grant=new)),
        Send(BOB, Hello(grant=new)),
    ]
    assert machine.grant == new
    due = machine.next_deadline()
    assert due is not None
    assert due > 1_200.0


@pytest.mark.parametrize(
    "changes",
    [
        {"roles": ("worker", "admin")},
        {"roles": ()},
        {"owner": OwnerId("eve")},
        {"quota_gpus": 3},
        {"top_priority": 1},
        {"expires_wall_s": START + LIFE_S},
        {"node": BOB},
    ],
)
def test_a_grant_with_other_rights_is_not_taken(changes: dict[str, object]) -> None:
    old = grant(ANN, "worker")
    machine, _ = node(ANN, old, 0.0, grant(ADMIN, "admin"))
    request = asked(machine, 640.0).request
    bad = longer(old, START + 640.0, **changes)

    answer = GrantRenewed(request=request, grant=bad)

    assert machine.on_answer(ADMIN, answer, 640.0) == []
    assert machine.grant == old
    assert machine.trouble.startswith("admin says: ")


def test_a_forged_grant_and_an_answer_that_was_not_asked_for_change_nothing() -> None:
    old = grant(ANN, "worker")
    machine, _ = node(ANN, old, 0.0, grant(ADMIN, "admin"))
    request = asked(machine, 640.0).request
    new = longer(old, START + 640.0)
    forged = msgspec.structs.replace(new, signature=b"x" * 16)

    from_another = machine.on_answer(
        BOB, GrantRenewed(request=request, grant=new), 640.0
    )
    other = GrantRenewed(request=RequestId("other"), grant=new)
    to_another = machine.on_answer(ADMIN, other, 640.0)
    bad = machine.on_answer(ADMIN, GrantRenewed(request=request, grant=forged), 640.0)

    assert [from_another, to_another, bad] == [[], [], []]
    assert machine.grant == old


def test_who_gets_no_answer_asks_again_often_enough_before_the_end() -> None:
    machine, _ = node(ANN, grant(ANN, "worker"), 0.0, grant(ADMIN, "admin"))
    now, tries = 0.0, 0
    while (due := machine.next_deadline()) is not None and due < LIFE_S:
        assert due > now or now == 0.0
        now = due
        tries += len(machine.on_deadline(now))

    assert 8 <= tries <= 100
    assert machine.trouble == "admin does not answer"


def wanted(old: Grant) -> GrantWanted:
    return GrantWanted(request=RequestId("r"), grant=old)


def test_an_admin_has_it_signed_and_passes_it_on() -> None:
    old = grant(ANN, "worker")
    machine, _ = node(ADMIN, grant(ADMIN, "worker", "admin"), 0.0, old)
    new = longer(old, START + 700.0)

    effects = machine.on_wanted(ANN, wanted(old), 700.0)
    again = machine.on_wanted(ANN, wanted(old), 700.0)
    answer = machine.on_signed(GrantSigned(ANN, RequestId("r"), new), 700.0)

    assert effects == [SignGrant(ANN, RequestId("r"), old)]
    assert again == [], "it is on the way"
    assert answer == [Send(ANN, GrantRenewed(request=RequestId("r"), grant=new))]


def refused(machine: GrantRenewal, peer: NodeId, old: Grant, now: float) -> str:
    [effect] = machine.on_wanted(peer, wanted(old), now)
    assert isinstance(effect, Send)
    assert isinstance(effect.message, GrantRenewed)
    assert effect.message.grant is None
    return effect.message.reason


def test_an_admin_says_no_to_who_may_not_have_one() -> None:
    old = grant(ANN, "worker")
    machine, roster = node(ADMIN, grant(ADMIN, "worker", "admin"), 0.0, old)
    worker, _ = node(BOB, grant(BOB, "worker"), 0.0, old)

    early = refused(machine, ANN, old, 100.0)
    anothers = refused(machine, BOB, old, 700.0)
    forged = refused(machine, ANN, msgspec.structs.replace(old, quota_gpus=9), 700.0)
    no_admin = refused(worker, ANN, old, 700.0)
    late = refused(machine, ANN, old, LIFE_S + 1.0)
    roster.revoke(trust.revocation(ANN, serial=TERM - 1))
    revoked = refused(machine, ANN, old, 700.0)

    assert early == "too early: more than half of its life is left"
    assert anothers == "grant is for ann, not bob"
    assert "does not verify" in forged
    assert no_admin == "this node is no admin"
    assert "expired" in late
    assert "is revoked" in revoked


def test_who_is_revoked_while_it_is_signed_gets_nothing() -> None:
    old = grant(ANN, "worker")
    machine, roster = node(ADMIN, grant(ADMIN, "worker", "admin"), 0.0, old)
    machine.on_wanted(ANN, wanted(old), 700.0)
    roster.revoke(trust.revocation(ANN, serial=TERM - 1))

    signed = GrantSigned(ANN, RequestId("r"), longer(old, START + 700.0))
    [effect] = machine.on_signed(signed, 700.0)

    assert isinstance(effect, Send)
    assert isinstance(effect.message, GrantRenewed)
    assert effect.message.grant is None


def test_what_is_being_signed_is_bounded() -> None:
    machine, _ = node(ADMIN, grant(ADMIN, "worker", "admin"))
    members = [grant(NodeId(f"m{n}"), "worker") for n in range(SIGNING_MAX + 1)]

    effects = [machine.on_wanted(each.node, wanted(each), 700.0) for each in members]

    assert sum(isinstance(one, SignGrant) for [one] in effects) == SIGNING_MAX


def test_a_member_that_is_no_admin_names_those_it_knows() -> None:
    old = grant(ANN, "worker")
    helper, _ = node(BOB, grant(BOB, "worker"), 0.0, old, grant(ADMIN, "admin"))
    machine, _ = node(ANN, old, 0.0, grant(BOB, "worker"))
    request = asked(machine, 640.0)

    [told] = helper.on_wanted(ANN, request, 640.0)
    assert isinstance(told, Send)
    assert isinstance(told.message, GrantRenewed)
    machine.on_answer(BOB, told.message, 640.0)
    [effect] = machine.on_deadline(640.0)

    assert isinstance(effect, Send)
    assert effect.peer == ADMIN


def test_an_admin_without_the_root_gives_no_longer_than_it_has() -> None:
    own = grant(ADMIN, "worker", "admin", life_s=1_000.0)
    ends_first = grant(ADMIN, "worker", "admin", life_s=LIFE_S)
    old = grant(ANN, "worker")

    made = renewed(old, own, is_root=False, revoked_up_to=-1, wall_s=START + 700.0)
    none = renewed(
        old, ends_first, is_root=False, revoked_up_to=-1, wall_s=START + 700.0
    )

    assert isinstance(made, Grant)
    assert made.expires_wall_s == own.expires_wall_s
    assert made.delegation == own
    assert same_rights(old, made)
    assert none == "the grant of the signer ends no later"


def test_the_life_of_a_grant_follows_from_its_serial_in_any_term() -> None:
    old = grant(ANN, "worker")
    later_term = msgspec.structs.replace(old, serial=3 * TERM + old.serial)
    plain = msgspec.structs.replace(old, serial=7)

    assert life_of(old, 5.0) == life_of(later_term, 5.0) == LIFE_S
    assert life_of(plain, 5.0) == 5.0


def test_who_waits_for_an_admin_asks_as_soon_as_one_is_there() -> None:
    admin = grant(ADMIN, "admin")
    machine, roster = node(ANN, grant(ANN, "worker"))
    machine.on_deadline(640.0)
    roster.meet(ADMIN, admin, 641.0)

    machine.connected(ADMIN, 641.0)

    assert machine.next_deadline() == 641.0
    assert asked(machine, 641.0).grant == machine.grant
    assert machine.next_deadline() == 641.0 + ANSWER_S
