"""Tell a program's own fault from the loss of a peer.

A rank that lost a peer can go on from a checkpoint: it ends with `TRY_AGAIN`, and shoal
starts the gang again. A rank whose program raised would raise again: it ends as any
program does, and its gang with it. When one rank raises, the others lose a peer in the
same moment; so they wait a little, and the one with the reason is heard first.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import TYPE_CHECKING, Final, NoReturn

from torch import distributed

from shoal.train.programs import TRY_AGAIN

if TYPE_CHECKING:
    from types import FrameType

LINGER_S: Final = 3.0
"""How long the report of a rank that raised may take."""

RAISED: Final = signal.SIGUSR1
"""The signal by which a rank tells its agent that starting it again is of no use."""

OWN_FAULT: Final = 1


def is_lost_peer(error: BaseException) -> bool:
    """Whether an error says that another rank cannot be reached."""
    if isinstance(error, distributed.DistBackendError | distributed.DistNetworkError):
        return True
    text = str(error)
    return isinstance(error, RuntimeError) and ("onnection" in text or "gloo" in text)


def end_to_try_again(why: str) -> NoReturn:
    """Exit so that shoal starts the gang again, unless it ends it meanwhile."""
    print(f"error: {why}", file=sys.stderr, flush=True)
    time.sleep(LINGER_S)
    sys.exit(TRY_AGAIN)


def heed_raised_ranks() -> None:
    """Let this agent end, and its ranks with it, when one of them raised.

    At once: torch would wait for seconds for ranks that wait for each other, and who
    started the agent ends whatever is left of it.
    """
    signal.signal(RAISED, _end)


def tell_agent() -> None:
    """Tell the agent of this rank that the program raised; it ends all of this."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.kill(os.getppid(), RAISED)


def _end(_number: int, _frame: FrameType | None) -> NoReturn:
    os._exit(OWN_FAULT)
