import math
from typing import cast

import pytest

from shoal.client.code import functions
from shoal.client.code.functions import Functions
from shoal.client.options import CallOptions, ClientOptions
from shoal.errors import SpecError, UsageError


def test_a_function_gets_its_number_when_it_is_used_again() -> None:
    known = Functions()

    def once() -> None: ...

    assert known.number(once, at_once=False) == (0, None)
    number, code = known.number(once, at_once=False)
    assert number == 1
    assert code
    assert known.number(once, at_once=False) == (1, None)


def test_map_numbers_a_function_at_once() -> None:
    number, code = Functions().number(math.sqrt, at_once=True)

    assert (number, bool(code)) == (1, True)


def test_another_function_at_the_same_place_in_memory_is_another() -> None:
    known = Functions()
    numbers: list[int] = []
    places: set[int] = set()

    for n in range(20):
        made = eval(f"lambda: {n}")
        places.add(id(made))
        numbers.append(known.number(made, at_once=True)[0])
        del made

    assert len(places) < 20, "no place was used twice"
    assert numbers == list(range(1, 21))


def test_functions_that_are_too_large_together_go_with_their_calls(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(functions, "KEPT_BYTES_MAX", 10)

    assert Functions().number(math.sqrt, at_once=True) == (0, None)


def test_calls_share_interpreters_if_only_their_retries_differ() -> None:
    options = CallOptions.made(cpu=2)

    assert options.changed(retries=0).kind() == options.changed(retries=9).kind()
    assert options.changed(cpu=3).kind() != options.kind()


def test_options_become_the_spec_of_an_interpreter() -> None:
    options = CallOptions.made(
        gpu="24GB", env={"A": "1"}, python="python3.12", priority=5
    )

    spec = options.spec()

    for text in ('"gpu": "24GB"', '{"A": "1"}', '["python3.12"]', '"priority": 5'):
        assert text in spec


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"lanes": 0}, UsageError, "lanes = 0"),
        ({"retries": -1}, UsageError, "retries = -1"),
        ({"idle_s": -1.0}, UsageError, "idle_s"),
        ({"python": ""}, UsageError, "names no program"),
        ({"cpu": "many"}, SpecError, "cpu"),
        ({"gpu": "A100:H100"}, SpecError, "gpu"),
        ({"cpu": [1]}, UsageError, "an option is wrong"),
        ({"gpus": 1}, UsageError, "no option 'gpus'"),
    ],
)
def test_a_wrong_option_is_said(
    options: dict[str, object], error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        CallOptions.made(**cast("ClientOptions", options))
