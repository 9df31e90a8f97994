"""Requests about quotas."""

from collections.abc import Callable
from typing import Any

from barnabas.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterEntryData,
    OpData,
)
from barnabas.protocol.messages.describe_client_quotas import (
    EXACT,
    OF_OTHERS,
    SPECIFIED,
    ComponentData,
    DescribeClientQuotasRequest,
    EntityData,
)


def entity(**parts: str | None) -> list[EntityData]:
    """Return an entity; names of types have underscores."""
    return [
        EntityData(entity_type=each.replace("_", "-"), entity_name=name)
        for each, name in parts.items()
    ]


def change(
    parts: list[EntityData], *ops: tuple[str, float | None], validate_only: bool = False
) -> AlterClientQuotasRequest:
    """Return a request about one entity; the limit None is removed."""
    entry = AlterEntryData(
        entity=parts,
        ops=[OpData(key=key, value=limit or 0.0, remove=limit is None) for key, limit in ops],
    )
    return AlterClientQuotasRequest(entries=[entry], validate_only=validate_only)


def filtered(
    *components: tuple[str, int, str | None], strict: bool = False
) -> DescribeClientQuotasRequest:
    """Return a request with a filter."""
    return DescribeClientQuotasRequest(
        components=[
            ComponentData(entity_type=kind, match_type=match_type, match=match)
            for kind, match_type, match in components
        ],
        strict=strict,
    )


def shows(limits: int) -> Callable[[Any], bool]:
    """Return whether an answer has so many limits: Kafka applies a change later."""
    return lambda answer: sum(len(each.values) for each in answer.entries or ()) == limits


def exactly(kind: str, name: str) -> tuple[str, int, str | None]:
    return (kind, EXACT, name)


def of_others(kind: str) -> tuple[str, int, str | None]:
    return (kind, OF_OTHERS, None)


def any_of(kind: str) -> tuple[str, int, str | None]:
    return (kind, SPECIFIED, None)
