"""Entry point of the `shoal` command: Ctrl-C never shows a traceback.

`shoal.cli` handles an interrupt while a command runs. An interrupt while it is still
being imported, or while the process exits, is handled here.
"""

import os
import sys

TYPE_CHECKING = False  # Importing `typing` for this would take longer than all of it.
if TYPE_CHECKING:
    from types import TracebackType

INTERRUPTED = 130
"""The value of `ExitCode.INTERRUPTED`, which is not loaded yet."""


OBJECTS_BEFORE_LOOK = 20_000
"""How many objects more there are before it is looked which of them are garbage.

What a command imports is none, and looking as often as usual takes up to a tenth of
its time.
"""


def main() -> None:
    """Run the command line of this process and exit."""
    sys.excepthook = _uncaught
    sys.unraisablehook = _uncatchable
    import gc  # noqa: PLC0415 - Nothing comes before interrupts are handled.

    gc.set_threshold(OBJECTS_BEFORE_LOOK)
    from shoal.cli import main as command  # noqa: PLC0415 - What takes so long.

    command()


def _uncaught(
    kind: type[BaseException], error: BaseException, trace: "TracebackType | None"
) -> None:
    if issubclass(kind, KeyboardInterrupt):
        os._exit(INTERRUPTED)
    sys.__excepthook__(kind, error, trace)


def _uncatchable(problem: "sys.UnraisableHookArgs") -> None:
    """Exit on an interrupt where nothing can be raised, as in a callback."""
    if issubclass(problem.exc_type, KeyboardInterrupt):
        os._exit(INTERRUPTED)
    sys.__unraisablehook__(problem)
