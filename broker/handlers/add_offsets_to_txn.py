"""AddOffsetsToTxn (key 25): a transaction of the older protocol will commit a group's offsets.

What joins the transaction is the partition of `__consumer_offsets` that holds them.
"""

from barnabas.broker.metadata.topic_names import CONSUMER_OFFSETS
from barnabas.broker.server.context import RequestContext
from barnabas.coordinator.group.coordinator import GroupCoordinator
from barnabas.coordinator.soon import Soon, then
from barnabas.coordinator.transaction.coordinator import TransactionCoordinator
from barnabas.coordinator.transaction.metadata import Producer
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.add_offsets_to_txn import (
    API,
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)

__all__ = ["API", "SERVES", "AddOffsetsToTxnHandler", "error_response"]

SERVES = range(5)


class AddOffsetsToTxnHandler:
    """Asks the transaction coordinator, which must be this broker; the group's may be another."""

    def __init__(self, coordinator: TransactionCoordinator, groups: GroupCoordinator) -> None:
        self._coordinator = coordinator
        self._groups = groups

    def handle(
        self, request: AddOffsetsToTxnRequest, context: RequestContext
    ) -> Soon[AddOffsetsToTxnResponse]:
        answer = self._coordinator.add_partitions(
            request.transactional_id,
            Producer(request.producer_id, request.producer_epoch),
            ((CONSUMER_OFFSETS, self._groups.partition_of(request.group_id)),),
            connection=context.connection_id,
        )
        return then(answer, lambda _: AddOffsetsToTxnResponse())


def error_response(
    _request: AddOffsetsToTxnRequest, code: ErrorCode, _version: int
) -> AddOffsetsToTxnResponse:
    """The error alone."""
    return AddOffsetsToTxnResponse(error_code=code)
