"""The answers of `barnabas users`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from barnabas.operations.answers.model import Answer
from barnabas.security.sasl.credentials import ScramMechanism


@dataclass(frozen=True, slots=True)
class User(Answer):
    """A password of a user."""

    user: str
    mechanism: ScramMechanism
    iterations: int


def user_rows(found: Mapping[str, Mapping[ScramMechanism, int]]) -> list[User]:
    """Return a row for each password of users, by name."""
    return [
        User(user=name, mechanism=how, iterations=iterations)
        for name, credentials in sorted(found.items())
        for how, iterations in credentials.items()
    ]


@dataclass(frozen=True, slots=True)
class SetPassword(Answer):
    """A user whose password was set."""

    user: str
    set: list[ScramMechanism]


@dataclass(frozen=True, slots=True)
class DeletedPassword(Answer):
    """A user whose password was deleted."""

    user: str
    deleted: list[ScramMechanism]


ANSWERS: Final[dict[str, Any]] = {
    "users list": list[User],
    "users set": SetPassword,
    "users delete": DeletedPassword,
}
