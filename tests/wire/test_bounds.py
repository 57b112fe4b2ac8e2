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
    grammars,
    places,
    plain_of,
    replaced,
)

from shoal.errors import ProtocolError
from shoal.model.text import bounds
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


STEERING = "\x00\x07\x1b[2J\x7f\x9b\u202e"


@pytest.mark.parametrize("tag", sorted(TYPES))
def test_a_zero_byte_is_refused_in_every_text_that_has_a_grammar(tag: str) -> None:
    for path, grammar in grammars(TYPES[tag]):
        for text in ("\0", "x\0", "x\0y", "x\0\n"):
            frame = pack([replaced(example_with(tag, path), path, text)])
            if grammar is not None:
                with pytest.raises(ProtocolError) as refusal:
                    decode(frame)
                assert refusal.value.kind == "malformed"


@pytest.mark.parametrize("tag", sorted(TYPES))
def test_every_other_text_in_a_message_is_cleaned(tag: str) -> None:
    """Whatever a peer writes, nothing of ours meets a zero byte or an escape."""
    for path, grammar in grammars(TYPES[tag]):
        if grammar is None:
            frame = pack([replaced(example_with(tag, path), path, f"a{STEERING}b\n")])
            [message] = decode(frame)
            text = at(plain_of(message), path)
            assert text == "a???[2J???b\n", f"no grammar for {path}: {text!r}"


@pytest.mark.parametrize("tag", sorted(TYPES))
def test_only_arguments_and_values_have_control_characters(tag: str) -> None:
    for path, grammar in grammars(TYPES[tag]):
        frame = pack([replaced(example_with(tag, path), path, "a\x1b[2J")])
        if grammar == bounds.ARGUMENT:
            assert decode(frame)
        elif grammar is not None:
            with pytest.raises(ProtocolError):
                decode(frame)


HOSTILE_KEYS = ["../x", "..", ".", ".x", "a/b", "a b", "a\n", "a\\b", "é", "a\tb"]


@pytest.mark.parametrize("key", HOSTILE_KEYS)
def test_an_id_that_becomes_a_file_name_cannot_lead_elsewhere(key: str) -> None:
    plain = plain_of(EXAMPLES["assignment.4"])
    paths: list[Path] = [
        ("task", "id"),
        ("task", "job"),
        ("task", "group"),
        ("checkpoint",),
        ("attempt", 0),
    ]
    for path in paths:
        with pytest.raises(ProtocolError):
            decode(pack([replaced(plain, path, key)]))


@pytest.mark.parametrize("path", ["/etc/passwd", "../x", "a/../../x", "a/..", ".."])
def test_a_path_below_the_work_directory_cannot_leave_it(path: str) -> None:
    assignment = plain_of(EXAMPLES["assignment.4"])
    checkpoint = plain_of(EXAMPLES["checkpoint"])

    for plain, place in (
        (assignment, ("checkpoint_path",)),
        (assignment, ("task", "work", "outputs", 0)),
        (checkpoint, ("path",)),
    ):
        with pytest.raises(ProtocolError):
            decode(pack([replaced(plain, place, path)]))


@pytest.mark.parametrize("path", ["out/..x", "a..b", "...", "out/", ".", "größe.pt"])
def test_a_path_with_dots_in_its_names_passes(path: str) -> None:
    plain = plain_of(EXAMPLES["checkpoint"])

    assert decode(pack([replaced(plain, ("path",), path)]))


def at(plain: Plain, path: Path) -> Plain:
    """Return what is at a path of a plain value."""
    for step in path:
        plain = plain[step]
    return plain


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
