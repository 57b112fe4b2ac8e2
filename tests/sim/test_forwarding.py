"""Calls between nodes keep their promises in whole worlds, and many come through."""

from shoal.sim.seeds import SeedTrial, draw_script


def test_calls_come_through_in_spite_of_faults() -> None:
    seeds = [seed for seed in range(60) if draw_script(seed).api is not None]
    completed = 0

    for seed in seeds:
        trial = SeedTrial(seed)
        assert trial.run().violations == ()
        assert trial.api is not None
        completed += trial.api.completed

    assert completed >= len(seeds)
