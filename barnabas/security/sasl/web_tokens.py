"""JSON Web Key Sets and the signatures of JSON Web Tokens, read by PyJWT and `cryptography`.

A broker imports this module only for OAUTHBEARER, and in a thread: the import takes long.
"""

from base64 import urlsafe_b64encode
from typing import Any, Final, NamedTuple

from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from jwt import PyJWS
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm
from jwt.exceptions import PyJWTError
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from barnabas.security.sasl.oauthbearer import ALGORITHMS, InvalidToken

MAX_DOCUMENT: Final = 1 << 20
"""Bytes of a key set: about 1,000 keys."""

_MIN_RSA_BITS: Final = 2048
_LAST_SECOND: Final = 253402300799
"""The end of the year 9999, in seconds since the epoch."""

_READERS: Final[dict[str, Any]] = {"RSA": RSAAlgorithm, "EC": ECAlgorithm, "OKP": OKPAlgorithm}
_MEMBERS: Final = {"kty", "n", "e", "crv", "x", "y"}
"""The members of a public key: anything else, such as a private exponent, is not read."""
_SIGNATURES: Final = PyJWS(algorithms=[*ALGORITHMS])


class InvalidKeySet(ValueError):
    """A document that is not a key set, or has no usable key."""


class _Jwk(BaseModel):
    """A key of a key set (RFC 7517); of unknown types only these members are read."""

    model_config = ConfigDict(strict=True, extra="allow")

    kty: str
    kid: str | None = None
    use: str | None = None
    alg: str | None = None
    crv: str | None = None


class _Jwks(BaseModel):
    """A key set; each key is checked by itself, so that a strange one does not hide the others."""

    model_config = ConfigDict(strict=True)

    keys: list[dict[str, Any]]


class _Claims(BaseModel):
    """The claims of a token that rules read, with types; further claims are kept as they are."""

    model_config = ConfigDict(strict=True, extra="allow", allow_inf_nan=False)

    exp: float = Field(ge=0, le=_LAST_SECOND)
    iat: float = Field(ge=0, le=_LAST_SECOND)
    nbf: float | None = Field(default=None, ge=0, le=_LAST_SECOND)
    iss: str | None = None
    aud: list[str] | str | None = None


class WebKey(NamedTuple):
    """A public key of a key set."""

    key_id: str | None
    kind: str
    curve: str | None
    algorithm: str | None
    public_key: Any

    def fits(self, key_id: str | None, algorithm: str) -> bool:
        """Return whether this is a key of the id, if one is given, for the algorithm."""
        kind, curve = ALGORITHMS[algorithm]
        return (
            key_id in (None, self.key_id)
            and self.kind == kind
            and curve in (None, self.curve)
            and self.algorithm in (None, algorithm)
        )

    def claims(self, token: str, algorithm: str) -> dict[str, Any]:
        """Return the claims of a token that this key signed; raise InvalidToken otherwise."""
        try:
            decoded = _SIGNATURES.decode_complete(token, self.public_key, [algorithm])
        except PyJWTError as error:
            raise InvalidToken(str(error)) from None
        signature = urlsafe_b64encode(decoded["signature"]).decode().rstrip("=")
        if not token.endswith(f".{signature}"):
            raise InvalidToken("the signature is not canonical base64")
        try:
            claims = _Claims.model_validate_json(decoded["payload"]).model_dump()
        except ValidationError as error:
            problems = "; ".join(f"{each['loc']}: {each['type']}" for each in error.errors())
            raise InvalidToken(f"claims are missing or invalid: {problems}") from None
        if isinstance(claims["aud"], str):
            claims["aud"] = [claims["aud"]]
        return claims


class WebKeys:
    """The usable keys of a key set, in its order."""

    def __init__(self, document: bytes | str) -> None:
        """Read a key set; raise InvalidKeySet."""
        if len(document) > MAX_DOCUMENT:
            raise InvalidKeySet("the key set is too large")
        try:
            entries = _Jwks.model_validate_json(document).keys
        except ValidationError:
            raise InvalidKeySet("the document is not a JSON Web Key Set") from None
        self._keys = [key for entry in entries if (key := _web_key(entry)) is not None]
        if not self._keys:
            raise InvalidKeySet("the key set has no key that can be used")

    def find(self, key_id: str | None, algorithm: str) -> WebKey | None:
        """Return the first key that fits."""
        return next((key for key in self._keys if key.fits(key_id, algorithm)), None)


def _web_key(entry: dict[str, Any]) -> WebKey | None:
    """Return a key for signatures, or None if it is for other uses or cannot be read."""
    try:
        jwk = _Jwk.model_validate(entry)
        if jwk.use not in (None, "sig") or (jwk.alg is not None and jwk.alg not in ALGORITHMS):
            return None
        public = {name: value for name, value in entry.items() if name in _MEMBERS}
        public_key = _READERS[jwk.kty].from_jwk(public)
    except (ValueError, KeyError, TypeError, PyJWTError):
        return None
    if isinstance(public_key, RSAPublicKey) and public_key.key_size < _MIN_RSA_BITS:
        return None
    return WebKey(jwk.kid, jwk.kty, jwk.crv, jwk.alg, public_key)
