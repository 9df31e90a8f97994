"""The settings of a session with ZooKeeper."""

import ssl
from dataclasses import dataclass, field
from pathlib import Path

from barnabas.config.broker import BrokerConfig
from barnabas.config.key import ConfigError


@dataclass(frozen=True, slots=True)
class Settings:
    """The address of ZooKeeper, and the credentials of this broker. Times are in seconds."""

    servers: tuple[str, ...]
    chroot: str = ""
    session_timeout: float = 18.0
    connection_timeout: float = 18.0
    tls: ssl.SSLContext | None = None
    credentials: str | None = field(default=None, repr=False)
    """`user:password` of the digest scheme."""
    set_acl: bool = False


def settings_of(config: BrokerConfig) -> Settings:
    """Return the settings in the configuration. Reads files; ConfigError if one is unusable."""
    servers, chroot = config.zookeeper_address()
    connection_ms = config.zookeeper_connection_timeout_ms
    if connection_ms is None:
        connection_ms = config.zookeeper_session_timeout_ms
    return Settings(
        servers,
        chroot,
        config.zookeeper_session_timeout_ms / 1000,
        connection_ms / 1000,
        _tls(config) if config.zookeeper_ssl_client_enable else None,
        _credentials(config.zookeeper_digest_file),
        config.zookeeper_set_acl,
    )


def _credentials(path: str | None) -> str | None:
    """Return the credentials in the file, which must never be logged."""
    if path is None:
        return None
    try:
        line = Path(path).read_text().strip()
    except (OSError, UnicodeDecodeError) as cause:
        raise ConfigError(f"zookeeper.digest.file cannot be read: {path}") from cause
    user, colon, secret = line.partition(":")
    if not (user and colon and secret) or "\n" in line:
        raise ConfigError(f"zookeeper.digest.file must hold one line, user:password: {path}")
    return line


def _tls(config: BrokerConfig) -> ssl.SSLContext:
    _require_pem("zookeeper.ssl.keystore.type", config.zookeeper_ssl_keystore_type)
    _require_pem("zookeeper.ssl.truststore.type", config.zookeeper_ssl_truststore_type)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = bool(config.zookeeper_ssl_endpoint_identification_algorithm)
    trusted, own = (
        config.zookeeper_ssl_truststore_location,
        config.zookeeper_ssl_keystore_location,
    )
    try:
        if trusted is None:
            context.load_default_certs(ssl.Purpose.SERVER_AUTH)
        else:
            context.load_verify_locations(trusted)
        if own is not None:
            # Never None: the library would ask for a password on the terminal.
            secret = config.zookeeper_ssl_keystore_password or ""
            context.load_cert_chain(own, password=secret)
    except (OSError, ValueError) as cause:
        raise ConfigError(
            "zookeeper.ssl.truststore.location or zookeeper.ssl.keystore.location cannot be used: "
            f"{cause}"
        ) from cause
    return context


def _require_pem(key: str, kind: str | None) -> None:
    if kind is not None and kind.upper() != "PEM":
        raise ConfigError.invalid(key, kind, "Only PEM is served")
