"""Parse YAML as plain values, by the rules of `documents.read_yaml`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

import yaml

from shoal.errors import SpecError
from shoal.model.spec.documents import repeated, scalar_of, too_deep, unreadable
from shoal.model.spec.limits import SPEC_NESTING_MAX, SPEC_NODES_MAX

if TYPE_CHECKING:
    from shoal.model.spec.documents import Plain

_NULLS: Final = frozenset({"", "~", "null", "Null", "NULL"})
_PLAIN_TAG: Final = "plain"
_TEXT_TAG: Final = "tag:yaml.org,2002:str"


def read(text: str) -> Plain:
    """Return the one document of a YAML text."""
    try:
        node = _Loader(text).get_single_node()
        return _Reader().value(node, "$", 0) if node is not None else None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = (
            f"line {mark.line + 1}, column {mark.column + 1}" if mark else "the text"
        )
        problem = error.problem or error.context or "syntax error"
        raise unreadable("YAML", f"{problem} in {where}") from None
    except yaml.YAMLError as error:
        raise unreadable("YAML", str(error).splitlines()[0]) from None


class _Loader(yaml.SafeLoader):
    """Builds the tree of nodes; tells plain words from quoted ones and tags.

    It builds by recursion, so it counts how deep it is before the stack runs out.
    """

    _depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        self._depth += 1
        if self._depth > SPEC_NESTING_MAX + 1:
            raise too_deep("$")
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def resolve(
        self, kind: type[yaml.Node], value: str, implicit: tuple[bool, bool]
    ) -> str:
        if kind is yaml.ScalarNode:
            return _PLAIN_TAG if implicit[0] else _TEXT_TAG
        return _PLAIN_TAG


class _Reader:
    """Turns nodes into values and counts them, an alias as all it stands for."""

    def __init__(self) -> None:
        self._nodes = 0

    def value(self, node: yaml.Node, path: str, depth: int) -> Plain:
        self._nodes += 1
        if self._nodes > SPEC_NODES_MAX:
            raise SpecError(
                "the spec is too large",
                path=path,
                because=f"with aliases written out it has over {SPEC_NODES_MAX} values",
                hint="use array or sweep for jobs of many tasks",
            )
        if depth > SPEC_NESTING_MAX:
            raise too_deep(path)
        if node.tag not in {_PLAIN_TAG, _TEXT_TAG}:
            raise SpecError(
                f"tag {node.tag} is not known",
                path=path,
                because="a spec has no tags",
                hint="remove what begins with an exclamation mark",
            )
        match node:
            case yaml.MappingNode():
                return self._mapping(node, path, depth)
            case yaml.SequenceNode():
                items = cast("list[yaml.Node]", node.value)
                return [
                    self.value(item, f"{path}[{place}]", depth + 1)
                    for place, item in enumerate(items)
                ]
            case _:
                return _word(node)

    def _mapping(self, node: yaml.MappingNode, path: str, depth: int) -> Plain:
        result: dict[str, Plain] = {}
        for key, item in cast("list[tuple[yaml.Node, yaml.Node]]", node.value):
            if not isinstance(key, yaml.ScalarNode):
                raise SpecError(
                    "a name is not a word",
                    path=path,
                    because="a list or a mapping stands where a name should",
                    hint="quote it, if it is meant as text",
                )
            name = str(key.value)
            if name in result:
                raise repeated(name, f"{path}.{name}")
            result[name] = self.value(item, f"{path}.{name}", depth + 1)
        return result


def _word(node: yaml.Node) -> Plain:
    text = str(node.value)
    if node.tag == _TEXT_TAG:
        return text
    return None if text in _NULLS else scalar_of(text)
