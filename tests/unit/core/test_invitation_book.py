"""An invitation lets in as many as it says, for as long as it says, and no others."""

import msgspec
import pytest

from shoal.core.admission.invitation_book import (
    ASK_AGAIN_S,
    INVITATIONS_MAX,
    InvitationBook,
    InvitationTerms,
    OpenInvitation,
    range_flaw,
)
from shoal.model.ids import NodeId, OwnerId
from shoal.protocol.admission_proofs import joining, proof_of, secret_digest

ANN, BOB, EVE = map(NodeId, ("ann", "bob", "eve"))
TERMS = InvitationTerms(roles=("worker",), owner=OwnerId("bob"))
SECRET = b"s" * 16


def invitation(
    number: int = 0, *, uses: int = 1, ends_at: float = 60.0
) -> OpenInvitation:
    secret = SECRET if number == 0 else number.to_bytes(16)
    return OpenInvitation(secret_digest(secret), TERMS, uses, ends_at, [])


def book_of(*kept: OpenInvitation) -> InvitationBook:
    return InvitationBook(kept)


def test_an_invitation_is_for_so_many_nodes() -> None:
    one = invitation(uses=2)
    book = book_of(one)

    said = [book.redeem(one, node, 1.0, -1) for node in (ANN, BOB, EVE)]

    assert said == ["", "", "the invitation is used up: 2 of 2"]


def test_who_asks_again_gets_the_same_and_uses_nothing_up() -> None:
    one = invitation()
    book = book_of(one)

    assert [book.redeem(one, ANN, 1.0, -1) for _ in range(3)] == [""] * 3


def test_an_invitation_expires() -> None:
    one = invitation(ends_at=160.0)
    book = book_of(one)

    assert book.redeem(one, ANN, 159.9, -1) == ""
    assert book.redeem(one, BOB, 163.0, -1) == "the invitation expired 3 s ago"


def test_who_joined_in_time_may_ask_for_the_answer_again_but_not_for_ever() -> None:
    one = invitation(ends_at=160.0)
    book = book_of(one)
    book.redeem(one, ANN, 159.9, -1)

    assert book.redeem(one, ANN, 160.0 + ASK_AGAIN_S - 1, -1) == ""
    assert "expired" in book.redeem(one, ANN, 160.0 + ASK_AGAIN_S, -1)


def test_an_invitation_that_was_given_away_may_come_back() -> None:
    one = invitation(uses=2)
    book = book_of(one)
    book.redeem(one, ANN, 1.0, -1)
    one.give_to(EVE)
    late = msgspec.structs.replace(one, given_to=NodeId(""))
    back = msgspec.structs.replace(late, joined=[ANN, BOB], moves=2)

    assert book.take(late, 1.0) == ""
    assert one.given_to == EVE, "what we said ourselves gives it to nobody"
    assert book.take(back, 1.0) == ""
    assert (one.given_to, one.joined) == ("", [ANN, BOB])
    assert book.redeem(one, EVE, 1.0, -1) == "the invitation is used up: 2 of 2"


def test_a_secret_is_proved_by_who_knows_it_and_for_itself_alone() -> None:
    one = invitation()
    book = book_of(invitation(7), one)
    proof = proof_of(SECRET, joining(ANN))

    assert book.proved(proof, ANN) is one
    assert book.proved(proof, BOB) is None
    assert book.proved(proof_of(b"w" * 16, joining(ANN)), ANN) is None
    assert book.proved(b"", ANN) is None


def test_a_revoked_node_is_let_in_only_by_an_invitation_that_knew_of_it() -> None:
    old, newer = invitation(1, uses=9), invitation(2, uses=9)
    newer.pardons = {ANN: 5}
    book = book_of(old, newer)

    assert "revoked" in book.redeem(old, ANN, 1.0, 5)
    assert book.redeem(newer, ANN, 1.0, 5) == ""
    assert "revoked" in book.redeem(newer, ANN, 1.0, 9), "once more, and later"


def test_the_book_is_bounded_and_forgets_what_expired() -> None:
    book = InvitationBook()
    for n in range(INVITATIONS_MAX):
        assert book.take(invitation(n + 1), 0.0) == ""

    assert "256 are open" in book.take(invitation(999, ends_at=119.0), 59.0)
    assert book.take(invitation(999, ends_at=120.0), 60.0) == ""
    assert len(book) == 1


@pytest.mark.parametrize(("uses", "ttl_s"), [(0, 1.0), (1_001, 1.0), (1, 0), (1, 9e9)])
def test_an_invitation_without_bounds_is_refused(uses: int, ttl_s: float) -> None:
    assert "an invitation cannot be for" in range_flaw(uses, ttl_s)
    assert InvitationBook().take(invitation(uses=uses, ends_at=ttl_s), 0.0) != ""
