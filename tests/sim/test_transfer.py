"""Whatever peers do, a blob that one honest peer has arrives, and never a wrong one."""

import pytest
from tests.unit.core.pond import Pond

from shoal.core.events import PeerLost

HONEST = "honest"


@pytest.mark.parametrize("seed", range(40))
def test_one_honest_peer_is_enough(seed: int) -> None:
    pond = Pond(seed)
    rng = pond.rng
    for n in range(rng.randrange(4)):
        pond.server(
            f"s{n}",
            latency_s=rng.uniform(0.001, 0.2),
            bytes_s=rng.uniform(1e5, 5e7),
            lies=rng.choice((0.0, 0.01, 0.5, 1.0)),
            loss=rng.choice((0.0, 0.1, 1.0)),
            holds=rng.random() < 0.7,
        )
    honest = pond.server(HONEST, latency_s=0.05, bytes_s=2e6, loss=0.05)
    blobs = [pond.blob(rng.randrange(0, 400_000)) for _ in range(rng.randrange(1, 9))]
    for blob in blobs:
        pond.want(blob)
    for _ in range(3):
        victim = rng.choice(list(pond.servers.values()))
        at_s = rng.uniform(0.0, 3.0)
        pond.after(at_s, lambda v=victim: pond.feed(PeerLost(v.node)))  # type: ignore[misc]
    pond.after(1.0, lambda: setattr(honest, "down", True))
    pond.after(4.0, lambda: setattr(honest, "down", False))

    pond.run()

    assert pond.failed == {}
    assert {blob: pond.done[blob] for blob in blobs} == {
        blob: pond.blobs[blob] for blob in blobs
    }
    assert len(pond.fetching) == 0
    assert pond.fetching.sources.get(honest.node).wrong == 0
    assert pond.fetching.sources.get(honest.node).under_way == 0
