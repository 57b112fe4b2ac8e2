"""The states of an attempt, and the ways between them."""

from typing import get_args

import pytest
from tests.unit.core.builders import attempt

from shoal.core.dispatch.run_states import TRANSITIONS, RunEvent, RunState, TaskRun
from shoal.model.ids import LeaseId, NodeId, TaskId

STATES: tuple[RunState, ...] = get_args(RunState)
EVENTS: tuple[RunEvent, ...] = get_args(RunEvent)
LIVE = tuple(state for state in STATES if state != "over")


def run(state: RunState = "sent") -> TaskRun:
    return TaskRun(
        task=TaskId("j.g.0"),
        attempt=attempt(1),
        worker=NodeId("w"),
        lease=LeaseId("w/1/1"),
        state=state,
    )


def moved(*events: RunEvent, now: float = 5.0) -> TaskRun:
    made = run()
    for event in events:
        made.move(event, now)
    return made


def test_the_table_names_every_state_and_every_event() -> None:
    assert {before for before, _ in TRANSITIONS} | {"over"} == set(STATES)
    assert {event for _, event in TRANSITIONS} == set(EVENTS)


def test_every_state_can_be_reached_from_the_first() -> None:
    reached: dict[RunState, None] = {"sent": None}
    for _ in STATES:
        for (before, _), after in TRANSITIONS.items():
            if before in reached:
                reached[after] = None

    assert set(reached) == set(STATES)


@pytest.mark.parametrize("event", EVENTS)
def test_what_is_over_stays_over(event: RunEvent) -> None:
    over = moved("end")

    assert not over.may(event)
    with pytest.raises(AssertionError, match="which is over"):
        over.move(event, 9.0)


@pytest.mark.parametrize("state", LIVE)
@pytest.mark.parametrize("event", ["front", "start", "hear", "end"])
def test_what_peers_may_say_at_any_time_is_allowed_in_every_live_state(
    state: RunState, event: RunEvent
) -> None:
    assert run(state).may(event)


@pytest.mark.parametrize("state", LIVE)
def test_a_start_finds_what_was_lost_and_clears_it_of_blame(state: RunState) -> None:
    found = run(state)

    found.move("start", 9.0)

    assert (found.started, found.lost, found.blamed) == (True, False, False)


def test_only_a_lost_run_can_be_blamed() -> None:
    blaming: list[RunState] = [old for old, event in TRANSITIONS if event == "blame"]

    assert all(run(state).lost for state in blaming)
    assert moved("lose", "blame").blamed
    assert moved("start", "lose", "blame").blamed


def test_late_word_of_a_start_finds_nothing_but_is_remembered() -> None:
    late = moved("lose", "blame", "hear")

    assert (late.started, late.lost, late.blamed) == (True, True, True)
    assert not late.may("return"), "it started, so it is not sent again"


def test_what_never_started_is_sent_again_when_its_worker_is_back() -> None:
    assert moved("lose", "return").state == "sent"
    assert moved("lose", "blame", "return").state == "sent"
    assert not moved("start", "lose").may("return")


def test_time_begins_when_a_run_comes_to_the_front_of_its_lease() -> None:
    assert moved("queue", "front").since == 5.0
    assert moved("queue", "start").since == 5.0
    assert moved("front", "start", "lose", "start").since == 0.0
