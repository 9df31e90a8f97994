"""SCRAM credentials: what a broker keeps of a password (RFC 5802, KIP-84).

As in Kafka and its clients, the bytes of a password are its UTF-8 text without SASLprep. With it, a
user that we create could not log in with a Java client if the password has other characters than
printable ASCII.

`hashlib` and `hmac` are imported at their first use: a broker without users starts without them.
"""

from base64 import b64decode, b64encode
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Self

from barnabas.security.principal import ANONYMOUS, Principal

MIN_ITERATIONS: Final = 4096
MAX_ITERATIONS: Final = 16384
"""Limits of AlterUserScramCredentials. Kafka's tools choose the minimum."""

_SALT_BITS: Final = 130
_NEVER_MS: Final = (1 << 63) - 1
_FIELDS: Final = ("salt", "stored_key", "server_key", "iterations")


class ScramMechanism(Enum):
    """The SCRAM mechanisms of Kafka, with the code of AlterUserScramCredentials and the hash."""

    code: int
    hash: str

    def __new__(cls, name: str, code: int, digest: str) -> Self:
        member = object.__new__(cls)
        member._value_ = name
        member.code = code
        member.hash = digest
        return member

    SHA_256 = "SCRAM-SHA-256", 1, "sha256"
    SHA_512 = "SCRAM-SHA-512", 2, "sha512"

    def digest(self, data: bytes) -> bytes:
        """Return H(data) of RFC 5802."""
        import hashlib

        return hashlib.new(self.hash, data).digest()

    def hmac(self, key: bytes, data: bytes) -> bytes:
        """Return HMAC(key, data) of RFC 5802."""
        import hmac

        return hmac.digest(key, data, self.hash)

    def salted(self, password: bytes, salt: bytes, iterations: int) -> bytes:
        """Return Hi(password, salt, iterations) of RFC 5802: milliseconds of work."""
        import hashlib

        return hashlib.pbkdf2_hmac(self.hash, password, salt, iterations)


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """The credential of one user for one mechanism."""

    mechanism: ScramMechanism
    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int

    @classmethod
    def of_salted(
        cls, mechanism: ScramMechanism, salted: bytes, salt: bytes, iterations: int
    ) -> Self:
        """Return the credential of a salted password, as AlterUserScramCredentials sends it."""
        client_key = mechanism.hmac(salted, b"Client Key")
        server_key = mechanism.hmac(salted, b"Server Key")
        return cls(mechanism, salt, mechanism.digest(client_key), server_key, iterations)

    @classmethod
    def of_password(
        cls, mechanism: ScramMechanism, password: bytes, salt: bytes, iterations: int
    ) -> Self:
        """Return the credential of a password: milliseconds of work."""
        salted = mechanism.salted(password, salt, iterations)
        return cls.of_salted(mechanism, salted, salt, iterations)

    def matches(self, password: bytes) -> bool:
        """Return whether the password is this user's: milliseconds of work."""
        import hmac

        tried = self.of_password(self.mechanism, password, self.salt, self.iterations)
        return hmac.compare_digest(tried.stored_key, self.stored_key)

    def encode(self) -> str:
        """Return Kafka's text of the credential in `/config/users/<name>`: a secret."""
        salt, stored_key, server_key = (
            b64encode(each).decode() for each in (self.salt, self.stored_key, self.server_key)
        )
        return (
            f"salt={salt},stored_key={stored_key},server_key={server_key},"
            f"iterations={self.iterations}"
        )

    @classmethod
    def decode(cls, mechanism: ScramMechanism, text: str) -> Self:
        """Parse Kafka's text. Raise ValueError, which names no part of it, if it is invalid."""
        pairs = [item.partition("=")[::2] for item in text.split(",")]
        found = dict(pairs)
        try:
            if len(pairs) != len(_FIELDS) or found.keys() != {*_FIELDS}:
                raise ValueError
            salt, stored_key, server_key = (
                b64decode(found[name], validate=True) for name in _FIELDS[:3]
            )
            iterations = int(found["iterations"])
            size = len(mechanism.digest(b""))
            if not salt or len(stored_key) != size or len(server_key) != size or iterations < 1:
                raise ValueError
        except ValueError:
            raise ValueError(f"invalid credential of {mechanism.value}") from None
        return cls(mechanism, salt, stored_key, server_key, iterations)


@dataclass(frozen=True, slots=True)
class DelegationToken:
    """A delegation token (KIP-48): its id is a user name of SCRAM, its HMAC the password."""

    id: str
    owner: Principal
    requester: Principal
    """The principal that created the token for its owner (KIP-373)."""
    renewers: tuple[Principal, ...]
    issued_ms: int
    max_ms: int
    """The time after which the token cannot be renewed."""
    expires_ms: int
    hmac: bytes = field(repr=False)

    @property
    def password(self) -> bytes:
        """The password of a client that has the token: the HMAC in base64."""
        return b64encode(self.hmac)

    def has_expired(self, now_ms: int) -> bool:
        """Return whether no client can log in with the token any more."""
        return min(self.expires_ms, self.max_ms) <= now_ms

    def is_renewed_by(self, principal: Principal) -> bool:
        """Return whether a principal may renew the token, and end it."""
        return principal == self.owner or principal in self.renewers

    def is_shown_to(self, principal: Principal) -> bool:
        """Return whether a principal may see the token without any right."""
        return principal == self.requester or self.is_renewed_by(principal)


NO_TOKEN: Final = DelegationToken("", ANONYMOUS, ANONYMOUS, (), 0, _NEVER_MS, _NEVER_MS, b"")
"""The token in place of one that does not exist or has expired."""
NO_CREDENTIAL: Final = ScramCredential(ScramMechanism.SHA_256, b"", b"", b"", 0)
"""The credential of NO_TOKEN: too few iterations, so a stand-in takes its place."""


def token_hmac(token_id: str, secret_key: str) -> bytes:
    """Return the HMAC of a token under `delegation.token.secret.key`."""
    import hmac

    return hmac.digest(secret_key.encode(), token_id.encode(), "sha512")


def new_salt(random_bits: Callable[[int], int]) -> bytes:
    """Return a salt as Kafka's tools make it: 130 random bits in base 36."""
    return _base_36(random_bits(_SALT_BITS))


class StandIns:
    """Credentials in place of those that do not exist: no password matches them.

    An attacker cannot tell them from real ones, because the salt looks as Kafka's tools make it and
    stays the same for a name. So the secret should be the same on all brokers and at every start.
    """

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def salt(self, mechanism: ScramMechanism, name: str) -> bytes:
        """Return the salt for a name."""
        seed = int.from_bytes(self._derived(mechanism, "salt", name))
        return _base_36(seed % (1 << _SALT_BITS))

    def credential(
        self, mechanism: ScramMechanism, name: str, found: ScramCredential | None
    ) -> ScramCredential:
        """Return the credential found for a name, or one in its place if it cannot be used.

        The one in its place is made in any case, so that the time does not tell.
        """
        stand_in = ScramCredential(
            mechanism,
            self.salt(mechanism, name),
            self._derived(mechanism, "stored key", name),
            self._derived(mechanism, "server key", name),
            MIN_ITERATIONS,
        )
        if found is None or found.mechanism is not mechanism or found.iterations < MIN_ITERATIONS:
            return stand_in
        return found

    def token_credential(
        self, mechanism: ScramMechanism, token: DelegationToken
    ) -> ScramCredential:
        """Return the credential of a token: milliseconds of work.

        Its salt and iterations are those of an unknown token. NO_TOKEN has NO_CREDENTIAL.
        """
        if token is NO_TOKEN:
            return NO_CREDENTIAL
        salt = self.salt(mechanism, token.id)
        return ScramCredential.of_password(mechanism, token.password, salt, MIN_ITERATIONS)

    def _derived(self, mechanism: ScramMechanism, use: str, name: str) -> bytes:
        return mechanism.hmac(self._secret, f"{mechanism.value}\0{use}\0{name}".encode())


def _base_36(number: int) -> bytes:
    digits = bytearray()
    while number:
        number, digit = divmod(number, 36)
        digits.append(b"0123456789abcdefghijklmnopqrstuvwxyz"[digit])
    return bytes(reversed(digits))
