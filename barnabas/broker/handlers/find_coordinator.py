"""FindCoordinator (key 10): the broker that coordinates a group or a transactional id.

v1 key types, v4 several keys (KIP-699), v6 share groups. The coordinator is the leader of the
key's partition of `__consumer_offsets` or `__transaction_state`; the first request creates these
topics. Errors by key: COORDINATOR_NOT_AVAILABLE (no leader yet), INVALID_REQUEST (any other
type of key).
"""

from collections.abc import Callable, Coroutine
from enum import IntEnum
from functools import cache
from typing import Any, Final

from barnabas.broker.cluster.cache import MetadataCache
from barnabas.broker.cluster.topic_names import CONSUMER_OFFSETS, TRANSACTION_STATE
from barnabas.broker.groups.group_service import GroupService
from barnabas.broker.security.rights import DESCRIBE, GROUP, TRANSACTIONAL_ID, Need, Rights
from barnabas.broker.server.context import RequestContext
from barnabas.coordinator.soon import in_task
from barnabas.coordinator.transaction.coordinator import TransactionCoordinator
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.find_coordinator import (
    API,
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from barnabas.protocol.steps import Steps, in_steps

__all__ = ["API", "RIGHTS", "error_response", "handle"]

_BATCHED_SINCE = 4
_NO_NODE = -1


class KeyType(IntEnum):
    """The type of a key."""

    GROUP = 0
    TRANSACTION = 1
    SHARE = 2


_TOPICS: Final[dict[int, str]] = {
    KeyType.GROUP: CONSUMER_OFFSETS,
    KeyType.TRANSACTION: TRANSACTION_STATE,
}
"""The topics whose leaders are coordinators, by type of key."""


_NEEDS: Final[dict[int, Need]] = {
    KeyType.GROUP: Need(DESCRIBE, GROUP, "coordinator_keys"),
    KeyType.TRANSACTION: Need(DESCRIBE, TRANSACTIONAL_ID, "coordinator_keys"),
}
RIGHTS = Rights(inside=tuple(_NEEDS.values()))


def handle(
    groups: GroupService,
    transactions: TransactionCoordinator,
    cache: MetadataCache,
    ensure_topic: Callable[[str], Coroutine[Any, Any, None]],
    request: FindCoordinatorRequest,
    context: RequestContext,
) -> Steps[FindCoordinatorResponse]:
    """Find the coordinator of each key; any broker can answer.

    `ensure_topic` creates an internal topic unless it exists; it raises COORDINATOR_NOT_AVAILABLE.
    """
    topic = _TOPICS.get(request.key_type)
    if topic is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    if cache.topic(topic) is None and (yield from _may_ask(request, context)):
        yield in_task(ensure_topic(topic))
    coordinator = groups if topic == CONSUMER_OFFSETS else transactions
    need = _NEEDS[request.key_type]

    def find(key: str) -> Coordinator:
        if not context.allows(need.operation, need.type, key):
            return _failed(key, need.error)
        known = cache.partition(topic, coordinator.partition_of(key))
        endpoint = None if known is None else cache.endpoint(known.leader, context.listener)
        if known is None or endpoint is None:
            return _failed(key, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return Coordinator(key=key, node_id=known.leader, host=endpoint.host, port=endpoint.port)

    return (yield from _each(find, request, context.api_version))


def _may_ask(request: FindCoordinatorRequest, context: RequestContext) -> Steps[bool]:
    """Return whether the client may ask for one of the keys."""
    keys = request.coordinator_keys
    if context.api_version < _BATCHED_SINCE:
        keys = [request.key]
    need = _NEEDS[request.key_type]
    for key in keys:
        if context.allows(need.operation, need.type, key, log_denied=False):
            return True
        yield None
    return False


def _each(
    find: Callable[[str], Coordinator], request: FindCoordinatorRequest, version: int
) -> Steps[FindCoordinatorResponse]:
    if version < _BATCHED_SINCE:
        return _single(find(request.key))
    # A key that is named twice is looked for once.
    found = yield from in_steps(cache(find), request.coordinator_keys)
    return FindCoordinatorResponse(coordinators=found)


def _failed(key: str, code: ErrorCode) -> Coordinator:
    """Return the response for a key that has no coordinator. As in Kafka, it has no message."""
    return Coordinator(key=key, node_id=_NO_NODE, port=-1, error_code=code)


def _single(found: Coordinator) -> FindCoordinatorResponse:
    """Return the response of versions with a single key. As in Kafka, success has a message."""
    return FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=ErrorCode.of(found.error_code).text
        if found.error_code
        else ErrorCode.NONE.name,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


def error_response(
    request: FindCoordinatorRequest, code: ErrorCode, version: int
) -> Steps[FindCoordinatorResponse]:
    """Answer every key with the error."""

    def refuse(key: str) -> Coordinator:
        refused = _failed(key, code)
        refused.error_message = code.text
        return refused

    return _each(refuse, request, version)
