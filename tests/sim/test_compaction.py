"""A node whose journal was compacted lives on exactly as with the whole of it."""

import msgspec
import pytest

from shoal.core.durability.compaction import compacted
from shoal.core.durability.journal import Entry, Revoked
from shoal.core.machine import Decider
from shoal.core.scheduling.job_book import JobBook
from shoal.sim.node.assembly import kept_besides
from shoal.sim.node.host import Assemble, NodeLife
from shoal.sim.seeds import SeedTrial, run_seed

CHUNK = 5
MORE = [pytest.param(n, marks=pytest.mark.soak) for n in range(CHUNK, 100, CHUNK)]


class Compacting:
    """Builds machines from a compacted journal, and counts what that saved."""

    def __init__(self, assemble: Assemble) -> None:
        self.saved = 0
        self._assemble = assemble

    def __call__(self, life: NodeLife) -> Decider:
        short = shortened(life)
        self.saved += max(0, len(life.journal) - len(short))
        return self._assemble(msgspec.structs.replace(life, journal=short))


def shortened(life: NodeLife) -> list[Entry]:
    book = JobBook()
    for entry in life.journal:
        book.replay(entry, life.now, life.wall_at_zero_s + life.now)
    void = [e.revocation for e in life.journal if isinstance(e, Revoked)]
    return compacted(book, void, kept_besides(life.journal))


@pytest.mark.parametrize("first", [0, *MORE])
def test_compacting_at_every_boot_changes_no_history(first: int) -> None:
    saved = 0
    for seed in range(first, first + CHUNK):
        trial = SeedTrial(seed)
        compacting = Compacting(trial.world.scene.assemble)
        trial.world.scene.assemble = compacting

        assert trial.run().digest == run_seed(seed).digest, f"seed {seed}"
        saved += compacting.saved

    assert saved > 0
