"""Certificates for common TLS libraries, vouched for by a node's key.

Many libraries do not verify Ed25519, so clients of the API cannot use a node's own key.
This certificate has a self-signed P-256 key. In an extension the node signs that key
and shows its grant: a client that knows the node id, or the root of the shoal, needs
nothing else to trust it.
"""

from __future__ import annotations

import ipaddress
import ssl
from typing import TYPE_CHECKING, Final

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import NameOID

from shoal.errors import ProtocolError
from shoal.model.ids import NodeId
from shoal.net.identity.certificates import (
    CERTIFICATE_BYTES_MAX,
    FIRST_DAY,
    GRANT_OID,
    LAST_DAY,
    UNREADABLE,
    Shown,
    grant_in,
    open_certificate,
    private_file,
)
from shoal.net.identity.identity import verify

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shoal.net.identity.identity import Identity
    from shoal.protocol.messages import Grant

NAME: Final = "shoal"
"""The host name in every node's certificate; clients check the key instead."""

ALPN: Final = "h2"
VOUCHER_OID: Final = x509.ObjectIdentifier(
    "2.25.313402561187730945265280943307719264530"
)
_SIGNED: Final = b"shoal-api-key-v1\0"


class _Voucher(msgspec.Struct, frozen=True, array_like=True):
    """A node's statement that a key is its own."""

    node: NodeId
    signature: bytes


def new_key() -> bytes:
    """Return a new private key as PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def vouched(
    identity: Identity, grant: Grant | None, key_pem: bytes, hosts: Iterable[str]
) -> bytes:
    """Return a certificate as PEM, for a server that is reached at these hosts."""
    key = load_pem_private_key(key_pem, None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ValueError("a key of another kind")
    voucher = _Voucher(identity.node, identity.sign(_SIGNED + _spki(key.public_key())))
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, NAME)])
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(FIRST_DAY)
        .not_valid_after(LAST_DAY)
        .add_extension(_names(hosts), critical=False)
        .add_extension(_extension(VOUCHER_OID, voucher), critical=False)
    )
    if grant is not None:
        builder = builder.add_extension(_extension(GRANT_OID, grant), critical=False)
    return builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)


def read(der: bytes) -> Shown:
    """Return the node that vouches for a certificate; raise `ProtocolError` if none.

    Whether the grant in it holds is for the caller to check.
    """
    if len(der) > CERTIFICATE_BYTES_MAX:
        raise ProtocolError(f"a certificate of {len(der)} bytes", kind="oversized")
    try:
        parsed = x509.load_der_x509_certificate(der)
        key, extensions = parsed.public_key(), parsed.extensions
        found = extensions.get_extension_for_oid(VOUCHER_OID).value
    except x509.ExtensionNotFound:
        raise ProtocolError("a certificate that no node vouches for") from None
    except UNREADABLE:
        raise ProtocolError("an unreadable certificate") from None
    assert isinstance(found, x509.UnrecognizedExtension)
    try:
        voucher = msgspec.msgpack.decode(found.value, type=_Voucher)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise ProtocolError("an unreadable voucher in a certificate") from None
    if not isinstance(key, ec.EllipticCurvePublicKey) or not verify(
        voucher.node, _SIGNED + _spki(key), voucher.signature
    ):
        raise ProtocolError("a certificate with a forged voucher")
    return Shown(voucher.node, grant_in(extensions))


def hosts_of(pem: bytes) -> list[str]:
    """Return the hosts that a certificate is for; raise `ValueError` if it is none."""
    parsed = x509.load_pem_x509_certificate(pem)
    try:
        names = parsed.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return []
    return [str(name.value) for name in names.value]


def serving(key_pem: bytes, certificate_pem: bytes) -> ssl.SSLContext:
    """Return the server context: TLS 1.3 only; client certificates are optional."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.num_tickets = 0  # Nothing is resumed: each connection proves itself anew.
    context.set_alpn_protocols([ALPN])
    context.verify_mode = ssl.CERT_OPTIONAL
    context.load_verify_locations(cadata=open_certificate())
    with private_file(key_pem + certificate_pem) as path:
        context.load_cert_chain(path)
    return context


def showing(key_pem: bytes, certificate_pem: bytes) -> ssl.SSLContext:
    """Return the server context for browsers: TLS 1.3, no client certificates."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.num_tickets = 0
    context.set_alpn_protocols(["http/1.1"])
    with private_file(key_pem + certificate_pem) as path:
        context.load_cert_chain(path)
    return context


def looking() -> ssl.SSLContext:
    """Return a client context that fetches a certificate for a later check."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols([ALPN])
    return context


def _names(hosts: Iterable[str]) -> x509.SubjectAlternativeName:
    names: list[x509.GeneralName] = [x509.DNSName(NAME)]
    for host in sorted(set(hosts) - {NAME}):
        try:
            names.append(x509.IPAddress(ipaddress.ip_address(host)))
        except ValueError:
            names.append(x509.DNSName(host))
    return x509.SubjectAlternativeName(names)


def _extension(oid: x509.ObjectIdentifier, value: object) -> x509.UnrecognizedExtension:
    return x509.UnrecognizedExtension(oid, msgspec.msgpack.encode(value))


def _spki(key: ec.EllipticCurvePublicKey) -> bytes:
    return key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
