"""The exit codes of `shoal`, all in one place; scripts rely on them.

`shoal run` and `shoal wait` exit with the job's own code. The codes from 100 up say
what became of a job that has none to give, or why nothing could be done.
"""

from enum import IntEnum


class ExitCode(IntEnum):
    """What the shell learns when a command ends. Numbers are never reused."""

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
