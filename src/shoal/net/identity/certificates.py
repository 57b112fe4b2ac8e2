"""Certificates for direct links: the key of a node, and the grant it was given.

The key in the certificate is the node's own Ed25519 key, so the TLS handshake proves
the node id. The grant is in an extension, and what makes a member of a node is the
signature under the grant, which `core.membership.members` checks; not that of the
certificate. All certificates are issued by one open key that everybody knows,
because OpenSSL, as Python shows it, wants an issuer and takes no check of our own.
The record docs/decisions/0007-certificates-carry-grants.md says why.
"""

from __future__ import annotations

import contextlib
import datetime
import functools
import hashlib
import os
import ssl
import sys
import tempfile
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import (
    Ed25519PrivateKey,
    Ed25519PublicKey,
)
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from shoal.errors import ProtocolError
from shoal.net.identity.identity import node_id
from shoal.protocol import codec
from shoal.protocol.messages import Grant, Hello

if TYPE_CHECKING:
    from collections.abc import Generator

    from shoal.model.ids import NodeId
    from shoal.net.identity.identity import Identity

CERTIFICATE_BYTES_MAX: Final = 16_384

GRANT_OID: Final = x509.ObjectIdentifier("2.25.89164873105218460329187564420173650219")
"""The extension that holds a grant: a name that needs no registration."""

# A certificate lasts as long as a key. What ends is the grant inside.
FIRST_DAY: Final = datetime.datetime(2000, 1, 1, tzinfo=datetime.UTC)
LAST_DAY: Final = datetime.datetime(9999, 12, 31, 23, 59, 59, tzinfo=datetime.UTC)
_ISSUER: Final = x509.Name(
    [x509.NameAttribute(NameOID.COMMON_NAME, "shoal open issuer, proves nothing")]
)
UNREADABLE: Final = (
    ValueError,
    TypeError,
    UnsupportedAlgorithm,
    x509.DuplicateExtension,
    x509.InvalidVersion,
    x509.UnsupportedGeneralNameType,
)


class Shown(NamedTuple):
    """What a certificate proves: a node id and its grant."""

    node: NodeId
    grant: Grant | None


class Contexts(NamedTuple):
    """TLS contexts for accepting and for dialling."""

    accepting: ssl.SSLContext
    dialling: ssl.SSLContext


def certificate(identity: Identity, grant: Grant | None) -> bytes:
    """Return a node's certificate as DER. A newcomer has no grant yet."""
    builder = (
        _builder()
        .subject_name(x509.Name([]))
        .public_key(identity.key.public_key())
        .serial_number(x509.random_serial_number())
    )
    if grant is not None:
        value = msgspec.msgpack.encode(grant)
        extension = x509.UnrecognizedExtension(GRANT_OID, value)
        builder = builder.add_extension(extension, critical=False)
    der = builder.sign(_open_key(), None).public_bytes(Encoding.DER)
    assert len(der) <= CERTIFICATE_BYTES_MAX
    return der


def read(der: bytes) -> Shown:
    """Parse the certificate of a peer; raise `ProtocolError` if it is bad.

    The caller checks whether the grant is valid.
    """
    if len(der) > CERTIFICATE_BYTES_MAX:
        raise ProtocolError(f"a certificate of {len(der)} bytes", kind="oversized")
    try:
        parsed = x509.load_der_x509_certificate(der)
        key = parsed.public_key()
        extensions = parsed.extensions
    except UNREADABLE:
        raise ProtocolError("an unreadable certificate") from None
    if not isinstance(key, Ed25519PublicKey):
        raise ProtocolError("a certificate of a key that is not Ed25519")
    return Shown(node_id(key.public_bytes_raw()), grant_in(extensions))


def contexts(identity: Identity, grant: Grant | None) -> Contexts:
    """Return the TLS contexts: version 1.3 only, certificates on both sides."""
    accepting = _context(ssl.PROTOCOL_TLS_SERVER)
    accepting.num_tickets = 0  # Nothing is resumed: each link proves itself anew.
    dialling = _context(ssl.PROTOCOL_TLS_CLIENT)
    pem = ssl.DER_cert_to_PEM_cert(certificate(identity, grant)).encode()
    with private_file(identity.pem() + pem) as path:
        accepting.load_cert_chain(path)
        dialling.load_cert_chain(path)
    return Contexts(accepting, dialling)


def _context(protocol: int) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.check_hostname = False  # A node is its key, wherever it is.
    context.verify_mode = ssl.CERT_REQUIRED
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_verify_locations(cadata=open_certificate())
    return context


def grant_in(extensions: x509.Extensions) -> Grant | None:
    """Return the grant that a certificate shows; raise `ProtocolError` if it is bad."""
    try:
        extension = extensions.get_extension_for_oid(GRANT_OID)
    except x509.ExtensionNotFound:
        return None
    assert isinstance(extension.value, x509.UnrecognizedExtension)
    # A greeting with this grant in it: so the codec checks it like any other.
    hello = {"type": "hello", "grant": msgspec.Raw(extension.value.value)}
    messages = codec.decode(msgspec.msgpack.encode([hello]))
    if len(messages) != 1 or not isinstance(messages[0], Hello):
        raise ProtocolError("an unreadable grant in a certificate")
    return messages[0].grant


def _builder() -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .issuer_name(_ISSUER)
        .not_valid_before(FIRST_DAY)
        .not_valid_after(LAST_DAY)
    )


@functools.cache
def _open_key() -> Ed25519PrivateKey:
    """Return the key that issues all certificates. It is public."""
    seed = hashlib.sha256(b"shoal open issuer v1").digest()
    return Ed25519PrivateKey.from_private_bytes(seed)


@functools.cache
def open_certificate() -> bytes:
    """Return the certificate of the key that issues all others, as DER."""
    return (
        _builder()
        .subject_name(_ISSUER)
        .public_key(_open_key().public_key())
        .serial_number(1)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(_open_key(), None)
        .public_bytes(Encoding.DER)
    )


@contextlib.contextmanager
def private_file(data: bytes) -> Generator[str]:
    """Provide a temporary file with these bytes, because ssl reads only files."""
    if sys.platform == "linux":
        descriptor = os.memfd_create("shoal-key", os.MFD_CLOEXEC)
        with open(descriptor, "wb", buffering=0) as file:  # noqa: PTH123
            file.write(data)
            yield f"/proc/self/fd/{descriptor}"
    else:
        with tempfile.NamedTemporaryFile(buffering=0) as file:
            file.write(data)
            yield file.name
