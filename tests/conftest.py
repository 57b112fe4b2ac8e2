"""Settings for all tests."""

import gc

from hypothesis import settings
from tests.order import pytest_collection_modifyitems

__all__ = ["pytest_collection_modifyitems"]  # A hook of pytest.

# What is imported and collected stays until the end. To look for garbage in it takes
# half of the time of collecting, in every worker, and some of each test after it.
gc.disable()


def pytest_collection_finish() -> None:
    """Look for garbage from now on, in what tests make."""
    gc.freeze()
    gc.enable()


# The same examples in every run: a test that fails now and then is broken. To look
# further: make test PYTEST_FLAGS=--hypothesis-profile=explore.
settings.register_profile("shoal", deadline=None, derandomize=True, database=None)
settings.register_profile("explore", deadline=None, max_examples=2_000)
settings.load_profile("shoal")
