"""Adds the bytes of new examples to the file of the current release.

Run: python -m tests.wire.record

What is there already is never changed: it is what nodes out there send.
"""

import sys
from pathlib import Path
from typing import Final

import msgspec
from tests.wire.examples import EXAMPLES, GRANT, NO_LONGER_SENT

from shoal.core.membership.members import grant_payload, revocation_payload
from shoal.protocol.codec import encode
from shoal.protocol.messages import PROTOCOL_VERSION, Revocation

FOLDER: Final = Path(__file__).parent
CURRENT: Final = FOLDER / f"v{PROTOCOL_VERSION}.txt"


def recorded(path: Path) -> dict[str, bytes]:
    """Return the bytes by name of one release; none if there is no such file."""
    if not path.exists():
        return {}
    lines = [line.split() for line in path.read_text().splitlines()]
    return {name: bytes.fromhex(digits) for name, digits in lines}


def produced() -> dict[str, bytes]:
    """Return the bytes that the code makes of all examples today."""
    revocation = EXAMPLES["revocation"]
    assert isinstance(revocation, Revocation)
    [frame] = encode([EXAMPLES["renew"], EXAMPLES["goodbye"]])
    return {
        **{name: msgspec.msgpack.encode(value) for name, value in EXAMPLES.items()},
        "frame:renew+goodbye": frame,
        "payload:grant": grant_payload(GRANT),
        "payload:revocation": revocation_payload(revocation),
    }


def record(path: Path) -> list[str]:
    """Add what is new to the file; return the names of examples that changed."""
    old, new = recorded(path), produced()
    missing = [name for name in new if name not in old]
    with path.open("a") as file:
        file.writelines(f"{name} {new[name].hex()}\n" for name in missing)
    kept = (name for name in old if name not in NO_LONGER_SENT)
    return [name for name in kept if new.get(name) != old[name]]


def main() -> None:
    """Record, and fail if an example is no longer what it was."""
    if changed := record(CURRENT):
        sys.exit(
            f"{', '.join(changed)}: no longer the bytes in {CURRENT.name}, which stay. "
            "Undo the change of the format, or give a new example a new name."
        )


if __name__ == "__main__":
    main()
