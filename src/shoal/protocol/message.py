"""What all messages have in common."""

import msgspec


class Message(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Base of all messages; only its subclasses are sent."""
