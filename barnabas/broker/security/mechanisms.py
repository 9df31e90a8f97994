"""The SASL mechanisms of a listener, made from its keys."""

import os
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit

from barnabas.broker.loop.offload import Offload
from barnabas.broker.observability.logging import get_logger
from barnabas.broker.security.scram_users import ScramUsers
from barnabas.broker.server.sasl import Mechanism, Refresh
from barnabas.client import oauth
from barnabas.client.sasl import JAAS
from barnabas.config.broker import BrokerConfig
from barnabas.config.key import ConfigError
from barnabas.config.sasl_keys import SaslKeys
from barnabas.coordinator.ports import Clock
from barnabas.security.sasl import oauthbearer, plain
from barnabas.security.sasl.credentials import ScramCredential, ScramMechanism, StandIns
from barnabas.security.sasl.exchange import ServerExchange
from barnabas.security.sasl.jaas import (
    PLAIN_LOGIN_MODULE,
    SCRAM_LOGIN_MODULE,
    JaasError,
    LoginModule,
    parse_jaas,
)
from barnabas.security.sasl.oauthbearer import KeySet, TokenRules
from barnabas.security.sasl.scram import KnownTokens, ScramServer

if TYPE_CHECKING:
    from barnabas.security.sasl.web_tokens import WebKeys

FETCH_S: Final = 5.0
"""The seconds to connect to the endpoint of a key set, and those for which it may be silent."""
_QUEUE: Final = "key sets"
_NONCE_BYTES: Final = 20
_log = get_logger(__name__)


class Mechanisms:
    """The mechanisms that the listeners of a broker may offer."""

    def __init__(
        self,
        offload: Offload,
        clock: Clock,
        users: ScramUsers,
        stand_ins: StandIns,
        tokens: KnownTokens | None,
    ) -> None:
        self._offload = offload
        self._clock = clock
        self._users = users
        self._stand_ins = stand_ins
        self._tokens = tokens
        self._makers: dict[str, Callable[[str, SaslKeys], Mechanism]] = {
            "PLAIN": self._plain,
            "OAUTHBEARER": self._oauthbearer,
            **{each.value: partial(self._scram, each) for each in ScramMechanism},
        }

    def of(
        self,
        listener: str,
        config: BrokerConfig,
        present: Mapping[str, Mechanism] = MappingProxyType({}),
    ) -> Mapping[str, Mechanism]:
        """Return the mechanisms of a listener by name; raise ConfigError.

        Those of `present` whose keys have not changed stay: one may have fetched keys of tokens.
        """
        found = {}
        for name in config.sasl_of(listener).sasl_enabled_mechanisms:
            keys = config.sasl_of(listener, name).replace(sasl_enabled_mechanisms=())
            before = present.get(name)
            if before is None or before.keys != keys:
                before = self._makers[name](listener, keys)._replace(keys=keys)
            found[name] = before
        return found

    def _plain(self, listener: str, keys: SaslKeys) -> Mechanism:
        key = f"listener.name.{listener.lower()}.plain.sasl.jaas.config"
        if keys.sasl_jaas_config is None:
            raise ConfigError(
                f"Listener {listener} offers PLAIN and knows no user. Set {key} to: "
                f'{PLAIN_LOGIN_MODULE} required user_alice="her password";'
            )
        module = _module(key, keys.sasl_jaas_config)
        find: Callable[[str], plain.Verifier]
        if module.name == PLAIN_LOGIN_MODULE:
            find = plain.JaasUsers(module.options).find
        elif module.name == SCRAM_LOGIN_MODULE:
            find = self._credentials
        else:
            raise ConfigError(
                f"{key} is invalid: the login module has to be {PLAIN_LOGIN_MODULE}, or "
                f"{SCRAM_LOGIN_MODULE} for the users of SCRAM"
            )
        return Mechanism(partial(plain.authenticate, find=find), keys.connections_max_reauth_ms)

    def _credentials(self, user: str) -> plain.Verifier:
        return _AnyOf(
            [
                self._stand_ins.credential(each, user, self._users.find(user, each))
                for each in ScramMechanism
            ]
        )

    def _scram(self, mechanism: ScramMechanism, _listener: str, keys: SaslKeys) -> Mechanism:
        server = ScramServer(
            mechanism,
            partial(self._users.find, mechanism=mechanism),
            self._stand_ins,
            self._tokens,
        )
        now_ms = self._clock.now_ms

        def begin(message: bytes) -> ServerExchange:
            return server.authenticate(message, os.urandom(_NONCE_BYTES).hex(), now_ms())

        return Mechanism(begin, keys.connections_max_reauth_ms)

    def _oauthbearer(self, listener: str, keys: SaslKeys) -> Mechanism:
        prefix = f"listener.name.{listener.lower()}.oauthbearer."
        name = f"{prefix}sasl.oauthbearer.jwks.endpoint.url"
        if find_spec("jwt") is None:
            raise ConfigError("OAUTHBEARER needs an extra: pip install 'barnabas[security]'")
        if keys.sasl_oauthbearer_jwks_endpoint_url is None:
            raise ConfigError(
                f"Listener {listener} offers OAUTHBEARER and knows no key: set {name}"
            )
        for claim, allowed in keys.unverified_claims():
            if allowed is False:
                raise ConfigError(
                    f"Listener {listener} may not take tokens of any {claim}, and knows none: set "
                    f"{prefix}sasl.oauthbearer.expected.{claim}, or "
                    f"sasl.oauthbearer.allow.unverified.{claim}=true"
                )
        url = urlsplit(keys.sasl_oauthbearer_jwks_endpoint_url)
        if not (url.path if url.scheme == "file" else url.scheme == "https" and url.hostname):
            raise ConfigError.invalid(name, url.geturl(), "It has to begin with https:// or file:/")
        jaas = keys.sasl_jaas_config
        options = {} if jaas is None else _module(f"{prefix}{JAAS}", jaas).options
        if url.scheme == "https":
            oauth.trust(options)
        key_set = KeySet(
            partial(self._fetch, listener, url, options),
            keys.sasl_oauthbearer_jwks_endpoint_retry_backoff_ms,
            keys.sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms,
        )
        rules = TokenRules(
            keys.sasl_oauthbearer_expected_audience,
            keys.sasl_oauthbearer_expected_issuer,
            keys.sasl_oauthbearer_scope_claim_name,
            keys.sasl_oauthbearer_sub_claim_name,
            keys.sasl_oauthbearer_clock_skew_seconds,
            any_audience=bool(keys.sasl_oauthbearer_allow_unverified_audience),
        )
        now_ms = self._clock.now_ms

        def begin(message: bytes) -> ServerExchange:
            return oauthbearer.authenticate(message, key_set, rules, now_ms())

        return Mechanism(
            begin,
            keys.connections_max_reauth_ms,
            Refresh(
                lambda: keys.sasl_oauthbearer_jwks_endpoint_refresh_ms,
                lambda: _refresh(key_set, now_ms),
            ),
        )

    def _fetch(
        self, listener: str, url: SplitResult, options: Mapping[str, str]
    ) -> "Awaitable[WebKeys]":
        return self._offload.submit(_QUEUE, lambda: _key_set(listener, url, options))


def _module(key: str, text: str) -> LoginModule:
    try:
        return parse_jaas(text)
    except JaasError as error:
        raise ConfigError(f"{key} is invalid: {error}") from None


class _AnyOf(NamedTuple):
    """The credentials of a user, and stand-ins: the time does not tell which ones exist."""

    credentials: list[ScramCredential]

    def matches(self, password: bytes) -> bool:
        return sum(each.matches(password) for each in self.credentials) > 0


async def _refresh(key_set: KeySet, now_ms: Callable[[], int]) -> None:
    """Fetch a key set. If that fails the last one stays, and the log tells."""
    steps = key_set.refresh(now_ms())
    with suppress(StopIteration):
        step = next(steps)
        while True:
            try:
                keys = await step.awaitable
            except Exception as error:
                step = steps.throw(error)
            else:
                step = steps.send(keys)


def _key_set(listener: str, url: SplitResult, options: Mapping[str, str]) -> "WebKeys":
    """Read a key set, in a thread; raise OSError or ValueError."""
    # Imported here: the import takes long, and only this mechanism needs it.
    from barnabas.security.sasl.web_tokens import WebKeys

    try:
        if url.scheme == "file":
            with open(unquote(url.path), "rb") as file:
                return WebKeys(file.read(oauth.MAX_ANSWER + 1))
        timeouts = oauth.Timeouts(FETCH_S, FETCH_S)
        code, document = oauth.ask(url, options, {"Accept": "application/json"}, timeouts)
        if code != 200:
            raise OSError(f"{url.hostname} answers {code}")
        return WebKeys(document)
    except (OSError, ValueError) as error:
        _log.error("keys of tokens not fetched", listener=listener, reason=str(error))
        raise
