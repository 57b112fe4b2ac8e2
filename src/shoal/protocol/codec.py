"""Encode messages as frames, and decode frames from peers safely.

A frame is one msgpack array of messages: everything that goes to one peer in one turn.
Whatever the bytes are, decoding returns messages whose every value is within the
limits, or raises one `ProtocolError`, and uses memory in proportion to the frame at
most.

A message with an unknown tag comes from a newer node. It is skipped and counted, and
the others arrive. An unknown field is skipped as well. A malformed message of a known
kind makes the whole frame void: its sender is broken or hostile, and so may be the
rest.

Free texts for people, such as reasons, are not refused for their characters. Characters
that would steer a terminal are replaced before anything else sees them.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar, final, get_args

import msgspec

from shoal.errors import ProtocolError, ProtocolFault
from shoal.model.text.grammar import checker
from shoal.model.text.texts import cleaned
from shoal.protocol.admission import AdmissionWanted
from shoal.protocol.blobs import PieceRefusal
from shoal.protocol.channels.messages import ChannelEnd
from shoal.protocol.forwarding import ApiPiece
from shoal.protocol.grants import GrantRenewed, GrantWanted
from shoal.protocol.limits import (
    BATCH_BYTES_MAX,
    DELEGATIONS_MAX,
    FRAME_BYTES_MAX,
    GOSSIP_BYTES_MAX,
    MESSAGES_MAX,
)
from shoal.protocol.messages import (
    Announcement,
    AnyMessage,
    Demand,
    Goodbye,
    Grant,
    Hello,
    Inventory,
    InventoryChanged,
    Load,
    LoadDigest,
    Preemption,
    Refusal,
    Report,
    Revocation,
    Staging,
    Welcome,
    Withdrawal,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

T = TypeVar("T")

Gossip = Announcement | LoadDigest | Revocation
"""What is published to all, one message at a time."""

MESSAGES: Final[tuple[type[AnyMessage], ...]] = get_args(AnyMessage)
TAGS: Final = frozenset(str(kind.__struct_config__.tag) for kind in MESSAGES)


class _Tagged(msgspec.Struct):
    """Any message, known or not: only its tag."""

    type: str


_TEXTS: Final = {kind: checker(kind) for kind in MESSAGES}
"""What checks the texts of each kind of message, besides their lengths."""

_AtMost = msgspec.Meta(max_length=MESSAGES_MAX)
_ENCODER: Final = msgspec.msgpack.Encoder()
_FRAME: Final[msgspec.msgpack.Decoder[tuple[AnyMessage, ...]]] = (
    msgspec.msgpack.Decoder(Annotated[tuple[AnyMessage, ...], _AtMost])
)
_PARTS: Final[msgspec.msgpack.Decoder[tuple[msgspec.Raw, ...]]] = (
    msgspec.msgpack.Decoder(Annotated[tuple[msgspec.Raw, ...], _AtMost])
)
_MESSAGE: Final[msgspec.msgpack.Decoder[AnyMessage]] = msgspec.msgpack.Decoder(
    AnyMessage
)
_GOSSIP: Final[msgspec.msgpack.Decoder[Gossip]] = msgspec.msgpack.Decoder(Gossip)
_TAGGED: Final = msgspec.msgpack.Decoder(_Tagged)
_ARRAY_HEADER_BYTES: Final = 3
_SHOWN_MAX: Final = 200


def encode(messages: Sequence[AnyMessage]) -> list[bytes]:
    """Return the frames that carry `messages`, in order and as few as the limits allow.

    Raises `ProtocolError` if one message is too large for any frame.
    """
    if not messages:
        return []
    if len(messages) <= MESSAGES_MAX:
        frame = _ENCODER.encode(messages)
        if len(frame) <= BATCH_BYTES_MAX:
            return [frame]
    return frames_of([encode_one(message) for message in messages])


def encode_one(message: AnyMessage) -> bytes:
    """Return the bytes of a message within a frame, to be packed with others later.

    Raises `ProtocolError` if they are too many for any frame.
    """
    part = _ENCODER.encode(message)
    _check_size(part, FRAME_BYTES_MAX - _ARRAY_HEADER_BYTES)
    return part


def frames_of(parts: Sequence[bytes]) -> list[bytes]:
    """Return the frames that carry these messages, as `encode` would."""
    frames: list[bytes] = []
    batch: list[bytes] = []
    size = _ARRAY_HEADER_BYTES
    for part in parts:
        if batch and (size + len(part) > BATCH_BYTES_MAX or len(batch) == MESSAGES_MAX):
            frames.append(_array(batch))
            batch, size = [], _ARRAY_HEADER_BYTES
        batch.append(part)
        size += len(part)
    if batch:
        frames.append(_array(batch))
    return frames


def decode(frame: bytes) -> tuple[AnyMessage, ...]:
    """Return the known messages of `frame`; raise `ProtocolError` if it is bad."""
    return _guarded(_read_frame, frame, FRAME_BYTES_MAX)[0]


def encode_gossip(message: Gossip) -> bytes:
    """Return the bytes to publish; raise `ProtocolError` if they are too many."""
    data = _ENCODER.encode(message)
    _check_size(data, GOSSIP_BYTES_MAX)
    return data


def decode_gossip(data: bytes) -> Gossip:
    """Return the one message that was published; raise `ProtocolError` if it is bad."""
    return _guarded(_read_gossip, data, GOSSIP_BYTES_MAX)


def agree(ours: tuple[int, int], theirs: tuple[int, int]) -> int | ProtocolError:
    """Return the highest version within both ranges, or why there is none."""
    version = min(ours[1], theirs[1])
    if version >= max(ours[0], theirs[0]):
        return version
    return ProtocolError(
        "no version of the protocol in common",
        kind="version",
        because=f"we speak {_range(ours)}, the peer speaks {_range(theirs)}",
        hint="upgrade the older of the two nodes",
    )


@final
class Decoder:
    """Decodes the frames of one link, and counts what was wrong with them."""

    def __init__(self) -> None:
        # By kind, of which there are four. Grows with each bad frame, and with each
        # message of an unknown kind, which raises nothing.
        self.errors: Counter[ProtocolFault] = Counter()

    def decode(self, frame: bytes) -> tuple[AnyMessage, ...]:
        """Return the messages of `frame` that we know, like the function `decode`."""
        try:
            messages, unknown = _guarded(_read_frame, frame, FRAME_BYTES_MAX)
        except ProtocolError as error:
            self.errors[error.kind] += 1
            raise
        if unknown:
            self.errors["unknown-tag"] += unknown
        return messages


def _guarded(read: Callable[[bytes], T], data: bytes, bytes_max: int) -> T:
    """Read `data`; the one place where errors of decoding become ours."""
    _check_size(data, bytes_max)
    try:
        return read(data)
    except RecursionError:
        raise ProtocolError("unreadable bytes", because="nested too deeply") from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ProtocolError("unreadable bytes", because=_shown(str(error))) from None


def _read_frame(frame: bytes) -> tuple[tuple[AnyMessage, ...], int]:
    """Return the messages that we know, and how many others there were."""
    unknown = 0
    try:
        messages = _FRAME.decode(frame)
    except msgspec.ValidationError:
        messages, unknown = _read_known(frame)
    for message in messages:
        _check(message)
    return messages, unknown


def _read_known(frame: bytes) -> tuple[tuple[AnyMessage, ...], int]:
    """Do the same one by one: slower, but an unknown one does not spoil the others."""
    parts = _PARTS.decode(frame)
    known: list[AnyMessage] = []
    for part in parts:
        try:
            known.append(_MESSAGE.decode(part))
        except msgspec.ValidationError:
            if _TAGGED.decode(part).type in TAGS:
                raise
    return tuple(known), len(parts) - len(known)


def _read_gossip(data: bytes) -> Gossip:
    try:
        message = _GOSSIP.decode(data)
    except msgspec.ValidationError:
        tag = _TAGGED.decode(data).type
        if tag in TAGS:
            raise
        raise ProtocolError(
            f"gossip of an unknown kind '{_shown(tag)}'", kind="unknown-tag"
        ) from None
    _check(message)
    return message


def _check(message: AnyMessage) -> None:
    """Refuse texts and combinations that are wrong, and clean texts for people."""
    check_texts = _TEXTS[type(message)]
    if check_texts is not None:
        check_texts(message)
    check = _CHECKS.get(type(message))
    if check is not None and (flaw := check(message)):
        raise msgspec.ValidationError(flaw)


def _too_deep(grant: Grant | None) -> str | None:
    depth = -1
    while grant is not None:
        depth += 1
        grant = grant.delegation
    return (
        f"{depth} delegations > {DELEGATIONS_MAX}" if depth > DELEGATIONS_MAX else None
    )


def _uneven(load: Load) -> str | None:
    shares, memories = len(load.gpu_milli), len(load.gpu_memory)
    return None if shares == memories else f"{shares} gpu shares, {memories} memories"


def _misstated(inventory: Inventory) -> str | None:
    _clean(inventory, "terms")
    if not all(text.isprintable() for text in inventory.weaker):
        weaker = tuple(map(cleaned, inventory.weaker))
        msgspec.structs.force_setattr(inventory, "weaker", weaker)
    devices = {device.id for device in inventory.capacity.devices}
    listed, loaded = len(inventory.capacity.devices), len(inventory.load.gpu_milli)
    if len(devices) < listed:
        return f"{listed} devices, {len(devices)} different ids"
    if loaded != listed:
        return f"{listed} devices, load of {loaded}"
    return _uneven(inventory.load)


def _clean_staging(staging: Staging) -> None:
    _clean(staging, "note")
    _clean(staging, "made")


def _clean(message: Any, field: str) -> None:  # noqa: ANN401 - Of several kinds.
    """Clean a free text in place; the message is not shared yet."""
    text: str = getattr(message, field)
    if not text.isprintable():
        msgspec.structs.force_setattr(message, field, cleaned(text))


def _unfit_renewal(message: GrantRenewed) -> str | None:
    _clean(message, "reason")
    return _too_deep(message.grant)


# Dispatched by type: a look-up costs less than a chain of isinstance per message.
_CHECKS: Final[dict[type, Callable[[Any], str | None]]] = {
    Hello: lambda message: _too_deep(message.grant),
    Announcement: lambda message: _too_deep(message.grant),
    Demand: lambda message: _too_deep(message.grant),
    Welcome: lambda message: _too_deep(message.grant),
    GrantWanted: lambda message: _too_deep(message.grant),
    GrantRenewed: _unfit_renewal,
    Revocation: lambda message: _too_deep(message.delegation),
    Inventory: _misstated,
    InventoryChanged: lambda message: _uneven(message.load),
    LoadDigest: lambda message: _uneven(message.load),
    Refusal: lambda message: _clean(message, "reason"),
    Withdrawal: lambda message: _clean(message, "reason"),
    Preemption: lambda message: _clean(message, "reason"),
    Staging: _clean_staging,
    Report: lambda message: _clean(message.outcome, "reason"),
    ApiPiece: lambda message: _clean(message, "reason"),
    ChannelEnd: lambda message: _clean(message, "reason"),
    Goodbye: lambda message: _clean(message, "reason"),
    PieceRefusal: lambda message: _clean(message, "reason"),
    AdmissionWanted: lambda message: _clean(message, "has"),
}


def _array(parts: Sequence[bytes]) -> bytes:
    """Return the msgpack array of what is encoded already."""
    count = len(parts)
    if count < 16:
        return b"".join((bytes((0x90 | count,)), *parts))
    return b"".join((b"\xdc", count.to_bytes(2, "big"), *parts))


def _check_size(data: bytes, bytes_max: int) -> None:
    if len(data) > bytes_max:
        raise ProtocolError(
            f"{len(data)} bytes at once",
            kind="oversized",
            because=f"{bytes_max} bytes are the most",
        )


def _shown(text: str) -> str:
    """Return the beginning of `text`, which a peer may have chosen, fit for a log."""
    return "".join(c if c.isprintable() else "?" for c in text[:_SHOWN_MAX])


def _range(versions: tuple[int, int]) -> str:
    return f"{versions[0]} to {versions[1]}"
