"""Jobs as users name them: ids, beginnings of ids, `last`, `all`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shoal.api.client import Client


def expanded(client: Client, selectors: Iterable[str]) -> list[str]:
    """Return one name for each job; `all` are those that have not ended."""
    names: list[str] = []
    for selector in selectors:
        if selector == "all":
            names += [job.id for job in client.jobs(active_only=True).jobs]
        else:
            names.append(selector)
    return list(dict.fromkeys(names))
