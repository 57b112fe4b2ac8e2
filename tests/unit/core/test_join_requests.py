"""Who asks without an invitation is bounded, and cannot choose its code."""

import pytest

from shoal.core.admission.join_requests import (
    NEW_BURST,
    NEW_PER_S,
    REQUESTS_MAX,
    REQUESTS_PER_ADDRESS_MAX,
    SILENT_S,
    JoinAttempt,
    JoinRequest,
    JoinRequests,
)
from shoal.model.ids import NodeId, RequestId
from shoal.net.joining.join_codes import CODES, code_of, is_code, is_local
from shoal.protocol.admission import AdmissionHeard, AdmissionWanted
from shoal.protocol.admission_proofs import commitment
from shoal.protocol.messages import Refusal

HOST, ANN, BOB = NodeId("host"), NodeId("ann"), NodeId("bob")
NUMBER, OTHER = b"n" * 16, b"o" * 16
AT = "10.0.0.7"


def desk() -> JoinRequests:
    drawn = iter(range(1, 100_000))
    return JoinRequests(HOST, lambda: next(drawn).to_bytes(16), code_of)


def first(node: NodeId, nonce: bytes = NUMBER) -> AdmissionWanted:
    hidden = commitment(nonce, node, HOST)
    return AdmissionWanted(request=RequestId("r"), commitment=hidden)


def then(node: NodeId, nonce: bytes = NUMBER, has: str = "1 GPU") -> AdmissionWanted:
    hidden = commitment(nonce, node, HOST)
    return AdmissionWanted(
        request=RequestId("r"), commitment=hidden, nonce=nonce, has=has
    )


def test_both_sides_make_the_same_code() -> None:
    requests = desk()

    heard = requests.hear(ANN, AT, first(ANN), 0.0)
    told = requests.hear(ANN, AT, then(ANN), 1.0)
    [asked] = requests.pending(1.0)

    assert isinstance(heard, AdmissionHeard)
    assert isinstance(told, Refusal)
    assert told.retry_in_s is not None
    assert asked.code == code_of(ANN, HOST, NUMBER, heard.nonce)
    assert (asked.node, asked.has) == (ANN, "1 GPU")


def test_somebody_in_between_has_another_code() -> None:
    mallory = NodeId("mallory")

    codes = {
        code_of(ANN, mallory, NUMBER, OTHER),
        code_of(mallory, HOST, NUMBER, OTHER),
        code_of(ANN, HOST, NUMBER, OTHER),
        code_of(ANN, HOST, OTHER, NUMBER),
    }

    assert len(codes) == 4


def test_who_has_heard_our_number_cannot_change_its_own() -> None:
    requests = desk()
    requests.hear(ANN, AT, first(ANN, NUMBER), 0.0)

    other = AdmissionWanted(
        request=RequestId("r"), commitment=commitment(NUMBER, ANN, HOST), nonce=OTHER
    )
    answer = requests.hear(ANN, AT, other, 1.0)

    assert isinstance(answer, Refusal)
    assert answer.retry_in_s is None
    assert requests.pending(1.0) == []


def test_who_did_not_commit_first_is_not_shown() -> None:
    requests = desk()

    answer = requests.hear(ANN, AT, then(ANN), 0.0)

    assert isinstance(answer, Refusal)
    assert requests.pending(0.0) == []


def test_a_new_number_needs_a_new_yes() -> None:
    requests = desk()
    requests.hear(ANN, AT, first(ANN), 0.0)
    requests.hear(ANN, AT, then(ANN), 0.0)
    assert requests.decide(ANN, 1.0, accepted=True)

    requests.hear(ANN, AT, first(ANN, OTHER), 2.0)
    answer = requests.hear(ANN, AT, then(ANN, OTHER), 2.0)

    assert isinstance(answer, Refusal)


@pytest.mark.parametrize("accepted", [True, False])
def test_what_was_decided_is_told(accepted: bool) -> None:
    requests = desk()
    requests.hear(ANN, AT, first(ANN), 0.0)
    requests.hear(ANN, AT, then(ANN), 0.0)

    known = requests.decide(ANN, 1.0, accepted=accepted)
    answer = requests.hear(ANN, AT, then(ANN), 2.0)

    assert known
    assert isinstance(answer, JoinRequest if accepted else Refusal)
    assert not isinstance(answer, Refusal) or answer.retry_in_s is None
    assert not requests.decide(BOB, 2.0, accepted=True)


def test_who_asks_no_more_is_forgotten() -> None:
    requests = desk()
    requests.hear(ANN, AT, first(ANN), 0.0)
    requests.hear(ANN, AT, then(ANN), 0.0)

    assert requests.pending(SILENT_S - 1)
    assert requests.pending(SILENT_S) == []
    assert not requests.decide(ANN, SILENT_S, accepted=True)


def test_new_numbers_are_rare_however_many_keys_somebody_makes() -> None:
    requests = desk()
    taken = 0
    for second in range(500):
        for n in range(4):
            node, address = NodeId(f"k{second}-{n}"), f"10.1.{second % 256}.{n}"
            answer = requests.hear(node, address, first(node), float(second))
            taken += isinstance(answer, AdmissionHeard)

    assert NEW_BURST < taken <= NEW_BURST + NEW_PER_S * 500 + 1


def test_one_address_does_not_take_all_places() -> None:
    requests = desk()
    answers = [
        requests.hear(NodeId(f"k{n}"), AT, first(NodeId(f"k{n}")), 0.0)
        for n in range(REQUESTS_PER_ADDRESS_MAX + 2)
    ]

    taken = [isinstance(answer, AdmissionHeard) for answer in answers]
    assert taken == [True] * REQUESTS_PER_ADDRESS_MAX + [False, False]
    assert isinstance(requests.hear(ANN, "10.0.0.8", first(ANN), 0.0), AdmissionHeard)


def test_no_more_wait_than_there_is_room_for() -> None:
    requests = desk()
    nodes = [NodeId(f"k{n}") for n in range(40)]
    for number, node in enumerate(nodes):
        now = 10.0 * number
        requests.hear(node, f"10.2.0.{number}", first(node), now)
        for known in nodes[: number + 1]:
            requests.hear(known, "10.9.9.9", then(known), now)

    assert len(requests.pending(390.0)) == REQUESTS_MAX


def test_what_it_says_it_lends_is_plain_text() -> None:
    requests = desk()
    requests.hear(ANN, AT, first(ANN), 0.0)
    requests.hear(
        ANN, AT, then(ANN, has="1 GPU\x1b[2Jcode heron-otter-001\n" + 99 * "x"), 0.0
    )

    [asked] = requests.pending(0.0)

    assert asked.has.startswith("1 GPU 2Jcode heron otter 001 xxx")
    assert len(asked.has) <= 80
    assert asked.code not in asked.has


@pytest.mark.parametrize(
    ("address", "local"),
    [
        ("10.0.0.7", True),
        ("192.168.1.2", True),
        ("fe80::1%eth0", True),
        ("::ffff:192.168.1.2", True),
        ("8.8.8.8", False),
        ("::ffff:8.8.8.8", False),
        ("", False),
    ],
)
def test_the_local_network_is_told_from_the_rest(address: str, local: bool) -> None:
    assert is_local(address) == local


def test_a_code_has_too_many_forms_to_be_met_by_trying() -> None:
    tries = 8 + 600 * 0.2  # The burst, and ten minutes of patience.

    assert tries / CODES < 1e-5
    assert len(code_of(ANN, HOST, NUMBER, OTHER).split("-")) == 3


@pytest.mark.parametrize(
    "typed", ["heron-otter-007", " Heron otter-007 ", "HERON OTTER 007"]
)
def test_a_code_is_understood_as_people_type_it(typed: str) -> None:
    assert is_code(typed, "heron-otter-007")


@pytest.mark.parametrize("typed", ["", "-", "heron-otter-008", "heron-otter", "é"])
def test_no_other_text_is_taken_for_a_code(typed: str) -> None:
    assert not is_code(typed, "heron-otter-007")
    assert not is_code(typed, "")


def test_a_newcomer_begins_again_with_another_number_where_it_was_forgotten() -> None:
    numbers = iter((NUMBER, OTHER))
    attempt = JoinAttempt(ANN, HOST, lambda: next(numbers))
    request = RequestId("r")
    before = desk()
    for now in (0.0, 1.0):
        told = before.hear(ANN, AT, attempt.wanted(request), now)
        assert not isinstance(told, JoinRequest)
        assert attempt.hear(told) is None
    after = desk()  # The host has restarted.

    forgotten = after.hear(ANN, AT, attempt.wanted(request), 2.0)
    assert isinstance(forgotten, Refusal)
    assert attempt.hear(forgotten) is None
    for now in (3.0, 4.0):
        told = after.hear(ANN, AT, attempt.wanted(request), now)
        assert not isinstance(told, JoinRequest)
        assert attempt.hear(told) is None
    [asked] = after.pending(4.0)

    assert attempt.ours == OTHER
    assert asked.code == code_of(ANN, HOST, OTHER, attempt.theirs)


def test_a_no_is_final_and_a_later_is_not() -> None:
    attempt = JoinAttempt(ANN, HOST, lambda: NUMBER)
    no = Refusal(request=RequestId("r"), reason="somebody there said no")
    later = Refusal(request=RequestId("r"), reason="busy", retry_in_s=1.0)

    assert attempt.hear(no) is no
    assert attempt.hear(later) is None
