"""The SASL mechanisms for the fuzzer: with fixed nonces and keys, and without slow hashes.

An input cannot contain a signature or a proof that the seeds do not have. So only the honest
messages may succeed, byte by byte.
"""

import json
from collections.abc import Generator
from functools import cache
from typing import Any, Final

import jwt
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from jwt.algorithms import OKPAlgorithm

from barnabas.security.principal import USER, Principal
from barnabas.security.sasl import oauthbearer, plain, scram
from barnabas.security.sasl.credentials import (
    DelegationToken,
    ScramCredential,
    ScramMechanism,
    StandIns,
)
from barnabas.security.sasl.exchange import Authenticated, ClientExchange, ServerExchange
from barnabas.security.sasl.web_tokens import WebKeys
from tests.support.sasl_exchanges import converse, step

ALICE: Final = Principal(USER, "alice")
PASSWORD: Final = "secret"
NONCE: Final = "nonce"
NOW_MS: Final = 500_000
SEPARATOR: Final = b"\xff"
"""The end of a message in an input; no UTF-8 text has this byte."""


class OneRound:
    """A SCRAM mechanism that salts a password in one round: 4096 of them take milliseconds."""

    def __init__(self, mechanism: ScramMechanism) -> None:
        self.value = mechanism.value
        self.digest = mechanism.digest
        self.hmac = mechanism.hmac
        self._mechanism = mechanism

    def salted(self, password: bytes, salt: bytes, _iterations: int) -> bytes:
        return self._mechanism.salted(password, salt, 1)


def _token(token_id: str, expires_ms: int) -> DelegationToken:
    return DelegationToken(
        token_id, ALICE, ALICE, (), 0, max_ms=expires_ms, expires_ms=expires_ms, hmac=bytes(64)
    )


STAND_INS: Final = StandIns(b"cluster")
TOKENS: Final = {"token": _token("token", 2 * NOW_MS), "old": _token("old", NOW_MS)}
SCRAM: Final[dict[str, Any]] = {each.value: OneRound(each) for each in ScramMechanism}
CREDENTIALS: Final = {
    name: ScramCredential.of_password(each, PASSWORD.encode(), b"salt", 4096)
    for name, each in SCRAM.items()
}
KEY: Final = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
JWKS: Final = json.dumps(
    {"keys": [OKPAlgorithm.to_jwk(KEY.public_key(), as_dict=True) | {"kid": "k"}]}
)
WEB_KEYS: Final = WebKeys(JWKS)


def web_token(key: Any = KEY, algorithm: str = "EdDSA", **claims: Any) -> str:
    own = {"sub": "alice", "iat": 0, "exp": 2 * NOW_MS // 1000, "scope": "produce"}
    return jwt.encode(own | claims, key, algorithm, headers={"kid": "k"})


WEB_TOKEN: Final = web_token()


class _AnyKey:
    """A key set with one key, which signed every token."""

    def find(self, _key_id: str | None, _algorithm: str) -> "_AnyKey":
        return self

    def claims(self, _token: str, _algorithm: str) -> dict[str, Any]:
        return {"sub": "alice", "iat": 0, "exp": NOW_MS, "nbf": None, "iss": None, "aud": None}


class _Fetched:
    """Keys that have been fetched, for an event loop and for an exchange without one."""

    def __init__(self, keys: Any) -> None:
        self._keys = keys

    def result(self) -> Any:
        return self._keys

    def __await__(self) -> Generator[Any, Any, Any]:
        yield from ()
        return self._keys


class _Tokens:
    find = TOKENS.get

    @staticmethod
    @cache
    def credential(mechanism: Any, token: DelegationToken) -> ScramCredential:
        return STAND_INS.token_credential(mechanism, token)


def _bearer(message: bytes, keys: Any) -> ServerExchange:
    known = oauthbearer.KeySet(lambda: _Fetched(keys), 1, 1)
    return oauthbearer.authenticate(message, known, oauthbearer.TokenRules(), NOW_MS)


def _scram(name: str) -> Any:
    mechanism = SCRAM[name]
    users = {"alice": CREDENTIALS[name]}
    server = scram.ScramServer(mechanism, users.get, STAND_INS, _Tokens())
    return lambda message: server.authenticate(message, NONCE, NOW_MS)


def _verifier(user: str) -> plain.Verifier:
    name = "SCRAM-SHA-512"
    found = CREDENTIALS[name] if user == "alice" else None
    return STAND_INS.credential(SCRAM[name], user, found)


JAAS_USERS: Final = plain.JaasUsers({f"user_{ALICE.name}": PASSWORD})
SERVERS: Final[dict[str, Any]] = {
    "PLAIN": lambda message: plain.authenticate(message, JAAS_USERS.find),
    "PLAIN of SCRAM": lambda message: plain.authenticate(message, _verifier),
    "SCRAM-SHA-256": _scram("SCRAM-SHA-256"),
    "SCRAM-SHA-512": _scram("SCRAM-SHA-512"),
    "OAUTHBEARER": lambda message: _bearer(message, WEB_KEYS),
    "OAUTHBEARER of any key": lambda message: _bearer(message, _AnyKey()),
}
"""The servers, by a name that begins with the mechanism's."""


def by_scram(name: str, user: str = "alice", password: str = PASSWORD) -> ClientExchange:
    return scram.login(SCRAM[name], user, password, NONCE)


def by_token(name: str, token_id: str = "token") -> ClientExchange:
    password = TOKENS[token_id].password.decode()
    return scram.login(SCRAM[name], token_id, password, NONCE, {scram.TOKEN_AUTH: "true"})


CLIENTS: Final[dict[str, tuple[str, Any]]] = {
    "plain": ("PLAIN", lambda: plain.login("alice", PASSWORD)),
    "scram-256": ("SCRAM-SHA-256", lambda: by_scram("SCRAM-SHA-256")),
    "scram-512": ("SCRAM-SHA-512", lambda: by_scram("SCRAM-SHA-512")),
    "token-256": ("SCRAM-SHA-256", lambda: by_token("SCRAM-SHA-256")),
    "token-512": ("SCRAM-SHA-512", lambda: by_token("SCRAM-SHA-512")),
    "oauthbearer": ("OAUTHBEARER", lambda: oauthbearer.login(WEB_TOKEN, {"extension": "value"})),
}
"""The clients that a server lets in, with its name."""


@cache
def conversation(client: str) -> tuple[bytes, ...]:
    """Return the messages of an honest exchange, those of the client and the server in turns."""
    messages: list[bytes] = []

    def record(_number: int, message: bytes) -> bytes:
        messages.append(message)
        return message

    server, begin = CLIENTS[client]
    converse(SERVERS[server], begin(), record)
    return tuple(messages)


@cache
def _honest(server: str) -> set[tuple[bytes, ...]]:
    """Return the client's messages of the exchanges that succeed."""
    return {conversation(each)[::2] for each, (name, _) in CLIENTS.items() if name == server}


def authenticate(server: str, messages: list[bytes]) -> Authenticated:
    """Authenticate a client that sends these messages, and then empty ones.

    Raise AuthenticationFailed; AssertionError if a client is let in that is not honest.
    """
    rest = iter(messages)
    sent = [next(rest, b"")]
    exchange = SERVERS[server](sent[0])
    try:
        step(exchange)
        while True:
            sent.append(next(rest, b""))
            step(exchange, sent[-1])
    except StopIteration as returned:
        outcome: Authenticated = returned.value
    assert outcome.principal == ALICE, "another principal"
    if server == "OAUTHBEARER":
        assert WEB_TOKEN.encode() in sent[0], "a forged token"
    elif server.startswith("SCRAM"):
        assert tuple(sent) in _honest(server), "a forged proof"
    elif server.startswith("PLAIN"):
        assert sent[0] in (b"\0alice\0secret", b"alice\0alice\0secret"), "a wrong password"
    return outcome


def log_in(client: str, messages: list[bytes]) -> None:
    """Have a client read the messages of a broker, and then empty ones.

    Raise AuthenticationFailed; AssertionError if it believes a broker without the credential.
    """
    exchange, rest, read = CLIENTS[client][1](), iter(messages), []
    try:
        step(exchange)
        while True:
            read.append(next(rest, b""))
            step(exchange, read[-1])
    except StopIteration:
        assert tuple(read) == conversation(client)[1::2], "a forged signature"
