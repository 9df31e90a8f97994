from contextlib import suppress

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.name import _ASN1Type
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from barnabas.security.certificates import (
    InvalidCertificate,
    certificates_of,
    issuer_of_list,
    parse_certificate,
    pem_blocks,
)
from tests.support.certificates import Authority


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


def name_of(*parts: list[x509.NameAttribute[str]]) -> x509.Name:
    return x509.Name([x509.RelativeDistinguishedName(part) for part in parts])


def attribute(
    oid: x509.ObjectIdentifier, value: str, kind: _ASN1Type | None = None
) -> x509.NameAttribute[str]:
    return x509.NameAttribute(oid, value, kind, _validate=False)


CN, OU, UID = (
    NameOID.COMMON_NAME,
    NameOID.ORGANIZATIONAL_UNIT_NAME,
    NameOID.USER_ID,
)

# Printed by X500Principal.getName() of Java 17.
JAVA = [
    (name_of([attribute(NameOID.COUNTRY_NAME, "DE")], [attribute(CN, "alice")]), "CN=alice,C=DE"),
    (
        name_of(
            [attribute(CN, ' #a,b=c+d<e>f;g"h\\i ')], [attribute(NameOID.EMAIL_ADDRESS, "a@b.c")]
        ),
        '1.2.840.113549.1.9.1=#16056140622e63,CN=\\ \\#a\\,b\\=c\\+d\\<e\\>f\\;g\\"h\\\\i\\ ',
    ),
    (name_of([attribute(CN, "Zoë ü 中")]), "CN=Zoë ü 中"),
    (name_of([attribute(CN, "a\0b")]), "CN=a\\00b"),
    (name_of([attribute(CN, "   ")]), "CN=\\ \\ \\ "),
    (name_of([attribute(CN, "a\nb\rc\r")]), "CN=a\nb\rc\\\r"),
    (name_of([attribute(CN, "ab", _ASN1Type.BMPString)]), "CN=\\00a\\00b"),
    (name_of([attribute(CN, "ab", _ASN1Type.UniversalString)]), "CN=#1c080000006100000062"),
    (
        name_of(
            [attribute(CN, "a"), attribute(OU, "z")],
            [attribute(NameOID.STREET_ADDRESS, "s"), attribute(UID, "u")],
            [attribute(NameOID.DOMAIN_COMPONENT, "dc")],
        ),
        "DC=dc,STREET=s+UID=u,CN=a+OU=z",
    ),
    (
        name_of([attribute(NameOID.SERIAL_NUMBER, "123")], [attribute(NameOID.TITLE, "T")]),
        "2.5.4.12=#0c0154,2.5.4.5=#1303313233",
    ),
]


@pytest.mark.parametrize(("name", "text"), JAVA, ids=[text for _, text in JAVA])
def test_name_is_printed_as_java_does(authority: Authority, name: x509.Name, text: str) -> None:
    der = authority.issue(name).certificate.public_bytes(Encoding.DER)
    assert parse_certificate(der).subject == text


def test_fields_are_those_that_cryptography_reads(authority: Authority) -> None:
    issued = authority.issue("alice", hosts=("a.example", "10.0.0.1")).certificate
    found = parse_certificate(issued.public_bytes(Encoding.DER))
    assert found.not_before == issued.not_valid_before_utc
    assert found.not_after == issued.not_valid_after_utc
    assert (found.subject, found.issuer) == ("CN=alice", "CN=ca")
    assert found.alternative_names == {b"\x82\x09a.example", b"\x87\x04\x0a\x00\x00\x01"}


def test_certificate_without_alternative_names(authority: Authority) -> None:
    der = authority.issue(hosts=()).certificate.public_bytes(Encoding.DER)
    assert parse_certificate(der).alternative_names == frozenset()


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(InvalidCertificate):
        parse_certificate(data)
    with pytest.raises(InvalidCertificate):
        issuer_of_list(data)


@given(cut=st.integers(0), at=st.integers(0), to=st.integers(0, 255))
def test_changed_certificate_is_read_or_refused(cut: int, at: int, to: int) -> None:
    whole = bytearray(_WHOLE)
    whole[at % len(whole)] = to
    del whole[len(whole) - cut % 20 :]
    with suppress(InvalidCertificate):
        parse_certificate(bytes(whole))


_WHOLE = Authority().issue().certificate.public_bytes(Encoding.DER)


def der(tag: int, *contents: bytes) -> bytes:
    content = b"".join(contents)
    return bytes([tag, 0x84]) + len(content).to_bytes(4, "big") + content


def test_endless_number_in_an_object_identifier_does_not_take_a_second() -> None:
    kind, text = der(0x06, b"\x2a" + b"\xff" * 90_000 + b"\x01"), der(0x0C, b"alice")
    name = der(0x30, der(0x31, der(0x30, kind, text)))
    times = der(0x30, *[der(0x17, b"260101000000Z")] * 2)
    body = der(0x30, der(0x02, b"\1"), der(0x30), name, times, name, der(0x30))
    with pytest.raises(InvalidCertificate, match="object identifier is too large"):
        parse_certificate(der(0x30, body, der(0x30), der(0x03)))


def test_pem_in_one_line_is_read(authority: Authority) -> None:
    issued = authority.issue()
    line = issued.pem.replace("\n", " ")
    assert [label for label, _ in pem_blocks(line)] == ["PRIVATE KEY", "CERTIFICATE"]
    assert "".join(block for _, block in pem_blocks(line)) == issued.pem
    assert certificates_of(line) == [issued.certificate.public_bytes(Encoding.DER)]
