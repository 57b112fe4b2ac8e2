"""TLS keys and certificates of a node's API, as files in its home.

`api.key` and `api.crt` serve the node's API; clients hold a copy of the certificate to
recognise the node. `node.crt` goes with the key of the node, for programs that call
other nodes of the shoal on its behalf.
"""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Final

from shoal.errors import ProtocolError, ShoalError
from shoal.net.identity import vouched_certificates
from shoal.net.identity.certificates import certificate, private_file, read
from shoal.runtime.membership.shoal_membership import write_private

if TYPE_CHECKING:
    from pathlib import Path

    from shoal.net.identity.identity import Identity
    from shoal.protocol.messages import Grant
    from shoal.runtime.home import Home

EVERYWHERE: Final = frozenset({"0.0.0.0", "::"})  # noqa: S104


def serving(home: Home, identity: Identity, grant: Grant, host: str) -> ssl.SSLContext:
    """Return the TLS context of the API; write its files if needed.

    `host` is the address for other machines, or empty. Clients hold copies of the
    certificate, so it is replaced only if node, grant or hosts have changed.
    """
    key_file, certificate_file = home.path / "api.key", home.path / "api.crt"
    key, known = bytes_of(key_file), bytes_of(certificate_file)
    if not key:
        key, known = vouched_certificates.new_key(), b""
        write_private(key_file, key)
    wanted = {vouched_certificates.NAME}
    if host and host not in EVERYWHERE:
        wanted.add(host)
    try:
        if not _is_current(known, identity, grant, wanted):
            known = vouched_certificates.vouched(identity, grant, key, wanted)
            write_private(certificate_file, known)
        context = vouched_certificates.serving(key, known)
    except (ValueError, TypeError, ssl.SSLError):
        raise ShoalError(
            f"no key for the API in {key_file}",
            because="it holds no P-256 key in PEM form, or that of another api.crt",
            hint="move api.key and api.crt away, and the node makes new ones",
        ) from None
    return context


def load(home: Home, context: ssl.SSLContext) -> None:
    """Reload key and certificate from the files into a live context."""
    key, known = (bytes_of(home.path / name) for name in ("api.key", "api.crt"))
    with private_file(key + known) as path:
        context.load_cert_chain(path)


def write_client_certificate(home: Home, identity: Identity, grant: Grant) -> None:
    """Write `node.crt`, which programs present with the node's key."""
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
        shown = vouched_certificates.read(ssl.PEM_cert_to_DER_cert(pem.decode("ascii")))
        named = set(vouched_certificates.hosts_of(pem))
    except (ProtocolError, ValueError):
        return False
    return shown == (identity.node, grant) and hosts <= named


def bytes_of(path: Path) -> bytes:
    """Return the contents of a file; empty if it does not exist."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""
