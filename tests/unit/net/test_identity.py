import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.errors import ShoalError, UsageError
from shoal.model.ids import NodeId
from shoal.net.identity.identity import Identity, _create, node_id, public_key, verify

# From the test vectors of the libp2p specifications, and of the zero key.
VECTORS = {
    "7e0830617c4a7de83925dfb2694556b12936c477a0e1feb2e148ec9da60fee7d": (
        "1ed1e8fae2c4a144b8be8fd4b47bf3d3b34b871c3cacf6010f0e42d474fce27e",
        "12D3KooWBtg3aaRMjxwedh83aGiUkwSxDwUZkzuJcfaqUmo7R3pq",
    ),
    "00" * 32: (
        "3b6a27bcceb6a42d62a3a8d02a6f0d73653215771de243a63ac048a18b59da29",
        "12D3KooWDpJ7As7BWAwRMfu1VU2WCqNjvq387JEYKDBj4kx6nXTN",
    ),
}


@pytest.mark.parametrize("seed", VECTORS)
def test_a_node_id_is_the_libp2p_peer_id_of_the_key(seed: str) -> None:
    key, peer_id = VECTORS[seed]

    identity = Identity.from_seed(bytes.fromhex(seed))

    assert identity.node == peer_id
    assert public_key(NodeId(peer_id)).hex() == key


@given(st.binary(min_size=32, max_size=32))
def test_the_public_key_is_inside_the_id(key: bytes) -> None:
    assert public_key(node_id(key)) == key


@pytest.mark.parametrize(
    ("text", "because"),
    [
        ("brave-otter", "11 letters instead of 52"),
        ("12D3KooW" + "0" * 44, "letter 9 is '0', which base58 has not"),
        ("z" * 52, "it is not that of an Ed25519 key"),
        ("1" * 52, "it is not that of an Ed25519 key"),
        ("QmYyQSo1c1Ym7orWxLYvCrM2EmxFTANf8wXmmE7DWjhx5N", "46 letters instead of 52"),
    ],
)
def test_a_text_that_is_no_id_is_refused_with_the_reason(
    text: str, because: str
) -> None:
    with pytest.raises(UsageError) as refusal:
        public_key(NodeId(text))

    assert refusal.value.because == because


def test_what_a_node_signed_verifies_and_nothing_else_does() -> None:
    ann, bob = Identity.generate(), Identity.generate()
    signature = ann.sign(b"payload")

    assert verify(ann.node, b"payload", signature)
    assert not verify(bob.node, b"payload", signature)
    assert not verify(ann.node, b"other", signature)


@given(st.text(max_size=60), st.binary(max_size=70))
def test_verifying_never_raises(node: str, signature: bytes) -> None:
    known = Identity.from_seed(bytes(32)).node

    assert not verify(NodeId(node), b"payload", signature)
    assert not verify(known, b"payload", signature)


def test_a_new_key_is_kept_where_only_its_owner_reads(tmp_path: Path) -> None:
    path = tmp_path / "keys" / "node.pem"

    identity = Identity.load_or_create(path)

    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert Identity.load(path).node == identity.node
    assert Identity.load_or_create(path).node == identity.node
    assert [file.name for file in path.parent.iterdir()] == ["node.pem"]


def test_all_who_create_a_key_at_once_get_the_same(tmp_path: Path) -> None:
    path = tmp_path / "node.pem"

    with ThreadPoolExecutor(8) as pool:
        ids = {i.node for i in pool.map(Identity.load_or_create, [path] * 8)}

    assert len(ids) == 1


def test_a_key_that_is_there_is_never_replaced(tmp_path: Path) -> None:
    path = tmp_path / "node.pem"
    first = Identity.load_or_create(path)

    made = _create(path, Identity.generate().pem())

    assert not made
    assert Identity.load(path).node == first.node
    assert [file.name for file in tmp_path.iterdir()] == ["node.pem"]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644])
def test_a_key_that_others_may_read_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "node.pem"
    Identity.load_or_create(path)
    path.chmod(mode)

    with pytest.raises(ShoalError) as refusal:
        Identity.load(path)

    assert f"{mode:04o}" in refusal.value.because
    assert refusal.value.hint.startswith(f"chmod 600 {path}")


@pytest.mark.parametrize("data", [b"", b"garbage", b"-----BEGIN PRIVATE KEY-----\n"])
def test_a_file_without_a_key_is_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "node.pem"
    path.write_bytes(data)
    path.chmod(0o600)

    with pytest.raises(ShoalError, match="no key of a node"):
        Identity.load_or_create(path)


def test_the_private_key_is_not_shown() -> None:
    identity = Identity.from_seed(bytes(32))

    assert repr(identity) == f"Identity({identity.node})"
