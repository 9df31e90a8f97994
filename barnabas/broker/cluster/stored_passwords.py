"""The passwords among the dynamic values of a broker: encrypted in the metadata store (KIP-226)."""

import os
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from barnabas.broker.loop.offload import Offload
from barnabas.broker.observability.logging import get_logger
from barnabas.config.broker import BrokerConfig
from barnabas.config.key import ConfigError, Type
from barnabas.security import password_encoder
from barnabas.security.password_encoder import Encoding, UndecodablePassword

T = TypeVar("T")
_QUEUE: Final = "passwords"
_MOST_KNOWN: Final = 1000
_log = get_logger(__name__)


def is_password(name: str) -> bool:
    """Return whether a key, of the broker or of one listener, is a password."""
    try:
        return BrokerConfig.key_of(name).type is Type.PASSWORD
    except KeyError:
        return False


class StoredPasswords:
    """Encrypts and decrypts the passwords among values, as the broker's own keys say."""

    def __init__(self, config: BrokerConfig, offload: Offload) -> None:
        self._offload = offload
        self._secret = config.password_encoder_secret
        self._old_secret = config.password_encoder_old_secret
        self._encoding = Encoding(
            config.password_encoder_cipher_algorithm,
            config.password_encoder_keyfactory_algorithm,
            config.password_encoder_key_length,
            config.password_encoder_iterations,
        )
        self._needs_secret = bool(config.zookeeper_connect)
        self._known: dict[str, str] = {}
        """Passwords by their texts under the present secret: each takes milliseconds to decrypt."""
        self.outdated = False
        """Whether a revealed password was not encrypted under the present secret."""

    def require_secret(self, values: Mapping[str, str]) -> None:
        """Raise ConfigError if values have passwords which must not be stored in the clear."""
        passwords = sorted(filter(is_password, values))
        if passwords and self._needs_secret and not self._secret:
            raise ConfigError(
                "Password encoder secret not configured. Set password.encoder.secret in the "
                f"properties of the broker to store {', '.join(passwords)}"
            )

    async def revealed(
        self, stored: Mapping[str, str], *, keep_unreadable: bool = False
    ) -> dict[str, str]:
        """Return stored values with their passwords in the clear.

        As in Kafka, one that cannot be decrypted is left out, with an error in the log, unless the
        stored text is to be kept.
        """
        values = dict(stored)
        for name in filter(is_password, stored):
            try:
                values[name] = await self._revealed(stored[name])
            except (ConfigError, UndecodablePassword) as error:
                if keep_unreadable:
                    continue
                _log.error("stored password ignored", key=name, reason=str(error))
                del values[name]
        return values

    async def concealed(
        self, values: Mapping[str, str], stored: Mapping[str, str]
    ) -> dict[str, str]:
        """Return values as they are to be stored; unchanged passwords keep their `stored` texts.

        Raises ConfigError.
        """
        self.require_secret(values)
        texts = dict(values)
        for name in filter(is_password, values):
            texts[name] = await self._concealed(values[name], stored.get(name, ""))
        return texts

    async def _concealed(self, password: str, before: str) -> str:
        if password_encoder.is_encoded(before) and password in (self._known.get(before), before):
            return before
        if (secret := self._secret) is None:
            return password
        encoding = self._encoding
        text = await self._off_loop(
            lambda: password_encoder.encode(password, secret, encoding, os.urandom)
        )
        self._remember(text, password)
        return text

    async def _revealed(self, text: str) -> str:
        if text in self._known:
            return self._known[text]
        if not password_encoder.is_encoded(text):
            self.outdated = self.outdated or self._secret is not None
            return text
        if self._secret is None:
            raise UndecodablePassword("password.encoder.secret is not set")
        try:
            password = await self._decoded(text, self._secret)
        except UndecodablePassword:
            if self._old_secret is None:
                raise
            password = await self._decoded(text, self._old_secret)
            self.outdated = True
        else:
            self._remember(text, password)
        return password

    async def _decoded(self, text: str, secret: str) -> str:
        return await self._off_loop(lambda: password_encoder.decode(text, secret))

    def _remember(self, text: str, password: str) -> None:
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        self._known[text] = password

    async def _off_loop(self, work: Callable[[], T]) -> T:
        try:
            return await self._offload.submit(_QUEUE, work)
        except ImportError as error:
            raise ConfigError(
                "password.encoder.secret needs the package cryptography: "
                "pip install 'barnabas[security]'"
            ) from error
