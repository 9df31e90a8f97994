"""The answers of `barnabas quotas`."""

from dataclasses import dataclass
from typing import Any, Final

from barnabas.operations.answers.model import Answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Entity(Answer):
    """The clients that a quota is for; `<default>` is all others of a kind."""

    user: str | None = None
    client_id: str | None = None
    ip: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota(Entity):
    """A quota of an entity."""

    quota: str
    value: int | float
    """Bytes a second, percent, or a number a second, as `barnabas quotas set --help` says."""


@dataclass(frozen=True, slots=True)
class SetQuotas(Answer):
    """The quotas of an entity that were set."""

    entity: Entity
    set: dict[str, float]
    """The new values, by quota."""


@dataclass(frozen=True, slots=True)
class RemovedQuotas(Answer):
    """The quotas of an entity that were removed."""

    entity: Entity
    removed: list[str]


ANSWERS: Final[dict[str, Any]] = {
    "quotas list": list[Quota],
    "quotas set": SetQuotas,
    "quotas remove": RemovedQuotas,
}
