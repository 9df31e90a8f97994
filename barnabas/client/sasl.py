"""SASL of a client: the login of a connection, by Kafka's keys and by librdkafka's.

- `sasl.mechanism` or `sasl.mechanisms`: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER.
- `sasl.jaas.config`, the login module; or `sasl.username` and `sasl.password`.
- `sasl.oauthbearer.token.endpoint.url`: an endpoint that gives tokens for client credentials, with
  the keys of `TokenKeys`; or `file:///PATH` of the token, which is read at each login.
"""

import asyncio
import re
import secrets
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final, NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit

from barnabas.client import oauth
from barnabas.client.connection import Ask, AuthenticationError, Connect, Connection, Login
from barnabas.config.key import ConfigError
from barnabas.config.sasl_keys import TokenKeys
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import sasl_authenticate, sasl_handshake
from barnabas.security.sasl import oauthbearer, plain, scram
from barnabas.security.sasl.credentials import ScramMechanism
from barnabas.security.sasl.exchange import AuthenticationFailed, ClientExchange, OffLoop
from barnabas.security.sasl.jaas import (
    OAUTHBEARER_LOGIN_MODULE,
    PLAIN_LOGIN_MODULE,
    SCRAM_LOGIN_MODULE,
    JaasError,
    LoginModule,
    parse_jaas,
)
from barnabas.security.tls import read_file

JAAS: Final = "sasl.jaas.config"
MECHANISM: Final = "sasl.mechanism"
_MODULES: Final = {
    "PLAIN": PLAIN_LOGIN_MODULE,
    "SCRAM-SHA-256": SCRAM_LOGIN_MODULE,
    "SCRAM-SHA-512": SCRAM_LOGIN_MODULE,
    "OAUTHBEARER": OAUTHBEARER_LOGIN_MODULE,
}
"""The login module of each mechanism that is supported."""
_TOKEN_URL: Final = "sasl.oauthbearer.token.endpoint.url"
_CLIENT: Final = "sasl.oauthbearer.client.credentials.client"
_OF_LIBRDKAFKA: Final = {
    f"{_CLIENT}.id": "sasl.oauthbearer.client.id",
    f"{_CLIENT}.secret": "sasl.oauthbearer.client.secret",
}
"""librdkafka's names of keys of tokens, by Kafka's."""
_TOKEN: Final = re.compile(r"[A-Za-z0-9_.\-]+")
_NONCE_BYTES: Final = 24
_EXTENSION: Final = "extension_"

_SCRAM: Final = {each.value: each for each in ScramMechanism}
BY_PASSWORD: Final[tuple[str, ...]] = (*sorted(_SCRAM, reverse=True), "PLAIN")
"""The mechanisms with a password, the strongest first."""
BY_TOKEN: Final = "OAUTHBEARER"
"""The mechanism with a token."""
_ACCOUNT: Final = frozenset((JAAS, "sasl.username", "sasl.password"))

NewExchange = Callable[[], Awaitable[ClientExchange]]
"""A function that begins an exchange, and may get what it needs for that from the network."""


def logged_in(connect: Connect | None, login: Login) -> Connect:
    """Return a function that connects by `connect` (None: without TLS) and logs in."""

    async def connected(factory: Callable[[], Connection], host: str, port: int) -> object:
        connection = factory()
        opened = connect or asyncio.get_running_loop().create_connection
        await opened(lambda: connection, host, port)
        await connection.negotiate()
        await connection.authenticate(login)
        return connection

    return connected


def login_with(properties: Mapping[str, str]) -> Login:
    """Return the login of the keys `sasl.*`. Raises ConfigError, whose text has no secret."""
    mechanism = mechanism_in(properties) or "GSSAPI"
    if mechanism not in _MODULES:
        raise ConfigError.invalid(MECHANISM, mechanism, f"Supported are {', '.join(_MODULES)}")
    module = _module(mechanism, properties)
    if mechanism == BY_TOKEN:
        exchange = _by_token(properties, module.options if module else {})
    else:
        user, password, options = _account(properties, module)
        if mechanism == "PLAIN":
            exchange = _at_once(partial(plain.login, user, password))
        else:
            exchange = _by_scram(_SCRAM[mechanism], user, password, options)
    return partial(_login, mechanism, exchange)


def lacks_user(properties: Mapping[str, str]) -> bool:
    """Whether `security.protocol` wants a user with a password or a token, and the keys name
    none."""
    protocol = properties.get("security.protocol", "").strip().upper()
    mechanism = mechanism_in(properties)
    if not protocol.startswith("SASL_"):
        return False
    if mechanism == BY_TOKEN:
        return not {JAAS, _TOKEN_URL} & properties.keys()
    return mechanism in (None, *BY_PASSWORD) and not _ACCOUNT & properties.keys()


def login_with_token(token: str, properties: Mapping[str, str]) -> Login:
    """Return the login with one token of OAUTHBEARER, and the extensions that the keys name.

    Raises AuthenticationError for a text that is no token.
    """
    if not _TOKEN.fullmatch(token):
        raise AuthenticationError(ErrorCode.SASL_AUTHENTICATION_FAILED, "this is no token")
    begin = partial(oauthbearer.login, token, _extensions(properties, {}))
    return partial(_login, BY_TOKEN, _at_once(begin))


def mechanism_in(properties: Mapping[str, str]) -> str | None:
    """Return the mechanism that the keys name."""
    name = properties.get(MECHANISM, properties.get("sasl.mechanisms"))
    return None if name is None else name.strip()


def only_asking(offered: list[str]) -> Login:
    """Return a login that notes the mechanisms which the broker offers, and fails with
    AuthenticationError: brokers close the connection then."""

    async def ask_only(ask: Ask) -> float:
        answer = await ask(sasl_handshake.API, sasl_handshake.SaslHandshakeRequest(mechanism=""))
        offered[:] = answer.mechanisms
        raise AuthenticationError(ErrorCode.of(answer.error_code), "the mechanisms were asked for")

    return ask_only


async def _login(mechanism: str, new_exchange: NewExchange, ask: Ask) -> float:
    """Carry out an exchange (KIP-152); return the lifetime of the session in s, 0 for ever."""
    try:
        exchange = await new_exchange()
        chosen = await ask(
            sasl_handshake.API, sasl_handshake.SaslHandshakeRequest(mechanism=mechanism)
        )
        if chosen.error_code:
            offered = ", ".join(chosen.mechanisms) or "none"
            raise AuthenticationError(
                ErrorCode.of(chosen.error_code),
                f"the broker does not offer the mechanism {mechanism}, but: {offered}",
            )
        return await _exchange(exchange, ask)
    except AuthenticationFailed as error:
        raise AuthenticationError(ErrorCode.SASL_AUTHENTICATION_FAILED, str(error)) from None


async def _exchange(exchange: ClientExchange, ask: Ask) -> float:
    lifetime_ms = 0
    try:
        step = next(exchange)
        while True:
            if isinstance(step, OffLoop):
                step = exchange.send(await _off_loop(step.function))
                continue
            message = sasl_authenticate.SaslAuthenticateRequest(auth_bytes=step)
            answer = await ask(sasl_authenticate.API, message)
            if answer.error_code:
                code = ErrorCode.of(answer.error_code)
                step = exchange.throw(AuthenticationError(code, answer.error_message))
                continue
            lifetime_ms = answer.session_lifetime_ms
            step = exchange.send(answer.auth_bytes)
    except StopIteration:
        return float(lifetime_ms) / 1000


async def _off_loop(function: Callable[[], Any]) -> Any:
    return await asyncio.get_running_loop().run_in_executor(None, function)


def _at_once(begin: Callable[[], ClientExchange]) -> NewExchange:
    async def exchange() -> ClientExchange:
        return begin()

    return exchange


def _module(mechanism: str, properties: Mapping[str, str]) -> LoginModule | None:
    """Return the login module of the properties, which has to be the mechanism's."""
    text = properties.get(JAAS)
    if text is None:
        return None
    try:
        module = parse_jaas(text)
    except JaasError as error:
        raise ConfigError(f"{JAAS}: {error}") from None
    if module.name != _MODULES[mechanism]:
        raise ConfigError(f"{JAAS}: {mechanism} takes the login module {_MODULES[mechanism]}")
    return module


class _Account(NamedTuple):
    user: str
    password: str
    options: Mapping[str, str]


def _account(properties: Mapping[str, str], module: LoginModule | None) -> _Account:
    """Return user, password, and further options of the login module."""
    options = {} if module is None else dict(module.options)
    if module is None:
        given = (properties.get("sasl.username"), properties.get("sasl.password"))
    else:
        given = (options.get("username"), options.get("password"))
    user, password = given
    if not user or not password:
        raise ConfigError(
            f"{JAAS} has no username or password"
            if module is not None
            else f"Set {JAAS}, or sasl.username and sasl.password"
        )
    return _Account(user, password, options)


def _by_scram(
    mechanism: ScramMechanism, user: str, password: str, options: Mapping[str, str]
) -> NewExchange:
    token = options.get(scram.TOKEN_AUTH, "").strip().lower() == "true"
    extensions = {scram.TOKEN_AUTH: "true"} if token else {}

    def exchange() -> ClientExchange:
        nonce = secrets.token_urlsafe(_NONCE_BYTES)
        return scram.login(mechanism, user, password, nonce, extensions)

    return _at_once(exchange)


def _by_token(properties: Mapping[str, str], options: Mapping[str, str]) -> NewExchange:
    """Return the exchange with a token of a file or of a token endpoint."""
    keys = _token_keys(properties)
    url = urlsplit(keys.sasl_oauthbearer_token_endpoint_url or "")
    extensions = _extensions(properties, options)
    if url.scheme == "file" and url.netloc in ("", "localhost") and url.path:
        path = unquote(url.path)

        async def from_file() -> ClientExchange:
            return oauthbearer.login(await _off_loop(lambda: _read_token(path)), extensions)

        return from_file
    if url.scheme not in ("http", "https") or not url.hostname:
        raise ConfigError(
            f"Set {_TOKEN_URL} to the https:// address of a token endpoint, or to a file:///PATH "
            "that has the token"
        )
    tokens = oauth.BearerTokens(_endpoint(url, keys, properties, options).fetch)

    async def from_endpoint() -> ClientExchange:
        return _with_token(tokens, await tokens.get(), extensions)

    return from_endpoint


def _with_token(
    tokens: oauth.BearerTokens, token: str, extensions: Mapping[str, str]
) -> ClientExchange:
    if not _TOKEN.fullmatch(token):
        raise AuthenticationFailed(f"{_TOKEN_URL}: the endpoint gave no token")
    try:
        yield from oauthbearer.login(token, extensions)
    except (AuthenticationError, AuthenticationFailed):
        tokens.forget()
        raise


def _token_keys(properties: Mapping[str, str]) -> TokenKeys:
    given = {
        name: properties.get(name, properties.get(_OF_LIBRDKAFKA.get(name, "")))
        for name in TokenKeys.KEYS
    }
    return TokenKeys(**TokenKeys.parse({k: text for k, text in given.items() if text is not None}))


def _endpoint(
    url: SplitResult,
    keys: TokenKeys,
    properties: Mapping[str, str],
    options: Mapping[str, str],
) -> oauth.TokenEndpoint:
    """Return the token endpoint; raise ConfigError, with Kafka's text, if an account is missing."""
    account = (
        keys.sasl_oauthbearer_client_credentials_client_id or options.get("clientId"),
        keys.sasl_oauthbearer_client_credentials_client_secret or options.get("clientSecret"),
    )
    client_id, secret = account
    if not client_id or not secret:
        part, option = ("id", "clientId") if not client_id else ("secret", "clientSecret")
        raise ConfigError(
            f"Could not find OAuth configuration for {_CLIENT}.{part} or OAuth JAAS configuration "
            f"for {option}"
        )
    scope = keys.sasl_oauthbearer_scope or options.get("scope")
    if url.scheme == "https":
        if path := properties.get("https.ca.location"):
            options = {"ssl.truststore.type": "PEM", "ssl.truststore.location": path}
        oauth.trust(options)
    return oauth.token_endpoint(url, options, (client_id, secret), scope, keys)


def _extensions(properties: Mapping[str, str], options: Mapping[str, str]) -> dict[str, str]:
    """Return the extensions (KIP-342) of a login module, and those of librdkafka's key."""
    pairs = properties.get("sasl.oauthbearer.extensions", "").split(",")
    own = {
        key.removeprefix(_EXTENSION): value
        for key, value in options.items()
        if key.startswith(_EXTENSION)
    }
    return own | {
        key.strip(): value
        for key, equals, value in (each.partition("=") for each in pairs)
        if equals
    }


def _read_token(path: str) -> str:
    try:
        token = read_file(path).decode("latin-1").strip()
    except OSError as error:
        raise AuthenticationFailed(f"{_TOKEN_URL}: {path}: {error.strerror}") from None
    if not _TOKEN.fullmatch(token):
        raise AuthenticationFailed(f"{_TOKEN_URL}: {path} has no token")
    return token
