"""Certificate authorities for tests, and the certificates that they sign."""

import ipaddress
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509.oid import NameOID

_PEM = serialization.Encoding.PEM
_NOW = datetime.now(UTC)
Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


def common_name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


_SIGNS = x509.KeyUsage(
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=True,
    encipher_only=False,
    decipher_only=False,
)


class Issued(NamedTuple):
    """A certificate with its private key and its authority."""

    key: Key
    certificate: x509.Certificate
    authority: x509.Certificate

    def key_pem(self, password: str | None = None) -> str:
        encryption: serialization.KeySerializationEncryption = serialization.NoEncryption()
        if password is not None:
            encryption = serialization.BestAvailableEncryption(password.encode())
        return self.key.private_bytes(_PEM, serialization.PrivateFormat.PKCS8, encryption).decode()

    @property
    def chain_pem(self) -> str:
        return self.certificate.public_bytes(_PEM).decode()

    @property
    def pem(self) -> str:
        """The content of a PEM key store."""
        return self.key_pem() + self.chain_pem

    def pkcs12(self, password: str) -> bytes:
        return pkcs12.serialize_key_and_certificates(
            b"own",
            self.key,
            self.certificate,
            [self.authority],
            serialization.BestAvailableEncryption(password.encode()),
        )


class Authority:
    """A certificate authority with a key of its own."""

    def __init__(self, name: str = "ca", above: "Authority | None" = None) -> None:
        """`above` signs its certificate; without it the authority does itself."""
        self.name = common_name(name)
        self.key = ec.generate_private_key(ec.SECP256R1())
        self._above = above or self
        self._serial = 0

    @cached_property
    def certificate(self) -> x509.Certificate:
        above = self._above
        builder = above._builder(self.name, self.key.public_key(), _NOW - timedelta(days=2), 3650)
        basic = x509.BasicConstraints(ca=True, path_length=None)
        builder = builder.add_extension(basic, critical=True).add_extension(_SIGNS, critical=True)
        return builder.sign(above.key, hashes.SHA256())

    @property
    def pem(self) -> str:
        """The content of a PEM trust store."""
        return self.certificate.public_bytes(_PEM).decode()

    def truststore(self, password: str) -> bytes:
        """Return a PKCS12 trust store."""
        encryption = serialization.BestAvailableEncryption(password.encode())
        return pkcs12.serialize_java_truststore(
            [pkcs12.PKCS12Certificate(self.certificate, b"ca")], encryption
        )

    def issue(
        self,
        name: str | x509.Name = "localhost",
        *,
        hosts: tuple[str, ...] = ("localhost", "127.0.0.1"),
        begins: timedelta = timedelta(days=-1),
        days: int = 365,
        key: Key | None = None,
    ) -> Issued:
        """Sign a certificate for `hosts`, valid from `begins` from now on for `days`.

        Without `key` it has a new one.
        """
        key = key or ec.generate_private_key(ec.SECP256R1())
        subject = common_name(name) if isinstance(name, str) else name
        builder = self._builder(subject, key.public_key(), _NOW + begins, days)
        if hosts:
            names = x509.SubjectAlternativeName([_general_name(host) for host in hosts])
            builder = builder.add_extension(names, critical=False)
        return Issued(key, builder.sign(self.key, hashes.SHA256()), self.certificate)

    def revocation_list(self, *revoked: "Issued | Authority") -> str:
        """Return the list of revoked certificates in PEM."""
        builder = x509.CertificateRevocationListBuilder(
            self.name, _NOW - timedelta(days=1), _NOW + timedelta(days=30)
        )
        for each in revoked:
            entry = x509.RevokedCertificateBuilder(
                each.certificate.serial_number, _NOW - timedelta(hours=1)
            )
            builder = builder.add_revoked_certificate(entry.build())
        return builder.sign(self.key, hashes.SHA256()).public_bytes(_PEM).decode()

    def _builder(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePublicKey | rsa.RSAPublicKey,
        begins: datetime,
        days: int,
    ) -> x509.CertificateBuilder:
        self._serial += 1
        builder = x509.CertificateBuilder(
            self.name, subject, key, self._serial, begins, begins + timedelta(days=days)
        )
        # Python 3.13 and later want both, unless told otherwise.
        own = x509.SubjectKeyIdentifier.from_public_key(key)
        signer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key())
        return builder.add_extension(own, critical=False).add_extension(signer, critical=False)


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


class Stores:
    """PEM key stores and trust stores in a directory, and the properties that name them."""

    def __init__(self, directory: Path, authority: Authority | None = None) -> None:
        self.directory = directory
        self.authority = authority or Authority()

    def write(self, name: str, text: str) -> str:
        path = self.directory / name
        path.write_text(text)
        return str(path)

    def trust(self) -> dict[str, str]:
        """Return the properties of one who trusts the authority."""
        path = self.write("trust.pem", self.authority.pem)
        return {"ssl.truststore.location": path, "ssl.truststore.type": "PEM"}

    def identity(self, issued: Issued | None = None, *, name: str = "own") -> dict[str, str]:
        """Return the properties of one who presents a certificate."""
        path = self.write(f"{name}.pem", (issued or self.authority.issue()).pem)
        return {"ssl.keystore.location": path, "ssl.keystore.type": "PEM"}
