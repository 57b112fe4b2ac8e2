"""Whatever bytes come to a decoder: a message, or its own error, in little memory."""

import warnings
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.property.fuzz import bombard, shared
from tests.property.fuzz_targets import FINDS, TARGETS, seeds_of, tried

FRAMES = 12_000
SEED = 13
REFUSED = {"weights"}
"""Takes files of three kinds, and understands each as one of them only."""


@pytest.fixture(autouse=True)
def _quiet() -> None:
    warnings.filterwarnings("ignore", message="Parsed a")  # Of odd certificates.


@pytest.mark.parametrize("name", TARGETS)
def test_a_target_understands_what_it_is_made_for(name: str) -> None:
    outcomes = {tried(TARGETS[name], seed) for seed in seeds_of(TARGETS[name])}

    assert "ok" in outcomes or name in REFUSED


@pytest.mark.parametrize(("name", "frames"), shared(FRAMES).items())
def test_bytes_that_are_nearly_right_are_a_message_or_one_error(
    name: str, frames: int
) -> None:
    found = bombard(TARGETS[name], frames, Random(f"{SEED} {name}"))

    assert found["failures"] == []


@settings(max_examples=400)
@given(st.sampled_from(sorted(TARGETS)), st.binary(max_size=200))
def test_random_bytes_are_a_message_or_one_error(name: str, data: bytes) -> None:
    assert tried(TARGETS[name], data)


@pytest.mark.parametrize("name", FINDS)
def test_what_once_broke_a_decoder_does_so_no_more(name: str) -> None:
    assert tried(TARGETS[name], FINDS[name]())
