"""Newcomers join whole worlds, though admins crash and leave; promises hold."""

import pytest

from shoal.sim.seeds import SeedTrial, draw_script


def test_newcomers_are_let_in_in_spite_of_faults() -> None:
    seeds = [seed for seed in range(60) if draw_script(seed).joining is not None]
    welcomed = 0

    for seed in seeds:
        trial = SeedTrial(seed)
        assert trial.run().violations == ()
        assert trial.joining is not None
        welcomed += trial.joining.welcomed

    assert welcomed >= len(seeds)


@pytest.mark.parametrize(
    "seed",
    [
        1142,  # The stand-in never heard, and newcomers ask anybody but the giver.
        1135,  # A stranger asks at two nodes in turn; one of them cannot let it in.
        2262,
        2931,  # Given, taken back and given again in one life: two nodes redeemed it.
    ],
)
def test_seeds_that_once_left_somebody_out(seed: int) -> None:
    assert SeedTrial(seed).run().violations == ()
