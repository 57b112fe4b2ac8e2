import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.net.shoals import identity

from shoal.errors import UsageError
from shoal.model.ids import NodeId
from shoal.net.joining.invitations import (
    Invitation,
    decode,
    encode,
    key_print,
)

INVITATION = Invitation(
    shoal="home",
    key_print=key_print(identity(1).node),
    secret=bytes(range(16)),
    expires_wall_s=1_900_000_000,
    addresses=("/dns4/gate.example.org/tcp/4001", "/ip4/192.0.2.7/tcp/4002"),
)
TOKEN = encode(INVITATION)
ANN, BOB = NodeId("ann"), NodeId("bob")
INVITATIONS = st.builds(
    Invitation,
    st.text(max_size=30),
    st.binary(min_size=16, max_size=16),
    st.binary(min_size=16, max_size=16),
    st.integers(0, 1 << 40),
    st.lists(st.text(max_size=60), max_size=4).map(tuple),
)


@given(INVITATIONS)
def test_an_invitation_reads_as_it_was_written(invitation: Invitation) -> None:
    assert decode(encode(invitation)) == invitation


def test_a_token_has_groups_of_seven_letters() -> None:
    prefix, *groups = TOKEN.split("-")

    assert prefix == "shoal1"
    assert {len(group) for group in groups[:-1]} == {7}
    assert len(TOKEN) < 250


@pytest.mark.parametrize(
    "text",
    [
        TOKEN.lower(),
        TOKEN.upper(),
        f"  {TOKEN}\n",
        TOKEN.replace("-", "- "),
        "shoal1-" + TOKEN[7:].replace("-", ""),
        TOKEN[:40] + "\n" + TOKEN[40:],
        "shoal1-" + TOKEN[7:].replace("O", "0").replace("I", "1").replace("B", "8"),
    ],
)
def test_a_token_may_be_written_in_many_ways(text: str) -> None:
    assert decode(text) == INVITATION


def test_every_single_typo_is_found_in_its_group() -> None:
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
    for place in range(7, len(TOKEN)):
        if TOKEN[place] == "-":
            continue
        group = TOKEN[:place].count("-")
        for letter in letters:
            if letter == TOKEN[place]:
                continue
            with pytest.raises(UsageError, match=f"group {group} of"):
                decode(TOKEN[:place] + letter + TOKEN[place + 1 :])


def test_any_two_letters_of_a_group_that_are_swapped_are_found() -> None:
    prefix, *groups = TOKEN.split("-")
    for number, group in enumerate(groups, start=1):
        for one in range(len(group)):
            for other in range(one):
                if group[one] == group[other]:
                    continue
                swapped = [*group]
                swapped[one], swapped[other] = group[other], group[one]
                wrong = [*groups]
                wrong[number - 1] = "".join(swapped)
                with pytest.raises(UsageError, match=f"group {number} of"):
                    decode("-".join((prefix, *wrong)))


def test_groups_that_are_swapped_are_found() -> None:
    prefix, first, second, *rest = TOKEN.split("-")

    with pytest.raises(UsageError, match=r"group 1 of .* out of place"):
        decode("-".join((prefix, second, first, *rest)))


@pytest.mark.parametrize(
    ("text", "because"),
    [
        ("", "it does not begin with 'shoal1-'"),
        ("shoal2-ABCDEFG", "it does not begin with 'shoal1-'"),
        ("shoal1-", "nothing follows 'shoal1-'"),
        (TOKEN.replace(TOKEN[7:14], TOKEN[7:13]), "group 1 of"),
        (TOKEN[:25] + "!" + TOKEN[26:], "has '!' in it, which no token has"),
        (TOKEN[:-16], ""),
        ("shoal1-" + "A" * 5_000, "5000 letters > 4096"),
    ],
)
def test_what_is_no_invitation_is_refused_with_the_reason(
    text: str, because: str
) -> None:
    with pytest.raises(UsageError) as refusal:
        decode(text)

    assert because in refusal.value.because


@given(st.text(max_size=100) | st.from_regex(r"shoal1-[A-Z2-7-]{0,80}"))
def test_any_text_is_an_invitation_or_a_usage_error(text: str) -> None:
    try:
        invitation = decode(text)
    except UsageError:
        return
    assert decode(encode(invitation)) == invitation


def test_a_secret_is_not_shown() -> None:
    assert "secret" not in repr(INVITATION)
