"""Which worker of xdist runs which tests first: the long ones, so that nobody waits.

A worker begins with an equal share of all tests in their order, and takes from the end
of another's share when it has done its own. By name, the tests on real processes would
be the share of one, and the longest of them would begin last. So each share begins with
modules that take long and ends with tests that take no time.
"""

import os
from itertools import groupby

import pytest

LONG = (  # In rows of eight: few that train at the same time.
    "test_train_live",
    "test_nat",
    "test_crashes",
    "test_train_two_nodes",
    "test_finding",
    "test_cli_joining",
    "test_crashes_scheduler",
    "test_lan_join",
    # The second row.
    "test_train_nat",
    "test_api_far",
    "test_refusals",
    "test_cli_nodes",
    "test_seed_names",
    "test_planted",
    "test_artifacts_crashes",
    # The third.
    "test_cli",
    "test_own_ddp",
    "test_train_wire",
    "test_first_five_minutes",
    "test_train_memory",
    "test_hostile_node",
    "test_partitions",
    "test_libp2p_links",
    "test_train_failures",
)


@pytest.hookimpl(trylast=True)  # Some are left out before.
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the tests in order; every worker must find the same one."""
    shares = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    if shares > 1:
        items[:] = dealt(items, shares)


def dealt(items: list[pytest.Item], shares: int) -> list[pytest.Item]:
    """Deal whole modules, for what their tests share, the long ones first."""
    by_module = [list(group) for _, group in groupby(items, key=_module)]
    by_module.sort(key=lambda module: _turn(module[0]))
    slow = [module for module in by_module if _turn(module[0]) <= len(LONG)]
    quick = [item for module in by_module[len(slow) :] for item in module]
    size = -(-len(items) // shares)
    found: list[pytest.Item] = []
    for number in range(shares):
        share = [item for module in slow[number::shares] for item in module]
        rest = size * (number + 1) - len(found) - len(share)
        found += share + quick[: max(0, rest)]
        del quick[: max(0, rest)]
    return found + quick


def _module(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]


def _turn(item: pytest.Item) -> int:
    """Return the place of a long module; then come all on real processes, then all."""
    stem = item.path.stem
    if stem in LONG:
        return LONG.index(stem)
    is_slow = item.get_closest_marker("integration") is not None
    return len(LONG) if is_slow else len(LONG) + 1
