import pytest

from shoal.model.directory.capability import ANY
from shoal.net.libp2p.finding import dht_keys


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
