"""Verifies a node on another machine before a client talks to it.

A first connection fetches the server's certificate. It must belong to the node that the
token names or, without a token, to a member of this home's shoal. Later connections
trust only that certificate, so neither the token nor a request reaches anybody else.
"""

from __future__ import annotations

import socket
import ssl
import time
from typing import TYPE_CHECKING, Final, NamedTuple

from shoal.api.server.tokens import pin_of, print_of
from shoal.errors import (
    NotAllowedError,
    ProtocolError,
    ShoalError,
    UnreachableError,
)
from shoal.net.direct.connection_limits import ip_of
from shoal.net.identity import vouched_certificates
from shoal.net.identity.certificates import certificate
from shoal.net.identity.identity import Identity
from shoal.net.identity.petname import petname
from shoal.runtime.membership import shoal_membership

if TYPE_CHECKING:
    from shoal.net.identity.certificates import Shown
    from shoal.runtime.home import Home
    from shoal.runtime.membership.shoal_membership import ShoalMembership

CONNECT_S: Final = 10.0


class Credentials(NamedTuple):
    """What to trust and to present, as PEM. Key and certificate may be empty.

    `is_own` means the user owns the node: by its token, or because the owner matches.
    """

    trusted: bytes
    key: bytes = b""
    certificate: bytes = b""
    is_own: bool = True


def credentials_for(address: str, token: str, home: Home) -> Credentials:
    """Return TLS credentials for a node; raise unless it is the intended one.

    With a token, calls authenticate by it; otherwise by the membership of this home.
    """
    belongs = None if token else shoal_membership.load(home)
    if not pin_of(token) and belongs is None:
        if ip_of(address.rpartition(":")[0]) or address.startswith("localhost:"):
            _fetched(address)  # Raises if nothing listens there.
        raise _stranger(address, has_token=bool(token))
    der = _fetched(address)
    try:
        shown = vouched_certificates.read(der)
    except ProtocolError as error:
        raise _not_meant(address, f"it shows {error}") from None
    trusted = ssl.DER_cert_to_PEM_cert(der).encode()
    if belongs is None:
        if print_of(shown.node) != pin_of(token):
            why = f"{petname(shown.node)} answers, and the token is for another node"
            raise _not_meant(address, why)
        return Credentials(trusted)
    _check_member(address, shown, belongs)
    identity = Identity.load(home.key)
    own = ssl.DER_cert_to_PEM_cert(certificate(identity, belongs.grant)).encode()
    is_own = shown.grant is not None and shown.grant.owner == belongs.grant.owner
    return Credentials(trusted, identity.pem(), own, is_own)


def _fetched(address: str) -> bytes:
    """Return the certificate of the server at an address."""
    host, _, port = address.rpartition(":")
    place = (host.strip("[]"), int(port))
    try:
        with (
            socket.create_connection(place, CONNECT_S) as raw,
            vouched_certificates.looking().wrap_socket(raw) as tls,
        ):
            der = tls.getpeercert(binary_form=True)
    except (ssl.SSLError, ConnectionResetError) as error:
        raise ShoalError(
            f"no TLS 1.3 at {address}",
            because=getattr(error, "reason", None) or error.strerror or str(error),
            hint="name the port of `shoal up --api HOST:PORT`, or on its own machine "
            "the one that `shoal up` prints",
        ) from None
    except OSError as error:
        raise UnreachableError(
            f"the node {address} does not answer",
            because=error.strerror or str(error),
            hint="see that it was started with `shoal up`, for other machines with "
            "`--api HOST:PORT`, and that no firewall is in between",
        ) from None
    assert der is not None, "a server has one"
    return der


def _check_member(address: str, shown: Shown, belongs: ShoalMembership) -> None:
    admission = belongs.members().admit(shown.node, shown.grant, time.time())
    if isinstance(admission, str):
        who = f'{petname(shown.node)}, which is no member of "{belongs.shoal}" here'
        raise _not_meant(address, f"it is {who}: {admission}")


def _not_meant(address: str, because: str) -> NotAllowedError:
    return NotAllowedError(
        f"refused to talk to the node at {address}",
        because=because,
        hint="set SHOAL_TOKEN to what is in api.token of the node that you mean",
    )


def _stranger(address: str, *, has_token: bool) -> NotAllowedError:
    because = "this home belongs to no shoal, and no token says who should answer there"
    if has_token:
        because = "the token does not say whose it is: it is that of an older shoal"
    return NotAllowedError(
        f"cannot tell who answers at {address}",
        because=because,
        hint="set SHOAL_TOKEN to what is in api.token of that node's home; "
        "or `shoal invite` there and `shoal join` here",
    )
