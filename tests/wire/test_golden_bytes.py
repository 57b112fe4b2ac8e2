from pathlib import Path

import msgspec
import pytest
from tests.wire.examples import EXAMPLES, NO_LONGER_SENT
from tests.wire.record import CURRENT, FOLDER, produced, record, recorded
from tests.wire.shapes import TYPES, structs, tag_of

from shoal.protocol.codec import MESSAGES, decode
from shoal.protocol.messages import AnyMessage

HOW = "run `python -m tests.wire.record` and commit the line that it adds"
OF_ALL_RELEASES = [
    (path.stem, name, data)
    for path in sorted(FOLDER.glob("v*.txt"))
    for name, data in recorded(path).items()
    if name in EXAMPLES
]


def in_a_frame(*messages: bytes) -> bytes:
    return msgspec.msgpack.encode([msgspec.Raw(message) for message in messages])


@pytest.mark.parametrize("kind", MESSAGES, ids=tag_of)
def test_every_message_has_an_example(kind: type[AnyMessage]) -> None:
    kinds = {type(example) for example in EXAMPLES.values()}

    assert kind in kinds, f"add one to tests/wire/examples.py, then {HOW}"


@pytest.mark.parametrize("tag", sorted(TYPES))
def test_every_field_is_set_in_some_example(tag: str) -> None:
    set_somewhere: set[tuple[type, str]] = set()
    for example in EXAMPLES.values():
        note_fields_that_are_set(example, set_somewhere)

    for cls in structs(TYPES[tag]):
        for field in msgspec.structs.fields(cls):
            assert (cls, field.name) in set_somewhere, (
                f"add an example with another {cls.__name__}.{field.name}, then {HOW}"
            )


def note_fields_that_are_set(value: object, found: set[tuple[type, str]]) -> None:
    if isinstance(value, tuple):
        for item in value:
            note_fields_that_are_set(item, found)
    if isinstance(value, msgspec.Struct):
        for field in msgspec.structs.fields(value):
            inner = getattr(value, field.name)
            if field.required or inner != field_default(field):
                found.add((type(value), field.name))
            note_fields_that_are_set(inner, found)


def field_default(field: msgspec.structs.FieldInfo) -> object:
    if field.default_factory is not msgspec.NODEFAULT:
        return field.default_factory()
    return field.default


@pytest.mark.parametrize("name", sorted(produced().keys() - NO_LONGER_SENT))
def test_every_example_still_makes_the_bytes_of_the_current_release(name: str) -> None:
    golden = recorded(CURRENT)

    assert name in golden, HOW
    assert produced()[name].hex() == golden[name].hex(), (
        "the format changed: other nodes send and expect the old bytes"
    )


@pytest.mark.parametrize(
    ("release", "name", "data"),
    OF_ALL_RELEASES,
    ids=[f"{release}-{name}" for release, name, _ in OF_ALL_RELEASES],
)
def test_the_bytes_of_every_release_still_mean_the_same(
    release: str, name: str, data: bytes
) -> None:
    assert decode(in_a_frame(data)) == (EXAMPLES[name],)


def test_no_recorded_bytes_were_given_up() -> None:
    assert sorted(recorded(CURRENT).keys() - produced().keys()) == []


def test_recording_adds_what_is_new_and_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "v1.txt"
    path.write_text("goodbye 80\ninquiry 81\n")

    changed = record(path)

    assert changed == ["goodbye", "inquiry"]
    assert path.read_text().startswith("goodbye 80\ninquiry 81\nhello ")
    assert recorded(path).keys() == produced().keys()
