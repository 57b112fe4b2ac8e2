import ssl

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID
from tests.unit.net.shoals import granted, identity
from tests.unit.net.test_certificates import shaken

from shoal.errors import ProtocolError
from shoal.net.direct.tls import TlsPipe
from shoal.net.identity import certificates, vouched_certificates

ANN, BOB = identity(1), identity(2)
ANNS = granted(ANN.node)
KEY = vouched_certificates.new_key()


def der(pem: bytes) -> bytes:
    return ssl.PEM_cert_to_DER_cert(pem.decode())


def copied(pem: bytes) -> bytes:
    """Return a certificate with the same extensions for a key of another."""
    source = x509.load_pem_x509_certificate(pem)
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "shoal")])
    builder = x509.CertificateBuilder(
        issuer_name=name,
        subject_name=name,
        public_key=key.public_key(),
        serial_number=1,
        not_valid_before=certificates.FIRST_DAY,
        not_valid_after=certificates.LAST_DAY,
    )
    for each in source.extensions:
        builder = builder.add_extension(each.value, each.critical)
    return builder.sign(key, hashes.SHA256()).public_bytes(Encoding.DER)


def test_a_certificate_says_which_node_vouches_and_by_what_grant() -> None:
    pem = vouched_certificates.vouched(ANN, ANNS, KEY, ["10.0.0.20", "gpu-box"])

    assert vouched_certificates.read(der(pem)) == (ANN.node, ANNS)
    assert set(vouched_certificates.hosts_of(pem)) == {"shoal", "10.0.0.20", "gpu-box"}


def test_the_voucher_of_a_node_is_good_for_no_other_key() -> None:
    pem = vouched_certificates.vouched(ANN, ANNS, KEY, [])

    with pytest.raises(ProtocolError, match="forged"):
        vouched_certificates.read(copied(pem))


def test_a_certificate_of_a_link_is_none_of_a_server() -> None:
    with pytest.raises(ProtocolError, match="no node vouches"):
        vouched_certificates.read(certificates.certificate(ANN, ANNS))


@pytest.mark.parametrize("data", [b"", b"nonsense", b"\x30" * 20_000])
def test_what_is_no_certificate_is_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        vouched_certificates.read(data)


def test_a_client_may_show_the_certificate_of_its_node_or_none() -> None:
    context = vouched_certificates.serving(
        KEY, vouched_certificates.vouched(ANN, ANNS, KEY, [])
    )
    bare, _ = shaken(
        TlsPipe(vouched_certificates.looking(), server_side=False),
        TlsPipe(context, server_side=True),
    )
    known = vouched_certificates.looking()
    own = ssl.DER_cert_to_PEM_cert(certificates.certificate(BOB, None)).encode()
    with certificates.private_file(BOB.pem() + own) as path:
        known.load_cert_chain(path)
    _, door = shaken(
        TlsPipe(known, server_side=False), TlsPipe(context, server_side=True)
    )

    assert vouched_certificates.read(bare.certificate).node == ANN.node
    assert door.shown is not None
    assert certificates.read(door.shown).node == BOB.node


def test_a_copy_of_the_certificate_is_all_that_a_common_client_needs() -> None:
    pem = vouched_certificates.vouched(ANN, ANNS, KEY, ["10.0.0.20"])
    context = ssl.create_default_context(cadata=pem.decode())
    context.check_hostname = False  # A pipe is given no name to compare.

    client, _ = shaken(
        TlsPipe(context, server_side=False),
        TlsPipe(vouched_certificates.serving(KEY, pem), server_side=True),
    )

    assert client.ready


def test_a_stranger_with_a_certificate_of_its_own_making_is_turned_away() -> None:
    context = vouched_certificates.serving(
        KEY, vouched_certificates.vouched(ANN, ANNS, KEY, [])
    )
    known = vouched_certificates.looking()
    foreign = vouched_certificates.new_key()
    own = vouched_certificates.vouched(BOB, None, foreign, [])
    with certificates.private_file(foreign + own) as path:
        known.load_cert_chain(path)

    with pytest.raises(ssl.SSLError, match="verify failed"):
        shaken(TlsPipe(known, server_side=False), TlsPipe(context, server_side=True))
