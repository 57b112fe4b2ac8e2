"""What a spec says of Python environments and of folders that workers have.

A word is enough where its form tells what is meant: `requirements.txt`,
`pyproject.toml`, a version such as `3.12`, or the name under which workers offer an
environment. Files are read where the job is submitted, which leaves their content in
`files` and `digest` (`api/client/shipping.py`).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import msgspec

from shoal.errors import SpecError
from shoal.model.job import PythonNeed
from shoal.model.spec.spec import PythonSpec

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shoal.model.spec.spec import JobSpec

VERSION: Final = re.compile(r"3(\.[0-9]{1,3}){1,2}")
LENT_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
"""A name that is a folder in sandboxes, and a part of a variable."""

PROJECT: Final = "pyproject.toml"
WAYS: Final = ("name", "requirements", "uv", "packages", "files")
CACHES: Final = {
    "huggingface": "HF_HOME",
    "torch": "TORCH_HOME",
    "pip": "PIP_CACHE_DIR",
    "uv": "UV_CACHE_DIR",
}
"""Caches that last, and the variable by which programs find each."""


def from_words(words: Iterable[str], path: str = "$.python") -> PythonSpec:
    """Return the environment that these words describe, each by its form."""
    found: dict[str, str] = {}
    for word in words:
        if VERSION.fullmatch(word):
            field = "version"
        elif word.endswith(PROJECT):
            field = "uv"
        elif "/" in word or word.endswith((".txt", ".in")):
            field = "requirements"
        else:
            field = "name"
        if field in found:
            raise SpecError(
                f"'{found[field]}' and '{word}' are both a {field}",
                path=path,
                because="a task runs in one environment",
                hint="put what it needs into one requirements.txt",
            )
        found[field] = word
    return msgspec.convert(found, PythonSpec)


def canonical_python(given: str | PythonSpec, path: str) -> PythonSpec:
    """Return one form of an environment; raise `SpecError` if it is none."""
    spec = from_words((given,), path) if isinstance(given, str) else given
    version = spec.version
    ways = [way for way in WAYS if getattr(spec, way)]
    if len(ways) > 1:
        raise SpecError(
            f"both {ways[0]} and {ways[1]}",
            path=path,
            because="an environment is made in one way",
            hint="put all packages into one requirements.txt",
        )
    if not ways and not version:
        raise SpecError(
            "the environment says nothing",
            path=path,
            because="it has neither packages, nor a file, nor a name",
            hint="write it like {packages: [numpy]} or {requirements: r.txt}",
        )
    if version and VERSION.fullmatch(version) is None:
        raise SpecError(
            f"'{version}' is not a version of Python",
            path=f"{path}.version",
            because="it is two or three numbers with dots between them",
            hint='write it like version: "3.12"',
        )
    if version and spec.name:
        raise SpecError(
            "both name and version",
            path=path,
            because="an environment of a worker has the Python that it has",
            hint="remove the version",
        )
    if spec.name:
        _lent_name(spec.name, f"{path}.name")
    for place, line in enumerate(spec.packages):
        _package(line, f"{path}.packages[{place}]")
    return spec


def _package(line: str, path: str) -> None:
    if not line.strip() or line.lstrip()[0] in "-./" or "\n" in line:
        raise SpecError(
            f"'{line[:80]}' is not a package",
            path=path,
            because="it is a name, perhaps with a version: no option, path or line",
            hint="write it like numpy or 'torch>=2.4'; options go into a file",
        )


def canonical_lent(names: tuple[str, ...], path: str) -> tuple[str, ...]:
    """Return names of folders, sorted and once each."""
    for place, name in enumerate(names):
        _lent_name(name, f"{path}[{place}]")
    return tuple(sorted(set(names)))


def canonical_caches(names: tuple[str, ...], path: str) -> tuple[str, ...]:
    """Return names of caches; raise `SpecError` if there is none of this name."""
    for place, name in enumerate(names):
        if name not in CACHES:
            raise SpecError(
                f"there is no cache '{name[:80]}'",
                path=f"{path}[{place}]",
                because=f"there are {', '.join(CACHES)}",
                hint="for data of your own, `shoal up --share NAME=FOLDER` and mounts",
            )
    return tuple(sorted(set(names)))


def _lent_name(name: str, path: str) -> None:
    if LENT_NAME.fullmatch(name) is None:
        raise SpecError(
            f"'{name[:80]}' is not a name that a worker can give",
            path=path,
            because="it has letters, digits and . _ -, and begins with no dot",
            hint="write it like imagenet",
        )


def python_need(spec: JobSpec) -> PythonNeed:
    """Return what a worker is asked for; files that were not sent keep their path."""
    given = spec.python
    if given is None:
        return PythonNeed()
    assert isinstance(given, PythonSpec), "canonical"
    return PythonNeed(
        name=given.name,
        version=given.version,
        packages=given.packages,
        files=given.files or given.requirements or given.uv,
        digest=given.digest,
    )


def check_python(spec: JobSpec, path: str) -> None:
    """Refuse an environment beside an image, which has its own."""
    if spec.image and spec.python is not None:
        raise SpecError(
            "both python and image",
            path=f"{path}.python",
            because="an image brings its own Python",
            hint="install the packages in the image, or by `setup:`",
        )
