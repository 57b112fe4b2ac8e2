"""Parse the user's limits for what a gate relays."""

from __future__ import annotations

from typing import Any, Final

from shoal.errors import UsageError
from shoal.model.units import parse_duration, parse_size, parse_whole
from shoal.net.libp2p.settings import RelayRoom

EXAMPLE: Final = "members=256,circuits=32,bytes=4GB,time=12h"


def relay_room(text: str) -> RelayRoom:
    """Parse `members=256,circuits=32,bytes=4GB,time=12h`; each part is optional."""
    fields: dict[str, Any] = {}
    for part in filter(None, text.split(",")):
        name, _, amount = part.strip().partition("=")
        match name:
            case "members":
                fields["members"] = parse_whole(amount)
            case "circuits":
                fields["circuits"] = parse_whole(amount)
            case "bytes":
                fields["circuit_bytes"] = parse_size(amount)
            case "time":
                fields["circuit_s"] = int(parse_duration(amount))
            case _:
                raise _bad(part, "a relay has members, circuits, bytes and time")
        if not all(fields.values()):
            raise _bad(part, "that would be none at all")
    return RelayRoom(**fields)


def _bad(part: str, because: str) -> UsageError:
    return UsageError(
        f"'{part}' is no limit of a relay",
        because=because,
        hint=f"write it like --relay {EXAMPLE}; --no-gate relays nothing",
    )
