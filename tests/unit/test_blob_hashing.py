import os

import pytest

from shoal.protocol import blob_hashing as hashing
from shoal.protocol.blob_hashing import BLOB_BYTES_MAX, FANOUT, Hasher, Proof, is_piece
from shoal.protocol.limits import PIECE_BYTES_MAX

BIG = os.urandom(3 * PIECE_BYTES_MAX + 5)


def leaves_of(data: bytes) -> bytes:
    hasher = Hasher()
    hasher.update(data)
    return hasher.leaves()


def test_a_name_tells_the_size_and_nothing_else_is_a_name() -> None:
    assert hashing.size_of(hashing.name_of_bytes(b"abc")) == 3
    assert hashing.size_of(hashing.name_of_bytes(b"")) == 0
    for text in ("", "abc", "0" * 64, f"{'0' * 64}-03", f"{'0' * 64}-{10**16}"):
        assert hashing.size_of(text) is None
    assert hashing.size_of(f"{'0' * 64}-{BLOB_BYTES_MAX + 1}") is None


@pytest.mark.parametrize("step", [1, 7, PIECE_BYTES_MAX - 1, PIECE_BYTES_MAX, 10**6])
def test_the_name_does_not_depend_on_how_the_bytes_come(step: int) -> None:
    hasher = Hasher()
    data = BIG if step > 100 else BIG[: PIECE_BYTES_MAX + 3]

    for at in range(0, len(data), step):
        hasher.update(data[at : at + step])

    assert hasher.name() == hashing.name_of_bytes(data)


def test_blobs_of_one_piece_and_of_its_hash_have_different_names() -> None:
    leaves = leaves_of(BIG)

    assert (
        hashing.name_of_bytes(leaves).split("-")[0]
        != (hashing.name_of_bytes(BIG).split("-")[0])
    )
    assert hashing.name_of_leaves(len(BIG), leaves) == hashing.name_of_bytes(BIG)
    assert hashing.name_of_leaves(len(BIG) + 1, leaves) != hashing.name_of_bytes(BIG)


def test_a_proof_takes_only_pieces_that_are_right_and_in_their_place() -> None:
    blob = hashing.name_of_bytes(BIG)
    proof = Proof(blob, len(BIG))
    pieces = [BIG[at : at + PIECE_BYTES_MAX] for at in range(0, len(BIG), 49_152)]

    assert proof.counts == (4, 1)
    assert proof.leaf(0, 0) == b"", "its parent is not known yet"
    assert not proof.accepts(1, 0, os.urandom(4 * 32))
    assert proof.accepts(1, 0, leaves_of(BIG))
    for index, piece in enumerate(pieces):
        leaf = proof.leaf(0, index)
        assert not is_piece(blob, leaf, piece[:-1])
        assert not is_piece(blob, leaf, piece[:-1] + bytes([piece[-1] ^ 1]))
        assert is_piece(blob, leaf, piece)
    assert not is_piece(blob, proof.leaf(0, 1), pieces[0])
    assert not is_piece(blob, b"", pieces[0])
    assert proof.leaves() == leaves_of(BIG)


def test_three_levels_prove_each_other() -> None:
    # No bytes that large: hashes of pieces that nobody has are hashes all the same.
    count = FANOUT + 3
    size = count * PIECE_BYTES_MAX
    leaves = b"".join(bytes([n % 256]) * 32 for n in range(count))
    blob = hashing.name_of_leaves(size, leaves)
    proof = Proof(blob, size)

    assert proof.counts == (count, 2, 1)
    for level, index in ((2, 0), (1, 1), (1, 0)):
        node = hashing.node_of(size, leaves, level, index)
        assert node is not None
        assert not proof.accepts(level, index, node[::-1])
        assert proof.accepts(level, index, node)
    assert proof.leaf(0, FANOUT + 1) == bytes([(FANOUT + 1) % 256]) * 32
    assert proof.leaves() == leaves
    assert hashing.node_of(size, leaves, 1, 2) is None
    assert hashing.node_of(size, leaves, 3, 0) is None


def test_a_blob_of_one_piece_is_proved_by_its_name() -> None:
    blob = hashing.name_of_bytes(b"small")

    assert is_piece(blob, b"", b"small")
    assert not is_piece(blob, b"", b"smell")
    assert not is_piece(blob, b"", b"small\0")
