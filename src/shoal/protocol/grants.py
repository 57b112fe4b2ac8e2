"""Grants, and the messages that renew one before it expires."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from shoal.model.ids import NodeId, OwnerId, RequestId
from shoal.model.text.bounds import Amount, Count, Name, Text
from shoal.protocol.limits import (
    ADMINS_MAX,
    ROLES_MAX,
    Priority,
    Signature,
    WallSeconds,
)
from shoal.protocol.message import Message

Role = Literal["scheduler", "worker", "gate", "admin"]


class Grant(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The shoal's root, or a delegate of it, lets a node play roles, up to limits.

    Signed over all other fields. `delegation` holds the grant of the signer when
    that is not the root itself; only an admin's grant may sign others.
    """

    node: NodeId
    shoal: Name
    roles: Annotated[tuple[Role, ...], Meta(max_length=ROLES_MAX)]
    owner: OwnerId
    top_priority: Priority = 0
    quota_gpus: Count | None = None  # devices leased at one time; None means no limit
    quota_cpu_milli: Amount | None = None
    serial: Count = 0
    expires_wall_s: WallSeconds = 0.0  # the one point in time: certificates need it
    signer: NodeId = NodeId("")
    delegation: Grant | None = None
    signature: Signature = b""


class GrantWanted(Message, frozen=True, tag="grant-wanted"):
    """My grant expires soon: renew it with the same rights for the same period.

    The receiver is an admin. It signs only if the grant is valid by what it knows now.
    """

    request: RequestId
    grant: Grant


class GrantRenewed(Message, frozen=True, tag="grant-renewed"):
    """The new grant, or why there is none and which admins to ask instead."""

    request: RequestId
    grant: Grant | None = None
    reason: Text = ""
    admins: Annotated[tuple[NodeId, ...], Meta(max_length=ADMINS_MAX)] = ()
