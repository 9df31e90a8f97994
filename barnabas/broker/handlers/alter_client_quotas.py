"""AlterClientQuotas (key 49): sets and removes quotas of users, client ids and addresses (KIP-546).

As in Kafka, the changes of an entity are made together, and an entity or a key that is named twice
is refused. Unlike there, an address is an address, not the name of a host.
"""

import math
from collections import Counter
from collections.abc import Sequence
from typing import Final

from barnabas.broker.cluster.stored_quotas import StoredQuotas
from barnabas.broker.loop.slices import Slicer
from barnabas.broker.security.rights import ALTER_CONFIGS, CLUSTER, Each, Need, Rights
from barnabas.broker.server.context import RequestContext
from barnabas.broker.server.limits.quotas import DEFAULT, Entity, Quota
from barnabas.broker.store.metadata_store import SessionExpired, StoreUnavailable, TooLarge
from barnabas.coordinator.soon import Soon, in_task
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.alter_client_quotas import (
    API,
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlteredEntryData,
    AlterEntryData,
    OpData,
)
from barnabas.protocol.messages.describe_client_quotas import CLIENT_ID, IP, USER, EntityData
from barnabas.security.acl.rules import host_key, is_address

__all__ = ["API", "RIGHTS", "handle"]

RIGHTS = Rights(
    whole=(Need(ALTER_CONFIGS, CLUSTER),),
    each=Each("entries", (), lambda each, code, _: _refused(each, code, code.text), "entries"),
)
_OF_CLIENTS: Final = {
    each.value: each for each in (Quota.PRODUCE, Quota.FETCH, Quota.REQUEST, Quota.MUTATION)
}
_OF_ADDRESSES: Final = {Quota.CONNECTIONS.value: Quota.CONNECTIONS}
_WHOLE: Final = {
    Quota.PRODUCE: ("LONG", 2**63 - 1),
    Quota.FETCH: ("LONG", 2**63 - 1),
    Quota.CONNECTIONS: ("INT", 2**31 - 1),
}
"""The types of limits that are whole numbers, and their largest values."""
_PRECISION: Final = 1e-6


def handle(
    stored: StoredQuotas,
    slicer: Slicer,
    request: AlterClientQuotasRequest,
    _context: RequestContext,
) -> Soon[AlterClientQuotasResponse]:
    """Make the changes one entity after another; each is stored when its result is there."""
    return in_task(_altered(stored, slicer, request))


async def _altered(
    stored: StoredQuotas, slicer: Slicer, request: AlterClientQuotasRequest
) -> AlterClientQuotasResponse:
    times: Counter[tuple[tuple[str, str | None], ...]] = Counter()
    async for entry in slicer.each(request.entries):
        times[_key(entry)] += 1
    answers = []
    async for entry in slicer.each(request.entries):
        try:
            if times[_key(entry)] > 1:
                raise _invalid(f"Ignoring duplicate entity {_text(entry)}")
            entity = _entity(entry.entity)
            limits = _limits(entry, _OF_CLIENTS if entity.ip is None else _OF_ADDRESSES)
            if not request.validate_only:
                await stored.alter(entity, limits)
        except KafkaError as error:
            answers.append(_refused(entry, error.code, error.message))
        except TooLarge:
            text = "The entity's values are larger than the metadata store takes."
            answers.append(_refused(entry, ErrorCode.INVALID_REQUEST, text))
        except (SessionExpired, StoreUnavailable):
            text = "The metadata cannot be reached."
            answers.append(_refused(entry, ErrorCode.REQUEST_TIMED_OUT, text))
        else:
            answers.append(AlteredEntryData(entity=entry.entity))
    return AlterClientQuotasResponse(entries=answers)


def _key(entry: AlterEntryData) -> tuple[tuple[str, str | None], ...]:
    return tuple(sorted((each.entity_type, each.entity_name or "") for each in entry.entity))


def _text(entry: AlterEntryData) -> str:
    """Return the entity as Java prints it."""
    parts = (f"{each.entity_type}={each.entity_name or 'null'}" for each in entry.entity)
    return f"ClientQuotaEntity(entries={{{', '.join(parts)}}})"


def _entity(parts: Sequence[EntityData]) -> Entity:
    """Return the entity of a request; raise INVALID_REQUEST for one that cannot have quotas."""
    names: dict[str, str] = {}
    for each in parts:
        if each.entity_type not in (USER, CLIENT_ID, IP):
            raise _invalid(f"Unhandled client quota entity type: {each.entity_type}")
        if each.entity_name == "":
            raise _invalid(f"Empty {each.entity_type} not supported")
        names[each.entity_type] = DEFAULT if each.entity_name is None else each.entity_name
    ip = names.get(IP)
    if not names or (ip is not None and len(names) > 1):
        raise _invalid("Invalid empty client quota entity")
    if ip and not is_address(ip):
        raise _invalid(f"{ip} is not a valid IP or resolvable host.")
    return Entity(names.get(USER), names.get(CLIENT_ID), ip and host_key(ip))


def _limits(entry: AlterEntryData, allowed: dict[str, Quota]) -> dict[Quota, float | None]:
    """Return the changed limits, None for those that are removed; raise INVALID_REQUEST."""
    limits: dict[Quota, float | None] = {}
    for op in entry.ops:
        quota = allowed.get(op.key)
        if quota is None:
            if op.remove:
                continue
            raise _invalid(f"Invalid configuration key {op.key}")
        if quota in limits:
            raise _invalid(
                f"Duplicate quota key {op.key} not updated for this entity {_text(entry)}"
            )
        limits[quota] = None if op.remove else _limit(op, quota)
    return limits


def _limit(op: OpData, quota: Quota) -> float:
    if math.isnan(op.value) or op.value <= 0:
        raise _invalid(f"Quota {op.key} must be greater than 0")
    if op.value == math.inf:
        raise _invalid(f"Quota {op.key} must be finite; to have no limit, remove it")
    if quota in _WHOLE:
        name, largest = _WHOLE[quota]
        if op.value > largest:
            raise _invalid(f"Proposed value for {op.key} is too large for a {name}.")
        if math.fmod(op.value, 1) > _PRECISION:
            raise _invalid(f"{op.key} cannot be a fractional value.")
    return op.value


def _invalid(text: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, text)


def _refused(entry: AlterEntryData, code: ErrorCode, message: str | None) -> AlteredEntryData:
    return AlteredEntryData(error_code=code, error_message=message, entity=entry.entity)
