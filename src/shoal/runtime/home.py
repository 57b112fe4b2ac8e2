"""Where a node keeps its files. `SHOAL_HOME` moves all of them.

Several shoals of one user have homes by name, which `SHOAL_NET` chooses from.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final, final

from shoal.errors import UsageError

PRIVATE = 0o700
NETS: Final = "nets"
_NET: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


@final
class Home:
    """One folder for one node: key, journal, sockets, output and cache."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def default(cls) -> Home:
        """Return the home that the environment names, or the user's own."""
        named = os.environ.get("SHOAL_HOME")
        if named:
            return cls(Path(named).expanduser().absolute())
        data = os.environ.get("XDG_DATA_HOME")
        base = Path(data) if data else Path.home() / ".local" / "share"
        own = base / "shoal"
        net = os.environ.get("SHOAL_NET")
        return cls(own / NETS / checked_net(net) if net else own)

    @property
    def net(self) -> str:
        """The name under which this home is one of several; usually empty."""
        return self.path.name if self.path.parent.name == NETS else ""

    @property
    def key(self) -> Path:
        """The node's private key."""
        return self.path / "node.key"

    @property
    def root_key(self) -> Path:
        """The shoal's root key, on the node that made the shoal."""
        return self.path / "root.key"

    @property
    def membership(self) -> Path:
        """The shoal that this node belongs to, and its grant."""
        return self.path / "membership.json"

    @property
    def journal(self) -> Path:
        """The durable state."""
        return self.path / "journal.db"

    @property
    def journal_mark(self) -> Path:
        """The last journal position, so that a lost journal is noticed."""
        return self.path / "acknowledged"

    @property
    def socket(self) -> Path:
        """Where the node's API listens."""
        return self.path / "node.sock"

    @property
    def node_info(self) -> Path:
        """The running node's pid, addresses and ports."""
        return self.path / "node.json"

    @property
    def log(self) -> Path:
        """The log of a node in the background."""
        return self.path / "node.log"

    @property
    def audit(self) -> Path:
        """The audit log."""
        return self.path / "audit"

    @property
    def tasks(self) -> Path:
        """Work directories and output of tasks that run here."""
        return self.path / "tasks"

    @property
    def containers(self) -> Path:
        """The work directories of tasks in containers."""
        return self.path / "containers"

    @property
    def outputs(self) -> Path:
        """Output of the tasks of jobs that were submitted here."""
        return self.path / "outputs"

    @property
    def events(self) -> Path:
        """The latest events."""
        return self.path / "events.jsonl"

    @property
    def members(self) -> Path:
        """The members that were linked, and which of them are away."""
        return self.path / "members.json"

    @property
    def cache(self) -> Path:
        """Content-addressed blobs."""
        return self.path / "cache"

    @property
    def environments(self) -> Path:
        """Python environments, setups and caches that were made for tasks."""
        return self.path / "environments"

    def prepare(self) -> None:
        """Create missing folders, readable by the user alone."""
        for folder in (
            self.path,
            self.tasks,
            self.outputs,
            self.cache,
            self.environments,
        ):
            try:
                folder.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
            except OSError as error:
                raise UsageError(
                    f"cannot create {folder}",
                    because=error.strerror or str(error),
                    hint="set SHOAL_HOME to a folder that you can write to",
                ) from error
        self.path.chmod(PRIVATE)


def checked_net(name: str) -> str:
    """Return a valid name for a home; raise `UsageError` otherwise.

    The name may come from another user's file, and becomes part of a path.
    """
    if _NET.fullmatch(name) is None:
        raise UsageError(
            f"'{name[:80]}' cannot be the name of a net",
            because="it is 1 to 64 letters, digits, dashes and underscores",
            hint="write it like --net lab",
        )
    return name
