"""Why a task failed is found in what it wrote."""

import pytest

from shoal.runtime.leasing.last_words import KEPT_BYTES, LINE_LENGTH_MAX, LastWords

TRACEBACK = """Traceback (most recent call last):
  File "train.py", line 10, in <module>
    raise ValueError("this point is bad")
ValueError: this point is bad
"""
CHAINED = """Traceback (most recent call last):
  File "train.py", line 1
KeyError: 'lr'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "train.py", line 2
RuntimeError: no lr
It has two lines.
"""
RANKED = """[rank1]: Traceback (most recent call last):
[rank1]:   File "train.py", line 3
[rank1]: OSError: disk full
"""


@pytest.mark.parametrize(
    ("written", "error"),
    [
        ("", ""),
        ("\n \n", ""),
        (TRACEBACK, "ValueError: this point is bad"),
        (TRACEBACK + "E1117 agent: a child failed\n", "ValueError: this point is bad"),
        (CHAINED, "RuntimeError: no lr"),
        (RANKED, "OSError: disk full"),
        ("error: no program 'x'\nnext:  name a file\n", "no program 'x'"),
        ("sh: 1: nope: not found\n", "sh: 1: nope: not found"),
        ("  0%| \r100%|\x1b[2J\n", "100%|?[2J"),
    ],
)
def test_the_line_that_tells_why_is_found(written: str, error: str) -> None:
    words = LastWords()
    for byte in written.encode():
        words.add(bytes([byte]))

    assert words.error() == error


def test_only_the_end_is_kept_and_only_one_line_is_told() -> None:
    words = LastWords()
    words.add(b"x" * 10 * KEPT_BYTES + b"\n" + b"y" * 1_000)

    assert words.error() == "y" * LINE_LENGTH_MAX
