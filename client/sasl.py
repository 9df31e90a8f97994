"""SASL of a client: the login of a connection, by Kafka's keys and by librdkafka's.

- `sasl.mechanism` or `sasl.mechanisms`: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER.
- `sasl.jaas.config`, the login module; or `sasl.username` and `sasl.password`.
- `sasl.oauthbearer.token.endpoint.url`: `file:///PATH` of the token, which is read at each login.
  HTTP endpoints are not supported.
"""

import asyncio
import re
import secrets
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, NamedTuple
from urllib.parse import unquote, urlsplit

from barnabas.client.connection import Ask, AuthenticationError, Connect, Connection, Login
from barnabas.config.key import ConfigError
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
_TOKEN: Final = re.compile(r"[A-Za-z0-9_.\-]+")
_NONCE_BYTES: Final = 24
_EXTENSION: Final = "extension_"

_SCRAM: Final = {each.value: each for each in ScramMechanism}

NewExchange = Callable[[], ClientExchange]


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
    mechanism = properties.get(MECHANISM, properties.get("sasl.mechanisms", "GSSAPI")).strip()
    if mechanism not in _MODULES:
        raise ConfigError.invalid(MECHANISM, mechanism, f"Supported are {', '.join(_MODULES)}")
    module = _module(mechanism, properties)
    if mechanism == "OAUTHBEARER":
        exchange = _by_token(properties, module.options if module else {})
    else:
        user, password, options = _account(properties, module)
        if mechanism == "PLAIN":
            exchange = partial(plain.login, user, password)
        else:
            exchange = _by_scram(_SCRAM[mechanism], user, password, options)
    return partial(_login, mechanism, exchange)


async def _login(mechanism: str, new_exchange: NewExchange, ask: Ask) -> float:
    """Carry out an exchange (KIP-152); return the lifetime of the session in s, 0 for ever."""
    chosen = await ask(sasl_handshake.API, sasl_handshake.SaslHandshakeRequest(mechanism=mechanism))
    if chosen.error_code:
        offered = ", ".join(chosen.mechanisms) or "none"
        raise AuthenticationError(
            ErrorCode.of(chosen.error_code),
            f"the broker does not offer the mechanism {mechanism}, but: {offered}",
        )
    exchange, lifetime_ms = new_exchange(), 0
    try:
        step = next(exchange)
        while True:
            if isinstance(step, OffLoop):
                step = exchange.send(await _off_loop(step))
                continue
            message = sasl_authenticate.SaslAuthenticateRequest(auth_bytes=step)
            answer = await ask(sasl_authenticate.API, message)
            if answer.error_code:
                raise AuthenticationError(ErrorCode.of(answer.error_code), answer.error_message)
            lifetime_ms = answer.session_lifetime_ms
            step = exchange.send(answer.auth_bytes)
    except StopIteration:
        return float(lifetime_ms) / 1000
    except AuthenticationFailed as error:
        raise AuthenticationError(ErrorCode.SASL_AUTHENTICATION_FAILED, str(error)) from None


async def _off_loop(work: OffLoop) -> Any:
    return await asyncio.get_running_loop().run_in_executor(None, work.function)


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

    return exchange


def _by_token(properties: Mapping[str, str], options: Mapping[str, str]) -> NewExchange:
    """Return the exchange with a token from a file, which is read at each login."""
    url = properties.get(_TOKEN_URL, "").strip()
    parsed = urlsplit(url)
    if parsed.scheme != "file" or parsed.netloc not in ("", "localhost") or not parsed.path:
        raise ConfigError(f"Set {_TOKEN_URL} to a file:///PATH that has the token")
    path = unquote(parsed.path)
    extensions = {
        key.removeprefix(_EXTENSION): value
        for key, value in options.items()
        if key.startswith(_EXTENSION)
    }

    def exchange() -> ClientExchange:
        token = yield OffLoop(lambda: _read_token(path))
        yield from oauthbearer.login(token, extensions)

    return exchange


def _read_token(path: str) -> str:
    try:
        token = read_file(path).decode("latin-1").strip()
    except OSError as error:
        raise AuthenticationFailed(f"{_TOKEN_URL}: {path}: {error.strerror}") from None
    if not _TOKEN.fullmatch(token):
        raise AuthenticationFailed(f"{_TOKEN_URL}: {path} has no token")
    return token
