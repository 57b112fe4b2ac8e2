"""Members that know only a gate find each other, though it crashes or lies."""

from shoal.sim.seeds import SeedTrial, draw_script


def test_members_find_each_other_in_spite_of_faults() -> None:
    seeds = [seed for seed in range(50) if draw_script(seed).neighbours is not None]
    remembered = 0

    for seed in seeds:
        trial = SeedTrial(seed)
        assert trial.run().violations == ()
        assert trial.neighbours is not None
        remembered += sum(len(host.met) for host in trial.neighbours.hosts)

    assert remembered >= 3 * len(seeds)
