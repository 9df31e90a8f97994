"""DescribeClientQuotas (key 48): the quotas that a filter matches (KIP-546)."""

from collections.abc import Mapping
from typing import Final

from barnabas.broker.security.rights import CLUSTER, DESCRIBE_CONFIGS, Need, Rights
from barnabas.broker.server.context import RequestContext
from barnabas.broker.server.limits.quotas import DEFAULT, ClientQuotas, Entity, Quota
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.describe_client_quotas import (
    API,
    CLIENT_ID,
    EXACT,
    IP,
    OF_OTHERS,
    SPECIFIED,
    USER,
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)
from barnabas.protocol.steps import Steps

__all__ = ["API", "RIGHTS", "error_response", "handle"]

RIGHTS = Rights(whole=(Need(DESCRIBE_CONFIGS, CLUSTER),))
_ANY: Final = object()
_NO_NAME: Final = object()
_MATCHES: Final = {
    EXACT: "MATCH_TYPE_EXACT",
    OF_OTHERS: "MATCH_TYPE_DEFAULT",
    SPECIFIED: "MATCH_TYPE_SPECIFIED",
}


def handle(
    quotas: ClientQuotas, request: DescribeClientQuotasRequest, _context: RequestContext
) -> Steps[DescribeClientQuotasResponse]:
    """Return the entities that have all parts of the filter."""
    try:
        return DescribeClientQuotasResponse(entries=(yield from _found(quotas, request)))
    except KafkaError as error:
        return DescribeClientQuotasResponse(
            error_code=error.code, error_message=error.message, entries=None
        )


def _found(quotas: ClientQuotas, request: DescribeClientQuotasRequest) -> Steps[list[EntryData]]:
    wanted: dict[str, object] = {}
    for component in request.components:
        wanted[_checked_type(component, wanted)] = _wanted_name(component)
        yield None
    if IP in wanted and len(wanted) > 1:
        raise _invalid(
            "Invalid entity filter component combination. IP filter component should not be used "
            "with user or clientId filter component."
        )
    entries = []
    for entity, limits in list(quotas.limits.items()):
        parts = _parts(entity)
        if all(
            each in parts and name in (_ANY, parts[each]) for each, name in wanted.items()
        ) and not (request.strict and len(parts) > len(wanted)):
            entries.append(_entry(parts, limits))
        yield None
    return entries


def _checked_type(component: ComponentData, known: Mapping[str, object]) -> str:
    entity_type = component.entity_type
    if not entity_type:
        raise _invalid("Invalid empty entity type.")
    if entity_type in known:
        raise _invalid(f"Entity type {entity_type} cannot appear more than once in the filter.")
    if entity_type not in (USER, CLIENT_ID, IP):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {entity_type}")
    return entity_type


def _wanted_name(component: ComponentData) -> object:
    """Return the name that an entity must have; _ANY for each one."""
    kind = _MATCHES.get(component.match_type)
    if kind is None:
        raise _invalid(f"Unknown match type {component.match_type}")
    if component.match_type == EXACT:
        if component.match is None:
            raise _invalid(f"Request specified {kind}, but set match string to null.")
        return component.match or _NO_NAME
    if component.match is not None:
        raise _invalid(f"Request specified {kind}, but also specified a match string.")
    return DEFAULT if component.match_type == OF_OTHERS else _ANY


def _parts(entity: Entity) -> dict[str, str]:
    """Return the names of an entity by type."""
    names = zip((USER, CLIENT_ID, IP), entity, strict=True)
    return {each: name for each, name in names if name is not None}


def _entry(parts: Mapping[str, str], limits: Mapping[Quota, float]) -> EntryData:
    return EntryData(
        entity=[
            EntityData(entity_type=each, entity_name=name or None) for each, name in parts.items()
        ],
        values=[ValueData(key=quota.value, value=limit) for quota, limit in limits.items()],
    )


def error_response(
    _request: DescribeClientQuotasRequest, code: ErrorCode, _version: int
) -> DescribeClientQuotasResponse:
    """Answer with the error. As in Kafka, there are no entries then, and no message."""
    return DescribeClientQuotasResponse(error_code=code, entries=None)


def _invalid(text: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, text)
