"""KIP-392: consumers read from a follower in their rack, up to its high watermark."""

import asyncio
from typing import Any

from barnabas.broker.cluster.cache import BrokerNode, Endpoint
from barnabas.broker.handlers.fetch import handle
from barnabas.broker.server.context import RequestContext
from barnabas.config.replication_keys import RACK_AWARE_SELECTOR
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.fetch import (
    API,
    FetchPartition,
    FetchRequest,
    FetchTopic,
)
from barnabas.security.principal import ANONYMOUS
from tests.unit.broker.handlers.leading import BATCH, leading, topic_id


async def test_consumer_is_sent_to_follower_in_its_rack_that_has_the_offset() -> None:
    leader = await leading()
    leader.selector = RACK_AWARE_SELECTOR
    at = {"BROKERS": Endpoint("h", 1)}
    leader.replicas.cache._brokers = {
        0: BrokerNode(0, "a", at),
        1: BrokerNode(1, "b", at),
        2: BrokerNode(2, "b", at),
    }

    def preferred(rack: str, offset: int) -> int:
        request = FetchRequest(
            max_wait_ms=20_000,
            min_bytes=1,
            rack_id=rack,
            topics=[
                FetchTopic(
                    topic_id=topic_id(0),
                    partitions=[
                        FetchPartition(
                            partition=0, fetch_offset=offset, partition_max_bytes=1 << 20
                        )
                    ],
                )
            ],
        )
        context = RequestContext(API.key, 17, 1, "c", ANONYMOUS, "BROKERS", "h", 1, 0)
        response = handle(*leader.parts, request, context)  # type: ignore[call-arg]
        if isinstance(response, asyncio.Future):
            response.cancel()
            return -1
        found: int = response.responses[0].partitions[0].preferred_read_replica
        return found

    leader.append()
    assert preferred("b", 1) == -1
    leader.session(leader.ask({0: 1}))
    assert preferred("b", 1) == 1
    assert preferred("a", 1) == -1
    assert preferred("c", 1) == -1
    leader.selector = None
    assert preferred("b", 1) == -1
    leader.selector = RACK_AWARE_SELECTOR
    await leader.lead(0, isr=(0,))
    assert preferred("b", 1) == -1, "it may fall behind"


async def test_follower_serves_consumers_up_to_its_high_watermark() -> None:
    leader = await leading()
    leader.append()
    leader.append()
    await leader.lead(0, leader=1, epoch=1)
    partition = leader.partition()

    def fetch(version: int, **wanted: Any) -> Any:
        request = FetchRequest(
            max_wait_ms=wanted.pop("max_wait_ms", 0),
            min_bytes=1,
            topics=[
                FetchTopic(
                    topic="t0",
                    partitions=[
                        FetchPartition(
                            partition=0, fetch_offset=0, partition_max_bytes=1 << 20, **wanted
                        )
                    ],
                )
            ],
        )
        context = RequestContext(API.key, version, 1, "c", ANONYMOUS, "BROKERS", "h", 1, 0)
        return handle(*leader.parts, request, context)  # type: ignore[call-arg]

    def found(response: Any) -> tuple[int, int]:
        answer = response.responses[0].partitions[0]
        return answer.error_code, len(answer.records or b"") // len(BATCH)

    assert found(fetch(10)) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, 0)
    assert found(fetch(12)) == (ErrorCode.NONE, 0)
    assert found(fetch(12, current_leader_epoch=0)) == (ErrorCode.FENCED_LEADER_EPOCH, 0)
    waiting = fetch(12, max_wait_ms=20_000)
    partition.learn_high_watermark(1)
    assert found(await asyncio.wait_for(waiting, 5)) == (ErrorCode.NONE, 1)
    await leader.replicas.fetchers.stop()
