from contextlib import suppress

import msgspec
import pytest
from msgspec import inspect
from tests.wire.examples import ADMIN, EXAMPLES, GRANT
from tests.wire.shapes import (
    TYPES,
    Path,
    Plain,
    beyond,
    bounded,
    places,
    plain_of,
    replaced,
)

from shoal.errors import ProtocolError
from shoal.protocol.codec import decode
from shoal.protocol.messages import Grant

pack = msgspec.msgpack.encode

A_METRIC = ("metrics", 0)  # may be NaN or infinite


@pytest.mark.parametrize("tag", sorted(TYPES))
def test_every_value_in_a_message_has_bounds(tag: str) -> None:
    unbounded = [
        path
        for path, info in places(TYPES[tag])
        if path != A_METRIC and not bounded(info)
    ]

    assert unbounded == [], "give its type bounds, from model.bounds or protocol.limits"


@pytest.mark.parametrize("tag", sorted(TYPES))
def test_a_value_out_of_bounds_is_refused_wherever_it_is(tag: str) -> None:
    for path, info in places(TYPES[tag]):
        for value in beyond(info):
            frame = pack([replaced(example_with(tag, path), path, value)])
            with pytest.raises(ProtocolError) as refusal:
                decode(frame)
            assert refusal.value.kind == "malformed"


def example_with(tag: str, path: Path) -> Plain:
    for example in EXAMPLES.values():
        plain = plain_of(example)
        with suppress(LookupError, TypeError):
            if plain["type"] == tag:
                replaced(plain, path, None)
                return plain
    raise AssertionError(f"no example of {tag} has anything at {path}")


GRANTED = [
    (tag, path)
    for tag in sorted(TYPES)
    for path, info in places(TYPES[tag])
    if isinstance(info, inspect.StructType)
    and info.cls is Grant
    and path[1:] != ("delegation",)
]


@pytest.mark.parametrize(("tag", "path"), GRANTED)
def test_grants_nested_too_deeply_are_refused_wherever_they_are(
    tag: str, path: Path
) -> None:
    allowed = msgspec.structs.replace(
        GRANT, delegation=msgspec.structs.replace(ADMIN, delegation=GRANT)
    )
    deeper = msgspec.structs.replace(GRANT, delegation=allowed)
    plain = plain_of(EXAMPLES[tag])

    assert decode(pack([replaced(plain, path, allowed)]))
    with pytest.raises(ProtocolError, match="4 delegations > 3"):
        decode(pack([replaced(plain, path, deeper)]))
