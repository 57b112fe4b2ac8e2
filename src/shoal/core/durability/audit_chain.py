"""The audit log's entries, the hash chain that links them, and a rate bound.

Each line carries the hash of the line before it, so changing, removing or inserting a
line breaks the chain from there on. A flood must neither fill the disk nor push older
entries out: `AuditThrottle` writes frequent events once in full, then as a count.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable

BURST: Final = 60.0
PER_S: Final = 0.1
"""Entries of one kind and one caller that are written in full, at once and later."""

REFUSALS_BURST: Final = 30.0
READS_BURST: Final = 1.0
READS_PER_S: Final = 1 / 60
HOLD_S: Final = 60.0
"""After so long it is written down how many more there were."""

KEYS_MAX: Final = 256
ADDRESSES_MAX: Final = 64
TEXT_LENGTH_MAX: Final = 200
LINE_BYTES_MAX: Final = 8_192
FIRST: Final = "0" * 64

Result = Literal["done", "refused", "failed"]


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Who did what, to what, from where, and the outcome."""

    n: int = 0  # rises by one with each entry of a home
    at_s: float = 0.0  # wall clock
    what: str
    result: Result = "done"
    way: str = ""  # socket, token, page, certificate, link, wire or command
    node: str = ""  # that called, or signed
    owner: str = ""
    address: str = ""
    uid: int | None = None
    job: str = ""
    of: str = ""  # the owner whose output was read, and the like
    target: str = ""  # who was let in, which secret, and the like
    because: str = ""
    count: int = 1  # how many like it this line stands for
    addresses: int = 0  # from how many, if there were several
    prev: str = ""  # the hash of the line before


def line_of(entry: AuditEntry) -> bytes:
    """Encode an entry as one line of plain ASCII, readable with any tool."""
    fields: dict[str, Any] = msgspec.to_builtins(entry)
    for name, value in fields.items():
        if isinstance(value, str) and name != "prev":
            fields[name] = value[:TEXT_LENGTH_MAX]
    text = json.dumps(fields, separators=(",", ":")).replace("\x7f", "\\u007f")
    return text.encode() + b"\n"


def hash_of(line: bytes) -> str:
    """Return the hash that the next line carries."""
    return hashlib.sha256(line.rstrip(b"\n")).hexdigest()


def read(line: bytes) -> AuditEntry | None:
    """Decode a line; return None if it is not an entry."""
    try:
        return msgspec.json.decode(line, type=AuditEntry)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


class Flaw(NamedTuple):
    """Where and how the chain is broken."""

    place: int  # counted from 1, among the lines that were looked at
    what: str


class Checked(NamedTuple):
    """The result of checking a chain."""

    entries: int
    first: int  # the number of the first entry; 0 if there is none
    last: int
    head: str  # the hash of the last line: write it down, and compare later
    flaws: list[Flaw]


def check(lines: Iterable[bytes]) -> Checked:
    """Check a chain from its oldest line; rotation may have removed earlier ones."""
    flaws: list[Flaw] = []
    number = first = count = 0
    head = ""
    for place, line in enumerate(lines, start=1):
        entry = read(line)
        if entry is None:
            flaws.append(Flaw(place, "it cannot be read"))
            head = hash_of(line)
            continue
        count += 1
        if head and entry.prev != head:
            flaws.append(Flaw(place, f"entry {entry.n} does not follow the one before"))
        elif not head and entry.n == 1 and entry.prev != FIRST:
            flaws.append(Flaw(place, "the first entry follows another"))
        if number and entry.n != number + 1:
            flaws.append(Flaw(place, f"entry {entry.n} comes after entry {number}"))
        first, number, head = first or entry.n, entry.n, hash_of(line)
    return Checked(count, first, number, head, flaws)


class _Bucket(msgspec.Struct):
    """How often one kind of event happened recently."""

    allowance: float
    since: float
    held: AuditEntry | None = None  # the last that was not written
    count: int = 0
    due_at: float = 0.0
    addresses: dict[str, None] = {}  # At most ADDRESSES_MAX.


LASTING: Final = frozenset(
    {"let-in", "invite", "accept", "decline", "revoke", "revoked", "secret-set"}
    | {"secret-remove", "token", "key", "up", "down", "renew", "recover", "lost"}
)
"""Changes of members, secrets and rights: each is written, and on disk at once."""

READS: Final = frozenset({"read-output"})


@final
class AuditThrottle:
    """Passes entries on or counts them."""

    def __init__(self) -> None:
        self._buckets: dict[tuple[str, ...], _Bucket] = {}  # At most KEYS_MAX.

    def take(self, entry: AuditEntry, now: float) -> AuditEntry | None:
        """Return the entry if it should be written now; otherwise count it."""
        if entry.what in LASTING and entry.result == "done":
            return entry
        bucket = self._bucket(entry, now)
        burst, per_s = _allowed(entry)
        grown = bucket.allowance + (now - bucket.since) * per_s
        bucket.allowance, bucket.since = min(burst, grown), now
        if bucket.allowance >= 1.0 and not bucket.count:
            bucket.allowance -= 1.0
            return entry
        if not bucket.count:
            bucket.due_at, bucket.addresses = now + HOLD_S, {}
        bucket.held = entry
        bucket.count += entry.count
        if entry.address and len(bucket.addresses) < ADDRESSES_MAX:
            bucket.addresses[entry.address] = None
        return None

    def due(self, now: float) -> list[AuditEntry]:
        """Return the counts that are due, one entry per kind."""
        return self._summed([b for b in self._buckets.values() if b.due_at <= now])

    def rest(self) -> list[AuditEntry]:
        """Return all remaining counts at shutdown."""
        return self._summed(list(self._buckets.values()))

    def next_deadline(self) -> float | None:
        """Return when `due` has something."""
        waiting = [b.due_at for b in self._buckets.values() if b.count]
        return min(waiting, default=None)

    def _summed(self, buckets: list[_Bucket]) -> list[AuditEntry]:
        entries: list[AuditEntry] = []
        for bucket in buckets:
            if bucket.held is not None and bucket.count:
                several = len(bucket.addresses)
                entries.append(
                    msgspec.structs.replace(
                        bucket.held,
                        count=bucket.count,
                        addresses=several if several > 1 else 0,
                    )
                )
            bucket.held, bucket.count = None, 0
        return entries

    def _bucket(self, entry: AuditEntry, now: float) -> _Bucket:
        key = _key(entry)
        if key not in self._buckets and len(self._buckets) >= KEYS_MAX:
            idle = [k for k, b in self._buckets.items() if not b.count]
            if idle:  # The one that was met first; it had nothing to say.
                del self._buckets[idle[0]]
            else:
                key = ("others",)
        burst, _ = _allowed(entry)
        return self._buckets.setdefault(key, _Bucket(burst, now))


def _key(entry: AuditEntry) -> tuple[str, ...]:
    """Return the counting key. All strangers share one, because keys cost nothing."""
    if entry.result == "refused":
        return ("refused", entry.node if entry.owner else "")
    who = (entry.what, entry.result, entry.way, entry.node)
    return (*who, entry.job) if entry.what in READS else who


def _allowed(entry: AuditEntry) -> tuple[float, float]:
    if entry.result == "refused":
        return REFUSALS_BURST, PER_S
    if entry.what in READS:
        return READS_BURST, READS_PER_S
    return BURST, PER_S
