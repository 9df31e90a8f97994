"""The keys of a schema registry: its address, the login, TLS."""

import base64
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from barnabas.client.security import KEYS as CLIENT_KEYS
from barnabas.client.security import SECRETS as CLIENT_SECRETS
from barnabas.client.security import tls_context
from barnabas.config.key import ConfigError
from barnabas.config.references import unreplaced

PREFIX: Final = "schema.registry."
"""The prefix of the keys in a file for clients, as Confluent's serializers have it."""
_URL, _TIMEOUT = "url", "retry.timeout.ms"
_USER, _TOKEN = "basic.auth.user.info", "bearer.auth.token"
_OF_TLS: Final = frozenset(key for key in CLIENT_KEYS if key.startswith(("ssl.", "enable.ssl.")))
KEYS: Final = frozenset({_URL, _TIMEOUT, _USER, _TOKEN, *_OF_TLS})
SECRETS: Final = frozenset({_USER, _TOKEN, *(CLIENT_SECRETS & _OF_TLS)})
"""Keys whose values are secret."""


@dataclass(frozen=True)
class RegistrySettings:
    """The address of a registry, its login and TLS; picklable, and no text has a secret."""

    urls: tuple[str, ...]
    authorization: str | None = field(default=None, repr=False)
    """The header Authorization."""
    tls: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    retry_s: float = 60.0
    """The time after which the client gives up on a registry that does not answer."""

    @property
    def context(self) -> ssl.SSLContext:
        """The context of TLS; raises ConfigError."""
        return tls_context(dict(self.tls))


def read_settings(keys: Mapping[str, str]) -> RegistrySettings:
    """Return the settings of keys without PREFIX; raises ConfigError, without secrets."""
    for name in keys:
        if name not in KEYS:
            raise ConfigError(f"{name} is unknown; known: {', '.join(sorted(KEYS - _OF_TLS))}")
        if found := unreplaced(keys[name], secret=name in SECRETS):
            raise ConfigError(f"{name} has {found}")
    urls = tuple(each.strip().rstrip("/") for each in keys.get(_URL, "").split(",") if each.strip())
    if not urls:
        raise ConfigError("url is missing: give the address of the schema registry")
    for each in urls:
        parts = urlsplit(each)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError("url must be http://HOST:PORT or https://HOST:PORT")
        if parts.username or parts.password:
            raise ConfigError(f"url must have no login in it: use {_USER}")
    if _USER in keys and _TOKEN in keys:
        raise ConfigError(f"{_USER} and {_TOKEN} exclude each other")
    authorization = None
    if user := keys.get(_USER):
        if ":" not in user:
            raise ConfigError(f"{_USER} must be USER:PASSWORD")
        authorization = f"Basic {base64.b64encode(user.encode()).decode()}"
    elif token := keys.get(_TOKEN):
        if not (token.isascii() and token.isprintable()):
            raise ConfigError(f"{_TOKEN} must be one line of printable characters")
        authorization = f"Bearer {token}"
    tls = tuple(sorted((name, text) for name, text in keys.items() if name in _OF_TLS))
    timeout = keys.get(_TIMEOUT, "60000")
    if not (timeout.isascii() and timeout.isdigit()):
        raise ConfigError.invalid(_TIMEOUT, timeout, "Expected a number of milliseconds")
    settings = RegistrySettings(urls, authorization, tls, int(timeout) / 1000)
    if any(each.startswith("https:") for each in urls):
        # Raises for files that cannot be read.
        _ = settings.context
    elif tls:
        raise ConfigError(f"{tls[0][0]} has no effect: no url begins with https")
    return settings
