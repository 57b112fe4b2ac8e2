"""Parse YAML as plain values, by the rules of `documents.read_yaml`.

What is wrong is said in words of our own, with an example: those of the parser are
about tokens and nodes, which nobody wrote.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

import yaml

from shoal.errors import SpecError
from shoal.model.spec.documents import repeated, scalar_of, too_deep, unreadable
from shoal.model.spec.limits import SPEC_NESTING_MAX, SPEC_NODES_MAX

if TYPE_CHECKING:
    from shoal.model.spec.documents import Plain

_QUOTE: Final = "quote it"
_COMPLAINTS: Final = (
    (
        "mapping values are not allowed",
        "a second name and colon, or a line that is indented too far",
        'quote a text that has a colon and a space: `name: "a: b"`',
    ),
    ("expected ':'", "a name without a colon", "write it like `name: value`"),
    ("',' or ']'", "a list that is not closed", "write it like `[a, b]`"),
    ("',' or '}'", "a mapping that is not closed", "write it like `{a: 1, b: 2}`"),
    ("unexpected end of stream", "a quote that is not closed", 'write it like `"a"`'),
    ("'\\t' that cannot", "a tab, where only spaces may be", "indent with spaces"),
    (
        "cannot start any token",
        "a text that begins with a sign which YAML keeps for itself",
        _QUOTE,
    ),
    (
        "alphabetic or numeric",
        "a text that begins with * or &, which mean something else",
        'quote it: `outputs: ["*.txt"]`',
    ),
    (
        "undefined alias",
        "a text that begins with *, which means something else",
        'quote it: `outputs: ["*.txt"]`',
    ),
    (
        "block end>, but found '<scalar>'",
        "more text after a value that has ended",
        "quote the whole value: `command: \"python train.py '{lr}'\"`",
    ),
    (
        "expected <block end>",
        "a line that is not indented as those it belongs to",
        "begin lines that belong together with the same number of spaces",
    ),
    ("another document", "a second document", "write one job into a file"),
    (
        "escape",
        "a backslash before a sign that it does nothing to",
        "write two of them, or put the text into single quotes",
    ),
    (
        "node content",
        "nothing where a value should be, or a list or mapping that is not closed",
        "write it like `name: value`, `[a, b]` or `{a: 1}`",
    ),
    ("chomping", "text right after > or |", _QUOTE),
)
"""What the parser says, what that means, and what to do."""

_NULLS: Final = frozenset({"", "~", "null", "Null", "NULL"})
_PLAIN_TAG: Final = "plain"
_TEXT_TAG: Final = "tag:yaml.org,2002:str"


def read(text: str) -> Plain:
    """Return the one document of a YAML text."""
    try:
        node = _Loader(text).get_single_node()
        return _Reader().value(node, "$", 0) if node is not None else None
    except yaml.MarkedYAMLError as error:
        raise _refused(error) from None
    except yaml.YAMLError:  # Only the reader raises it, before anything is parsed.
        raise unreadable(
            "YAML", "it has characters that no text has", "save it as UTF-8 text"
        ) from None


def _refused(error: yaml.MarkedYAMLError) -> SpecError:
    """Return what is wrong with a text, in words of our own."""
    mark = error.problem_mark or error.context_mark
    where = f"line {mark.line + 1}, column {mark.column + 1}" if mark else "the text"
    said = f"{error.context} {error.problem}"
    for words, why, hint in _COMPLAINTS:
        if words in said:
            return unreadable("YAML", f"there is {why}, in {where}", hint)
    return unreadable("YAML", f"it makes no sense in {where}")


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
