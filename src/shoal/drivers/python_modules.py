"""Find out which modules the Python of tasks has, without importing any."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING, Final

from shoal.model.spec.recipes import JUDGING, LEARNING, MODULES

if TYPE_CHECKING:
    from collections.abc import Iterable

LOOKED_FOR: Final = tuple(
    sorted({*JUDGING, *LEARNING, *(n for names in MODULES.values() for n in names)})
)
"""All that programs of recipes import and a machine may not have."""

TIMEOUT_S: Final = 10.0
_LOOK: Final = (
    "import sys; print(*(name for name in sys.argv[1:] "
    "if not any(each.find_spec(name, None) for each in sys.meta_path)))"
)
"""What `importlib.util.find_spec` asks, without its import, which takes 4 ms."""


def missing_modules(path: str, modules: Iterable[str] = LOOKED_FOR) -> tuple[str, ...]:
    """Return the modules that `python` on `path` does not have.

    It sees what a task sees: no variables of ours, and no home with packages in it.
    What cannot be found out is not missing. Blocks for some 20 ms.
    """
    names = tuple(modules)
    program = shutil.which("python", path=path)
    if program is None:
        return names
    try:
        looked = subprocess.run(
            [program, "-c", _LOOK, *names],
            env={"PATH": path, "HOME": "/nonexistent"},
            cwd="/",
            capture_output=True,
            timeout=TIMEOUT_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return ()
    return tuple(sorted(looked.stdout.decode().split()))
