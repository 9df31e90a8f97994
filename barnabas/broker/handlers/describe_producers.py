"""DescribeProducers (key 61): the producers that a replica remembers (KIP-664)."""

from functools import partial
from typing import Any

from barnabas.broker.cluster.topic_names import check_name, why_unknown
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.broker.security.rights import READ, TOPIC, Each, Need, Rights
from barnabas.broker.server.context import RequestContext
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.describe_producers import (
    API,
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicRequest,
    TopicResponse,
)
from barnabas.protocol.steps import Steps, in_steps, unseen
from barnabas.storage.producers.entry import ProducerStateEntry

__all__ = ["API", "RIGHTS", "handle"]


def _is_legal(topic: TopicRequest) -> bool:
    """Return whether the topic's name is legal."""
    return why_unknown(topic.name) is not ErrorCode.INVALID_TOPIC_EXCEPTION


def _refused_topic(topic: TopicRequest, code: ErrorCode, _version: int) -> Steps[Any]:
    refused = yield from in_steps(partial(_refused, code=code), topic.partition_indexes)
    return TopicResponse(name=topic.name, partitions=refused)


RIGHTS = Rights(
    each=Each("topics", (Need(READ, TOPIC, "name", when=_is_legal),), _refused_topic, "topics")
)

_NO_OFFSET = -1


def handle(
    replicas: ReplicaManager,
    request: DescribeProducersRequest,
    _context: RequestContext,
) -> Steps[DescribeProducersResponse]:
    """Describe replicas of this broker, leader or not, each once: tools ask each broker."""
    response = DescribeProducersResponse(topics=[])
    seen: set[tuple[str, int]] = set()
    for topic in request.topics:
        yield None
        named = ((topic.name, index) for index in topic.partition_indexes)
        asked = yield from unseen(named, seen)
        described = []
        for name, index in asked:
            described.append((yield from _describe(replicas, name, index)))
        response.topics.append(TopicResponse(name=topic.name, partitions=described))
    return response


def _describe(replicas: ReplicaManager, topic: str, index: int) -> Steps[PartitionResponse]:
    yield None
    try:
        check_name(topic)
        partition = replicas.partition(topic, index)
    except KafkaError as error:
        return _refused(index, error.code)
    # Copied at once, because a thread may truncate the log of a follower.
    producers = list(partition.log.producers)
    states = yield from in_steps(_state, producers)
    return PartitionResponse(partition_index=index, active_producers=states)


def _state(entry: ProducerStateEntry) -> ProducerState:
    first = entry.current_txn_first_offset
    return ProducerState(
        producer_id=entry.producer_id,
        producer_epoch=entry.producer_epoch,
        last_sequence=entry.last_sequence,
        last_timestamp=entry.last_timestamp,
        coordinator_epoch=entry.coordinator_epoch,
        current_txn_start_offset=_NO_OFFSET if first is None else first,
    )


def _refused(index: int, code: ErrorCode) -> PartitionResponse:
    return PartitionResponse(
        partition_index=index, error_code=code, error_message=code.text, active_producers=[]
    )
