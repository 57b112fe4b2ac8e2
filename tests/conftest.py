"""Settings for all tests."""

from hypothesis import settings
from tests.second_try import pytest_runtest_protocol, pytest_terminal_summary

__all__ = ["pytest_runtest_protocol", "pytest_terminal_summary"]  # Hooks of pytest.

# The same examples in every run: a test that fails now and then is broken. To look
# further: make test PYTEST_FLAGS=--hypothesis-profile=explore.
settings.register_profile("shoal", deadline=None, derandomize=True, database=None)
settings.register_profile("explore", deadline=None, max_examples=2_000)
settings.load_profile("shoal")
