"""Who may call what: by the socket that a call came through, a token, or a grant.

Other nodes of the same owner call over the link between both, for their user.
"""

from __future__ import annotations

import hmac
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final, final

from shoal.api.tokens import secret_of
from shoal.errors import NotAllowedError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from shoal.api.door import Guest
    from shoal.core.membership import Admission
    from shoal.model.ids import NodeId, OwnerId
    from shoal.model.job import Job
    from shoal.net.certificates import Shown
    from shoal.protocol.messages import Grant, Role
    from shoal.runtime.membership import Membership

    Admit = Callable[[NodeId, Grant | None], str | None]
    """Says why a node with this grant is no member; None if it is one."""

NEEDED: Final[dict[str, Role | None]] = {
    "Info": None,
    "Nodes": None,
    "Ping": None,
    **dict.fromkeys(
        ("Submit", "Get", "List", "Watch", "Logs", "Cancel", "Retry", "Explain"),
        "scheduler",
    ),
    **dict.fromkeys(
        ("Plan", "Curves", "Events", "Metrics", "Outputs", "Calls"), "scheduler"
    ),
    **dict.fromkeys(("MissingBlobs", "PutBlobs", "GetBlobs"), "scheduler"),
    **dict.fromkeys(
        ("Invite", "Requests", "Accept", "Revoke", "Drain", "Shutdown"), "admin"
    ),
    **dict.fromkeys(("Forward", "ListEverywhere"), "admin"),  # As the node's owner.
    **dict.fromkeys(("SetSecret", "ListSecrets", "RemoveSecret"), "admin"),
}
"""The role that a member needs for each call; None: any member may."""

FORWARDED: Final = frozenset(
    {"Get", "List", "Watch", "Logs", "Cancel", "Retry", "Curves"}
    | {"Explain", "Events", "Outputs", "GetBlobs"}
)
"""What nodes of one owner ask each other for their user: all about jobs there are."""

_may_use_secrets: ContextVar[bool] = ContextVar("may_use_secrets", default=True)
_INVITED_AS: Final = {"scheduler": "submit", "admin": "admin"}
_LOOPBACK: Final = "ipv4:127.0.0.1:"


@final
class Rights:
    """Decides about each call. Whoever has the token is the user of the node."""

    def __init__(self, token: str, admit: Admit, guests: Mapping[int, Guest]) -> None:
        self._secret = secret_of(token).encode()
        self._admit = admit
        self._guests = guests

    def check(self, method: str, peer: str, authorization: str) -> None:
        """Raise `NotAllowedError` unless this peer, in gRPC's words, may call this."""
        if peer.startswith("unix"):
            return  # The mode of the socket has let it in.
        kind, _, shown = authorization.partition(" ")
        told = secret_of(shown) if kind == "Bearer" else ""
        if hmac.compare_digest(told.encode(), self._secret):
            return
        guest = self._guest(peer)
        if guest is not None and guest.shown is not None and not shown:
            self._check_member(guest.shown, method)
            return
        raise _unknown(is_wrong=bool(shown), is_far=guest is not None)

    def _guest(self, peer: str) -> Guest | None:
        if not peer.startswith(_LOOPBACK):
            return None
        return self._guests.get(int(peer.removeprefix(_LOOPBACK)))

    def _check_member(self, shown: Shown, method: str) -> None:
        if reason := self._admit(shown.node, shown.grant):
            raise NotAllowedError(
                "the node does not take this client for a member of its shoal",
                because=reason,
                hint="ask a member for `shoal invite`, and `shoal join` with that",
            )
        assert shown.grant is not None, "it was admitted by it"
        _may_use_secrets.set("admin" in shown.grant.roles)
        role = NEEDED.get(method, "admin")
        if role is None or role in shown.grant.roles:
            return
        raise NotAllowedError(
            f"this client may not call {method}",
            because=f"its roles are {', '.join(shown.grant.roles)}, and not {role}",
            hint=f"join anew by `shoal invite --role {_INVITED_AS[role]}` of an admin",
        )


def check_forwarded(method: str) -> None:
    """Raise if this is no call that a node makes at another."""
    if method not in FORWARDED:
        raise NotAllowedError(
            f"a node does not call {method[:80]} at another",
            because="nodes of one owner ask each other about jobs that they have, "
            "and change nothing else there",
            hint="type the command on that node itself",
        )


def check_owner(name: str, theirs: OwnerId, ours: OwnerId) -> None:
    """Raise unless two nodes, of which the other is called so, have the same owner."""
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
    """Raise unless another node of this shoal may call this, of a node of `owner`."""
    check_owner(name, admission.owner, owner)
    check_forwarded(method)
    if "scheduler" not in admission.roles:
        raise NotAllowedError(
            f"{name} may not ask about jobs",
            because=f"its roles are {', '.join(admission.roles)}, and not scheduler",
            hint="join anew by `shoal invite --mine` of an admin",
        )
    _may_use_secrets.set("admin" in admission.roles)


def check_secrets(job: Job) -> None:
    """Raise if whoever calls now may not have a job see the secrets of this node."""
    if _may_use_secrets.get() or not any(t.work.secrets for t in job.tasks()):
        return
    raise NotAllowedError(
        "this client may not use the secrets of this node",
        because="they are those of the node's user, and its grant is not that of admin",
        hint="submit it on a node of your own, with `shoal secret set` there",
    )


def check_submitter(membership: Membership, trouble: str | None) -> None:
    """Raise if no worker would take a job of this node, which then waits for ever.

    `trouble` is why the node itself counts as no member any more, if so.
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
