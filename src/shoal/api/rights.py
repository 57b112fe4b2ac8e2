"""Who may call what: by the socket that a call came through, a token, or a grant."""

from __future__ import annotations

import hmac
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final, final

from shoal.api.tokens import secret_of
from shoal.errors import NotAllowedError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from shoal.api.door import Guest
    from shoal.model.ids import NodeId
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
    **dict.fromkeys(("SetSecret", "ListSecrets", "RemoveSecret"), "admin"),
}
"""The role that a member needs for each call; None: any member may."""

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
