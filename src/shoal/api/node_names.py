"""Which nodes a text means: by id, by petname, or by the beginning of either.

Workers of `shoal worker` have a name of their own besides, in a label.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Mapping

Id = TypeVar("Id", bound=str)

WORKER_LABEL: Final = "worker"


def nodes_called(text: str, names: Mapping[Id, str]) -> list[Id]:
    """Return the nodes that a text may mean, of those with these petnames.

    A whole id or name comes before the beginning of one.
    """
    whole = [node for node, name in names.items() if text in (node, name)]
    if whole or not text:
        return whole
    return [
        node
        for node, name in names.items()
        if node.startswith(text) or name.startswith(text)
    ]
