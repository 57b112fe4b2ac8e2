"""Code and outputs travel by pieces in ordinary worlds too."""

from collections import Counter

from shoal.model.ids import NodeId
from shoal.protocol.blobs import BlobPiece, PieceRefusal
from shoal.sim.node.host import SimHost
from shoal.sim.seeds import SeedTrial, draw_script


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
