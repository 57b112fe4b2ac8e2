"""What all messages have in common."""

import msgspec


class Message(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Base of all messages; only its subclasses are sent.

    A message is a tree of values and in no cycle: the collector need not look at it.
    """
