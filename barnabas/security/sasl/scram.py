"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677, KIP-84), and delegation tokens (KIP-48).

A user that does not exist takes the path of one that does, up to the proof, with a credential of
`StandIns`; so does a token, and a user whose credential is not usable. Stricter than Kafka: the
channel binding must be the one of the first message, an attribute is given once, and a mandatory
extension (`m=`) is refused, as the RFC says. Names may be any UTF-8, not only ASCII.
"""

import hmac
import re
from base64 import b64decode, b64encode
from collections.abc import Awaitable, Callable, Generator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

from barnabas.security.principal import USER, Principal
from barnabas.security.sasl.credentials import (
    MIN_ITERATIONS,
    NO_CREDENTIAL,
    NO_TOKEN,
    DelegationToken,
    ScramCredential,
    ScramMechanism,
    StandIns,
)
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

TOKEN_AUTH: Final = "tokenauth"
"""The extension of a client whose user name is the id of a delegation token."""

_CLIENT_MAX_ITERATIONS: Final = 1 << 20
"""Iterations that a server may ask of our client: half a second of work."""

_MAX_ATTRIBUTES: Final = 32
"""Attributes of a message, extensions included: the rest of a longer one matches nothing."""

_ATTRIBUTE = re.compile(r"([A-Za-z]+)=([^\0,]+)", re.DOTALL)
_NONCE = re.compile(r"[!-+\--~]+")
_NAME = re.compile(r"(?:[^\0=,]|=2C|=3D)+", re.DOTALL)
_NUMBER = re.compile(r"[1-9][0-9]{0,9}")


class KnownTokens(Protocol):
    """The delegation tokens that a broker knows."""

    def find(self, token_id: str) -> DelegationToken | None:
        """Return a token, which may have expired; None for an unknown id."""
        ...

    def credential(
        self, mechanism: ScramMechanism, token: DelegationToken
    ) -> ScramCredential | Awaitable[ScramCredential]:
        """Return the credential of a token (`StandIns.token_credential`); an awaitable while it is
        being made. That of NO_TOKEN is NO_CREDENTIAL, found in the same way."""
        ...


_OLD_CLIENT: Final = "The client put its own nonce before the full one: librdkafka before 2.6.1"
"""The cause that is known. Kafka accepted such a nonce before CVE-2024-56128 was mended."""


@dataclass(frozen=True, slots=True)
class ScramServer:
    """A mechanism with the users and tokens that a broker knows."""

    mechanism: ScramMechanism
    users: Callable[[str], ScramCredential | None]
    stand_ins: StandIns
    tokens: KnownTokens | None = None
    """None if delegation tokens are not enabled."""

    def authenticate(self, message: bytes, nonce: str, now_ms: int) -> ServerExchange:
        """Serve one exchange; `nonce` is the server's part, fresh and not to be guessed."""
        first = _ClientFirst.parse(message)
        if first.authorization_id not in ("", first.user):
            raise AuthenticationFailed.public(
                "Authentication failed: Client requested an authorization id that is different "
                "from username"
            )
        if first.extensions.get(TOKEN_AUTH, "").lower() == "true":
            account = yield from self._token(first.user, now_ms)
        else:
            found = self.users(first.user)
            credential = self.stand_ins.credential(self.mechanism, first.user, found)
            account = _Account(Principal(USER, first.user), credential)
        credential = account.credential
        combined = first.nonce + nonce
        salt = b64encode(credential.salt).decode()
        server_first = f"r={combined},s={salt},i={credential.iterations}"
        last = _ClientFinal.parse((yield Challenge(server_first.encode())))
        if last.binding != first.header.encode():
            raise AuthenticationFailed("the channel binding is not the one of the first message")
        if not hmac.compare_digest(last.nonce.encode(), combined.encode()):
            twice = last.nonce == first.nonce + combined
            reason = "Invalid client nonce in the final client message."
            raise AuthenticationFailed(f"{reason} {_OLD_CLIENT}" if twice else reason)
        signed = f"{first.bare},{server_first},{last.without_proof}".encode()
        if not _proves(credential, last.proof, signed):
            raise AuthenticationFailed("Invalid client credentials")
        signature = self.mechanism.hmac(credential.server_key, signed)
        return Authenticated(
            account.principal,
            answer=b"v=" + b64encode(signature),
            expires_ms=account.expires_ms,
            by_token=account.by_token,
        )

    def _token(self, token_id: str, now_ms: int) -> Generator[Await, Any, "_Account"]:
        """Return the account of a token.

        It does no additional work: anyone can send ids of tokens, before authentication. An invalid
        token takes the same path as a valid one.
        """
        token = NO_TOKEN if self.tokens is None else self.tokens.find(token_id) or NO_TOKEN
        if token.has_expired(now_ms):
            token = NO_TOKEN
        found = NO_CREDENTIAL
        if self.tokens is not None:
            made = self.tokens.credential(self.mechanism, token)
            found = made if isinstance(made, ScramCredential) else (yield Await(made))
        credential = self.stand_ins.credential(self.mechanism, token_id, found)
        return _Account(token.owner, credential, token.expires_ms, by_token=True)


class _Account(NamedTuple):
    """The identity that an exchange gives if the proof is right."""

    principal: Principal
    credential: ScramCredential
    expires_ms: int | None = None
    by_token: bool = False


def _proves(credential: ScramCredential, proof: bytes, signed: bytes) -> bool:
    """Return whether a proof shows the client key: what H() makes the stored key of."""
    signature = credential.mechanism.hmac(credential.stored_key, signed)
    if len(proof) != len(signature):
        return False
    stored_key = credential.mechanism.digest(_xor(proof, signature))
    return hmac.compare_digest(stored_key, credential.stored_key)


def login(
    mechanism: ScramMechanism,
    user: str,
    password: str,
    nonce: str,
    extensions: Mapping[str, str] | None = None,
) -> ClientExchange:
    """Authenticate as a client; `nonce` is fresh and not to be guessed.

    The server proves that it knows the user's credential too.
    """
    name = user.replace("=", "=3D").replace(",", "=2C")
    pairs = {"n": name, "r": nonce} | dict(extensions or {})
    bare = ",".join(f"{key}={value}" for key, value in pairs.items())
    server_first = _ServerFirst.parse((yield f"n,,{bare}".encode()))
    if not server_first.nonce.startswith(nonce) or server_first.nonce == nonce:
        raise AuthenticationFailed("Invalid server nonce: does not start with client nonce")
    if not MIN_ITERATIONS <= server_first.iterations <= _CLIENT_MAX_ITERATIONS:
        raise AuthenticationFailed(
            f"Requested iterations {server_first.iterations} is not between {MIN_ITERATIONS} and "
            f"{_CLIENT_MAX_ITERATIONS}"
        )
    salted = yield OffLoop(
        lambda: mechanism.salted(password.encode(), server_first.salt, server_first.iterations)
    )
    without_proof = f"c={b64encode(b'n,,').decode()},r={server_first.nonce}"
    signed = f"{bare},{server_first.text},{without_proof}".encode()
    client_key = mechanism.hmac(salted, b"Client Key")
    proof = _xor(client_key, mechanism.hmac(mechanism.digest(client_key), signed))
    last = _parsed(decode((yield f"{without_proof},p={b64encode(proof).decode()}".encode())))
    if "e" in last:
        raise AuthenticationFailed(
            f"Sasl authentication using {mechanism.value} failed with error: {last['e']}"
        )
    expected = mechanism.hmac(mechanism.hmac(salted, b"Server Key"), signed)
    if [*last] != ["v"] or not hmac.compare_digest(_bytes(last["v"]), expected):
        raise AuthenticationFailed("Invalid server signature in server final message")


class _ClientFirst(NamedTuple):
    """`n,[a=authzid],n=user,r=nonce[,extensions]`."""

    header: str
    bare: str
    authorization_id: str
    user: str
    nonce: str
    extensions: dict[str, str]

    @classmethod
    def parse(cls, message: bytes) -> "_ClientFirst":
        flag, _, rest = decode(message).partition(",")
        authorization_id, _, bare = rest.partition(",")
        if flag not in ("n", "y"):
            raise _invalid()
        if authorization_id and not authorization_id.startswith("a="):
            raise _invalid()
        attributes = _in_order(bare, "n", "r")
        return cls(
            header=f"{flag},{authorization_id},",
            bare=bare,
            authorization_id=_name(authorization_id[2:]) if authorization_id else "",
            user=_name(attributes.pop("n")),
            nonce=_matching(_NONCE, attributes.pop("r")),
            extensions=attributes,
        )


class _ClientFinal(NamedTuple):
    """`c=binding,r=nonce[,extensions],p=proof`."""

    binding: bytes
    nonce: str
    proof: bytes
    without_proof: str

    @classmethod
    def parse(cls, message: bytes) -> "_ClientFinal":
        text = decode(message)
        without_proof, _, last = text.rpartition(",")
        attributes = _in_order(text, "c", "r")
        if not last.startswith("p="):
            raise _invalid()
        return cls(_bytes(attributes["c"]), attributes["r"], _bytes(attributes["p"]), without_proof)


class _ServerFirst(NamedTuple):
    """`r=nonce,s=salt,i=iterations[,extensions]`."""

    text: str
    nonce: str
    salt: bytes
    iterations: int

    @classmethod
    def parse(cls, message: bytes) -> "_ServerFirst":
        text = decode(message)
        attributes = _in_order(text, "r", "s", "i")
        return cls(
            text,
            _matching(_NONCE, attributes["r"]),
            _bytes(attributes["s"]),
            int(_matching(_NUMBER, attributes["i"])),
        )


def _in_order(text: str, *names: str) -> dict[str, str]:
    """Return the attributes of a message that begins with those of these names."""
    attributes = _parsed(text)
    if (*attributes,)[: len(names)] != names:
        raise _invalid()
    return attributes


def _parsed(text: str) -> dict[str, str]:
    matches = [_ATTRIBUTE.fullmatch(item) for item in text.split(",", _MAX_ATTRIBUTES)]
    attributes = {match[1]: match[2] for match in matches if match}
    if len(attributes) != len(matches):
        raise _invalid()
    return attributes


def _name(text: str) -> str:
    return _matching(_NAME, text).replace("=2C", ",").replace("=3D", "=")


def _matching(pattern: re.Pattern[str], text: str) -> str:
    if not pattern.fullmatch(text):
        raise _invalid()
    return text


def _bytes(text: str) -> bytes:
    """Decode base64; only the canonical form counts."""
    try:
        data = b64decode(text, validate=True)
    except ValueError:
        raise _invalid() from None
    if b64encode(data).decode() != text:
        raise _invalid()
    return data


def _xor(one: bytes, other: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(one, other, strict=True))


def _invalid() -> AuthenticationFailed:
    return AuthenticationFailed("Invalid SCRAM message format")
