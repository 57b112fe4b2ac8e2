"""The pages under docs/reference, generated from the code.

`make docs` writes them; a test compares them with what is committed.
"""

from __future__ import annotations

from reference.answers_page import answers_page
from reference.commands_page import commands_page
from reference.spec_page import spec_page

__all__ = ["pages"]


def pages() -> dict[str, str]:
    """Return the text of each page under its file name."""
    return {
        "cli.md": commands_page(),
        "job-spec.md": spec_page(),
        "json.md": answers_page(),
    }
