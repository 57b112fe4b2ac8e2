"""The exit codes of `shoal`, all in one place; scripts rely on them.

`shoal run` and `shoal wait` exit with the job's own code. Codes from 100 up describe
a job without a code of its own, or why the command could not do its work.
"""

from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes of commands. Numbers are never reused."""

    OK = 0
    ERROR = 1  # Something failed; stderr says what and why.
    USAGE = 2  # The command line, or a job spec, is wrong.
    JOB_FAILED = 100  # The job failed without an exit code of its own.
    NOT_FINISHED = 101  # The time to wait ran out; the job goes on.
    NOT_FOUND = 102
    CANCELLED = 103
    NOT_PLACEABLE = 104  # No node could run the job now.
    UNREACHABLE = 105  # The node does not run, or does not answer.
    NOT_ALLOWED = 106
    INTERRUPTED = 130  # Ctrl-C, as a shell tells it.
