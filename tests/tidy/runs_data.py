"""Finds code that runs what is in data: pickles, evaluated text, unsafe loaders."""

import ast
from collections.abc import Iterator
from typing import Final

MODULES: Final = frozenset(
    {"cloudpickle", "dill", "jsonpickle", "marshal", "pickle", "shelve", "joblib"}
)
"""Whoever imports one of these can load a pickle."""

BUILTINS: Final = frozenset({"eval", "exec", "compile", "__import__"})
CALLS: Final = frozenset(
    {
        *("yaml.load", "yaml.load_all", "yaml.full_load", "yaml.full_load_all"),
        *("yaml.unsafe_load", "yaml.unsafe_load_all", "os.system", "os.popen"),
        *("torch.hub.load", "torch.package.PackageImporter", "runpy.run_path"),
    }
)
NEEDED: Final = {
    "torch.load": ("weights_only", True),
    "numpy.load": ("allow_pickle", False),
    "np.load": ("allow_pickle", False),
}
"""Calls that are safe only with this argument, written out."""

WRONG: Final = ("shell", True)


def runs_data(source: str) -> list[str]:
    """Complain about all that could run what somebody else wrote."""
    return sorted(set(_found(ast.parse(source))))


def _found(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Import():
                names = [alias.name for alias in node.names]
            case ast.ImportFrom(module=str(module)):
                names = [module]
            case ast.Call():
                yield from _calls(node)
                continue
            case _:
                continue
        for name in names:
            if (top := name.partition(".")[0]) in MODULES:
                yield f"imports {top}"


def _calls(node: ast.Call) -> Iterator[str]:
    name = ast.unparse(node.func)
    given = {
        each.arg: each.value.value
        for each in node.keywords
        if isinstance(each.value, ast.Constant)
    }
    if name in BUILTINS or name in CALLS:
        yield f"calls {name}"
    if name.endswith("import_module") and node.args:
        first = node.args[0]
        if isinstance(first, ast.Constant) and first.value in MODULES:
            yield f"imports {first.value}"
    if name in NEEDED and given.get(NEEDED[name][0]) is not NEEDED[name][1]:
        yield f"calls {name} without {NEEDED[name][0]}={NEEDED[name][1]}"
    if given.get(WRONG[0]) is WRONG[1]:
        yield f"calls {name} with a shell"
