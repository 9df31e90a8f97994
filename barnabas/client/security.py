"""Connections under the security keys of a client, by Kafka's names and by librdkafka's."""

import asyncio
import ssl
from collections.abc import Callable, Mapping
from typing import Final

from barnabas.client.connection import Connect
from barnabas.config.key import ConfigError, Type
from barnabas.config.references import unreplaced
from barnabas.config.sasl_keys import TokenKeys
from barnabas.config.tls_keys import TlsKeys
from barnabas.security.tls import client_tls, read_file

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_CA, _CERTIFICATE, _KEY = "ssl.ca.location", "ssl.certificate.location", "ssl.key.location"
_VERIFY: Final = "enable.ssl.certificate.verification"
_PROTOCOL: Final = "security.protocol"
_NO_TLS: Final = (
    None,
    "UNEXPECTED_EOF_WHILE_READING",
    "WRONG_VERSION_NUMBER",
    "RECORD_LAYER_FAILURE",
)
"""The reasons of OpenSSL where a peer may not speak TLS; None is a closed connection."""
_ALGORITHM: Final = "ssl.endpoint.identification.algorithm"


KEYS: Final = frozenset(
    {
        *(_PROTOCOL, _CA, _CERTIFICATE, _KEY, _VERIFY, "https.ca.location"),
        *("sasl.mechanism", "sasl.mechanisms", "sasl.jaas.config"),
        *("sasl.username", "sasl.password"),
        *("sasl.oauthbearer.client.id", "sasl.oauthbearer.client.secret"),
        "sasl.oauthbearer.extensions",
        *TlsKeys.KEYS,
        *TokenKeys.KEYS,
    }
)
"""The keys that have an effect, under Kafka's names and librdkafka's."""
SECRETS: Final = frozenset(
    {
        *("sasl.jaas.config", "sasl.password", "sasl.oauthbearer.client.secret"),
        *(
            name
            for name, key in (*TlsKeys.KEYS.items(), *TokenKeys.KEYS.items())
            if key.type is Type.PASSWORD
        ),
    }
)
"""Keys whose values are secret."""


def connect_with(properties: Mapping[str, str]) -> Connect | None:
    """Return the function that connects as `security.protocol` says; None for PLAINTEXT.

    Keys that are not about security are ignored, so that a file for other clients can be read.
    Raises ConfigError.
    """
    for name in KEYS & properties.keys():
        if found := unreplaced(properties[name], secret=name in SECRETS):
            raise ConfigError(f"{name} has {found}")
    protocol = properties.get(_PROTOCOL, "PLAINTEXT").strip().upper()
    if protocol not in PROTOCOLS:
        reason = f"String must be one of: {', '.join(PROTOCOLS)}"
        raise ConfigError.invalid(_PROTOCOL, protocol, reason)
    connect = _over_tls(tls_context(properties)) if protocol.endswith("SSL") else None
    if protocol.startswith("SASL_"):
        # Imported here: most clients log in nowhere.
        from barnabas.client.sasl import logged_in, login_with

        return logged_in(connect, login_with(properties))
    return connect


def _over_tls(context: ssl.SSLContext) -> Connect:
    async def connect(
        factory: Callable[[], asyncio.BufferedProtocol], host: str, port: int
    ) -> object:
        try:
            return await asyncio.get_running_loop().create_connection(
                factory, host, port, ssl=context, server_hostname=host
            )
        except (ssl.SSLError, ConnectionResetError) as error:
            if getattr(error, "reason", None) in _NO_TLS:
                raise ConnectionError(
                    "the connection ended in the TLS handshake. Does this port speak TLS? If not, "
                    "security.protocol has to be PLAINTEXT or SASL_PLAINTEXT"
                ) from error
            raise

    return connect


def tls_context(properties: Mapping[str, str]) -> ssl.SSLContext:
    """Return the context of the keys `ssl...`; raises ConfigError."""
    texts = {name: text for name, text in properties.items() if name in TlsKeys.KEYS}
    if texts.get(_ALGORITHM, "").strip().lower() in ("none", "https"):
        texts[_ALGORITHM] = texts[_ALGORITHM].strip().lower().removeprefix("none")
    if path := properties.get(_CA):
        texts |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": path}
    if (path := properties.get(_CERTIFICATE)) is not None:
        texts |= {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.certificate.chain": _read(_CERTIFICATE, path),
            "ssl.keystore.key": _read(_KEY, properties.get(_KEY, path)),
        }
    verify = properties.get(_VERIFY, "true").strip().lower()
    if verify not in ("true", "false"):
        raise ConfigError.invalid(_VERIFY, verify, "Expected value to be either true or false")
    keys = TlsKeys(**TlsKeys.parse(texts))
    return client_tls(keys, verify=verify == "true").context


def _read(key: str, path: str) -> str:
    try:
        return read_file(path).decode("latin-1")
    except OSError as error:
        raise ConfigError(f"{key}: {path} cannot be read: {error.strerror}") from None
