"""The rules of tidiness that no linter knows, as functions from source to complaints.

Each returns one line of text for each breach, and none when all is well.
"""

import ast
import io
import re
import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import PurePath

FUNCTION_LINES_MAX = 59
FILE_LINES_MAX = 799
FOLDER_MODULES_MAX = 15
NAMES_THAT_SAY_NOTHING = ("common", "helpers", "manager", "utils")

Function = ast.FunctionDef | ast.AsyncFunctionDef

_parsed = lru_cache(maxsize=1)(ast.parse)  # For one check after another of one file.


def long_functions(source: str) -> list[str]:
    """Find functions that are too long, from the `def` to the last line."""
    return [
        f"line {node.lineno}: {node.name} has {lines} lines, not under 60"
        for node in _functions(_parsed(source))
        if (lines := (node.end_lineno or node.lineno) - node.lineno + 1)
        > FUNCTION_LINES_MAX
    ]


def _functions(block: ast.AST) -> Iterator[Function]:
    """Find functions in statements alone: expressions are most of a tree."""
    for part in ("body", "orelse", "finalbody", "handlers", "cases"):
        for statement in getattr(block, part, ()):
            if isinstance(statement, Function):
                yield statement
            yield from _functions(statement)


def long_file(source: str) -> list[str]:
    """Find out whether the file is too long."""
    lines = len(source.splitlines())
    return [f"{lines} lines, not under 800"] if lines > FILE_LINES_MAX else []


def empty_names(path: PurePath) -> list[str]:
    """Find parts of the path that name a module after nothing it holds."""
    names = [*path.parent.parts, path.stem]
    words = [(name, word) for name in names for word in name.split("_")]
    return [
        f"'{name}' says nothing of what it holds"
        for name, word in words
        if word in NAMES_THAT_SAY_NOTHING
    ]


def bare_ignores(source: str) -> list[str]:
    """Find comments that silence a type checker without saying about what."""
    bare = re.compile(r"#\s*(type|pyright):\s*ignore(?!\[)")
    if not bare.search(source):
        return []  # Nearly always, and much faster than to find the comments.
    return [
        f"line {token.start[0]}: {token.string}"
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT and bare.search(token.string)
    ]


def untold_theory(source: str) -> list[str]:
    """Find machines, which have a mount, in a module without their theory."""
    tree = _parsed(source)
    mounts = [
        node.lineno
        for part in tree.body
        if isinstance(part, ast.ClassDef)
        for node in part.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "mount"
    ]
    if "Theory of operation." in (ast.get_docstring(tree) or ""):
        return []
    return [f"line {line}: a machine without its theory" for line in mounts]


def crowded_folders(paths: Iterable[PurePath]) -> list[str]:
    """Find folders with more modules than a reader can keep in mind.

    What Python or a compiler names does not count.
    """
    named = [
        path
        for path in paths
        if path.stem not in {"__init__", "__main__"} and not path.stem.endswith("_pb2")
    ]
    return [
        f"{folder}: {count} modules, not at most {FOLDER_MODULES_MAX}"
        for folder, count in Counter(path.parent for path in named).items()
        if count > FOLDER_MODULES_MAX
    ]


def classes_of_one_name(sources: Mapping[str, str]) -> dict[str, list[str]]:
    """Find public classes that two modules define, by name, with the modules."""
    found: dict[str, list[str]] = {}
    for module, source in sources.items():
        for node in _parsed(source).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found.setdefault(node.name, []).append(module)
    return {name: modules for name, modules in found.items() if len(modules) > 1}


def misnamed_fragment(name: str) -> list[str]:
    """Find out whether a file in `changes/` has a name that a release would miss."""
    kinds = "added|changed|fixed|removed|security"
    if name == "README.md" or re.fullmatch(rf"\d+\.({kinds})(\.\d+)?\.md", name):
        return []
    return [f"'{name}' is not <number>.<kind>.md"]


def missing_docstring(source: str) -> list[str]:
    """Find out whether the module lacks a docstring."""
    return [] if ast.get_docstring(_parsed(source)) else ["no docstring"]


def walks_over_sets(source: str) -> list[str]:
    """Find loops over a set written in place: their order is not the same each run.

    A set that reaches a loop through a variable is not seen; `sorted(set(...))` is
    fine.
    """
    return [
        f"line {walked.lineno}: walks over {ast.unparse(walked)}"
        for walked in _walked(_parsed(source))
        if _is_set(walked)
    ]


def climbing_imports_for_types(
    source: str, room: str, layers: Sequence[str]
) -> list[str]:
    """Find imports under TYPE_CHECKING from a room that is not below `room`.

    `lint-imports` leaves these imports out, so that the inside may name `Random`.
    """
    height = {name: -n for n, line in enumerate(layers) for name in _names(line)}
    return [
        f"line {node.lineno}: {ast.unparse(node)}"
        for node in _imports_for_types(_parsed(source))
        for other in _rooms_imported(node)
        if other != room and room in height and other in height
        if height[other] >= height[room]
    ]


def rooms_without_a_layer(rooms: Iterable[str], layers: Iterable[str]) -> list[str]:
    """Find rooms that no line of `layers` names; `a | (b)` names both a and b."""
    listed = {name for line in layers for name in _names(line)}
    return [f"no layer for '{room}'" for room in rooms if room not in listed]


def _names(layer: str) -> list[str]:
    return re.findall(r"\w+", layer)


def _imports_for_types(tree: ast.AST) -> Iterator[ast.Import | ast.ImportFrom]:
    for block in ast.walk(tree):
        if isinstance(block, ast.If) and "TYPE_CHECKING" in ast.unparse(block.test):
            for node in ast.walk(block):
                if isinstance(node, ast.Import | ast.ImportFrom):
                    yield node


def _rooms_imported(node: ast.Import | ast.ImportFrom) -> list[str]:
    """Return the rooms of shoal that an import names: `cli` for `shoal.cli.main`."""
    names = [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        names = [f"{node.module}.{name}" for name in names]
    paths = [name.split(".") for name in names]
    return sorted({path[1] for path in paths if path[0] == "shoal" and path[1:]})


def _walked(tree: ast.AST) -> Iterator[ast.expr]:
    """Yield each expression whose items are taken one after the other."""
    takers = ("list", "tuple", "enumerate", "iter", "next", "map", "filter", "zip")
    for node in ast.walk(tree):
        match node:
            case ast.For() | ast.AsyncFor() | ast.comprehension():
                yield node.iter
            case ast.Starred():
                yield node.value
            case ast.Call(func=ast.Name(id=name)) if name in takers:
                yield from node.args
            case _:
                pass


def _is_set(node: ast.expr) -> bool:
    match node:
        case ast.Set() | ast.SetComp():
            return True
        case ast.Call(func=ast.Name(id="set" | "frozenset")):
            return True
        case ast.BinOp(op=ast.BitOr() | ast.BitAnd() | ast.Sub() | ast.BitXor()):
            return _is_set(node.left) or _is_set(node.right)
        case _:
            return False
