"""Trees arrive in whole worlds, though holders lie, crash, leave and lose messages."""

from collections import Counter

from shoal.model.ids import NodeId
from shoal.protocol.blobs import BlobPiece, PieceRefusal
from shoal.sim.node.host import SimHost
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


def test_ordinary_worlds_stage_and_return_outputs_by_pieces() -> None:
    seeds = [seed for seed in range(40) if draw_script(seed).workload.code is not None]
    trials = [SeedTrial(s) for s in seeds if draw_script(s).blobs is None][:4]
    pieces: Counter[str] = Counter()

    def count(host: SimHost, peer: NodeId, message: object) -> None:
        pieces[type(message).__name__] += 1

    for trial in trials:
        trial.suite.sent[BlobPiece] = trial.suite.sent[PieceRefusal] = count
        assert trial.run().violations == ()

    assert pieces["BlobPiece"] > 100  # They come from other nodes,
    assert pieces["PieceRefusal"] > 0  # and some of them are lost.
