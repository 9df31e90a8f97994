"""FindCoordinator (key 10): which broker looks after a group or a transactional id.

v1 key types, v4 several keys (KIP-699), v6 share groups. The coordinator is the leader of the
key's partition of `__consumer_offsets` or `__transaction_state`, which are created when they are
first needed. Errors by key: COORDINATOR_NOT_AVAILABLE (no leader yet), INVALID_REQUEST (any other
type of key).
"""

from collections.abc import Awaitable, Callable
from enum import IntEnum

from barnabas.broker.metadata.cache import MetadataCache
from barnabas.broker.metadata.topic_names import CONSUMER_OFFSETS, TRANSACTION_STATE
from barnabas.broker.server.context import RequestContext
from barnabas.coordinator.group.coordinator import GroupCoordinator
from barnabas.coordinator.transaction.coordinator import TransactionCoordinator
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.find_coordinator import (
    API,
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

__all__ = ["API", "SERVES", "FindCoordinatorHandler", "error_response"]

SERVES = range(7)
_BATCHED_SINCE = 4
_NO_NODE = -1


class KeyType(IntEnum):
    """What a key is the name of."""

    GROUP = 0
    TRANSACTION = 1
    SHARE = 2


class FindCoordinatorHandler:
    """Any broker may be asked."""

    def __init__(
        self,
        groups: GroupCoordinator,
        transactions: TransactionCoordinator,
        cache: MetadataCache,
        ensure_topic: Callable[[str], Awaitable[None]],
    ) -> None:
        """`ensure_topic` makes an internal topic, or raises COORDINATOR_NOT_AVAILABLE."""
        self._places: dict[int, tuple[str, Callable[[str], int]]] = {
            KeyType.GROUP: (CONSUMER_OFFSETS, groups.partition_of),
            KeyType.TRANSACTION: (TRANSACTION_STATE, transactions.partition_of),
        }
        self._cache = cache
        self._ensure_topic = ensure_topic

    async def handle(
        self, request: FindCoordinatorRequest, context: RequestContext
    ) -> FindCoordinatorResponse:
        batched = context.api_version >= _BATCHED_SINCE
        keys = request.coordinator_keys if batched else [request.key]
        found = [await self._find(key, request.key_type, context.listener) for key in keys]
        return FindCoordinatorResponse(coordinators=found) if batched else _single(found[0])

    async def _find(self, key: str, key_type: int, listener: str) -> Coordinator:
        try:
            if key_type not in self._places:
                raise KafkaError(ErrorCode.INVALID_REQUEST)
            topic, partition_of = self._places[key_type]
            await self._ensure_topic(topic)
            return self._leader(key, topic, partition_of(key), listener)
        except KafkaError as error:
            return _error(key, error.code)

    def _leader(self, key: str, topic: str, index: int, listener: str) -> Coordinator:
        partition = self._cache.partition(topic, index)
        if partition is not None:
            endpoint = self._cache.endpoint(partition.leader, listener)
            if endpoint is not None:
                return Coordinator(
                    key=key, node_id=partition.leader, host=endpoint.host, port=endpoint.port
                )
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)


def _error(key: str, code: ErrorCode) -> Coordinator:
    return Coordinator(key=key, node_id=_NO_NODE, port=-1, error_code=code, error_message=code.text)


def _single(found: Coordinator) -> FindCoordinatorResponse:
    """The answer of the versions that know one key only. Success has a message there, in Kafka."""
    return FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=found.error_message or ErrorCode.NONE.name,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


def error_response(
    request: FindCoordinatorRequest, code: ErrorCode, version: int
) -> FindCoordinatorResponse:
    """The error for every key."""
    if version >= _BATCHED_SINCE:
        return FindCoordinatorResponse(
            coordinators=[_error(key, code) for key in request.coordinator_keys]
        )
    return _single(_error(request.key, code))
