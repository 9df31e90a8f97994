"""The answers of `barnabas tokens`; times are in ms since 1970."""

from dataclasses import dataclass
from typing import Any, Final

from barnabas.operations.answers.model import Answer


@dataclass(frozen=True, slots=True)
class Token(Answer):
    """A delegation token."""

    id: str
    owner: str
    """TYPE:NAME, as the requester and the renewers."""
    requester: str
    renewers: list[str]
    issued_at_ms: int
    expires_at_ms: int
    latest_end_at_ms: int
    """The token cannot be renewed beyond this time."""


@dataclass(frozen=True, slots=True)
class NewToken(Token):
    """A token that was created."""

    hmac: str | None = None
    """The secret, in base64; null if it was written to a file."""


@dataclass(frozen=True, slots=True)
class ChangedToken(Answer):
    """A token whose end was changed."""

    id: str
    expires_at_ms: int


ANSWERS: Final[dict[str, Any]] = {
    "tokens create": NewToken,
    "tokens describe": list[Token],
    "tokens renew": ChangedToken,
    "tokens expire": ChangedToken,
}
