"""The whole repository keeps the rules of `checks`."""

import tomllib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from tests.tidy import checks

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src" / "shoal"
OURS = sorted(
    path
    for folder in ("src", "tests", "benchmarks")
    for path in ROOT.glob(f"{folder}/**/*.py")
)
INSIDE = ("errors", "model", "protocol", "topology", "policy", "core")


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


def breaches(check: Callable[[str], list[str]], paths: Iterable[Path]) -> list[str]:
    return [
        f"{path.relative_to(ROOT)}: {complaint}"
        for path in paths
        for complaint in check(path.read_text(encoding="utf-8"))
    ]


def test_there_is_something_to_check() -> None:
    assert SRC / "errors.py" in OURS
    assert is_inside(SRC / "errors.py")
    assert is_inside(SRC / "model" / "ids.py")
    assert not is_inside(SRC / "cli" / "__init__.py")


def test_every_function_is_under_60_lines() -> None:
    assert breaches(checks.long_functions, OURS) == []


def test_every_file_is_under_600_lines() -> None:
    assert breaches(checks.long_file, OURS) == []


def test_every_module_is_named_after_what_it_holds() -> None:
    assert [
        f"{path}: {complaint}"
        for path in (path.relative_to(ROOT) for path in OURS)
        for complaint in checks.empty_names(path)
    ] == []


def test_type_checkers_are_never_silenced_without_a_code() -> None:
    assert breaches(checks.bare_ignores, OURS) == []


def test_every_module_of_shoal_has_a_docstring() -> None:
    assert breaches(checks.missing_docstring, SRC.rglob("*.py")) == []


def test_the_inside_never_walks_over_a_set() -> None:
    assert breaches(checks.walks_over_sets, filter(is_inside, OURS)) == []


@pytest.mark.parametrize("id_", ["layers", "outside", "wire"])
def test_imports_for_types_keep_to_the_layers_too(id_: str) -> None:
    layers = contract(id_)["layers"]

    assert [
        f"{path.relative_to(ROOT)}: {complaint}"
        for path in sorted(SRC.rglob("*.py"))
        for complaint in checks.climbing_imports_for_types(
            path.read_text(encoding="utf-8"), room_of(path), layers
        )
    ] == []


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
