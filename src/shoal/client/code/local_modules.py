"""The user's own modules: found, packed once, and unpacked where functions run.

Interpreters in the shoal have their own installed packages, but not the files beside
the user's script. A function of a script or of a local package is pickled by value; it
travels with the local modules that it names or imports, and whatever these import in
turn. Of a package all files travel, data included; of a module its file. On the other
side they lie in a folder on `sys.path`.

What was packed once is remembered by file, size and time: an edited file travels again,
but an interpreter that has imported the old one keeps it.
"""

from __future__ import annotations

import ast
import dis
import functools
import hashlib
import io
import operator
import sys
import sysconfig
import types
import zipfile
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

from shoal.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

PACKED_BYTES_MAX: Final = 16 << 20
FILES_MAX: Final = 2_000
VALUES_LOOKED_AT_MAX: Final = 100
SKIPPED: Final = frozenset({"__pycache__", ".git", ".venv", "node_modules"})

_INSTALLED: Final = tuple(
    dict.fromkeys(
        path
        for name in ("stdlib", "platstdlib", "purelib", "platlib")
        if (path := sysconfig.get_path(name))
    )
)
_packed: dict[tuple[tuple[str, int, int], ...], tuple[str, bytes]] = {}


def bundle_for(function: object, given: object = None) -> tuple[str, bytes] | None:
    """Return the local modules that a call needs: a name for them, and a zip.

    None if it needs none. Raises `UsageError` if they are too large.
    """
    roots = _closure([*_needed_by(function), *_kinds_of(given)])
    if not roots:
        return None
    files = [found for root in roots for found in _files_of(root)]
    stats = [(path, path.stat()) for _, path in files]
    key = tuple((str(path), s.st_size, s.st_mtime_ns) for path, s in stats)
    if (known := _packed.get(key)) is not None:
        return known
    size = sum(stat.st_size for _, stat in stats)
    if size > PACKED_BYTES_MAX or len(files) > FILES_MAX:
        raise UsageError(
            f"the local modules {', '.join(r.name for r in roots)} are too large",
            because=f"they have {len(files)} files with {size >> 20} MiB",
            hint="keep data elsewhere, or run a job with a workdir",
        )
    with io.BytesIO() as buffer:
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, path in files:
                archive.writestr(zipfile.ZipInfo(name), path.read_bytes())
        data = buffer.getvalue()
    _packed[key] = made = (hashlib.sha256(data).hexdigest()[:24], data)
    return made


def unpack(name: str, data: bytes) -> None:
    """Put local modules on `sys.path`, where a function runs. Runs there by value."""
    import io  # noqa: PLC0415 - It travels without its module.
    import os  # noqa: PLC0415
    import sys  # noqa: PLC0415
    import tempfile  # noqa: PLC0415
    import zipfile  # noqa: PLC0415

    for path in sys.path:
        if path.endswith(f"shoal-modules-{name}"):
            return
    folder = os.path.join(tempfile.mkdtemp(), f"shoal-modules-{name}")  # noqa: PTH118
    zipfile.ZipFile(io.BytesIO(data)).extractall(folder)
    sys.path.insert(0, folder)


@final
class Carried:
    """A function that is pickled with the local modules that it needs."""

    def __init__(self, function: object, bundle: tuple[str, bytes]) -> None:
        self._pair = (_Unpacked(bundle), function)

    def __reduce__(self) -> tuple[object, ...]:
        """Unpack the modules before the function is loaded, and become the function."""
        return (operator.getitem, (self._pair, 1))


@final
class _Unpacked:
    def __init__(self, bundle: tuple[str, bytes]) -> None:
        self._bundle = bundle

    def __reduce__(self) -> tuple[object, ...]:
        return (unpack, self._bundle)


def _kinds_of(value: object, depth: int = 3) -> Iterator[str]:
    """Yield the modules of the classes of arguments, and of what is in them."""
    kind = type(value)
    if kind.__module__ not in ("builtins", "__main__"):
        yield kind.__module__
    held: Any = value
    if depth and isinstance(value, tuple | list):
        for each in held[:VALUES_LOOKED_AT_MAX]:
            yield from _kinds_of(each, depth - 1)
    elif depth and isinstance(value, dict):
        yield from _kinds_of(list(held.values()), depth)
    elif isinstance(value, type | types.FunctionType):
        yield value.__module__


def _needed_by(function: object) -> Iterator[str]:
    """Yield the modules that a function names or imports, and what it calls."""
    own = _top(getattr(function, "__module__", None) or "")
    seen: set[int] = set()
    todo: list[object] = [function]
    while todo:
        value = todo.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, types.ModuleType):
            yield value.__name__
            continue
        if isinstance(value, types.MethodType):
            todo += [value.__func__, type(value.__self__)]
            continue
        if isinstance(value, functools.partial):
            todo += [value.func, *value.args, *value.keywords.values()]
            continue
        module = getattr(value, "__module__", None)
        if not isinstance(module, str):
            continue
        if module != "__main__" and _top(module) != own:
            yield module
        elif isinstance(value, type):
            todo += vars(value).values()
        elif isinstance(value, types.FunctionType):
            yield from _imports(value.__code__, own)
            todo += _named_by(value)
        else:
            todo.append(type(value))


def _named_by(function: types.FunctionType) -> list[object]:
    known = function.__globals__
    cells = [c.cell_contents for c in function.__closure__ or () if _is_set(c)]
    found = [known[name] for name in _names(function.__code__) if name in known]
    kinds = (types.ModuleType, types.FunctionType, type, functools.partial)
    return [each for each in (*found, *cells) if isinstance(each, kinds)]


def _is_set(cell: types.CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018 - It raises if not.
    except ValueError:
        return False
    return True


def _names(code: types.CodeType) -> list[str]:
    names = [*code.co_names]
    for each in code.co_consts:
        if isinstance(each, types.CodeType):
            names += _names(each)
    return names


def _imports(code: types.CodeType, own: str) -> Iterator[str]:
    """Yield the modules that code imports when it runs; relative ones are its own."""
    for step in dis.get_instructions(code):
        if step.opname == "IMPORT_NAME":
            yield step.argval or own
    for each in code.co_consts:
        if isinstance(each, types.CodeType):
            yield from _imports(each, own)


def _top(module: str) -> str:
    return module.partition(".")[0]


def _closure(modules: Iterable[str]) -> list[Path]:
    """Return the files and package folders of local modules, with what they import."""
    found: dict[Path, None] = {}
    todo = list(modules)
    seen: set[str] = set()
    while todo:
        top = _top(todo.pop())
        if top in seen:
            continue
        seen.add(top)
        root = _root(top)
        if root is None:
            continue
        found[root] = None
        for _, path in _files_of(root):
            if path.suffix == ".py":
                todo += _imported(path)
    return sorted(found)


def _root(module: str) -> Path | None:
    """Return the file of a local module, or the folder of a local package."""
    top = _top(module)
    if not top or top in sys.builtin_module_names or top in sys.stdlib_module_names:
        return None
    loaded = sys.modules.get(top)
    spec: Any = getattr(loaded, "__spec__", None)
    if loaded is None:
        spec = PathFinder.find_spec(top)
    elif spec is None:
        return None
    origin = getattr(spec, "origin", None)
    folders = list(getattr(spec, "submodule_search_locations", None) or ())
    place = folders[0] if folders else origin
    if not place or not Path(place).exists() or is_installed(str(place)):
        return None
    if not folders and Path(place).suffix != ".py":
        return None  # A compiled module is of this machine.
    return Path(place)


def is_installed(file: str) -> bool:
    """Whether a file belongs to an installed package, or to shoal itself."""
    path = Path(file)
    if any(part in ("site-packages", "dist-packages") for part in path.parts):
        return True
    return any(path.is_relative_to(folder) for folder in _INSTALLED) or _is_ours(path)


def _is_ours(path: Path) -> bool:
    """Whether it is shoal itself, which may be installed from its source."""
    return path.is_relative_to(Path(__file__).parents[2])


def _files_of(root: Path) -> list[tuple[str, Path]]:
    if root.is_file():
        return [(root.name, root)]
    return [
        (str(path.relative_to(root.parent)), path)
        for path in sorted(root.rglob("*"))
        if path.is_file() and not SKIPPED & {*path.relative_to(root).parts}
    ]


def _imported(path: Path) -> list[str]:
    """Return the top names that a file imports; none if it cannot be read."""
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError, OSError):
        return []
    names: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.append(node.module)
    return names
