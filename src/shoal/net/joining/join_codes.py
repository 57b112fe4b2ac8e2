"""The code that people compare when a machine asks to join without an invitation."""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING, Final

from shoal.net.direct.connection_limits import ip_of
from shoal.net.identity.petname import ANIMALS
from shoal.protocol.admission_proofs import digest_of

if TYPE_CHECKING:
    from shoal.model.ids import NodeId

CODE_NUMBERS: Final = 1_000
CODES: Final = len(ANIMALS) ** 2 * CODE_NUMBERS


def code_of(newcomer: NodeId, host: NodeId, theirs: bytes, ours: bytes) -> str:
    """Return the code, such as heron-otter-427; the newcomer's number is first."""
    ends = (newcomer.encode(), host.encode())
    drawn = int.from_bytes(digest_of(b"shoal-code-v2", *ends, theirs, ours)[:8])
    words, number = divmod(drawn % CODES, CODE_NUMBERS)
    first, second = divmod(words, len(ANIMALS))
    return f"{ANIMALS[first]}-{ANIMALS[second]}-{number:03}"


def typed_code(text: str) -> str:
    """Normalise a typed code."""
    return "-".join(text.lower().replace("-", " ").split())


def is_code(text: str, code: str) -> bool:
    """Whether the typed text is this code; an empty code never matches."""
    typed = typed_code(text).encode()
    return bool(code) and hmac.compare_digest(typed, code.encode())


def is_local(address: str) -> bool:
    """Whether an address looks like one of the local network."""
    found = ip_of(address)
    return found is not None and found.is_private
