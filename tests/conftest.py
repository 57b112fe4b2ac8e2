"""Settings for all tests."""

from hypothesis import settings
from tests.order import pytest_collection_modifyitems
from tests.second_try import pytest_runtest_protocol, pytest_terminal_summary

__all__ = [  # Hooks of pytest.
    "pytest_collection_modifyitems",
    "pytest_runtest_protocol",
    "pytest_terminal_summary",
]

# The same examples in every run: a test that fails now and then is broken. To look
# further: make test PYTEST_FLAGS=--hypothesis-profile=explore.
settings.register_profile("shoal", deadline=None, derandomize=True, database=None)
settings.register_profile("explore", deadline=None, max_examples=2_000)
settings.load_profile("shoal")
