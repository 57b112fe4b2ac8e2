"""What the answers of a verified task say together."""

import pytest

from shoal.core.durability.journal import AnswerKept
from shoal.core.verification.replication import Ruling, rule, wanted
from shoal.model.ids import Attempt, NodeId, OwnerId
from shoal.model.job import Verify
from shoal.protocol.messages import Outcome

PAIRS = Verify(copies=2)
OWN = OwnerId("me")


def answer(owner: str, digest: str, code: int = 0, worker: str = "") -> AnswerKept:
    attempt = Attempt(NodeId("s"), 1, 1)
    outcome = Outcome("exited", exit_code=code, digest=digest if code == 0 else "")
    return AnswerKept(attempt, NodeId(worker or owner), OwnerId(owner), outcome)


def ruled(*answers: AnswerKept, verify: Verify = PAIRS, trusted: str = "") -> Ruling:
    return rule(answers, verify, OWN, lambda owner: owner == trusted)


def test_two_owners_that_agree_are_enough() -> None:
    a, b, c = answer("a", "x"), answer("b", "y"), answer("c", "x")

    assert ruled(a).do == "ask"
    assert ruled(a, b).do == "ask"
    assert ruled(a, b, c) == Ruling("accept", a)


def test_two_machines_of_one_owner_are_one_voice() -> None:
    twins = [answer("a", "x", worker="w1"), answer("a", "x", worker="w2")]

    assert ruled(*twins).do == "ask"
    assert ruled(*twins, verify=Verify(owners="any")).do == "accept"


def test_answers_with_nothing_to_compare_agree_with_nobody() -> None:
    assert ruled(*(answer(owner, "") for owner in "abcd")).do == "ask"


def test_the_own_machine_is_believed_against_any_number_of_others() -> None:
    own = answer("me", "x")

    assert ruled(answer("a", "y"), own) == Ruling("accept", own)
    assert ruled(own, verify=Verify(owners="any")).do == "ask"


def test_one_answer_of_a_trusted_owner_is_trusted_unless_it_is_checked() -> None:
    a = answer("a", "x")

    assert ruled(a, trusted="a") == Ruling("trust", a)
    assert rule([a], PAIRS, OWN, lambda _: True, checked=True).do == "ask"
    assert ruled(answer("a", ""), trusted="a").do == "ask"
    assert ruled(answer("a", "", code=1), trusted="a").do == "ask"


def test_it_takes_two_more_to_say_that_a_task_fails() -> None:
    failures = [answer(owner, "", code=1) for owner in "abcd"]

    assert ruled(*failures[:3]).do == "ask"
    assert ruled(*failures).do == "accept"
    assert ruled(*failures[:2], trusted="b").do == "accept"
    assert ruled(failures[0], answer("b", "", code=2)).do == "ask"


def test_after_the_most_answers_without_agreement_it_says_what_came() -> None:
    ruling = ruled(
        answer("a", "x"), answer("b", "y"), answer("c", ""), verify=Verify(most=3)
    )

    assert ruling.do == "give-up"
    assert ruling.reason == (
        "of 3 results no 2 agree, 2 are different, and at most 1 the same; "
        "1 had nothing to compare"
    )


@pytest.mark.parametrize(
    ("answers", "live", "trusted", "more"),
    [
        ((), (), "", 2),
        ((), ("a",), "", 1),
        ((), ("a",), "a", 0),
        ((), ("me",), "", 0),
        ((answer("a", "x"),), (), "", 1),
        ((answer("a", "x"),), ("b",), "", 0),
        ((answer("a", "x"), answer("b", "y")), (), "", 1),
        ((answer("a", ""),), (), "", 2),
        ((answer("a", "", code=1),), (), "", 2),
    ],
)
def test_as_many_are_asked_as_are_enough_if_all_agree(
    answers: tuple[AnswerKept, ...], live: tuple[str, ...], trusted: str, more: int
) -> None:
    owners = [OwnerId(owner) for owner in live]

    assert wanted(answers, owners, PAIRS, OWN, lambda o: o == trusted) == more


def test_no_more_are_asked_than_the_most() -> None:
    two = Verify(copies=2, most=2)

    apart = [answer("a", "x"), answer("b", "y")]

    assert wanted(apart, [], two, OWN, lambda _: False) == 0
