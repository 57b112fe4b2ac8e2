"""A second try for tests on real processes, in CI, and the truth about it.

Such a test shares its machine with others and may find it too busy. Where nobody is
there to look, it may fail once; what needed that is named at the end of the run. A test
that is named there more than rarely is broken.
"""

import os
from typing import Any

import pytest
from _pytest.runner import runtestprotocol
from _pytest.terminal import TerminalReporter

MARK = "second-try"


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(
    item: pytest.Item, nextitem: pytest.Item | None
) -> bool | None:
    """Run a test, and if it failed in CI, once more; the second result counts.

    None leaves a test to pytest itself; anything else says that it was run here.
    """
    if not os.environ.get("CI") or item.get_closest_marker("integration") is None:
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    reports = runtestprotocol(item, nextitem=nextitem, log=False)
    failed = [report for report in reports if report.failed]
    if failed:
        again: Any = item
        again._initrequest()  # Fixtures anew.
        reports = runtestprotocol(item, nextitem=nextitem, log=False)
        for report in reports:
            report.user_properties.append((MARK, failed[0].longreprtext[-400:]))
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    """Name the tests that needed a second try, with the end of what went wrong."""
    told = {
        report.nodeid: dict(report.user_properties)[MARK]
        for report in terminalreporter.stats.get("passed", [])
        if MARK in dict(report.user_properties)
    }
    if told:
        terminalreporter.section("passed at the second try")
        for nodeid, text in sorted(told.items()):
            terminalreporter.write_line(f"{nodeid}\n{text}")
