"""DescribeProducers on replicas that follow; for leaders see `test_transactions_for_people.py`."""

from barnabas.broker.handlers.describe_producers import handle
from barnabas.broker.server.context import RequestContext
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.describe_producers import (
    API,
    DescribeProducersRequest,
    PartitionResponse,
    TopicRequest,
)
from barnabas.protocol.records.record import Record, build_batch
from barnabas.security.principal import ANONYMOUS
from tests.support.steps import taken
from tests.unit.broker.handlers.leading import leading

BATCH = build_batch(
    [Record(0, 1, None, b"written")],
    producer_id=7,
    producer_epoch=3,
    base_sequence=0,
)


async def test_follower_describes_producers_as_find_hanging_needs() -> None:
    replica = await leading()
    replica.partition().append(BATCH, now_ms=1)
    await replica.lead(0, leader=1, epoch=1)
    context = RequestContext(API.key, 0, 1, "c", ANONYMOUS, "CLIENTS", "h", 1, 0)

    def described(topic: str) -> PartitionResponse:
        asked = [TopicRequest(name=topic, partition_indexes=[0, 0]) for _ in range(2)]
        request = DescribeProducersRequest(topics=asked)
        answer, _ = taken(handle(replica.replicas.manager, request, context))
        # The producers of a partition may be many: they are named once.
        (partition,) = (each for topic in answer.topics for each in topic.partitions)
        return partition

    found = described("t0")
    assert found.error_code == ErrorCode.NONE
    (state,) = found.active_producers
    assert (state.producer_id, state.producer_epoch, state.last_sequence) == (7, 3, 0)
    assert described("t1").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    await replica.replicas.fetchers.stop()


async def test_many_producers_of_a_partition_are_described_in_steps() -> None:
    replica = await leading()
    for number in range(100):
        batch = build_batch(
            [Record(0, 1, None, b"v")], producer_id=number, producer_epoch=0, base_sequence=0
        )
        replica.partition().append(batch, now_ms=1)
    context = RequestContext(API.key, 0, 1, "c", ANONYMOUS, "CLIENTS", "h", 1, 0)
    request = DescribeProducersRequest(topics=[TopicRequest(name="t0", partition_indexes=[0])])
    answer, steps = taken(handle(replica.replicas.manager, request, context))
    assert len(answer.topics[0].partitions[0].active_producers) == 100
    assert steps >= 100
