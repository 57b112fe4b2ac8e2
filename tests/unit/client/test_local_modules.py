"""A function travels with the local modules that it needs, and with no others."""

import io
import math
import sys
import types
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from shoal.client.code import local_modules
from shoal.client.code.functions import pickled
from shoal.client.code.local_modules import bundle_for
from shoal.errors import UsageError
from shoal.protocol import payloads

FILES = {
    "helper_of_test.py": "import lab_of_test.core\n\nclass Kind: ...\n",
    "lab_of_test/__init__.py": "",
    "lab_of_test/core.py": "from .tables import RATE\n",
    "lab_of_test/tables.py": "RATE = 10\n",
    "lab_of_test/data/words.txt": "one two\n",
    "lab_of_test/__pycache__/x.pyc": "",
    "other_of_test.py": "",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in [name for name in sys.modules if "_of_test" in name]:
        del sys.modules[name]


def script(text: str) -> Callable[..., object]:
    """Return the function `f` of a script."""
    main = types.ModuleType("__main__")
    exec(text, vars(main))
    found: Callable[..., object] = vars(main)["f"]
    return found


def names_in(bundle: tuple[str, bytes] | None) -> list[str]:
    assert bundle is not None
    return sorted(zipfile.ZipFile(io.BytesIO(bundle[1])).namelist())


WHOLE = [
    "helper_of_test.py",
    "lab_of_test/__init__.py",
    "lab_of_test/core.py",
    "lab_of_test/data/words.txt",
    "lab_of_test/tables.py",
]


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("text", "files"),
    [
        ("import helper_of_test\ndef f(): return helper_of_test", WHOLE),
        ("from helper_of_test import Kind\ndef f(): return Kind", WHOLE),
        ("def f():\n import helper_of_test", WHOLE),
        ("def g():\n import helper_of_test\ndef f(): return g()", WHOLE),
        ("def f(): return lambda: __import__\ndef g():\n import other_of_test", None),
        ("def f():\n from lab_of_test import core", WHOLE[1:]),
        ("import other_of_test\ndef f(): return 1", None),
        ("import json, numpy\ndef f(): return json, numpy", None),
    ],
)
def test_what_a_function_names_or_imports_travels(
    text: str, files: list[str] | None
) -> None:
    bundle = bundle_for(script(text))

    assert (None if bundle is None else names_in(bundle)) == files


def test_modules_of_arguments_travel(folder: Path) -> None:
    import helper_of_test  # type: ignore[import-not-found]  # noqa: PLC0415

    assert folder in Path(str(helper_of_test.__file__)).parents
    assert names_in(bundle_for(math.sqrt, ([helper_of_test.Kind()], {}))) == WHOLE


def test_modules_are_there_before_the_function_is_loaded(folder: Path) -> None:
    code = b"".join(
        pickled(script("import other_of_test\ndef f(): return other_of_test"))
    )
    sys.path.remove(str(folder))
    del sys.modules["other_of_test"]

    loaded = payloads.loads(code)
    again = payloads.loads(code)

    assert "shoal-modules-" in loaded().__file__
    assert again().__file__ == loaded().__file__
    sys.path[:] = [path for path in sys.path if "shoal-modules-" not in path]


def test_an_edited_file_travels_again(folder: Path) -> None:
    used = script("def f():\n import other_of_test")
    before = bundle_for(used)

    (folder / "other_of_test.py").write_text("X = 1\n", encoding="utf-8")

    assert bundle_for(used) != before
    assert bundle_for(used) is bundle_for(used)


@pytest.mark.usefixtures("folder")
def test_modules_that_are_too_large_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(local_modules, "PACKED_BYTES_MAX", 10)

    with pytest.raises(UsageError, match="lab_of_test are too large"):
        bundle_for(script("def f():\n import lab_of_test"))
