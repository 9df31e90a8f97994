"""DescribeProducers on replicas that follow; for leaders see `test_transactions_for_people.py`."""

from barnabas.broker.handlers.describe_producers import DescribeProducersHandler
from barnabas.broker.server.context import RequestContext
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.describe_producers import (
    API,
    DescribeProducersRequest,
    PartitionResponse,
    TopicRequest,
)
from barnabas.protocol.records.record import Record, build_batch
from tests.unit.broker.handlers.leading import leading

BATCH = build_batch(
    [Record(0, 1, None, b"written")],
    producer_id=7,
    producer_epoch=3,
    base_sequence=0,
)


async def test_a_follower_refused_to_say_who_writes_and_kafkas_find_hanging_failed() -> None:
    replica = await leading()
    replica.partition().append_as_leader(BATCH, now_ms=1)
    await replica.lead(0, leader=1, epoch=1)
    context = RequestContext(API.key, 0, 1, "c", "User:ANONYMOUS", "CLIENTS", "h", 1, 0)

    def described(topic: str) -> PartitionResponse:
        request = DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=[0])])
        handler = DescribeProducersHandler(replica.replicas.manager)
        return handler.handle(request, context).topics[0].partitions[0]

    found = described("t0")
    assert found.error_code == ErrorCode.NONE
    (state,) = found.active_producers
    assert (state.producer_id, state.producer_epoch, state.last_sequence) == (7, 3, 0)
    assert described("t1").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    await replica.replicas.fetchers.stop()
