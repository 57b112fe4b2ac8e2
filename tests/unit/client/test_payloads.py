import pickle
from collections import OrderedDict

import numpy as np
import pytest

from shoal.protocol import call_items, limits, payloads


class Thing:
    def __init__(self, x: int) -> None:
        self.x = x


def whole(value: object) -> bytes:
    return b"".join(payloads.dumps(value))


@pytest.mark.parametrize(
    "value",
    [
        None,
        7,
        -1.5,
        "text",
        b"bytes",
        (1, ("two", [3.0, None])),
        {"a": 1, "b": (2, 3)},
        list(range(1_000)),
        OrderedDict(a=1),
        {1, 2},
        3 + 4j,
    ],
)
def test_values_come_back_as_they_were(value: object) -> None:
    back = payloads.loads(whole(value))

    assert back == value
    assert type(back) is type(value)


def test_plain_values_are_told_from_others() -> None:
    plain = [1, "a", (1, 2), [1, [2, (3,)]], {"a": {"b": 1}}]
    others = [Thing(1), {1, 2}, [1] * 65, True.__class__, [[[[[1]]]]], {"a": Thing(1)}]

    assert all(payloads.is_plain(value) for value in plain)
    assert not any(payloads.is_plain(value) for value in others)


def test_a_subclass_is_not_taken_for_what_it_derives_from() -> None:
    class Number(int):
        pass

    assert not payloads.is_plain(Number(3))
    assert not payloads.is_plain((Number(3),))


def test_functions_and_classes_of_a_test_travel() -> None:
    function = payloads.loads(whole(lambda x: Thing(x).x + 1))

    assert function(2) == 3


def test_a_large_array_is_not_copied_into_the_pickle() -> None:
    array = np.arange(10_000, dtype=np.int32)

    first, beside = payloads.dumps([array, 1])

    assert len(first) < 1_000
    assert memoryview(beside).nbytes == array.nbytes


def test_an_array_that_came_in_parts_can_be_written() -> None:
    array = np.zeros((100, 100))
    parts = list(payloads.parts_of(payloads.dumps(array), 1_000))

    back = payloads.loads(bytearray().join(parts))

    assert max(map(len, parts)) == 1_000
    back[0, 0] = 1.0


@pytest.mark.parametrize("size", [1, 7, 50, 10_000])
def test_parts_are_the_same_bytes(size: int) -> None:
    pieces: list[bytes | memoryview] = [b"abc" * 30, memoryview(b"xyz" * 40), b""]

    parts = list(payloads.parts_of(pieces, size))

    assert b"".join(parts) == b"abc" * 30 + b"xyz" * 40
    assert all(0 < len(part) <= size for part in parts)


def test_nothing_is_one_part() -> None:
    assert list(payloads.parts_of([b""], 10)) == [b""]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x07abc",
        b"\x01",
        b"\x01\xff\xff\xff\xff",
        b"\x01\x01\0\0\0\x05\0\0\0\0\0\0\0",
    ],
)
def test_bytes_that_are_no_payload_are_refused(data: bytes) -> None:
    with pytest.raises((ValueError, pickle.UnpicklingError, EOFError, OverflowError)):
        payloads.loads(data)


def test_items_fit_into_messages() -> None:
    longest = call_items.CALL_HEAD_BYTES + call_items.PART_BYTES

    assert call_items.ITEM_BYTES_MAX == limits.ITEM_BYTES_MAX
    assert longest <= limits.ITEM_BYTES_MAX
