"""The answers of `barnabas profile`."""

from dataclasses import dataclass
from typing import Any, Final, Literal

from barnabas.operations.answers.model import Answer


@dataclass(frozen=True, slots=True)
class Profile(Answer):
    """A profile of the user."""

    profile: str
    bootstrap_servers: list[str]
    """HOST:PORT of each."""
    security_protocol: str
    """Kafka's security.protocol, such as SASL_SSL."""
    in_use: bool


@dataclass(frozen=True, slots=True)
class NamedProfile(Answer):
    """A profile that was created."""

    profile: str


@dataclass(frozen=True, slots=True)
class UsedProfile(Answer):
    """The profile that is in use from now on."""

    profile: str | None
    """Null with --none."""


@dataclass(frozen=True, slots=True)
class PrintedProfile(NamedProfile):
    """A profile with its keys."""

    keys: dict[str, str]
    """The keys of a client; without --secrets passwords are `(hidden)`."""


@dataclass(frozen=True, slots=True)
class EditedProfile(NamedProfile):
    """A profile after `edit`."""

    changed: bool


@dataclass(frozen=True, slots=True)
class DeletedProfile(NamedProfile):
    """A profile that was deleted."""

    deleted: Literal[True]


ANSWERS: Final[dict[str, Any]] = {
    "profile create": NamedProfile,
    "profile use": UsedProfile,
    "profile list": list[Profile],
    "profile print": PrintedProfile,
    "profile edit": EditedProfile,
    "profile delete": DeletedProfile,
}
