"""Strategies for messages, made from their types, so that no field is forgotten."""

from typing import Any, Final

from hypothesis import strategies as st
from msgspec import inspect
from tests.wire.shapes import TYPES

from shoal.model.text import bounds
from shoal.model.text.grammar import is_below
from shoal.protocol.limits import DELEGATIONS_MAX
from shoal.protocol.messages import AnyMessage, Grant, Inventory, Load

SIZE: Final = 3
"""Items and letters in a value: long ones take time and find nothing new."""


def values(info: inspect.Type, depth: int = 0) -> st.SearchStrategy[Any]:
    """Return values of the type, within its bounds."""
    match info:
        case inspect.IntType():
            return st.integers(info.ge, info.le)
        case inspect.FloatType():
            return st.floats(info.ge, info.le, allow_nan=False)
        case inspect.StrType():
            return _texts(None)
        case inspect.Metadata():
            if isinstance(info.type, inspect.StrType) and info.extra:
                return _texts(info.extra[bounds.GRAMMAR])
            return values(info.type, depth)
        case inspect.BytesType():
            least = info.min_length or 0
            return st.binary(min_size=least, max_size=least + SIZE)
        case inspect.BoolType():
            return st.booleans()
        case inspect.NoneType():
            return st.none()
        case inspect.LiteralType():
            return st.sampled_from(info.values)
        case _:
            return _containers(info, depth)


SEEN: Final = st.characters(exclude_categories=["Cs", "Cc", "Cf", "Zl", "Zp"])
LETTERS: Final = {
    bounds.KEY: st.sampled_from("aZ09_-"),
    bounds.ID: st.sampled_from("aZ09_-"),
    bounds.NAME: SEEN,
    bounds.BELOW: SEEN,
    bounds.ARGUMENT: st.characters(exclude_characters="\0", codec="utf-8"),
    bounds.ADDRESS: st.characters(min_codepoint=33, max_codepoint=126),
    None: SEEN | st.sampled_from("\n\t"),  # A text for people.
}


def _texts(grammar: str | None) -> st.SearchStrategy[str]:
    texts = st.text(LETTERS[grammar], max_size=SIZE)
    return texts.filter(is_below) if grammar == bounds.BELOW else texts


def _containers(info: inspect.Type, depth: int) -> st.SearchStrategy[Any]:
    match info:
        case inspect.VarTupleType():
            items = values(info.item_type, depth)
            return st.lists(items, max_size=SIZE).map(tuple)
        case inspect.TupleType():
            return st.tuples(*[values(item, depth) for item in info.item_types])
        case inspect.DictType():
            keys, items = values(info.key_type, depth), values(info.value_type, depth)
            return st.dictionaries(keys, items, max_size=SIZE)
        case inspect.UnionType():
            choices = [t for t in info.types if not _is_too_deep(t, depth)]
            return st.one_of([values(choice, depth) for choice in choices])
        case inspect.StructType():
            return _structs(info, depth + (info.cls is Grant))
        case _:
            raise NotImplementedError(f"say here how to make a {info}")


def _is_too_deep(info: inspect.Type, depth: int) -> bool:
    is_grant = isinstance(info, inspect.StructType) and info.cls is Grant
    return is_grant and depth > DELEGATIONS_MAX


def _structs(info: inspect.StructType, depth: int) -> st.SearchStrategy[Any]:
    required: dict[str, Any] = {}
    optional: dict[str, Any] = {}
    for field in info.fields:
        some = required if field.required else optional
        some[field.name] = values(field.type, depth)
    fields = st.fixed_dictionaries(required, optional=optional)
    made = fields.map(lambda given: info.cls(**given))
    return made.filter(_is_coherent)


def _is_coherent(value: object) -> bool:
    match value:
        case Load():
            return len(value.gpu_milli) == len(value.gpu_memory)
        case Inventory():
            ids = {device.id for device in value.capacity.devices}
            devices = len(value.capacity.devices)
            return len(ids) == devices == len(value.load.gpu_milli)
        case _:
            return True


BY_TAG: Final[dict[str, st.SearchStrategy[AnyMessage]]] = {
    tag: values(info) for tag, info in TYPES.items()
}
ANY_MESSAGE: Final = st.one_of([BY_TAG[tag] for tag in sorted(BY_TAG)])
