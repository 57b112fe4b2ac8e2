"""The file of invitations that a node redeems: hashes of secrets, and who came.

It is written before anybody is let in, so that a crash never makes an invitation good
for one more. What is in it opens nothing: a secret cannot be told from its hash.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from shoal.errors import UsageError
from shoal.net.invitations import Book, Open
from shoal.runtime.membership import write_private

if TYPE_CHECKING:
    from pathlib import Path

    from shoal.runtime.home import Home

FILE: Final = "invitations.json"


def load(home: Home) -> Book:
    """Return the book as it was written last."""
    path = _path(home)
    try:
        return Book(msgspec.json.decode(path.read_bytes(), type=list[Open]))
    except FileNotFoundError:
        return Book()
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise UsageError(
            f"{path} cannot be read",
            because=str(error),
            hint="move it away; who was invited before asks for a new invitation",
        ) from error


def save(home: Home, book: Book) -> None:
    """Write the book, whole or not at all."""
    text = msgspec.json.format(msgspec.json.encode(list(book)), indent=2)
    write_private(_path(home), text)


def _path(home: Home) -> Path:
    return home.path / FILE
