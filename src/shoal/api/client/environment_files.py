"""Read the files of a Python environment where a job is submitted.

A requirements file may include others by `-r` and `-c`. They are put into one
`requirements.txt` and one `constraints.txt`, because a worker sees none of the folders
they lie in. A line that names a file or folder of this machine is refused here, with
its number, and not by a worker minutes later.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from shoal.errors import UsageError

FILE_BYTES_MAX: Final = 4 << 20
DEPTH_MAX: Final = 8
_INCLUDE: Final = re.compile(r"(-r|--requirement|-c|--constraint)(?:\s+|=)(.+)")
_LOCAL: Final = re.compile(
    r"(-e|--editable)(?:\s|=)|\.{0,2}/|\.$|~|file:|.*@\s*(file:|\.{0,2}/)"
)
_FOLDERS: Final = re.compile(r"(-f|--find-links)(?:\s+|=)(?!https?:)")


def read_requirements(path: Path) -> dict[str, bytes]:
    """Return a requirements file with its includes expanded."""
    lines: dict[str, list[str]] = {"requirements.txt": [], "constraints.txt": []}
    _read_lines(path, lines, "requirements.txt", 0)
    return {
        name: "".join(f"{line}\n" for line in found).encode()
        for name, found in lines.items()
        if found or name == "requirements.txt"
    }


def read_project(path: Path) -> dict[str, bytes]:
    """Return a `pyproject.toml`, and the `uv.lock` beside it if there is one."""
    file = path / "pyproject.toml" if path.is_dir() else path
    files = {"pyproject.toml": _bytes_of(file)}
    lock = file.with_name("uv.lock")
    if lock.exists():
        files["uv.lock"] = _bytes_of(lock)
    return files


def _read_lines(path: Path, lines: dict[str, list[str]], to: str, depth: int) -> None:
    if depth > DEPTH_MAX:
        raise UsageError(
            f"{path} is included {depth} files deep",
            because="files that include each other never end",
            hint="put all requirements into one file",
        )
    text = _bytes_of(path).decode("utf-8", "surrogateescape")
    for number, line in enumerate(text.replace("\\\n", " ").splitlines(), 1):
        said = line.split(" #")[0].strip()
        if not said or said.startswith("#"):
            continue
        if included := _INCLUDE.match(said):
            flag, name = included.groups()
            inner = "constraints.txt" if flag in ("-c", "--constraint") else to
            _read_lines(path.parent / name.strip(), lines, inner, depth + 1)
            continue
        if _LOCAL.match(said) or _FOLDERS.match(said):
            raise UsageError(
                f"{path}, line {number}: '{said[:80]}' is on this machine only",
                because="a worker gets packages from an index, not from your folders",
                hint="put your own package into the workdir, and `setup: pip install .`"
                " or PYTHONPATH beside it",
            )
        lines[to].append(said)


def _bytes_of(path: Path) -> bytes:
    try:
        if path.stat().st_size > FILE_BYTES_MAX:
            raise UsageError(
                f"{path} is too large for a list of packages",
                because=f"it has more than {FILE_BYTES_MAX >> 20} MiB",
                hint="name the file that lists packages",
            )
        return path.read_bytes()
    except OSError as error:
        raise UsageError(
            f"cannot read {path}",
            because=error.strerror or str(error),
            hint="--python takes requirements.txt, pyproject.toml, a version such as "
            "3.12, or the name of an environment that workers offer",
        ) from None
