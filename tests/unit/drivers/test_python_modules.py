"""A worker looks for what recipes import, in the Python that its tasks will use."""

import sys
from pathlib import Path

from shoal.drivers.python_modules import missing_modules


def folder_with_python(folder: Path) -> str:
    (folder / "python").symlink_to(sys.executable)
    return str(folder)


def test_modules_that_are_not_there_are_named_in_order() -> None:
    path = str(Path(sys.executable).parent)

    found = missing_modules(path, ("zebra_of_nobody", "json", "ape_of_nobody"))

    assert found == ("ape_of_nobody", "zebra_of_nobody")


def test_a_module_is_found_without_being_imported(tmp_path: Path) -> None:
    """It may be large, or broken: looking must cost nothing and never fail."""
    (tmp_path / "pyvenv.cfg").write_text(f"home = {Path(sys.executable).parent}\n")
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    site = tmp_path / "lib" / version / "site-packages"
    site.mkdir(parents=True)
    (site / "torch.py").write_text("raise RuntimeError('imported')\n")
    (tmp_path / "bin").mkdir()

    path = folder_with_python(tmp_path / "bin")

    assert missing_modules(path, ("torch", "torch_of_nobody")) == ("torch_of_nobody",)


def test_without_a_python_everything_is_missing(tmp_path: Path) -> None:
    assert missing_modules(str(tmp_path), ("json",)) == ("json",)


def test_what_cannot_be_found_out_is_not_called_missing(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nexit 1\n")
    python.chmod(0o755)

    assert missing_modules(str(tmp_path), ("json",)) == ()
