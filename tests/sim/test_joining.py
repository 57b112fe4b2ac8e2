"""Worlds that newcomers join, which once broke a promise."""

import pytest

from shoal.sim.seeds import SeedTrial


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
