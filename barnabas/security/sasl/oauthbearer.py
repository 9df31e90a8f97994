"""OAUTHBEARER (RFC 7628, KIP-255, KIP-768): the client sends a signed JSON Web Token.

A token is accepted only with a signature by a key of the issuer's key set, whose algorithm is in
`ALGORITHMS`; what else its header says of keys (`jku`, `jwk`, `x5u`) is not read. Kafka's unsecured
tokens do not exist here. Stricter than Kafka: a token issued in the future is refused, and after
the error the client cannot try another token on the same connection.

`web_tokens.py` reads keys and tokens. It needs the extra `security`, and takes long to import, so
this module does not import it: it asks `Keys`.
"""

import json
import re
from base64 import urlsafe_b64decode
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol

from barnabas.protocol.backoff import Backoff
from barnabas.security.principal import USER, Principal
from barnabas.security.sasl.exchange import (
    Authenticated,
    AuthenticationFailed,
    Await,
    Challenge,
    ClientExchange,
    OffLoop,
    ServerExchange,
    decode,
)

ALGORITHMS: Final = {
    "RS256": ("RSA", None),
    "RS384": ("RSA", None),
    "RS512": ("RSA", None),
    "PS256": ("RSA", None),
    "PS384": ("RSA", None),
    "PS512": ("RSA", None),
    "ES256": ("EC", "P-256"),
    "ES384": ("EC", "P-384"),
    "ES512": ("EC", "P-521"),
    "EdDSA": ("OKP", "Ed25519"),
}
"""The algorithms of signatures, all of them asymmetric, with the type and curve of their keys."""

MAX_MESSAGE: Final = 128 << 10
"""Bytes that a message may have: tokens that name many groups take tens of kilobytes."""

_MAX_HEADER: Final = 4096
_MAX_PAIRS: Final = 64
_INVALID_TOKEN: Final = '{"status":"invalid_token"}'
_END: Final = b"\x01"
_GS2_HEADER = re.compile(r"n,(?:a=((?:[^\0\x01=,]|=2C|=3D)+))?,")
_PAIR = re.compile(r"([A-Za-z]+)=([!-~ \t\r\n]+)")
_AUTH = re.compile(r"([A-Za-z0-9_]+) +([A-Za-z0-9_.\-]+)")


class InvalidToken(Exception):
    """A token that is refused; the text is for the log."""


class IssuerKey(Protocol):
    """A public key of an issuer."""

    def claims(self, token: str, algorithm: str) -> Mapping[str, Any]:
        """Return the claims of a token that this key signed; raise InvalidToken otherwise.

        `exp` and `iat` are numbers, `nbf` is a number or None, `iss` a text or None, and `aud` a
        list of texts or None.
        """


class Keys(Protocol):
    """The keys of one key set."""

    def find(self, key_id: str | None, algorithm: str) -> IssuerKey | None:
        """Return the key of an id that fits an algorithm; without an id the first that fits."""


class KeySet:
    """The key set of an issuer. `fetch` starts to fetch it, and may be awaited several times.

    A token of an unknown key has the set fetched again. Tokens that come meanwhile wait for the
    same fetch, and its begin delays the next one by `backoff_max_ms`, or by less after a failure.
    If a fetch fails, the last good set stays.
    """

    def __init__(
        self, fetch: Callable[[], Awaitable[Keys]], backoff_ms: int, backoff_max_ms: int
    ) -> None:
        self._fetch = fetch
        self._backoff = Backoff(backoff_ms, backoff_max_ms)
        self._backoff_max_ms = backoff_max_ms
        self._keys: Keys | None = None
        self._pending: Awaitable[Keys] | None = None
        self._next_ms = 0

    def find(
        self, key_id: str | None, algorithm: str, now_ms: int
    ) -> Generator[Await, Any, IssuerKey | None]:
        """Return a key, if need be after a fetch."""
        key = self._known(key_id, algorithm)
        if key is None and (self._pending is not None or now_ms >= self._next_ms):
            yield from self.refresh(now_ms)
            key = self._known(key_id, algorithm)
        return key

    def refresh(self, now_ms: int) -> Generator[Await, Any, None]:
        """Fetch the set, or wait for the fetch under way."""
        if self._pending is None:
            self._pending = self._fetch()
            self._next_ms = now_ms + self._backoff_max_ms
        pending = self._pending
        try:
            keys = yield Await(pending)
        except (OSError, ValueError):
            if self._pending is pending:
                self._pending = None
                self._next_ms = now_ms + int(self._backoff.failed())
        else:
            if self._pending is pending:
                self._pending, self._keys, self._backoff.failures = None, keys, 0

    def _known(self, key_id: str | None, algorithm: str) -> IssuerKey | None:
        return None if self._keys is None else self._keys.find(key_id, algorithm)


@dataclass(frozen=True, slots=True)
class TokenRules:
    """The rules for claims: the keys `sasl.oauthbearer.*` of the same names, with defaults.

    `any_audience` counts if no audience is expected.
    """

    expected_audience: tuple[str, ...] = ()
    expected_issuer: str | None = None
    scope_claim_name: str = "scope"
    sub_claim_name: str = "sub"
    clock_skew_seconds: int = 30
    any_audience: bool = False

    def check(self, claims: Mapping[str, Any], now_ms: int) -> str:
        """Return the name of the principal; raise InvalidToken."""
        self._check_times(claims, now_ms / 1000)
        if self.expected_issuer is not None and claims["iss"] != self.expected_issuer:
            raise InvalidToken("the issuer is not the expected one")
        self._check_audience(claims["aud"])
        self._check_scopes(claims)
        return _text(claims, self.sub_claim_name)

    def _check_audience(self, audience: Sequence[str] | None) -> None:
        if not self.expected_audience and (self.any_audience or audience is None):
            return
        # As in Kafka before 4.4: a token for an audience is refused where none is expected.
        if not {*(audience or ())}.intersection(self.expected_audience):
            raise InvalidToken("the audience is not an expected one")

    def _check_times(self, claims: Mapping[str, Any], now: float) -> None:
        expires, issued, begins = claims["exp"], claims["iat"], claims["nbf"]
        if now - self.clock_skew_seconds >= expires:
            raise InvalidToken("the token has expired")
        if issued - self.clock_skew_seconds > now:
            raise InvalidToken("the token was issued in the future")
        if begins is not None and begins - self.clock_skew_seconds > now:
            raise InvalidToken("the token is not yet valid")
        if expires < issued or (begins is not None and expires < begins):
            raise InvalidToken("the token expires before it begins")

    def _check_scopes(self, claims: Mapping[str, Any]) -> None:
        scopes = claims.get(self.scope_claim_name)
        if not isinstance(scopes, list):
            scopes = [scopes] if isinstance(scopes, str) else []
        texts = [scope.strip() for scope in scopes if isinstance(scope, str)]
        if len(texts) != len(scopes) or not all(texts) or len({*texts}) != len(texts):
            raise InvalidToken(f"the claim {self.scope_claim_name} is not a set of scopes")


def _text(claims: Mapping[str, Any], name: str) -> str:
    value = claims.get(name)
    if not isinstance(value, str) or not value.strip():
        raise InvalidToken(f"the claim {name} is not a text with content")
    return value.strip()


def authenticate(message: bytes, keys: KeySet, rules: TokenRules, now_ms: int) -> ServerExchange:
    """Serve one exchange."""
    authorization_id, token, extensions = _first_message(message)
    try:
        key_id, algorithm = _header(token)
        key = yield from keys.find(key_id, algorithm, now_ms)
        if key is None:
            raise InvalidToken("the issuer's key set has no key for the token")
        claims = yield OffLoop(partial(key.claims, token, algorithm))
        name = rules.check(claims, now_ms)
    except InvalidToken as error:
        answer = yield Challenge(_INVALID_TOKEN.encode())
        told = _INVALID_TOKEN if answer == _END else None
        raise AuthenticationFailed(f"invalid token: {error}", told=told) from None
    if authorization_id not in ("", name):
        raise AuthenticationFailed.public(
            f"Authentication failed: Client requested an authorization id ({authorization_id}) "
            f"that is different from the token's principal name ({name})"
        )
    return Authenticated(
        Principal(USER, name), expires_ms=int(claims["exp"] * 1000), extensions=extensions
    )


def login(token: str, extensions: Mapping[str, str] | None = None) -> ClientExchange:
    """Authenticate as a client. The server proves nothing: only TLS tells who it is."""
    pairs = {"auth": f"Bearer {token}"} | dict(extensions or {})
    answer = yield b"n,,\x01%b\x01" % b"".join(
        f"{key}={value}\x01".encode() for key, value in pairs.items()
    )
    if answer:
        yield _END
        raise AuthenticationFailed(
            f"the server refused the token: {answer.decode(errors='replace')}"
        )


def _first_message(message: bytes) -> tuple[str, str, dict[str, str]]:
    """Return authorization id, token and extensions of a client's first message."""
    header, *items = decode(message, MAX_MESSAGE).split("\x01", _MAX_PAIRS)
    gs2_header = _GS2_HEADER.fullmatch(header)
    if gs2_header is None or len(items) < 2 or items[-2:] != ["", ""]:
        raise AuthenticationFailed("Invalid OAUTHBEARER client first message")
    matches = [_PAIR.fullmatch(item) for item in items[:-2]]
    pairs = {match[1]: match[2] for match in matches if match}
    if len(pairs) != len(matches):
        raise AuthenticationFailed("Invalid OAUTHBEARER client first message")
    auth = _AUTH.fullmatch(pairs.pop("auth", ""))
    if auth is None or auth[1].lower() != "bearer":
        raise AuthenticationFailed("Invalid OAUTHBEARER client first message: no bearer token")
    authorization_id = (gs2_header[1] or "").replace("=2C", ",").replace("=3D", "=")
    return authorization_id, auth[2], pairs


def subject(token: str) -> str | None:
    """Return the subject that a token claims, without a check of its signature."""
    try:
        name = _part(token.split(".")[1]).get("sub")
    except (IndexError, InvalidToken):
        return None
    return name if isinstance(name, str) else None


def _part(text: str) -> dict[str, Any]:
    """Return the fields of a part of a token."""
    try:
        fields = json.loads(urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except (ValueError, RecursionError):
        raise InvalidToken("the token's header is not JSON") from None
    if not isinstance(fields, dict):
        raise InvalidToken("the token's header has what we do not understand")
    return fields


def _header(token: str) -> tuple[str | None, str]:
    """Return key id and algorithm of a token's header."""
    header, *others = token.split(".")
    if len(others) != 2 or len(header) > _MAX_HEADER:
        raise InvalidToken("the token has not three parts, or a header that is too long")
    fields = _part(header)
    if "crit" in fields or "b64" in fields:
        raise InvalidToken("the token's header has what we do not understand")
    key_id, algorithm = fields.get("kid"), fields.get("alg")
    if not isinstance(algorithm, str) or algorithm not in ALGORITHMS:
        raise InvalidToken("the token's algorithm is not allowed")
    if key_id is not None and not isinstance(key_id, str):
        raise InvalidToken("the token's key id is not a text")
    return key_id, algorithm
