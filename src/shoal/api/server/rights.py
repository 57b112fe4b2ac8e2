"""Authorises API calls: by token, by a member's grant, or as a neighbour.

A caller with the node's token acts as its user. A member acts with the roles of its
grant: `NEEDED` gives the role for each method, and `OWN` lists methods closed to other
owners. Nodes of the same owner also call each other over links, on behalf of their
user, but only the methods in `FORWARDED`. Calls over the user's socket skip this check.
"""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING, Final, final

from shoal.api.server.tokens import secret_of
from shoal.api.service.callers import Caller
from shoal.errors import NotAllowedError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from shoal.api.server.tls_door import Guest
    from shoal.api.service.callers import Way
    from shoal.core.membership.members import Admission
    from shoal.model.ids import NodeId, OwnerId
    from shoal.model.job import Job
    from shoal.net.identity.certificates import Shown
    from shoal.protocol.messages import Grant, Role
    from shoal.runtime.membership.shoal_membership import ShoalMembership

    Verify = Callable[[NodeId, Grant | None], Admission | str]
    """Returns what a node with this grant may do now, or why it is not admitted."""

NEEDED: Final[dict[str, Role | None]] = {
    "Info": None,
    "Nodes": None,
    "Ping": None,
    "Inspect": None,
    **dict.fromkeys(
        ("Submit", "Get", "List", "Watch", "Logs", "Cancel", "Retry", "Explain"),
        "scheduler",
    ),
    **dict.fromkeys(("Remove", "Usage"), "scheduler"),
    **dict.fromkeys(
        ("Plan", "Curves", "Events", "Metrics", "Outputs", "Calls"), "scheduler"
    ),
    **dict.fromkeys(("MissingBlobs", "PutBlobs", "GetBlobs"), "scheduler"),
    "Channel": "scheduler",
    **dict.fromkeys(
        ("Invite", "Requests", "Accept", "Revoke", "Drain", "Shutdown", "Forget"),
        "admin",
    ),
    "RotateToken": "admin",
    "Allocations": "admin",
    **dict.fromkeys(("Forward", "ListEverywhere"), "admin"),  # As the node's owner.
    **dict.fromkeys(("SetSecret", "ListSecrets", "RemoveSecret"), "admin"),
}
"""The role that a member needs for each method; None allows any member."""

OWN: Final = frozenset(
    {"Drain", "Shutdown", "Forward", "ListEverywhere", "Metrics", "RotateToken"}
    | {"Inspect", "Forget", "Allocations"}
    | {"SetSecret", "ListSecrets", "RemoveSecret"}
)
"""Methods closed to members of other owners, whatever their roles: they concern the
machine, the secrets and the other nodes of its owner."""

FORWARDED: Final = frozenset(
    {"Get", "List", "Watch", "Logs", "Cancel", "Remove", "Retry", "Curves"}
    | {"Usage", "Drain", "Channel"}
    | {"Explain", "Events", "Outputs", "GetBlobs", "Inspect"}
)
"""Methods that nodes of one owner may call at each other: all concern jobs there, or
the machine. To drain one takes an admin."""

_INVITED_AS: Final = {"scheduler": "submit", "admin": "admin"}


@final
class Rights:
    """Authorises calls. A caller with the token is treated as the node's user."""

    def __init__(self, token: str, owner: OwnerId, verify: Verify) -> None:
        """Guard a node that belongs to `owner`."""
        self.guests: Mapping[str, Guest] = {}  # by gRPC's name of the peer
        self.renew(token)
        self._owner = owner
        self._verify = verify

    def renew(self, token: str) -> None:
        """Accept only this token from now on."""
        self._secret = secret_of(token).encode()

    def check(self, method: str, peer: str, authorization: str) -> Caller:
        """Return the caller; raise `NotAllowedError` if it may not call the method.

        `peer` is gRPC's name of the other end of the connection. It only looks up the
        certificate; it grants nothing by itself.
        """
        kind, _, shown = authorization.partition(" ")
        told = secret_of(shown) if kind == "Bearer" else ""
        guest = self.guests.get(peer)
        if hmac.compare_digest(told.encode(), self._secret):
            return Caller(way="token")
        if guest is not None and guest.shown is not None and not shown:
            return self._member(guest.shown, method)
        raise _unknown(is_wrong=bool(shown), is_far=guest is not None and guest.is_far)

    def trouble(self, shown: Shown) -> str | None:
        """Return why the holder of a certificate is not a member; None if it is."""
        admission = self._verify(shown.node, shown.grant)
        return admission if isinstance(admission, str) else None

    def _member(self, shown: Shown, method: str) -> Caller:
        admission = self._verify(shown.node, shown.grant)
        if isinstance(admission, str):
            raise NotAllowedError(
                "the node does not take this client for a member of its shoal",
                because=admission,
                hint="ask a member for `shoal invite`, and `shoal join` with that",
            )
        role = NEEDED.get(method, "admin")
        if role is not None and role not in admission.roles:
            roles = ", ".join(admission.roles)
            raise NotAllowedError(
                f"this client may not call {method}",
                because=f"its roles are {roles}, and not {role}",
                hint=f"join anew by `shoal invite --role {_INVITED_AS[role]}` of an "
                "admin",
            )
        caller = member(admission, shown.grant, self._owner, way="certificate")
        if method in OWN and not caller.is_own:
            raise NotAllowedError(
                f"this client may not call {method}",
                because=f"it is of {admission.owner}, and the node is of another owner",
                hint="ask the owner of the node; `shoal invite --mine` there lets "
                "another machine in as the owner's own",
            )
        return caller


def member(
    admission: Admission, grant: Grant | None, own: OwnerId, *, way: Way
) -> Caller:
    """Return the caller for a member, as seen by a node that `own` owns."""
    is_own = admission.owner == own
    return Caller(
        way=way,
        node=admission.node,
        owner=admission.owner,
        grant=grant,
        is_own=is_own,
        uses_secrets=is_own and "admin" in admission.roles,
    )


def check_forwarded(method: str) -> None:
    """Raise unless nodes may call this method at each other."""
    if method not in FORWARDED:
        raise NotAllowedError(
            f"a node does not call {method[:80]} at another",
            because="nodes of one owner ask each other about jobs that they have, "
            "and change nothing else there",
            hint="type the command on that node itself",
        )


def check_owner(name: str, theirs: OwnerId, ours: OwnerId) -> None:
    """Raise unless the node `name` has the same owner as this one."""
    if theirs != ours:
        raise NotAllowedError(
            f"{name} and the node that was asked are not of the same owner",
            because="only nodes of one owner show each other their jobs",
            hint="`shoal invite --mine` lets another machine of yours in as that; "
            "one that is a member already joins anew: shoal join --leave",
        )


def check_neighbour(
    name: str, admission: Admission, owner: OwnerId, method: str
) -> None:
    """Raise unless a linked node may call this method at a node of `owner`."""
    check_owner(name, admission.owner, owner)
    check_forwarded(method)
    if method == "Drain" and "admin" not in admission.roles:
        raise NotAllowedError(
            f"{name} may not drain this node",
            because=f"its roles are {', '.join(admission.roles)}, and not admin",
            hint="type the command on that node itself",
        )
    if "scheduler" not in admission.roles:
        raise NotAllowedError(
            f"{name} may not ask about jobs",
            because=f"its roles are {', '.join(admission.roles)}, and not scheduler",
            hint="join anew by `shoal invite --mine` of an admin",
        )


def check_secrets(job: Job, caller: Caller) -> None:
    """Raise if a job uses secrets of this node that the caller may not use."""
    if caller.uses_secrets or not any(t.work.secrets for t in job.models()):
        return
    raise NotAllowedError(
        "this client may not use the secrets of this node",
        because="they are for its user, and for admins of the same owner",
        hint="submit it on a node of your own, with `shoal secret set` there",
    )


def check_on_end(job: Job, caller: Caller) -> None:
    """Raise if a job asks for a call at its end that the caller may not ask for.

    A webhook reaches whatever the node can reach, so it is for its owner alone. A
    command runs without a sandbox, so it is for who can run commands here anyway:
    the user of the node, by the socket that only this user can open. Neither a token
    nor another node is enough.
    """
    if job.on_end is None:
        return
    if not caller.is_own:
        raise NotAllowedError(
            "this client may not have anything called from this node",
            because="on_end is for the owner of the node",
            hint="submit it on a node of your own",
        )
    if job.on_end.command and caller.way != "socket":
        raise NotAllowedError(
            "this client may not have a command run on this node",
            because="on_end.command is for the user of the node, on its own machine",
            hint="submit it there, or use on_end.webhook",
        )


def check_submitter(membership: ShoalMembership, trouble: str | None) -> None:
    """Raise if this node may not submit jobs: no worker would ever take them.

    `trouble` is why the node itself is no longer a member, if so.
    """
    shoal, roles = membership.shoal, membership.grant.roles
    if trouble:
        raise NotAllowedError(
            f'this node is no member of the shoal "{shoal}" any more',
            because=trouble,
            hint="`shoal down`, and `shoal join --leave` with a new invitation",
        )
    if "scheduler" not in roles:
        raise NotAllowedError(
            f'this node may not submit jobs to the shoal "{shoal}"',
            because=f"it was let in as {', '.join(roles)} only",
            hint="submit on another node; or join anew by `shoal invite --role member`",
        )


def _unknown(*, is_wrong: bool, is_far: bool) -> NotAllowedError:
    because = "calls over the network must show the token of the node"
    if is_wrong:
        because = "that is not its token; it may have been made anew"
    elif is_far:
        because += ", or come with the certificate of a member"
    return NotAllowedError(
        "the node does not know this client",
        because=because,
        hint="set SHOAL_TOKEN to what is in api.token of the node's home",
    )
