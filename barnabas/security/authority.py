"""A certificate authority: it signs the certificates of brokers and of clients.

`cryptography` takes 150 ms to import, so this module is imported where certificates are made.
"""

import ipaddress
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple, Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

AUTHORITY_DAYS: Final = 3650
CERTIFICATE_DAYS: Final = 730
_PEM: Final = serialization.Encoding.PEM
_PAST: Final = timedelta(days=1)
"""Certificates begin this long ago, for clocks that are behind."""


class Authority(NamedTuple):
    """The certificate of an authority with its key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @classmethod
    def new(cls, name: str) -> Self:
        """Return an authority with a new key."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = _common_name(name)
        builder = _builder(subject, subject, key.public_key(), AUTHORITY_DAYS)
        builder = builder.add_extension(
            x509.BasicConstraints(ca=True, path_length=0), critical=True
        ).add_extension(_usage(signs_certificates=True), critical=True)
        return cls(builder.sign(key, hashes.SHA256()), key)

    @classmethod
    def load(cls, certificate: bytes, key: bytes) -> Self:
        """Read an authority from PEM. Raises ValueError if the two do not belong together."""
        loaded = x509.load_pem_x509_certificate(certificate)
        private = serialization.load_pem_private_key(key, None)
        if not isinstance(private, ec.EllipticCurvePrivateKey):
            raise ValueError("the key is not one of an elliptic curve")
        if private.public_key() != loaded.public_key():
            raise ValueError("the key is not that of the certificate")
        return cls(loaded, private)

    @property
    def pem(self) -> bytes:
        """The certificate, which is not secret."""
        encoded: bytes = self.certificate.public_bytes(_PEM)
        return encoded

    @property
    def key_pem(self) -> bytes:
        """The private key."""
        return _key_pem(self.key)

    def issue(self, name: str, hosts: Iterable[str] = ()) -> bytes:
        """Return a new private key with a certificate for the common name and the hosts, in PEM."""
        key = ec.generate_private_key(ec.SECP256R1())
        issuer = self.certificate.subject
        builder = _builder(issuer, _common_name(name), key.public_key(), CERTIFICATE_DAYS)
        uses = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        own_key = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key())
        builder = (
            builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(uses), critical=False)
            .add_extension(own_key, critical=False)
        )
        names = [_general_name(host) for host in dict.fromkeys(hosts)]
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        certificate = builder.sign(self.key, hashes.SHA256())
        encoded: bytes = _key_pem(key) + certificate.public_bytes(_PEM)
        return encoded


def _builder(
    issuer: x509.Name, subject: x509.Name, key: ec.EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    begins = datetime.now(UTC) - _PAST
    serial = x509.random_serial_number()
    ends = begins + timedelta(days=days)
    builder = x509.CertificateBuilder(issuer, subject, key, serial, begins, ends)
    return builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _common_name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    encoded: bytes = key.private_bytes(
        _PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return encoded
