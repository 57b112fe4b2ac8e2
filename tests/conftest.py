"""Settings for all tests."""

from hypothesis import settings

# The same examples in every run: a test that fails now and then is broken. To look
# further: make test PYTEST_FLAGS=--hypothesis-profile=explore.
settings.register_profile("shoal", deadline=None, derandomize=True, database=None)
settings.register_profile("explore", deadline=None, max_examples=2_000)
settings.load_profile("shoal")
