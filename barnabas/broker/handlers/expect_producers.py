"""ExpectProducers (key 10000), between brokers only: note which producers are about to write.

It comes over the connection of the coordinator's markers, so that none can be overtaken by the
marker of its transaction. There is no response: a message that gets lost costs a question.
"""

from typing import NoReturn

from barnabas.broker.cluster.topic_names import INTERNAL_TOPICS
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.broker.security.rights import OF_BROKERS
from barnabas.broker.server.context import CloseConnection, RequestContext
from barnabas.broker.transactions.marker_origins import MarkerOrigins
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.expect_producers import API, ExpectProducersRequest
from barnabas.protocol.records.batch import NO_SEQUENCE
from barnabas.protocol.records.claim import Claim
from barnabas.protocol.topic_partition import TopicPartition

__all__ = ["API", "RIGHTS", "error_response", "handle"]

RIGHTS = OF_BROKERS


def handle(
    replicas: ReplicaManager,
    origins: MarkerOrigins,
    request: ExpectProducersRequest,
    context: RequestContext,
) -> None:
    """Note the producers of partitions that this broker leads."""
    if origins.is_outdated(context):
        # Markers have come over a later connection: they may have ended the transactions.
        return
    for each in request.producers:
        partition = replicas.find(TopicPartition(each.topic, each.partition_index))
        if partition is not None and each.topic not in INTERNAL_TOPICS:
            claim = Claim(
                each.transactional_id,
                each.producer_id,
                each.producer_epoch,
                NO_SEQUENCE,
                epoch_per_transaction=False,
                principal=each.principal,
            )
            partition.expect(claim, each.coordinator_epoch)


def error_response(_request: object, _code: ErrorCode, _version: int) -> NoReturn:
    """Close the connection: the protocol has no response."""
    raise CloseConnection
