"""PLAIN (RFC 4616): the client sends user and password, so the connection has to be encrypted.

The server finds something of the user that a password can match: a password of the JAAS line
(`JaasUsers`), or a SCRAM credential, so that no password is stored. A user that does not exist has
a stand-in that nothing matches, at the same cost.
"""

import hashlib
import hmac
from collections.abc import Callable, Mapping
from typing import Protocol

from barnabas.security.principal import USER, Principal
from barnabas.security.sasl.exchange import (
    Authenticated,
    AuthenticationFailed,
    ClientExchange,
    OffLoop,
    ServerExchange,
    decode,
)

_JAAS_PREFIX = "user_"


class Verifier(Protocol):
    """A password's trace on the server."""

    def matches(self, password: bytes) -> bool:
        """Return whether the password is the right one; it may take milliseconds."""


class _Digest:
    """A password of the configuration, as a digest: comparing takes the same for all lengths."""

    __slots__ = ("_digest",)

    def __init__(self, digest: bytes) -> None:
        self._digest = digest

    def matches(self, password: bytes) -> bool:
        """Return whether the password is the right one."""
        return hmac.compare_digest(hashlib.sha256(password).digest(), self._digest)


_NO_PASSWORD = _Digest(bytes(hashlib.sha256().digest_size))


class JaasUsers:
    """The users of a login module's options `user_<name>="<password>"`."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._users = {
            key.removeprefix(_JAAS_PREFIX): _Digest(hashlib.sha256(password.encode()).digest())
            for key, password in options.items()
            if key.startswith(_JAAS_PREFIX)
        }

    def find(self, user: str) -> Verifier:
        """Return the user's password, or a digest that no password has."""
        return self._users.get(user, _NO_PASSWORD)


def authenticate(message: bytes, find: Callable[[str], Verifier]) -> ServerExchange:
    """Serve one exchange; `find` returns a verifier for every user name."""
    parts = decode(message).split("\0", 3)
    if len(parts) != 3:
        raise AuthenticationFailed.public(
            f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}"
        )
    authorization_id, user, password = parts
    if not user:
        raise AuthenticationFailed.public("Authentication failed: username not specified")
    if not password:
        raise AuthenticationFailed.public("Authentication failed: password not specified")
    verifier = find(user)
    matches = yield OffLoop(lambda: verifier.matches(password.encode()))
    if not matches:
        raise AuthenticationFailed.public("Authentication failed: Invalid username or password")
    if authorization_id not in ("", user):
        raise AuthenticationFailed.public(
            "Authentication failed: Client requested an authorization id that is different from "
            "username"
        )
    return Authenticated(Principal(USER, user))


def login(user: str, password: str) -> ClientExchange:
    """Authenticate as a client. The server proves nothing: only TLS tells who it is."""
    if not user or not password or "\0" in user + password:
        raise AuthenticationFailed("PLAIN needs a user and a password without NUL")
    answer = yield f"\0{user}\0{password}".encode()
    if answer:
        raise AuthenticationFailed("the server's answer is not empty")
