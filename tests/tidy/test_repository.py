"""The whole repository keeps the rules of `checks`."""

import itertools
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.tidy import checks, documents

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src" / "shoal"
OURS = sorted(
    path
    for folder in ("src", "tests", "benchmarks")
    for path in ROOT.glob(f"{folder}/**/*.py")
)
INSIDE = ("errors", "model", "protocol", "topology", "policy", "core")

# Public names that two classes have, and why neither can have another.
NAMED_TWICE = {
    "Assignment": "a message, and what a policy of a user returns",
    "Client": "the Python client of users, and the one of the API beneath it",
    "Job": "what a node keeps, and the handle that users of Python get",
    "Task": "what a node keeps, and the decorated function of users of Python",
}


def rooms() -> list[str]:
    """Return the modules and packages right below `shoal`."""
    packages = [path.parent.name for path in SRC.glob("*/__init__.py")]
    modules = [path.stem for path in SRC.glob("*.py") if path.stem != "__init__"]
    return sorted(packages + modules)


def room_of(path: Path) -> str:
    return path.relative_to(SRC).with_suffix("").parts[0]


def is_inside(path: Path) -> bool:
    return path.is_relative_to(SRC) and room_of(path) in INSIDE


def contract(id_: str) -> dict[str, Any]:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts: list[dict[str, Any]] = settings["tool"]["importlinter"]["contracts"]
    [found] = [contract for contract in contracts if contract["id"] == id_]
    return found


LAYERS = {id_: contract(id_)["layers"] for id_ in ("layers", "outside", "wire")}


def is_of_shoal(path: Path) -> bool:
    return path.is_relative_to(SRC)


def climbing(path: Path, source: str) -> list[str]:
    """Find imports for types that climb, by any of the contracts."""
    return [
        complaint
        for layers in LAYERS.values()
        for complaint in checks.climbing_imports_for_types(
            source, room_of(path), layers
        )
    ]


Check = Callable[[Path, str], list[str]]
CHECKS: dict[str, tuple[Callable[[Path], bool], Check]] = {
    "functions": (lambda _: True, lambda _, source: checks.long_functions(source)),
    "files": (lambda _: True, lambda _, source: checks.long_file(source)),
    "ignores": (lambda _: True, lambda _, source: checks.bare_ignores(source)),
    "docstrings": (is_of_shoal, lambda _, source: checks.missing_docstring(source)),
    "theories": (is_inside, lambda _, source: checks.untold_theory(source)),
    "sets": (is_inside, lambda _, source: checks.walks_over_sets(source)),
    "imports": (is_of_shoal, climbing),
}
"""By name: of which files, and what is wrong with one."""


@pytest.fixture(scope="module")
def breaches() -> dict[str, list[str]]:
    """Ask all checks of each file in turn, so that it is parsed once."""
    found: dict[str, list[str]] = {name: [] for name in CHECKS}
    for path in OURS:
        source = path.read_text(encoding="utf-8")
        for name, (concerns, check) in CHECKS.items():
            if concerns(path):
                told = f"{path.relative_to(ROOT)}: "
                found[name] += [told + complaint for complaint in check(path, source)]
    return found


def test_there_is_something_to_check() -> None:
    assert SRC / "errors.py" in OURS
    assert is_inside(SRC / "errors.py")
    assert is_inside(SRC / "model" / "ids.py")
    assert not is_inside(SRC / "cli" / "__init__.py")


def test_every_function_is_under_60_lines(breaches: dict[str, list[str]]) -> None:
    assert breaches["functions"] == []


def test_every_file_is_under_800_lines(breaches: dict[str, list[str]]) -> None:
    assert breaches["files"] == []


def test_every_machine_opens_with_its_theory_of_operation(
    breaches: dict[str, list[str]],
) -> None:
    assert breaches["theories"] == []


def test_no_folder_of_shoal_has_more_than_15_modules() -> None:
    paths = [path.relative_to(SRC) for path in SRC.rglob("*.py")]

    assert checks.crowded_folders(paths) == []


def test_no_two_public_classes_of_shoal_have_one_name() -> None:
    sources = {
        str(path.relative_to(SRC)): path.read_text(encoding="utf-8")
        for path in SRC.rglob("*.py")
        if not path.stem.endswith("_pb2")
    }

    twice = checks.classes_of_one_name(sources)

    assert sorted(twice) == sorted(NAMED_TWICE), twice


def test_every_folder_of_modules_is_a_package() -> None:
    folders = {path.parent for path in SRC.rglob("*.py")}

    assert [
        str(path) for path in sorted(folders) if not (path / "__init__.py").exists()
    ] == []


def test_every_module_is_named_after_what_it_holds() -> None:
    assert [
        f"{path}: {complaint}"
        for path in (path.relative_to(ROOT) for path in OURS)
        for complaint in checks.empty_names(path)
    ] == []


def test_type_checkers_are_never_silenced_without_a_code(
    breaches: dict[str, list[str]],
) -> None:
    assert breaches["ignores"] == []


def test_every_module_and_package_of_shoal_has_a_docstring(
    breaches: dict[str, list[str]],
) -> None:
    assert breaches["docstrings"] == []


def test_the_inside_never_walks_over_a_set(breaches: dict[str, list[str]]) -> None:
    assert breaches["sets"] == []


def test_imports_for_types_keep_to_the_layers_too(
    breaches: dict[str, list[str]],
) -> None:
    assert breaches["imports"] == []


def test_every_fragment_of_the_changelog_has_a_number_and_a_kind() -> None:
    names = sorted(path.name for path in (ROOT / "changes").iterdir())

    assert [text for name in names for text in checks.misnamed_fragment(name)] == []


def test_every_room_has_a_layer() -> None:
    layers = contract("layers")

    assert layers["exhaustive"]
    assert checks.rooms_without_a_layer(rooms(), layers["layers"]) == []


def test_the_inside_is_as_large_as_its_contract_says() -> None:
    listed = contract("inside")["source_modules"]

    assert sorted(listed) == [f"shoal.{room}" for room in rooms() if room in INSIDE]


def test_workflows_call_targets_that_exist_on_every_python_that_is_supported() -> None:
    targets = documents.targets((ROOT / "Makefile").read_text(encoding="utf-8"))
    workflow = (ROOT / ".github" / "workflows" / "checks.yml").read_text("utf-8")
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    tried = re.search(r"python: \[(.+)\]", workflow)

    assert set(re.findall(r"run: make (\S+)", workflow)) <= set(targets)
    assert tried is not None
    assert re.findall(r"3\.\d+", tried[1]) == [
        found[1]
        for classifier in settings["project"]["classifiers"]
        if (found := re.fullmatch(r".* :: (3\.\d+)", classifier))
    ]


def test_every_dependency_is_locked() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    project = settings["project"]
    extras = itertools.chain(*project["optional-dependencies"].values())
    wanted = {re.split(r"[<>=;\[ ]", each)[0] for each in project["dependencies"]}
    wanted |= {re.split(r"[<>=;\[ ]", each)[0] for each in extras}
    locks = "\n".join(path.read_text() for path in ROOT.glob("requirements/*.lock"))
    locked = set(re.findall(r"^([\w.-]+)==", locks, re.MULTILINE))

    assert wanted - locked == {"torch"}  # docs/decisions/0011-torch.md
