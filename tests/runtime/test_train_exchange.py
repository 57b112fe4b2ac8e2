"""Large files travel in pieces, and every byte is counted."""

from pathlib import Path

import pytest

from shoal.errors import ProtocolError
from shoal.train.exchange import ExchangeError, FolderExchange
from shoal.train.pieces import PIECE_BYTES, PIECES_MAX, PieceExchange


@pytest.mark.parametrize("size", [0, 1, PIECE_BYTES, 3 * PIECE_BYTES + 7])
def test_a_large_file_arrives_as_it_was_and_is_counted(
    tmp_path: Path, size: int
) -> None:
    one, other = (FolderExchange(tmp_path, name) for name in ("one", "other"))
    data = bytes(number % 251 for number in range(size))
    path = one.draft()
    path.write_bytes(data)

    file = PieceExchange(one).put(path)
    got = PieceExchange(other).get(file, "one", "checkpoints")

    assert got.read_bytes() == data
    assert not path.exists()
    assert (
        size <= other.traffic["checkpoints"] <= size + 100 * (2 + size // PIECE_BYTES)
    )
    assert sum(one.traffic.values()) == 0


def test_a_very_large_file_has_no_more_pieces_than_a_list_can_name(
    tmp_path: Path,
) -> None:
    exchange = FolderExchange(tmp_path, "one")
    path = exchange.draft()
    path.write_bytes(b"x" * (PIECE_BYTES * PIECES_MAX + 1))
    before = len(list((tmp_path / "files").iterdir()))

    PieceExchange(exchange).put(path)

    assert len(list((tmp_path / "files").iterdir())) - before <= PIECES_MAX + 1


def test_pieces_come_one_after_another_over_the_time_that_is_given(
    tmp_path: Path,
) -> None:
    exchange = FolderExchange(tmp_path, "one")
    path = exchange.draft()
    path.write_bytes(b"".join(bytes([n]) * PIECE_BYTES for n in range(4)))
    pauses: list[float] = []

    large = PieceExchange(exchange)
    large.get(large.put(path), "one", "checkpoints", over_s=8.0, pause=pauses.append)

    assert pauses == [2.0] * 4


def test_a_file_that_lists_no_pieces_is_refused(tmp_path: Path) -> None:
    exchange = FolderExchange(tmp_path, "one")
    path = exchange.draft()
    path.write_bytes(b"garbage")
    file = exchange.put(path)

    with pytest.raises(ProtocolError, match="no list of pieces"):
        PieceExchange(exchange).get(file, "two", "weights")
    with pytest.raises(ExchangeError):
        exchange.get("nothing", "two", "updates")
