"""Every text file beside this one is a story that a machine plays, step by step.

A block is commands, a line `----`, and what comes of them, up to an empty line:

    s1 demands r1 cpu=2 count=2 priority=5
    ----
    to s1: offer r1 w/1/1 w/1/2 for 6 s

The commands are in `commands.py` and `stage.py`. `SHOAL_REWRITE=1 pytest` writes what
comes of them into the files: read the difference before you commit it.
"""

import os
from pathlib import Path

import pytest
from tests.scenarios.stage import Stage

HERE = Path(__file__).parent
STORIES = sorted(path.relative_to(HERE).as_posix() for path in HERE.glob("*/*.txt"))


def played(text: str) -> str:
    """Return the story as it goes now, with its comments and commands as they are."""
    stage = Stage()
    told: list[str] = []
    for block in text.strip("\n").split("\n\n"):
        lines = block.split("\n")
        cut = lines.index("----") if "----" in lines else len(lines)
        asked = lines[:cut]
        spoken = [line for line in asked if line and not line.startswith("#")]
        answer = [line for command in spoken for line in stage.play(command)]
        told.append("\n".join([*asked, "----", *answer] if spoken else asked))
    return "\n\n".join(told) + "\n"


@pytest.mark.parametrize("story", STORIES)
def test_the_story_goes_as_it_is_written(story: str) -> None:
    path = HERE / story
    written = path.read_text(encoding="utf-8")

    now = played(written)

    if os.environ.get("SHOAL_REWRITE") and not os.environ.get("CI"):
        path.write_text(now, encoding="utf-8")
        return
    assert now == written


def test_there_are_stories_of_every_machine() -> None:
    assert {story.partition("/")[0] for story in STORIES} == {
        "gate",
        "peer",
        "scheduler",
        "worker",
    }


def test_a_story_that_goes_differently_is_noticed() -> None:
    written = "worker w cpu=2\nshow free\n----\ncpu 3 idle\n"

    assert played(written) == "worker w cpu=2\nshow free\n----\ncpu 2 idle\n"
