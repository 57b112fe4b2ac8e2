"""`shoal slurm install`: small programs called `sbatch`, `squeue` and so on.

They stand in a folder that the user chooses and puts first in the PATH of a shell. So
nothing of a real Slurm is hidden by having shoal installed.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from shoal.cli.slurm.batch import SHARED_VARIABLE
from shoal.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

PROGRAMS: Final = ("sbatch", "scancel", "sinfo", "squeue")
MARK: Final = "# Made by `shoal slurm install`."


def install(folder: Path, shared: Iterable[str], *, beside_slurm: bool) -> list[Path]:
    """Write the programs; return their paths. Refuses to replace those of others."""
    for program in PROGRAMS:
        real = _real(program)
        if real is not None and not beside_slurm:
            raise UsageError(
                f"there is a Slurm here: {real}",
                because=f"{program} would mean another cluster than before",
                hint="to have both, say --beside-slurm, and choose by PATH",
            )
        path = folder / program
        if path.exists() and not is_ours(path):
            raise UsageError(
                f"{path} is not of shoal",
                because="it would be replaced",
                hint="choose another folder",
            )
    roots = ":".join(_checked(pair) for pair in shared)
    folder.mkdir(parents=True, exist_ok=True)
    return [_written(folder / program, roots) for program in PROGRAMS]


def is_ours(path: Path) -> bool:
    """Whether a program was written by this module."""
    with path.open("rb") as file:
        return MARK.encode() in file.read(256)


def _real(program: str) -> Path | None:
    for folder in os.environ.get("PATH", "").split(":"):
        path = Path(folder or ".", program)
        if os.access(path, os.X_OK) and path.is_file() and not is_ours(path):
            return path
    return None


def _checked(pair: str) -> str:
    name, _, root = pair.partition("=")
    if not name or not root or ":" in root:
        raise UsageError(
            f"--shared {pair}: no name, or no folder",
            because="workers share it by name: shoal up --share NAME=FOLDER:rw:here",
            hint="--shared work=/nfs/work",
        )
    return f"{name}={Path(root).expanduser().absolute()}"


def _written(path: Path, roots: str) -> Path:
    lines = ["#!/bin/sh", MARK]
    if roots:
        lines.append(f"export {SHARED_VARIABLE}={shlex.quote(roots)}")
    command = shutil.which("shoal") or "shoal"
    beside = Path(sys.executable).with_name("shoal")
    command = str(beside) if beside.exists() else command
    lines.append(f'exec {shlex.quote(command)} slurm {path.name} "$@"')
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    path.chmod(0o755)
    return path
