"""Store the user's secrets by name in one file, sealed to the node's own key.

The file without the node's key reveals no value. Values leave the node only sealed to
the worker that runs a task, and are never displayed.
"""

from __future__ import annotations

import base64
import re
from typing import TYPE_CHECKING, Final, final

import msgspec

from shoal import validation
from shoal.errors import NotFoundError, ShoalError, UsageError
from shoal.model.text.bounds import ARGUMENT_LENGTH_MAX, NAME_LENGTH_MAX
from shoal.runtime.artifacts.sealing import seal, secret_purpose, unseal
from shoal.runtime.membership.shoal_membership import write_private

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from shoal.model.ids import Attempt, JobId, NodeId
    from shoal.net.identity.identity import Identity

SECRETS_MAX: Final = 1_000
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PURPOSE: Final = "secret store: "


@final
class SecretStore:
    """Secrets in a file, read on each use so that none stays in memory."""

    def __init__(self, path: Path, identity: Identity) -> None:
        self._path = path
        self._identity = identity

    def set(self, name: str, value: str) -> bool:
        """Store a secret; return whether it replaced one."""
        if len(name) > NAME_LENGTH_MAX or _VARIABLE.fullmatch(name) is None:
            raise UsageError(
                f"'{name[:80]}' is not the name of a secret",
                because="tasks see it as a variable: letters, digits and _, "
                "not a digit first",
                hint="write it like HF_TOKEN",
            )
        if not value or "\0" in value or len(value.encode()) > ARGUMENT_LENGTH_MAX:
            raise UsageError(
                "this value cannot be a secret",
                because=f"a variable has 1 to {ARGUMENT_LENGTH_MAX:,} bytes, none 0",
                hint=f"type it, or take it from a file: shoal secret set {name} "
                "--from-file FILE",
            )
        known = self._read()
        if name not in known and len(known) >= SECRETS_MAX:
            raise UsageError(
                f"there are {len(known)} secrets already",
                because=f"the most is {SECRETS_MAX}",
                hint="remove some by `shoal secret rm NAME`",
            )
        was_there = name in known
        sealed = seal(self._identity.node, _PURPOSE + name, value.encode())
        known[name] = base64.b64encode(sealed).decode("ascii")
        self._write(known)
        return was_there

    def get(self, name: str) -> str | None:
        """Return a secret's value; None if it is unknown."""
        text = self._read().get(name)
        if text is None:
            return None
        value = unseal(self._identity, _PURPOSE + name, base64.b64decode(text))
        if value is None:
            raise ShoalError(
                f"secret '{name}' cannot be opened",
                because="it was sealed to another key than this node's",
                hint=f"set it again: shoal secret set {name}",
            )
        return value.decode()

    def seal_for(
        self,
        to: NodeId,
        purpose: Attempt | JobId,
        names: tuple[str, ...],
        job: JobId,
        inherited: Mapping[str, bytes],
    ) -> dict[str, bytes]:
        """Return secrets sealed to a node; skip unreadable ones.

        Those of a job that was kept here, and taken up, are `inherited`; they come
        before what has the same name here. A worker reports the missing ones.
        """
        sealed: dict[str, bytes] = {}
        for name in names:
            try:
                value: bytes | None = None
                if name in inherited:
                    was = secret_purpose(job, name)
                    value = unseal(self._identity, was, inherited[name])
                elif (known := self.get(name)) is not None:
                    value = known.encode()
                if value is not None:
                    sealed[name] = seal(to, secret_purpose(purpose, name), value)
            except (ShoalError, OSError, ValueError):
                continue
        return sealed

    def names(self) -> list[str]:
        """Return the names of all secrets."""
        return sorted(self._read())

    def remove(self, name: str) -> None:
        """Delete a secret; raise `NotFoundError` if it is unknown."""
        known = self._read()
        if known.pop(name, None) is None:
            raise NotFoundError(
                f"no secret '{name[:80]}'",
                because=f"there are {len(known)} others" if known else "there is none",
                hint="`shoal secret list` shows their names",
            )
        self._write(known)

    def _read(self) -> dict[str, str]:
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=dict[str, str])
        except FileNotFoundError:
            return {}
        except msgspec.MsgspecError as error:
            raise ShoalError(
                f"{self._path} cannot be read",
                because=validation.sentence(error),
                hint="restore it from a copy, or remove it and set the secrets again",
            ) from error

    def _write(self, known: dict[str, str]) -> None:
        write_private(self._path, msgspec.json.encode(known))
