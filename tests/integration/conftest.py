"""What more than one module of tests needs: a network of our own, and a shoal there."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.integration.cli_home import CliHome, homes
from tests.integration.found_shoal import Found, shoal
from tests.integration.namespaces import Internet, internet, missing


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Callable[[str], CliHome]]:
    """Lend homes of one's own, by name, in which nothing was ever run."""
    with homes(tmp_path) as make:
        yield make


@pytest.fixture
def net() -> Iterator[Internet]:
    """Lend machines and routers in namespaces; skip where they cannot be made."""
    if why := missing():
        pytest.skip(why)
    with internet() as made:
        yield made


@pytest.fixture
def reef(net: Internet, tmp_path: Path) -> Iterator[Found]:
    """Lend a shoal for nodes in `net`; some modules have a `reef` of their own."""
    del net  # Its namespaces must outlive the nodes.
    with shoal(tmp_path) as made:
        yield made
