"""Slurm, by its own commands: `sbatch`, `squeue` and `scancel`.

Why not by a library: docs/decisions/0371-slurm-by-its-own-commands.md. The script goes
through standard input, since it holds an invitation, and of the environment of this
node only `EXPORTED` goes along.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

from shoal.errors import EngineError
from shoal.runtime.allocation.engines import SAID_MAX, EngineJob, said

if TYPE_CHECKING:
    from shoal.core.allocation.records import AllocationTerms

EXPORTED: Final = "HOME,PATH,USER,LANG,TMPDIR"
LOGS_KEPT: Final = 20
OURS: Final = b"`shoal slurm install`"
"""In the head of commands of that name which submit to a shoal."""

PASSING: Final = (
    *("unable to contact", "timed out", "timeout", "connection", "zero bytes"),
    *("try again", "temporarily", "socket", "limit reached", "maxsubmit"),
)
"""Words of complaints that may be otherwise a while later."""

ENDED: Final = frozenset({"COMPLETING", "COMPLETED", "CANCELLED", "FAILED", "TIMEOUT"})


@final
class Slurm:
    """Submits batch jobs of one task."""

    def __init__(self, logs: Path) -> None:
        """Keep what the latest jobs print in the folder `logs`."""
        self._logs = logs

    def command(self, terms: AllocationTerms, name: str) -> list[str]:
        """Return the command that submits a script, for people."""
        seconds = round(terms.time_limit_s)
        return [
            program("sbatch"),
            "--parsable",
            f"--job-name={name}",
            f"--time={seconds // 60}:{seconds % 60:02d}",
            "--nodes=1",
            "--ntasks=1",
            "--no-requeue",
            f"--export={EXPORTED}",
            f"--output={self._logs / name}.log",
            *terms.arguments,
        ]

    async def attempt(self, terms: AllocationTerms, name: str, script: str) -> str:
        """Return why Slurm would not take such a job, if so."""
        sbatch, *options = self.command(terms, name)
        code, _, err = await said([sbatch, "--test-only", *options], script)
        return complaint(err) if code else ""

    async def submit(self, terms: AllocationTerms, name: str, script: str) -> str:
        """Submit a script; return the id of its job."""
        self._logs.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._drop_logs()
        code, out, err = await said(self.command(terms, name), script)
        if code:
            reason = complaint(err)
            raise EngineError(reason, final=not passes(reason))
        return out.strip().partition(";")[0]

    def _drop_logs(self) -> None:
        logs = sorted(self._logs.glob("*.log"), key=lambda p: p.stat().st_mtime)
        for old in logs[: -LOGS_KEPT + 1]:
            old.unlink(missing_ok=True)

    async def jobs(self, prefix: str) -> list[EngineJob]:
        """Return the jobs of this user whose names begin so."""
        user, form = f"--user={os.getuid()}", "--format=%i|%T|%j"
        code, out, err = await said([program("squeue"), "--noheader", user, form])
        if code:
            raise EngineError(complaint(err), final=False)
        rows = (line.strip().split("|", 2) for line in out.splitlines() if line.strip())
        return [
            EngineJob(name, native, running=state != "PENDING")
            for native, state, name in rows
            if name.startswith(prefix) and state not in ENDED
        ]

    async def cancel(self, native: str) -> None:
        """End a job."""
        code, _, err = await said([program("scancel"), native])
        if code:
            raise EngineError(complaint(err), final=False)


def program(name: str) -> str:
    """Return where a command of Slurm is, and never the one that leads back here."""
    for folder in os.environ.get("PATH", "").split(":"):
        path = Path(folder or ".", name)
        if path.is_file() and os.access(path, os.X_OK):
            with path.open("rb") as file:
                if OURS not in file.read(256):
                    return str(path)
    raise EngineError(f"there is no {name} here: is this a login machine?", final=True)


def complaint(err: str) -> str:
    """Return what a command of Slurm complains of, in one line."""
    lines = [line.strip() for line in err.splitlines() if line.strip()]
    plain = [line.rpartition("error: ")[2].removeprefix("sbatch: ") for line in lines]
    told = [
        line.removeprefix("allocation failure: ").removeprefix(
            "Batch job submission failed: "
        )
        for line in plain
    ]
    return "; ".join(dict.fromkeys(told))[:SAID_MAX] or "it did not say why"


def passes(reason: str) -> bool:
    """Whether what Slurm complains of may be otherwise a while later."""
    return any(word in reason.lower() for word in PASSING)
