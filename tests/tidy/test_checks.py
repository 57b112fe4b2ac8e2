"""A check that cannot fail checks nothing: each is shown a breach, and its cure."""

from pathlib import PurePath

import pytest
from tests.tidy import checks


def function_of(lines: int) -> str:
    return "def swim():\n" + "    pass\n" * (lines - 1)


def test_a_function_of_60_lines_is_too_long() -> None:
    assert checks.long_functions(function_of(lines=60)) == [
        "line 1: swim has 60 lines, not under 60"
    ]
    assert checks.long_functions(function_of(lines=59)) == []


def test_a_method_and_a_coroutine_count_as_functions() -> None:
    method = "class Fish:\n    async def swim(self):\n" + "        pass\n" * 70

    assert checks.long_functions(method) == ["line 2: swim has 71 lines, not under 60"]


@pytest.mark.parametrize(
    "around",
    [
        "if x:\n    pass\nelse:\n",
        "try:\n    pass\nexcept OSError:\n",
        "try:\n    pass\nfinally:\n",
        "while x:\n",
        "with x:\n",
        "match x:\n  case 1:\n",
        "def outer():\n",
    ],
)
def test_a_function_is_found_wherever_a_statement_can_be(around: str) -> None:
    inner = "    def swim():\n" + "        pass\n" * 70

    assert any("swim" in told for told in checks.long_functions(around + inner))


def test_a_file_of_800_lines_is_too_long() -> None:
    assert checks.long_file("x = 1\n" * 800) == ["800 lines, not under 800"]
    assert checks.long_file("x = 1\n" * 799) == []


@pytest.mark.parametrize(
    "path",
    ["sim/utils.py", "helpers/graph.py", "core/task_manager.py", "common/__init__.py"],
)
def test_a_name_that_fits_any_module_is_refused(path: str) -> None:
    assert len(checks.empty_names(PurePath(path))) == 1


def test_a_name_that_says_what_a_module_holds_is_accepted() -> None:
    assert checks.empty_names(PurePath("core/uncommon_managers.py")) == []


@pytest.mark.parametrize("tool", ["type", "pyright"])
def test_a_type_checker_is_silenced_only_about_something(tool: str) -> None:
    bare = f"x = 1  # {tool}: ignore\n"
    coded = f"x = 1  # {tool}: ignore[assignment]\n"
    quoted = f"x = '# {tool}: ignore'\n"

    assert checks.bare_ignores(bare) == [f"line 1: # {tool}: ignore"]
    assert checks.bare_ignores(coded) == []
    assert checks.bare_ignores(quoted) == []


def test_a_folder_of_16_modules_is_too_full() -> None:
    fish = [PurePath(f"core/fish_{n}.py") for n in range(15)]
    free = [PurePath(f"core/{name}.py") for name in ("__init__", "__main__", "a_pb2")]

    assert checks.crowded_folders([*fish, *free, PurePath("core/reef/cod.py")]) == []
    assert checks.crowded_folders([*fish, PurePath("core/cod.py")]) == [
        "core: 16 modules, not at most 15"
    ]


def test_a_public_class_that_two_modules_define_is_found() -> None:
    sources = {
        "core.fish": "class Fin: pass\nclass _Gill: pass\nclass Cod: pass\n",
        "net.fish": "class Fin: pass\nclass _Gill: pass\ndef f():\n  class Cod: pass\n",
    }

    assert checks.classes_of_one_name(sources) == {"Fin": ["core.fish", "net.fish"]}


@pytest.mark.parametrize("name", ["12.md", "12.news.md", "added.12.md", "12.added.txt"])
def test_a_fragment_with_another_name_is_found(name: str) -> None:
    assert checks.misnamed_fragment(name) == [f"'{name}' is not <number>.<kind>.md"]


@pytest.mark.parametrize("name", ["12.added.md", "12.fixed.2.md", "README.md"])
def test_a_fragment_with_number_and_kind_is_accepted(name: str) -> None:
    assert checks.misnamed_fragment(name) == []


def test_a_module_without_docstring_is_found() -> None:
    assert checks.missing_docstring("x = 1\n") == ["no docstring"]
    assert checks.missing_docstring('"""What x is."""\nx = 1\n') == []


@pytest.mark.parametrize(
    "source",
    [
        "for x in {1, 2}: pass",
        "for x in set(xs): pass",
        "for x in set(xs) - set(ys): pass",
        "[x for x in frozenset(xs)]",
        "{x: 1 for x in {y for y in ys}}",
        "list(set(xs))",
        "next(iter({1, 2}))",
        "[*set(xs)]",
    ],
)
def test_a_walk_over_a_set_is_found(source: str) -> None:
    assert len(checks.walks_over_sets(source)) == 1


@pytest.mark.parametrize(
    "source",
    [
        "for x in sorted(set(xs)): pass",
        "for x in [1, 2]: pass",
        "for x in {1: 2}: pass",
        "x in {1, 2}",
        "len(set(xs))",
    ],
)
def test_a_use_of_a_set_that_has_no_order_is_accepted(source: str) -> None:
    assert checks.walks_over_sets(source) == []


@pytest.mark.parametrize(
    "line",
    [
        "from shoal.sim.world import World",
        "from shoal import sim",
        "import shoal.sim.world",
        "from shoal.policy import rows",
    ],
)
def test_an_import_for_types_from_above_or_beside_is_found(line: str) -> None:
    source = f"if TYPE_CHECKING:\n    {line}\n"
    layers = ["sim", "core | policy", "model"]

    found = checks.climbing_imports_for_types(source, "core", layers)

    assert found == [f"line 2: {line}"]


@pytest.mark.parametrize(
    "line",
    [
        "from shoal.model.ids import NodeId",
        "from shoal.core.leasing.leases import Lease",
        "from random import Random",
    ],
)
def test_an_import_for_types_from_below_or_outside_is_accepted(line: str) -> None:
    source = f"if TYPE_CHECKING:\n    {line}\n"
    layers = ["sim", "core | policy", "model"]

    assert checks.climbing_imports_for_types(source, "core", layers) == []


def test_a_room_that_no_layer_names_is_found() -> None:
    layers = ["cli", "(runtime) | sim"]

    assert checks.rooms_without_a_layer(["runtime", "sim"], layers) == []
    assert checks.rooms_without_a_layer(["sim", "reef"], layers) == [
        "no layer for 'reef'"
    ]


def test_a_machine_without_its_theory_is_found() -> None:
    machine = "class Gate:\n    mount = Mount()\n"

    assert (
        checks.untold_theory(f'"""Theory of operation. It waits."""\n{machine}') == []
    )
    assert checks.untold_theory("class Part:\n    rest = 1\n") == []
    assert checks.untold_theory(f'"""The gate."""\n{machine}') == [
        "line 3: a machine without its theory"
    ]
