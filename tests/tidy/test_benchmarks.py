"""Nobody runs every benchmark at every change, so at least each one must import.

Those that load torch take too long for that; like all, they are checked by mypy.
"""

import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAMS = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for path in (ROOT / "benchmarks").rglob("*.py")
    if "torch" not in path.read_text(encoding="utf-8")
)


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_benchmark_imports_and_says_what_it_asks(program: str) -> None:
    imported = importlib.import_module(program)

    assert imported.__doc__
