"""Trees arrive in whole worlds, though holders lie, crash, leave and lose messages."""

from shoal.sim.seeds import SeedTrial, draw_script


def test_trees_arrive_in_spite_of_faults() -> None:
    seeds = [seed for seed in range(80) if draw_script(seed).blobs is not None]
    arrived = 0

    for seed in seeds:
        trial = SeedTrial(seed)
        assert trial.run().violations == ()
        assert trial.blobs is not None
        arrived += trial.blobs.arrived

    assert arrived >= 5 * len(seeds)
