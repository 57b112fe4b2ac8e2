import pytest
from tests.unit.net.shoals import identity

from shoal.model.capability import ANY, capability_keys
from shoal.model.resources import GIB, Capacity, Device
from shoal.net.libp2p.finding import dht_keys

LABELS = tuple(sorted((f"zone{n}", "eu") for n in range(12)))


def server() -> Capacity:
    gpus = [
        Device(id=f"g{n}", vendor="nvidia", model="H100", memory_bytes=80 * GIB)
        for n in range(8)
    ]
    return Capacity(
        cpu_milli=128_000, memory_bytes=1024 * GIB, devices=tuple(gpus), labels=LABELS
    )


def test_a_worker_provides_ten_keys_at_most() -> None:
    every = capability_keys(server())

    assert len(every) > dht_keys.KEYS_MAX
    assert len(dht_keys.prioritised(every)) == dht_keys.KEYS_MAX


def test_the_rarest_of_each_kind_comes_first_and_that_for_all_is_kept() -> None:
    chosen = dht_keys.prioritised(capability_keys(server()))

    assert chosen[-1] == ANY
    assert "gpu-model/H100" in chosen
    assert "gpu-memory/64" in chosen
    assert "gpu-count/8" in chosen
    assert "ram/512" in chosen
    assert "cpu/64" in chosen


def test_few_keys_are_all_provided() -> None:
    assert set(dht_keys.prioritised(["a/1", "a/2", ANY])) == {"a/1", "a/2", ANY}
    assert dht_keys.prioritised([]) == ()


def test_a_key_of_the_dht_is_a_multihash_of_sha2_256() -> None:
    key = dht_keys.record_key("reef", ANY, "", 7)

    assert key[:2] == bytes((0x12, 32))
    assert len(key) == 34


@pytest.mark.parametrize(
    "other",
    [
        ("bay", ANY, "", 7),
        ("reef", "cpu/16", "", 7),
        ("reef", ANY, "0", 7),
        ("reef", ANY, "", 8),
    ],
)
def test_shoals_capabilities_branches_and_spans_have_different_keys(
    other: tuple[str, str, str, int],
) -> None:
    assert dht_keys.record_key(*other) != dht_keys.record_key("reef", ANY, "", 7)


def test_the_key_changes_when_a_span_is_over() -> None:
    assert dht_keys.span(0.0) == dht_keys.span(dht_keys.SPAN_S - 1) == 0
    assert dht_keys.span(dht_keys.SPAN_S) == 1


def test_nodes_spread_evenly_over_the_branches() -> None:
    paths = [dht_keys.path(identity(number).node) for number in range(400)]

    left = sum(path[0] == "0" for path in paths)

    assert {len(path) for path in paths} == {dht_keys.LEVELS_MAX}
    assert 150 < left < 250
