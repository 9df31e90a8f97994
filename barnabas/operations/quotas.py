"""Quotas: as rows of answers, and their values in texts."""

import math
from collections.abc import Iterable
from operator import attrgetter
from typing import Final

from barnabas.client.admin import Entity
from barnabas.operations.answers.model import names_of
from barnabas.operations.answers.quotas import Quota
from barnabas.operations.quantities import kafka_value

OF_OTHERS: Final = "<default>"
"""The name of all entities of a kind that have no quotas of their own."""
QUOTAS: Final = {
    "producer_byte_rate": "bytes a second of Produce requests",
    "consumer_byte_rate": "bytes a second of Fetch responses",
    "request_percentage": "percent of a broker's time",
    "controller_mutation_rate": "partitions created and deleted a second",
    "connection_creation_rate": "connections a second, of an address alone",
}
"""The quotas, with the units of their values."""


def quota_value(key: str, text: str) -> float:
    """Return the value of a quota that a text names, such as 1MB. Raises ValueError."""
    plain = kafka_value(key, text)
    try:
        value = float(plain)
    except ValueError:
        value = math.nan
    if not (0 < value < math.inf):
        raise ValueError(f"{key}={text} is not a number greater than 0")
    return value


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
        kind.replace("-", "_"): OF_OTHERS if name is None else name for kind, name in entity.items()
    }
