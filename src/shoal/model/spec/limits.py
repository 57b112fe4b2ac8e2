"""Bounds on what people may submit. Each is far above any job that makes sense.

A spec is read before anyone knows whether its author means well, so its text, its
shape and everything derived from it are bounded. What is derived stays within
`bounds.py`, which holds for values on the wire.
"""

from typing import Final

from shoal.model.text.bounds import DEVICES_MAX

SPEC_BYTES_MAX: Final = 256 * 1024
SPEC_NODES_MAX: Final = 50_000  # values in a spec, each alias counted in full
SPEC_NESTING_MAX: Final = 16

AMOUNT_CHARS_MAX: Final = 64  # one size, duration or range
CPU_MAX: Final = 65_536  # whole CPUs for one task
SIZE_MAX_BYTES: Final = 1 << 52
GPUS_MAX: Final = DEVICES_MAX  # for one task; what an open range such as `2..` ends at

ARGV_WORDS_MAX: Final = 1_024
ARGV_CHARS_MAX: Final = 32 * 1024
ARGV_CHARS_TOTAL_MAX: Final = 16 * 1024 * 1024  # over all tasks of a job
ALTERNATIVES_MAX: Final = 8  # entries of any_of
STEPS_MAX: Final = 64
STEP_NAME_LENGTH_MAX: Final = 64  # it is a part of every id of its tasks
NODES_MAX: Final = 1_024  # tasks of one gang
GROUPS_MAX: Final = 256
TASKS_MAX: Final = 1_000_000  # of a job; almost all of them in large arrays
TASKS_LISTED_MAX: Final = 10_000  # of a job that are not in a large array
TASKS_DERIVED_MIN: Final = 1_000  # an array of this many is large: derived when needed
RETRIES_MAX: Final = 1_000
STEPS_COUNTED_MAX: Final = 1_000_000_000_000  # by a program that trains
COPIES_MIN: Final = 2  # results that must agree, if any must
COPIES_MAX: Final = 5
ANSWERS_MAX: Final = 16  # results of one task that are waited for
