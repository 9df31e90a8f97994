"""`ssl.SSLContext` from Kafka's `ssl.*` keys.

OpenSSL reads keys and certificates from files alone. Those of a key store that is inline, PKCS12 or
encrypted go through a file in memory.
"""

import os
import ssl
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from barnabas.config.key import ConfigError
from barnabas.config.tls_keys import TlsKeys
from barnabas.security.certificates import (
    Certificate,
    InvalidCertificate,
    certificates_of,
    issuer_of_list,
    parse_certificate,
    pem_blocks,
    revocation_lists_of,
)

Read = Callable[[str], bytes]
"""A function that returns the content of a file, or raises OSError."""

_JKS: Final = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")
"""The first bytes of a key store in the formats JKS and JCEKS."""
_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_SUITES_1_3: Final = frozenset(
    {"TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256"}
)
_ELLIPTIC: Final = ("ECDHE_ECDSA", "ECDHE_RSA")
_EPHEMERAL: Final = (*_ELLIPTIC, "DHE_RSA")
_CIPHERS: Final = {
    "AES_256_GCM_SHA384": ("AES256-GCM-SHA384", (*_EPHEMERAL, "RSA")),
    "AES_128_GCM_SHA256": ("AES128-GCM-SHA256", (*_EPHEMERAL, "RSA")),
    "CHACHA20_POLY1305_SHA256": ("CHACHA20-POLY1305", _EPHEMERAL),
    "AES_256_CBC_SHA384": ("AES256-SHA384", _ELLIPTIC),
    "AES_256_CBC_SHA256": ("AES256-SHA256", ("DHE_RSA", "RSA")),
    "AES_128_CBC_SHA256": ("AES128-SHA256", (*_EPHEMERAL, "RSA")),
    "AES_256_CBC_SHA": ("AES256-SHA", (*_EPHEMERAL, "RSA")),
    "AES_128_CBC_SHA": ("AES128-SHA", (*_EPHEMERAL, "RSA")),
}
"""Java's name of each cipher, OpenSSL's, and the key exchanges that it goes with."""
SUITES: Final = {
    f"TLS_{exchange}_WITH_{cipher}": (
        name if exchange == "RSA" else f"{exchange.replace('_', '-')}-{name}"
    )
    for cipher, (name, exchanges) in _CIPHERS.items()
    for exchange in exchanges
}
"""OpenSSL's names of the cipher suites of TLS 1.2, by Java's."""
_FFDHE_2048: Final = """\
-----BEGIN DH PARAMETERS-----
MIIBCAKCAQEA//////////+t+FRYortKmq/cViAnPTzx2LnFg84tNpWp4TZBFGQz
+8yTnc4kmz75fS/jY2MMddj2gbICrsRhetPfHtXV/WVhJDP1H18GbtCFY2VVPe0a
87VXE15/V8k1mE8McODmi3fipona8+/och3xWKE2rec1MKzKT0g6eXq8CrGCsyT7
YdEIqUuyyOP7uWrat2DX9GgdT0Kj3jlN9K5W7edjcrsZCwenyO4KbXCeAvzhzffi
7MA0BM0oNC9hkXL+nOmFg/+OTxIy7vKBg8P+OxtMb61zO7X8vC7CIAXFjvGDfRaD
ssbzSibBsu/6iGtCOGEoXJf//////////wIBAg==
-----END DH PARAMETERS-----
"""
"""The group of RFC 7919 that Java's servers use by default."""
_CLIENT_AUTH: Final = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}


class KeyStore(NamedTuple):
    """A private key and its certificates in PEM, the own certificate first."""

    key: str
    chain: str
    password: str

    @property
    def certificate(self) -> Certificate:
        """The certificate that peers see."""
        return parse_certificate(certificates_of(self.chain)[0])


class Tls(NamedTuple):
    """The context for the connections of one side, and its own certificate."""

    context: ssl.SSLContext
    certificate: Certificate | None
    """None for a client that presents none."""


def read_file(path: str) -> bytes:
    """Return the content of a file."""
    with open(path, "rb") as file:
        return file.read()


def files_of(keys: TlsKeys) -> list[str]:
    """Return the files that a context is made of."""
    found = (keys.ssl_keystore_location, keys.ssl_truststore_location, keys.ssl_crl_location)
    return [path for path in found if path]


def file_versions(paths: Iterable[str]) -> list[tuple[int, int, int] | None]:
    """Return what tells whether files have changed; None for one that is missing."""
    found: list[tuple[int, int, int] | None] = []
    for path in paths:
        try:
            stat = os.stat(path)
            found.append((stat.st_ino, stat.st_size, stat.st_mtime_ns))
        except OSError:
            found.append(None)
    return found


def server_tls(keys: TlsKeys, read: Read = read_file) -> Tls:
    """Return the context of a listener; raise ConfigError with the key that is at fault."""
    store = key_store(keys, read)
    if store is None:
        raise ConfigError(
            "A listener with TLS needs a key store: set ssl.keystore.location and "
            "ssl.keystore.type, or ssl.keystore.key and ssl.keystore.certificate.chain"
        )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _set_versions(context, keys, keys.ssl_enabled_protocols)
    _present(context, store)
    context.verify_mode = _CLIENT_AUTH[keys.ssl_client_auth]
    if context.verify_mode is not ssl.CERT_NONE:
        _trust(context, keys, read, ssl.Purpose.CLIENT_AUTH)
    if any(name.startswith("TLS_DHE_") for name in keys.ssl_cipher_suites):
        # Without parameters OpenSSL takes part in none of these suites.
        with _in_memory(_FFDHE_2048) as path:
            context.load_dh_params(path)
    context.options |= ssl.OP_NO_RENEGOTIATION
    return Tls(context, store.certificate)


def client_tls(keys: TlsKeys, read: Read = read_file, *, verify: bool = True) -> Tls:
    """Return the context of a client; raise ConfigError with the key that is at fault.

    Without `verify` every certificate is accepted.
    """
    store = key_store(keys, read)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    enabled = keys.ssl_enabled_protocols
    if keys.ssl_protocol == "TLSv1.2":
        enabled = tuple(name for name in enabled if name != "TLSv1.3") or enabled
    _set_versions(context, keys, enabled)
    if store is not None:
        _present(context, store)
    context.check_hostname = verify and keys.ssl_endpoint_identification_algorithm == "https"
    if verify:
        _trust(context, keys, read, ssl.Purpose.SERVER_AUTH)
    else:
        context.verify_mode = ssl.CERT_NONE
    return Tls(context, store.certificate if store is not None else None)


def key_store(keys: TlsKeys, read: Read = read_file) -> KeyStore | None:
    """Return the own key and certificates; None if no key of the configuration names them.

    The texts of contradictions are Kafka's.
    """
    kind, path = keys.ssl_keystore_type, keys.ssl_keystore_location
    key, chain = keys.ssl_keystore_key, keys.ssl_keystore_certificate_chain
    if key:
        if kind != "PEM":
            raise ConfigError(
                f"SSL private key can be specified only for PEM, but key store type is {kind}."
            )
        if not chain:
            raise ConfigError(
                "SSL private key is specified, but certificate chain is not specified."
            )
        if path:
            raise ConfigError("Both SSL key store location and separate private key are specified.")
    elif chain:
        raise ConfigError("SSL certificate chain is specified, but private key is not specified")
    if kind == "PEM" and keys.ssl_keystore_password:
        raise ConfigError(
            "SSL key store password cannot be specified with PEM format, only key password may be "
            "specified."
        )
    if key and chain:
        return _pem_store("ssl.keystore.key", f"{key}\n{chain}", keys.ssl_key_password)
    if not path:
        if keys.ssl_keystore_password:
            raise ConfigError(
                "SSL key store is not specified, but key store password is specified."
            )
        return None
    if kind != "PEM" and not keys.ssl_keystore_password:
        raise ConfigError("SSL key store is specified, but key store password is not specified.")
    data = _read("ssl.keystore.location", path, read)
    if kind == "PEM":
        return _pem_store("ssl.keystore.location", _text(data), keys.ssl_key_password)
    assert keys.ssl_keystore_password
    store = _pkcs12_store("ssl.keystore.location", path, data, keys.ssl_keystore_password)
    if not store.key:
        raise ConfigError(f"ssl.keystore.location: {path} has no private key")
    return store


def open_ssl_suites(keys: TlsKeys, enabled: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    """Return the suites of TLS 1.2 for OpenSSL, empty for its own choice, and the versions that
    are left."""
    named = keys.ssl_cipher_suites
    if not named:
        return "", enabled
    new = _SUITES_1_3.intersection(named)
    unknown = [name for name in named if name not in SUITES and name not in new]
    if unknown:
        raise ConfigError.invalid(
            "ssl.cipher.suites", named, f"Unsupported cipher suites: {', '.join(unknown)}"
        )
    old = [SUITES[name] for name in named if name in SUITES]
    if new and new != _SUITES_1_3 and "TLSv1.3" in enabled:
        raise ConfigError.invalid(
            "ssl.cipher.suites",
            named,
            "Python cannot choose among the suites of TLS 1.3: name all three "
            f"({', '.join(sorted(_SUITES_1_3))}), or none, which disables TLS 1.3",
        )
    # As in Java, a version without a suite is not offered.
    usable = {"TLSv1.2": bool(old), "TLSv1.3": bool(new)}
    left = tuple(name for name in enabled if usable[name])
    if not left:
        raise ConfigError.invalid(
            "ssl.cipher.suites", named, f"No suite is of {' or '.join(enabled)}"
        )
    return ":".join(old), left


def _set_versions(context: ssl.SSLContext, keys: TlsKeys, enabled: tuple[str, ...]) -> None:
    suites, enabled = open_ssl_suites(keys, enabled)
    versions = [_VERSIONS[name] for name in enabled]
    context.minimum_version, context.maximum_version = min(versions), max(versions)
    if suites:
        try:
            context.set_ciphers(suites)
        except ssl.SSLError as error:
            raise ConfigError.invalid(
                "ssl.cipher.suites", keys.ssl_cipher_suites, "OpenSSL has none of these suites"
            ) from error


def _present(context: ssl.SSLContext, store: KeyStore) -> None:
    try:
        with _in_memory(store.key + store.chain) as path:
            # Without a password OpenSSL would ask for it on the terminal.
            context.load_cert_chain(path, password=lambda: store.password)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise ConfigError(
                "The private key of the key store does not belong to its first certificate"
            ) from None
        reason = "with" if store.password else "without"
        raise ConfigError(
            f"The key store cannot be read {reason} ssl.key.password: {error.reason or error}"
        ) from None
    except ValueError as error:
        raise ConfigError(f"ssl.key.password: {error}") from None


def _trust(context: ssl.SSLContext, keys: TlsKeys, read: Read, purpose: ssl.Purpose) -> None:
    """Verify the peer's certificate by the trust store, as Java does: each certificate in it is
    an anchor, also one that another authority has signed."""
    trusted = _trusted_certificates(keys, read)
    if trusted is None:
        context.load_default_certs(purpose)
    else:
        try:
            context.load_verify_locations(cadata=b"".join(trusted))
        except ssl.SSLError as error:
            raise ConfigError(f"The trust store cannot be read: {error.reason}") from None
    context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN
    if keys.ssl_crl_location:
        _check_revocation(context, keys.ssl_crl_location, trusted or [], read)


def _trusted_certificates(keys: TlsKeys, read: Read) -> list[bytes] | None:
    """Return the certificates of the trust store in DER; None without a trust store."""
    kind, path = keys.ssl_truststore_type, keys.ssl_truststore_location
    inline, secret = keys.ssl_truststore_certificates, keys.ssl_truststore_password
    if inline:
        if kind != "PEM":
            raise ConfigError(
                "SSL trust store certs can be specified only for PEM, but trust store type is "
                f"{kind}."
            )
        if path:
            raise ConfigError(
                "Both SSL trust store location and separate trust certificates are specified."
            )
    if kind == "PEM" and secret:
        raise ConfigError("SSL trust store password cannot be specified for PEM format.")
    if inline:
        return _some_certificates("ssl.truststore.certificates", inline)
    if not path:
        if secret:
            raise ConfigError(
                "SSL trust store is not specified, but trust store password is specified."
            )
        return None
    key = "ssl.truststore.location"
    data = _read(key, path, read)
    if kind == "PEM":
        return _some_certificates(key, _text(data))
    return _some_certificates(key, _pkcs12_store(key, path, data, secret or "").chain)


def _some_certificates(key: str, text: str) -> list[bytes]:
    try:
        found = certificates_of(text)
    except InvalidCertificate as error:
        raise ConfigError(f"{key}: {error}") from None
    if not found:
        raise ConfigError(f"{key}: no certificate is in it")
    return found


def _check_revocation(context: ssl.SSLContext, path: str, trusted: list[bytes], read: Read) -> None:
    """Check the certificates of peers against revocation lists, and those of the authorities
    between them and the trust store if it consists of root authorities that all have a list.

    OpenSSL asks for the lists of all authorities then, and cannot check one of an intermediate
    authority that is an anchor itself.
    """
    data = _text(_read("ssl.crl.location", path, read))
    lists = "".join(block for label, block in pem_blocks(data) if label == "X509 CRL")
    if not lists:
        raise ConfigError(f"ssl.crl.location: no revocation list in PEM is in {path}")
    try:
        with _in_memory(lists) as file:
            context.load_verify_locations(file)
        listed = {issuer_of_list(each) for each in revocation_lists_of(data)}
    except ssl.SSLError as error:
        raise ConfigError(f"ssl.crl.location: {path} cannot be read: {error.reason}") from None
    except InvalidCertificate as error:
        raise ConfigError(f"ssl.crl.location: {path} cannot be read: {error}") from None
    anchors = [parse_certificate(each) for each in trusted]
    if anchors and all(each.subject == each.issuer and each.issuer in listed for each in anchors):
        context.verify_flags |= ssl.VerifyFlags.VERIFY_CRL_CHECK_CHAIN
    else:
        context.verify_flags |= ssl.VerifyFlags.VERIFY_CRL_CHECK_LEAF


def _pem_store(key: str, text: str, password: str | None) -> KeyStore:
    blocks = list(pem_blocks(text))
    private = [block for label, block in blocks if label.endswith("PRIVATE KEY")]
    chain = "".join(block for label, block in blocks if label == "CERTIFICATE")
    if len(private) != 1:
        raise ConfigError(f"{key}: one private key in PEM is needed, but there are {len(private)}")
    if "ENCRYPTED" in private[0] and not password:
        raise ConfigError(
            f"{key}: the private key is encrypted, but ssl.key.password is not specified."
        )
    store = KeyStore(private[0], chain, password or "")
    try:
        for each in _some_certificates(key, chain):
            parse_certificate(each)
    except InvalidCertificate as error:
        raise ConfigError(f"{key}: {error}") from None
    return store


def _pkcs12_store(key: str, path: str, data: bytes, password: str) -> KeyStore:
    """Read a PKCS12 file; its key and certificates may each be missing."""
    if data.startswith(_JKS):
        raise ConfigError(
            f"{key}: {path} is in the format JKS, which only Java reads. Convert it: "
            f"keytool -importkeystore -srckeystore {path} -destkeystore {path}.p12 "
            "-deststoretype PKCS12"
        )
    try:
        # Imported here: it takes 150 ms, and PEM does not need it.
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.serialization import pkcs12
    except ImportError:
        raise ConfigError(
            f"{key}: PKCS12 needs the package cryptography: pip install 'barnabas[security]'; or "
            "use the type PEM"
        ) from None
    try:
        found = pkcs12.load_pkcs12(data, password.encode())
    except ValueError as error:
        raise ConfigError(f"{key}: {path} cannot be read as PKCS12: {error}") from None
    own = [found.cert] if found.cert is not None else []
    chain = "".join(
        each.certificate.public_bytes(serialization.Encoding.PEM).decode()
        for each in [*own, *found.additional_certs]
    )
    private = ""
    if found.key is not None:
        private = found.key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ).decode()
    return KeyStore(private, chain, "")


def _read(key: str, path: str, read: Read) -> bytes:
    try:
        return read(path)
    except OSError as error:
        raise ConfigError(f"{key}: {path} cannot be read: {error.strerror or error}") from None


def _text(data: bytes) -> str:
    return data.decode("latin-1")


@contextmanager
def _in_memory(text: str) -> Iterator[str]:
    """Give `text` the path of a file that no other user can read, and that is gone afterwards."""
    if not hasattr(os, "memfd_create"):
        import tempfile  # which imports zlib and shutil, before each start of a broker

        with tempfile.NamedTemporaryFile("w") as file:
            file.write(text)
            file.flush()
            yield file.name
        return
    descriptor = os.memfd_create("pem", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, text.encode("latin-1"))
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)
