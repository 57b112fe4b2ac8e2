import ssl
from collections.abc import Iterator

import msgspec
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.net.shoals import ROOT, granted, identity

from shoal.errors import ProtocolError
from shoal.net.direct.tls import TlsPipe
from shoal.net.identity import certificates
from shoal.net.identity.certificates import Contexts, certificate, contexts, read
from shoal.protocol.messages import Grant

ANN, BOB = identity(1), identity(2)
ANNS, BOBS = granted(ANN.node), granted(BOB.node)


def shaken(dialler: TlsPipe, acceptor: TlsPipe) -> tuple[TlsPipe, TlsPipe]:
    """Let two ends talk until both are ready or one of them raises."""
    data = b""
    for pipe in alternately(dialler, acceptor):
        pipe.advance(data)
        data = pipe.outgoing()
        if dialler.ready and acceptor.ready:
            break
    return dialler, acceptor


def alternately(one: TlsPipe, other: TlsPipe) -> Iterator[TlsPipe]:
    for _ in range(5):
        yield one
        yield other


def pipes(dialling: ssl.SSLContext, accepting: ssl.SSLContext) -> tuple[TlsPipe, ...]:
    return shaken(
        TlsPipe(dialling, server_side=False), TlsPipe(accepting, server_side=True)
    )


def test_a_certificate_shows_the_node_and_its_grant() -> None:
    assert read(certificate(ANN, ANNS)) == (ANN.node, ANNS)


def test_a_certificate_of_a_newcomer_shows_no_grant() -> None:
    assert read(certificate(ANN, None)) == (ANN.node, None)


def test_the_grant_of_another_is_shown_under_ones_own_key() -> None:
    # That it is not for this node is for the gatekeeper to see.
    assert read(certificate(ANN, BOBS)) == (ANN.node, BOBS)


def test_a_handshake_proves_both_ids_and_shows_both_grants() -> None:
    dialler, acceptor = pipes(contexts(ANN, ANNS)[1], contexts(BOB, BOBS)[0])

    assert read(dialler.certificate) == (BOB.node, BOBS)
    assert read(acceptor.certificate) == (ANN.node, ANNS)


def test_what_is_written_at_one_end_is_read_at_the_other() -> None:
    dialler, acceptor = pipes(contexts(ANN, ANNS)[1], contexts(BOB, BOBS)[0])
    data = bytes(range(256)) * 400

    dialler.write(data)
    wire = dialler.outgoing()

    assert acceptor.read(wire[:50_000]) + acceptor.read(wire[50_000:]) == data
    assert data[:64] not in wire


def test_a_dialler_without_a_certificate_is_refused() -> None:
    bare = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    bare.check_hostname = False
    bare.verify_mode = ssl.CERT_NONE

    with pytest.raises(ssl.SSLError, match="peer did not return a certificate"):
        pipes(bare, contexts(BOB, BOBS).accepting)


def test_tls_before_1_3_is_refused() -> None:
    old = contexts(ANN, ANNS).dialling
    old.minimum_version = ssl.TLSVersion.TLSv1_2
    old.maximum_version = ssl.TLSVersion.TLSv1_2

    with pytest.raises(ssl.SSLError, match="protocol"):
        pipes(old, contexts(BOB, BOBS).accepting)


def test_a_key_that_is_not_ed25519_is_refused() -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    other = (
        certificates._builder()
        .subject_name(x509.Name([]))
        .public_key(key.public_key())
        .serial_number(7)
        .sign(key, hashes.SHA256())
    )

    with pytest.raises(ProtocolError, match="not Ed25519"):
        read(other.public_bytes(Encoding.DER))


def extended(value: bytes) -> bytes:
    extension = x509.UnrecognizedExtension(certificates.GRANT_OID, value)
    return (
        certificates._builder()
        .subject_name(x509.Name([]))
        .public_key(ANN.key.public_key())
        .serial_number(7)
        .add_extension(extension, critical=False)
        .sign(ANN.key, None)
        .public_bytes(Encoding.DER)
    )


@given(st.binary(max_size=200))
def test_whatever_is_in_the_place_of_a_grant_is_a_protocol_error(value: bytes) -> None:
    if value == b"\xc0":
        assert read(extended(value)).grant is None
        return
    with pytest.raises(ProtocolError):
        read(extended(value))


def test_more_than_a_grant_in_its_place_is_refused() -> None:
    smuggled = msgspec.msgpack.encode(ANNS) + msgspec.msgpack.encode("generation")

    with pytest.raises(ProtocolError):
        read(extended(smuggled + b"\x07"))


def test_grants_nested_too_deeply_are_refused() -> None:
    grant: Grant = ANNS
    for _ in range(4):
        grant = granted(ANN.node, delegation=grant)

    with pytest.raises(ProtocolError, match="4 delegations > 3"):
        read(extended(msgspec.msgpack.encode(grant)))


@given(st.binary(max_size=300))
def test_any_bytes_for_a_certificate_are_a_protocol_error(der: bytes) -> None:
    with pytest.raises(ProtocolError):
        read(der)


@given(st.integers(0, 400), st.integers(0, 255))
def test_a_damaged_certificate_raises_nothing_else(place: int, byte: int) -> None:
    der = bytearray(certificate(ANN, ANNS))
    der[place % len(der)] = byte
    try:
        shown = read(bytes(der))
    except ProtocolError:
        return
    assert shown.node.startswith("12D3KooW")


def test_a_certificate_that_is_too_large_is_not_looked_at() -> None:
    with pytest.raises(ProtocolError, match="16385 bytes"):
        read(bytes(16_385))


def test_the_open_issuer_makes_nobody_a_member() -> None:
    assert read(certificates.open_certificate()).grant is None
    assert certificates._open_key().public_key() != ROOT.key.public_key()


def test_contexts_want_certificates_both_ways() -> None:
    for context in Contexts(*contexts(ANN, ANNS)):
        assert context.verify_mode == ssl.CERT_REQUIRED
        assert context.minimum_version == ssl.TLSVersion.TLSv1_3
