"""Makes of a type what glances at all texts in a value of it, as fast as can be.

Every message of every peer is looked at, so this avoids what Python does slowly: the
fields of a struct, and of the structs in it, are fetched by one `attrgetter` for each
grammar, and texts are judged by `map`. What fails a glance gets a closer look.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from operator import attrgetter
from typing import Any, cast, final

from msgspec import inspect

from shoal.model.bounds import GRAMMAR

Glance = Callable[[Any], bool]
Get = Callable[[Any], Any]


class _Struct:
    """How to glance at a struct; its parts are known once its fields were seen."""

    def __init__(self) -> None:
        self.rows: list[tuple[Get, Glance]] = []  # several texts of one grammar
        self.parts: list[tuple[Get, Glance]] = []

    def __call__(self, value: Any) -> bool:  # noqa: ANN401
        for get, is_good in self.rows:
            if not all(map(is_good, get(value))):
                return False
        for get, is_good in self.parts:  # noqa: SIM110 - Faster than all().
            if not is_good(get(value)):
                return False
        return True


@final
class Maker:
    """Makes glances; each struct has one, as structs may be recursive."""

    def __init__(self, grammars: Mapping[str, Glance]) -> None:
        self._grammars = grammars
        self._structs: dict[type, _Struct] = {}

    def of(self, info: inspect.Type) -> Glance | None:
        """Return what glances at values of a type; None if there is no text in it."""
        match info:
            case inspect.Metadata():
                grammar = grammar_of(info)
                return (
                    self.of(info.type) if grammar is None else self._grammars[grammar]
                )
            case inspect.StructType():
                return self._struct(info)
            case inspect.VarTupleType() | inspect.ListType():
                return _each(self.of(info.item_type))
            case inspect.TupleType():
                return _fixed([self.of(item) for item in info.item_types])
            case inspect.DictType():
                return _pairs(self.of(info.key_type), self.of(info.value_type))
            case inspect.UnionType():
                return self._union(info)
            case _:
                return None

    def _struct(self, info: inspect.StructType) -> Glance | None:
        known = self._structs.get(info.cls)
        if known is None:
            known = self._structs[info.cls] = _Struct()
            texts: dict[Glance, list[str]] = {}
            self._gather(info, "", texts, known)
            for is_good, names in texts.items():
                where = known.parts if len(names) == 1 else known.rows
                where.append((attrgetter(*names), is_good))
            if not known.rows and not known.parts:
                return None
        return known

    def _gather(
        self,
        info: inspect.StructType,
        prefix: str,
        texts: dict[Glance, list[str]],
        known: _Struct,
    ) -> None:
        """Sort the fields: plain texts by grammar, structs taken apart, the rest."""
        for field in info.fields:
            name = f"{prefix}{field.name}"
            kind = bare(field.type)
            glance = self.of(field.type)
            if glance is None:
                continue
            if isinstance(kind, inspect.StrType):
                texts.setdefault(glance, []).append(name)
            elif isinstance(kind, inspect.StructType) and kind.cls is not info.cls:
                self._gather(kind, f"{name}.", texts, known)
            else:
                known.parts.append((attrgetter(name), glance))

    def _union(self, info: inspect.UnionType) -> Glance | None:
        """Glance at a value as the type that it has: msgspec allows one of each."""
        glances: dict[type, Glance] = {}
        for option in options_of(info):
            if (glance := self.of(option)) is not None:
                glances[class_of(option)] = glance
        if not glances:
            return None

        def is_good(value: object) -> bool:
            glance = glances.get(type(value))
            return glance is None or glance(value)

        return is_good


def grammar_of(info: inspect.Metadata) -> str | None:
    """Return the grammar that is said of a text, if one is."""
    extra = cast("dict[str, str] | None", info.extra)  # pyright: ignore[reportUnknownMemberType]
    return extra.get(GRAMMAR) if extra else None


def options_of(info: inspect.Type) -> Iterator[inspect.Type]:
    """Go through what a value of a union may be; unions in it are taken apart."""
    inside = bare(info)
    if isinstance(inside, inspect.UnionType):
        for option in inside.types:
            yield from options_of(option)
    else:
        yield info


def bare(info: inspect.Type) -> inspect.Type:
    """Return a type without what is said about it."""
    return bare(info.type) if isinstance(info, inspect.Metadata) else info


def class_of(info: inspect.Type) -> type:
    """Return the class of the values of a type that has texts."""
    match inside := bare(info):
        case inspect.StructType():
            return inside.cls
        case inspect.VarTupleType() | inspect.TupleType():
            return tuple
        case inspect.ListType():
            return list
        case inspect.DictType():
            return dict
        case _:
            return str


def _each(is_good: Glance | None) -> Glance | None:
    if is_good is None:
        return None
    return lambda values: all(map(is_good, values))


def _fixed(glances: list[Glance | None]) -> Glance | None:
    inner = [(place, glance) for place, glance in enumerate(glances) if glance]
    if not inner:
        return None
    return lambda values: all(glance(values[place]) for place, glance in inner)


def _pairs(key: Glance | None, value: Glance | None) -> Glance | None:
    if key is None and value is None:
        return None

    def is_good(values: dict[Any, Any]) -> bool:
        if key is not None and not all(map(key, values)):
            return False
        return value is None or all(map(value, values.values()))

    return is_good
