"""What an engine must be able to do: try, submit, poll, cancel.

An engine knows nothing of demand, limits or workers. It is told the name that a job
must have there, and the script that it runs; it names all jobs whose names begin so.
"""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from shoal.errors import EngineError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from shoal.core.allocation.records import AllocationTerms

COMMAND_S: Final = 30.0
SAID_MAX: Final = 500


class EngineJob(NamedTuple):
    """A job that an engine knows and that has not ended."""

    name: str
    native: str
    running: bool


class LendingEngine(Protocol):
    """Runs scripts on machines that it lends for a time."""

    def command(self, terms: AllocationTerms, name: str) -> Sequence[str]:
        """Return the command that submits a script, for people."""
        ...

    async def attempt(self, terms: AllocationTerms, name: str, script: str) -> str:
        """Return why the engine would not take such a job, if so; nothing is left."""
        ...

    async def submit(self, terms: AllocationTerms, name: str, script: str) -> str:
        """Submit a script; return what the engine calls the job."""
        ...

    async def jobs(self, prefix: str) -> list[EngineJob]:
        """Return all jobs whose names begin so; raise if the engine does not say."""
        ...

    async def cancel(self, native: str) -> None:
        """End a job."""
        ...


async def said(
    argv: Sequence[str], script: str = "", env: Mapping[str, str] | None = None
) -> tuple[int, str, str]:
    """Run a command of an engine; return its exit code, output and complaints."""
    try:
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, "LC_ALL": "C", **(env or {})},
        )
    except OSError as error:
        raise EngineError(f"{argv[0]} cannot be run: {error}", final=True) from None
    try:
        async with asyncio.timeout(COMMAND_S):
            out, err = await process.communicate(script.encode())
    except TimeoutError:
        what = f"{argv[0]} did not answer in {COMMAND_S:.0f} s"
        raise EngineError(what, final=False) from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    code = process.returncode
    assert code is not None
    return code, out.decode(errors="replace"), err.decode(errors="replace")
