"""What a node and programs show each other over TLS, as files in the home.

`api.key` and `api.crt` are those of the node's API: a client has a copy of the second,
and so knows the node. `node.crt` goes with the key of the node, for programs that call
other nodes of the shoal in its name.
"""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Final

from shoal.errors import ProtocolError, ShoalError
from shoal.net import vouching
from shoal.net.certificates import certificate, private_file, read
from shoal.runtime.membership import write_private

if TYPE_CHECKING:
    from pathlib import Path

    from shoal.net.identity import Identity
    from shoal.protocol.messages import Grant
    from shoal.runtime.home import Home

EVERYWHERE: Final = frozenset({"0.0.0.0", "::"})  # noqa: S104


def serving(home: Home, identity: Identity, grant: Grant, host: str) -> ssl.SSLContext:
    """Return how to serve clients over TCP; write the files if need be.

    `host` is where other machines come, if they may. Clients have copies of the
    certificate, so it stays while it says what is so.
    """
    key_file, certificate_file = home.path / "api.key", home.path / "api.crt"
    key, known = bytes_of(key_file), bytes_of(certificate_file)
    if not key:
        key, known = vouching.new_key(), b""
        write_private(key_file, key)
    wanted = {vouching.NAME}
    if host and host not in EVERYWHERE:
        wanted.add(host)
    try:
        if not _is_current(known, identity, grant, wanted):
            known = vouching.vouched(identity, grant, key, wanted)
            write_private(certificate_file, known)
        context = vouching.serving(key, known)
    except (ValueError, TypeError, ssl.SSLError):
        raise ShoalError(
            f"no key for the API in {key_file}",
            because="it holds no P-256 key in PEM form, or that of another api.crt",
            hint="move api.key and api.crt away, and the node makes new ones",
        ) from None
    return context


def load(home: Home, context: ssl.SSLContext) -> None:
    """Have a context that serves already show what is in the files now."""
    key, known = (bytes_of(home.path / name) for name in ("api.key", "api.crt"))
    with private_file(key + known) as path:
        context.load_cert_chain(path)


def write_client_certificate(home: Home, identity: Identity, grant: Grant) -> None:
    """Write what programs show together with the key of this node."""
    path = home.path / "node.crt"
    try:
        shown = read(ssl.PEM_cert_to_DER_cert(bytes_of(path).decode("ascii")))
    except (ProtocolError, ValueError):
        shown = None
    if shown != (identity.node, grant):
        der = certificate(identity, grant)
        write_private(path, ssl.DER_cert_to_PEM_cert(der).encode())


def _is_current(pem: bytes, identity: Identity, grant: Grant, hosts: set[str]) -> bool:
    try:
        shown = vouching.read(ssl.PEM_cert_to_DER_cert(pem.decode("ascii")))
        named = set(vouching.hosts_of(pem))
    except (ProtocolError, ValueError):
        return False
    return shown == (identity.node, grant) and hosts <= named


def bytes_of(path: Path) -> bytes:
    """Return what is in a file; nothing if there is none."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""
