"""What a worker's owner lends by name: shared folders and Python environments.

`--share NAME=FOLDER:rw:all` and `--python NAME=FOLDER:all` are read here. A name stands
for exactly one folder that the owner chose; a job names it and never a path.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

import msgspec

from shoal.drivers import TaskMount
from shoal.drivers.sandbox.bubblewrap import WORK
from shoal.errors import ShoalError, UsageError
from shoal.model.spec.environments import LENT_NAME
from shoal.model.text.shortages import DATA, PYTHON

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shoal.model.job import Work

SHARES: Final = "/data"
"""Where tasks see shared folders, each under its name."""

VARIABLE: Final = "SHOAL_MOUNT_"
ALL: Final = "all"
HERE: Final = "here"
SHARE: Final = "--share"
SHARE_MODES: Final = ("ro", "rw", HERE)
OFFER: Final = "--python"
_NOT_IN_VARIABLES: Final = re.compile(r"[^A-Z0-9]")
_OF_TASKS: Final = tuple(map(Path, ("/dev", "/proc", "/sys", "/tmp")))  # noqa: S108
"""Folders of which a task has its own."""

_OF_SYSTEM: Final = frozenset(
    map(Path, ("/", "/bin", "/etc", "/home", "/lib", "/lib64", "/run", "/usr", "/var"))
)
_OTHERS: Final = {False: 0o5, True: 0o7}


class Loan(msgspec.Struct, frozen=True, kw_only=True):
    """A folder that is lent; `to_all`: also to tasks of other owners.

    `here`: tasks see it at its own path, as programs of a cluster expect.
    """

    name: str
    folder: str
    writable: bool = False
    to_all: bool = False
    here: bool = False

    def __str__(self) -> str:
        how = (":rw" if self.writable else "") + (f":{HERE}" if self.here else "")
        return f"{self.name}={self.folder}{how}{f':{ALL}' if self.to_all else ''}"


def read_loan(text: str, flag: str, modes: tuple[str, ...]) -> Loan:
    """Return the loan in a text such as `NAME=FOLDER:rw:all`.

    Raises `UsageError` if it is none, or if tasks could not use it.
    """
    name, equals, rest = text.partition("=")
    if not equals or "/" in name:
        name, rest = "", text
    path, words = rest, set[str]()
    while (cut := path.rpartition(":"))[0] and cut[2] in (*modes, ALL):
        path = cut[0]
        words.add(cut[2])
    folder = Path(path).expanduser().absolute()
    name = name or folder.name
    if LENT_NAME.fullmatch(name) is None:
        raise UsageError(
            f"{flag} {text}: '{name}' cannot be a name",
            because="it has letters, digits and . _ -, and begins with no dot",
            hint=f"write it like {flag} imagenet=/data/imagenet",
        )
    loan = Loan(
        name=name,
        folder=str(folder),
        writable="rw" in words,
        to_all=ALL in words,
        here=HERE in words,
    )
    _check(loan, f"{flag} {text}")
    return loan


def _check(loan: Loan, what: str) -> None:
    """Raise if tasks cannot use a folder: now, and not when the first one starts."""
    folder = Path(loan.folder)
    if loan.here:
        _check_place(loan, folder, what)
    if not folder.is_dir():
        raise UsageError(
            f"{what}: there is no folder {loan.folder}",
            because="it is missing, or a file",
            hint="give the path of a folder, and :ro, :rw or :all after it",
        )
    if (
        ":" in loan.folder
        or "," in loan.folder
        or Path(WORK)
        in (
            folder,
            *folder.parents,
        )
    ):
        raise UsageError(
            f"{what}: {loan.folder} cannot be shown to tasks",
            because=f"its path has a colon or a comma, or is below {WORK}",
            hint="give it another path, perhaps by a bind mount",
        )
    need = _OTHERS[loan.writable]
    if os.geteuid() == 0 and folder.stat().st_mode & need != need:
        how = "write to" if loan.writable else "read"
        raise UsageError(
            f"{what}: tasks cannot {how} {loan.folder}",
            because="this node runs as root, and its tasks as users of their own",
            hint=f"chmod o+{'rwx' if loan.writable else 'rx'} {loan.folder}",
        )


def _check_place(loan: Loan, folder: Path, what: str) -> None:
    """Raise if tasks cannot, or should not, see a folder at its own path."""
    is_hidden = any(folder.is_relative_to(own) for own in _OF_TASKS)
    if not (is_hidden or loan.to_all or folder in _OF_SYSTEM):
        return
    why = "tasks have folders of their own there"
    if loan.to_all:
        why = "it would tell others where things are on this machine"
    raise UsageError(
        f"{what}: {loan.folder} cannot be shown at its own path",
        because=why,
        hint="leave :here out, and tasks find it in /data; or share another folder",
    )


def read_loans(
    texts: Iterable[str], flag: str, modes: tuple[str, ...]
) -> dict[str, Loan]:
    """Return loans by name; raise `UsageError` if two have the same."""
    found: dict[str, Loan] = {}
    for text in texts:
        loan = read_loan(text, flag, modes)
        if loan.name in found:
            raise UsageError(
                f"{flag} has '{loan.name}' twice",
                because=f"as {found[loan.name].folder} and as {loan.folder}",
                hint=f"name one of them: {flag} NAME={loan.folder}",
            )
        found[loan.name] = loan
    return found


def spelled_out(texts: Iterable[str], flag: str) -> tuple[str, ...]:
    """Return loans with whole paths: a node in the background is elsewhere."""
    modes = SHARE_MODES if flag == SHARE else ()
    return tuple(str(loan) for loan in read_loans(texts, flag, modes).values())


@final
class Loans:
    """What one worker lends by name."""

    def __init__(self, shares: Iterable[str] = (), pythons: Iterable[str] = ()) -> None:
        """Read the flags; raise `UsageError` if one is wrong."""
        self._shares = read_loans(shares, SHARE, SHARE_MODES)
        self._pythons = read_loans(pythons, OFFER, ())
        for loan in self._pythons.values():
            if not Path(loan.folder, "bin", "python").exists():
                raise UsageError(
                    f"--python {loan.name}: {loan.folder} is no Python environment",
                    because="it has no bin/python",
                    hint=f"make one: uv venv {loan.folder}",
                )

    @property
    def lends(self) -> tuple[str, ...]:
        """The names of all of it, as in a capacity."""
        return tuple(name for name, _ in self._named())

    @property
    def to_all(self) -> tuple[str, ...]:
        """The names of what tasks of other owners may use."""
        return tuple(name for name, loan in self._named() if loan.to_all)

    def _named(self) -> list[tuple[str, Loan]]:
        shares = [(f"{DATA}{name}", loan) for name, loan in self._shares.items()]
        pythons = [(f"{PYTHON}{name}", loan) for name, loan in self._pythons.items()]
        return sorted([*shares, *pythons])

    def mounts_of(self, work: Work) -> tuple[TaskMount, ...]:
        """Return what a task sees of it; the worker has decided that it may.

        Raises `ShoalError` if a folder is gone.
        """
        mounts = [self._share(name) for name in work.mounts]
        if work.python.name:
            mounts += self._python(work.python.name)
        return tuple(mounts)

    def _share(self, name: str) -> TaskMount:
        loan = _there(self._shares.get(name), name)
        word = _NOT_IN_VARIABLES.sub("_", name.upper())
        return TaskMount(
            source=loan.folder,
            place=loan.folder if loan.here else f"{SHARES}/{name}",
            writable=loan.writable,
            variable=f"{VARIABLE}{word}",
        )

    def _python(self, name: str) -> list[TaskMount]:
        """Return an environment at its own path: its programs name that path."""
        folder = _there(self._pythons.get(name), name).folder
        own = TaskMount(
            source=folder, place=folder, variable="VIRTUAL_ENV", programs=True
        )
        base = _base_of(Path(folder))
        if base is None:
            return [own]
        return [TaskMount(source=base, place=base), own]


def _there(loan: Loan | None, name: str) -> Loan:
    if loan is None or not Path(loan.folder).is_dir():
        raise ShoalError(
            f"'{name}' is not there any more",
            because="its folder was lent when this node started",
        )
    return loan


def _base_of(folder: Path) -> str | None:
    """Return the installation that a virtual environment uses, if tasks lack it."""
    python = (folder / "bin" / "python").resolve()
    base = python.parents[1]
    seen = base.is_relative_to("/usr") or base.is_relative_to(folder)
    return None if seen else str(base)
