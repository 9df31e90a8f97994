"""Quotas as rows of answers."""

from collections.abc import Iterable
from operator import attrgetter
from typing import Final

from barnabas.client.admin import Entity
from barnabas.operations.answers.model import names_of
from barnabas.operations.answers.quotas import Quota

_DEFAULT: Final = "<default>"


def quota_rows(found: Iterable[tuple[Entity, dict[str, float]]]) -> list[Quota]:
    """Return a row for each quota; numbers without a fraction are integers."""
    rows = [
        Quota(**entity_fields(entity), quota=key, value=int(value) if value % 1 == 0 else value)
        for entity, values in found
        for key, value in values.items()
    ]
    names = attrgetter(*names_of(Quota)[:-1])
    return sorted(rows, key=lambda row: [name or "" for name in names(row)])


def entity_fields(entity: Entity) -> dict[str, str]:
    """Return an entity as fields of an answer, whose names have no dashes."""
    return {
        kind.replace("-", "_"): _DEFAULT if name is None else name for kind, name in entity.items()
    }
