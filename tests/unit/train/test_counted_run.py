"""Steps make rounds, and what is due after a round follows from its number."""

from shoal.train.counted_run import RoundEnd, StepCount
from shoal.train.settings import settings_of


def test_a_round_ends_with_its_last_step_and_says_what_is_due() -> None:
    steps = StepCount(
        settings_of(
            {"rounds": 5, "inner_steps": 2, "checkpoint_every": 2, "validate_every": 3}
        )
    )

    ended = [steps.add() for _ in range(9)]

    assert not steps.is_over
    assert ended[::2] == [None] * 5
    assert steps.add() == RoundEnd(5, is_last=True, saves=False, validates=True)
    assert (steps.done, steps.round, steps.is_over) == (10, 5, True)
    due = [(e.number, e.is_last, e.saves, e.validates) for e in ended if e]
    assert due == [
        (1, False, False, False),
        (2, False, True, False),
        (3, False, False, True),
        (4, False, True, False),
    ]
