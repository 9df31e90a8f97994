"""The SASL mechanisms of a listener, made from its keys."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from barnabas.broker.server.sasl import Mechanism
from barnabas.config.broker import BrokerConfig
from barnabas.config.key import ConfigError
from barnabas.security.sasl import plain
from barnabas.security.sasl.exchange import ServerExchange
from barnabas.security.sasl.jaas import JaasError, parse_jaas

PLAIN_LOGIN_MODULE: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"


class Mechanisms:
    """The mechanisms that the listeners of a broker may offer."""

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self._makers: dict[str, Callable[[str], Callable[[bytes], ServerExchange]]] = {
            "PLAIN": self._plain
        }

    def of(self, listener: str) -> Mapping[str, Mechanism]:
        """Return the mechanisms of a listener by name; raise ConfigError."""
        return {
            name: Mechanism(
                self._makers[name](listener),
                self._config.sasl_of(listener, name).connections_max_reauth_ms,
            )
            for name in self._config.sasl_of(listener).sasl_enabled_mechanisms
        }

    def _plain(self, listener: str) -> Callable[[bytes], ServerExchange]:
        key = f"listener.name.{listener.lower()}.plain.sasl.jaas.config"
        text = self._config.sasl_of(listener, "PLAIN").sasl_jaas_config
        if text is None:
            raise ConfigError(
                f"Listener {listener} offers PLAIN and knows no user. Set {key} to: "
                f'{PLAIN_LOGIN_MODULE} required user_alice="her password";'
            )
        try:
            module = parse_jaas(text)
        except JaasError as error:
            raise ConfigError(f"{key} is invalid: {error}") from None
        if module.name != PLAIN_LOGIN_MODULE:
            raise ConfigError(f"{key} is invalid: the login module has to be {PLAIN_LOGIN_MODULE}")
        return partial(plain.authenticate, find=plain.JaasUsers(module.options).find)
