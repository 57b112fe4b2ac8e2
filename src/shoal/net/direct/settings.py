"""Settings of direct links."""

from __future__ import annotations

from typing import Final

import msgspec

LINKS_MAX: Final = 4_096


class LinkSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Times and limits of direct links. Shorter times are for tests."""

    handshake_s: float = 10.0  # from the connection to a link that is up
    dial_s: float = 20.0  # for all the places of one peer together
    dials_max: int = 32  # at one time
    give_up_s: float = 20.0  # then what waits for a peer without link is dropped
    refuse_s: float = 30.0  # how long a peer stays cut off after `disconnect`
    flush_s: float = 1.0  # when closing
    links_max: int = LINKS_MAX
    refused_max: int = 16_384
