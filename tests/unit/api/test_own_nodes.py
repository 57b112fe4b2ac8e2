import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.api.node_file import home_serving
from shoal.runtime.home import Home


@pytest.fixture
def port() -> Iterator[int]:
    """Listen somewhere, as a node does."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port: int = listener.getsockname()[1]
        yield port


def test_who_listens_and_has_a_journal_open_is_a_node(
    port: int, tmp_path: Path
) -> None:
    with Home(tmp_path).journal.open("wb"):
        found = home_serving(port)

    assert found is not None
    assert found.path == tmp_path


def test_who_only_listens_is_none(port: int) -> None:
    assert home_serving(port) is None


def test_where_nobody_listens_there_is_none(tmp_path: Path) -> None:
    with Home(tmp_path).journal.open("wb"):
        assert home_serving(1) is None
