"""Channels to tasks keep their promises in whole worlds, and many are whole."""

from shoal.sim.seeds import SeedTrial, draw_script


def test_channels_keep_their_promises_in_spite_of_faults() -> None:
    seeds = [seed for seed in range(60) if draw_script(seed).channels is not None]
    completed = 0

    for seed in seeds:
        trial = SeedTrial(seed)
        assert trial.run().violations == ()
        assert trial.channels is not None
        completed += trial.channels.completed

    assert completed >= len(seeds)
