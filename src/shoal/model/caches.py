"""What of a task a worker may have cached, and how workers report it.

A mark reveals nothing to a peer that does not know the name. Knowing a tree's name is
enough to fetch it, so names are never sent.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from shoal.model.job import PythonNeed, Work

TREE: Final = "tree:"
"""Before the name of a tree, where a spec has the path of a folder."""

IMAGE: Final = "image:"
ENVIRONMENT: Final = "environment:"
MARK_BYTES: Final = 8
MARKS_MAX: Final = 32
"""The newest that a worker tells, and what counts of all that one tells: a worker that
runs more in turn is warm for none."""


def cached_names(work: Work) -> dict[str, str]:
    """Return what of a task can be cached: its name, and what people call it."""
    names: dict[str, str] = {}
    if work.workdir.startswith(TREE):
        names[work.workdir] = "code"
    if work.image:
        names[f"{IMAGE}{work.image}"] = "image"
    if work.python.is_made:
        names[environment_name(work.python)] = "Python environment"
    return names


def environment_name(need: PythonNeed) -> str:
    """Return the name of an environment; the same content has the same name."""
    content = need.digest or need.files
    return f"{ENVIRONMENT}{need.version}|{content}|{'|'.join(need.packages)}"


ENVIRONMENT_FILES: Final = (
    "requirements.txt",
    "constraints.txt",
    "pyproject.toml",
    "uv.lock",
)
"""Files that an environment is made of, by the names under which they travel."""


def digest_of(files: Mapping[str, bytes]) -> str:
    """Return a name for what is in the files of an environment."""
    digest = hashlib.sha256()
    for name in sorted(files):
        digest.update(f"{name} {len(files[name])}\n".encode() + files[name])
    return digest.hexdigest()[:32]


def mark_of(name: str) -> str:
    """Return what a worker tells that has this cached."""
    return hashlib.sha256(name.encode()).hexdigest()[: 2 * MARK_BYTES]


def marks_of(work: Work) -> tuple[str, ...]:
    """Return the marks of those workers that a task would begin on soonest."""
    return tuple(mark_of(name) for name in cached_names(work))


def cached_words(work: Work, marks: Collection[str]) -> str:
    """Say what of a task is cached where these marks are; empty if nothing is."""
    words = [
        word for name, word in cached_names(work).items() if mark_of(name) in marks
    ]
    return f"{' and '.join(words)} cached" if words else ""
