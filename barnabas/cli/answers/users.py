"""The JSON answers of `barnabas users`."""

from typing import Any, Final

from barnabas.cli.answers.model import Answer
from barnabas.security.sasl.credentials import ScramMechanism


class User(Answer):
    """A password of a user."""

    user: str
    mechanism: ScramMechanism
    iterations: int


class SetPassword(Answer):
    """A user whose password was set."""

    user: str
    set: list[ScramMechanism]


class DeletedPassword(Answer):
    """A user whose password was deleted."""

    user: str
    deleted: list[ScramMechanism]


ANSWERS: Final[dict[str, Any]] = {
    "users list": list[User],
    "users set": SetPassword,
    "users delete": DeletedPassword,
}
