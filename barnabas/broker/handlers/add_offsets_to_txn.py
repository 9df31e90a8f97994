"""AddOffsetsToTxn (key 25): a transaction of the older protocol will commit a group's offsets.

The partition of `__consumer_offsets` that holds the group joins the transaction.
"""

from barnabas.broker.cluster.topic_names import CONSUMER_OFFSETS
from barnabas.broker.groups.group_service import GroupService
from barnabas.broker.security.rights import GROUP, READ, TRANSACTIONAL_ID, WRITE, Need, Rights
from barnabas.broker.server.context import RequestContext
from barnabas.coordinator.soon import Soon, map_answer
from barnabas.coordinator.transaction.coordinator import TransactionCoordinator
from barnabas.coordinator.transaction.metadata import TV0, Producer
from barnabas.coordinator.transaction.partitions import AddPartitions
from barnabas.protocol.messages.add_offsets_to_txn import (
    API,
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from barnabas.protocol.topic_partition import TopicPartition

__all__ = ["API", "RIGHTS", "handle"]

RIGHTS = Rights(
    whole=(Need(WRITE, TRANSACTIONAL_ID, "transactional_id"), Need(READ, GROUP, "group_id"))
)


def handle(
    transactions: TransactionCoordinator,
    groups: GroupService,
    request: AddOffsetsToTxnRequest,
    context: RequestContext,
) -> Soon[AddOffsetsToTxnResponse]:
    """Ask the transaction coordinator, which must be this broker; the group's coordinator may be
    another one."""
    answer = transactions.add_partitions(
        AddPartitions(
            request.transactional_id,
            Producer(request.producer_id, request.producer_epoch),
            (TopicPartition(CONSUMER_OFFSETS, groups.partition_of(request.group_id)),),
            TV0,
            context.connection_id,
            context.owner,
        )
    )
    return map_answer(answer, lambda _: AddOffsetsToTxnResponse())
