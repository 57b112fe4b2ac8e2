"""Where the command `shoal` begins: who presses Ctrl-C never sees a word of Python.

`shoal.cli` catches an interrupt while a command works. To load it takes longer than to
press the key, and so may the end of a process; there an interrupt ends up here.
"""

import os
import sys

TYPE_CHECKING = False  # Importing `typing` for this would take longer than all of it.
if TYPE_CHECKING:
    from types import TracebackType

INTERRUPTED = 130
"""As `ExitCode` has it, which is not loaded yet."""


def main() -> None:
    """Run the command line of this process, and exit."""
    sys.excepthook = _uncaught
    sys.unraisablehook = _uncatchable
    from shoal.cli import main as command  # noqa: PLC0415 - What takes so long.

    command()


def _uncaught(
    kind: type[BaseException], error: BaseException, trace: "TracebackType | None"
) -> None:
    if issubclass(kind, KeyboardInterrupt):
        os._exit(INTERRUPTED)
    sys.__excepthook__(kind, error, trace)


def _uncatchable(problem: "sys.UnraisableHookArgs") -> None:
    """Heed an interrupt that came where nothing can be raised, as in a callback."""
    if issubclass(problem.exc_type, KeyboardInterrupt):
        os._exit(INTERRUPTED)
    sys.__unraisablehook__(problem)
