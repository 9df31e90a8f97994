"""Fetch for followers: what they are sent, and what they tell the leader by asking for it."""

import asyncio
from typing import Any

import pytest

from barnabas.broker.handlers.fetch import FetchHandler
from barnabas.broker.metadata.cache import BrokerNode, Endpoint
from barnabas.broker.replication.fetch_lookup import FetchLookup
from barnabas.broker.replication.fetch_session import FetchedPartition, FetchSessionCache
from barnabas.broker.replication.follower_read import FollowerServices
from barnabas.broker.replication.partition import Partition
from barnabas.broker.replication.record_deletion import delete_records
from barnabas.broker.replication.replica_selector import ReplicaSelector
from barnabas.broker.server.context import RequestContext
from barnabas.config.replication_keys import RACK_AWARE_SELECTOR
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.fetch import (
    API,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)
from barnabas.protocol.records.record import Record, build_batch
from tests.unit.broker.replication.replicas import Replicas

BATCH = build_batch([Record(0, 1, b"k", b"v" * 50, ())])


def topic_id(number: int) -> bytes:
    return bytes(15) + bytes([number + 1])


class CountingLookup(FetchLookup):
    """Says how many partitions a request looked at."""

    looks = 0

    def find(self, fetched: FetchedPartition) -> Partition:
        self.looks += 1
        return super().find(fetched)


class Leader:
    """A broker that leads topics 0, 1, 2 ... of one partition, and a follower of them."""

    def __init__(self, topics: int, **configs: str) -> None:
        self.topics = range(topics)
        self.replicas = Replicas(**configs)
        self.lookup = CountingLookup(self.replicas.manager, self.replicas.cache)
        self.sessions = FetchSessionCache(10, iter(range(1, 100)).__next__)
        self.selector: str | None = None
        self.handler = FetchHandler(
            self.replicas.cache,
            self.sessions,
            self.replicas.clock,
            lookup=self.lookup,
            selector=ReplicaSelector(0, self.replicas.cache, lambda: self.selector),
            followers=FollowerServices(
                self.lookup, self.replicas.quotas.leader, self.replicas.metrics.replication
            ),
            max_bytes=lambda: 1 << 20,
        )
        self.session_id, self.session_epoch = 0, 0
        self.ends: dict[int, int] = {}

    async def lead(self, topic: int, **state: Any) -> None:
        state = {"isr": (0, 1), "replicas": (0, 1)} | state
        await self.replicas.lead(topic=f"t{topic}", topic_id=topic_id(topic), **state)
        self.replicas.cache._names[topic_id(topic)] = f"t{topic}"

    def partition(self, topic: int = 0) -> Partition:
        return self.replicas.manager.partition(f"t{topic}", 0)

    def append(self, topic: int = 0) -> None:
        self.partition(topic).append_as_leader(BATCH, now_ms=1)

    def ask(
        self,
        ends: dict[int, int] | None = None,
        *,
        replica: int = 1,
        broker_epoch: int = 1,
        inter_broker: bool = True,
        leader_epoch: int = 0,
        epochs: dict[int, int] | None = None,
        forget: tuple[int, ...] = (),
        **fields: Any,
    ) -> Any:
        """The next request of the follower's session; `ends` says what has changed in it."""
        ends = dict.fromkeys(self.topics, 0) if ends is None else ends
        request = FetchRequest(
            **{"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20} | fields,
            replica_state=ReplicaState(replica_id=replica, replica_epoch=broker_epoch),
            session_id=self.session_id,
            session_epoch=self.session_epoch,
            topics=[
                FetchTopic(
                    topic_id=topic_id(topic),
                    partitions=[
                        FetchPartition(
                            partition=0,
                            current_leader_epoch=leader_epoch,
                            fetch_offset=end,
                            last_fetched_epoch=(epochs or {}).get(topic, -1),
                            log_start_offset=0,
                            partition_max_bytes=1 << 20,
                        )
                    ],
                )
                for topic, end in ends.items()
            ],
            forgotten_topics_data=[
                ForgottenTopic(topic_id=topic_id(topic), partitions=[0]) for topic in forget
            ],
        )
        context = RequestContext(
            API.key, 17, 1, "c", "User:ANONYMOUS", "BROKERS", "h", 1, 0, inter_broker
        )
        self.lookup.looks = 0
        return self.handler.handle(request, context)

    def session(self, response: Any) -> dict[int, PartitionData]:
        """Go on in the session of an answer; what it says, by topic."""
        self.session_id = response.session_id
        self.session_epoch += 1
        return {topic.topic_id[-1] - 1: topic.partitions[0] for topic in response.responses}


async def leading(topics: int = 1, **configs: str) -> Leader:
    leader = Leader(topics, **configs)
    for topic in leader.topics:
        await leader.lead(topic)
    return leader


def sizes(answers: dict[int, PartitionData]) -> dict[int, int]:
    return {topic: len(answer.records or b"") // len(BATCH) for topic, answer in answers.items()}


async def test_a_follower_reads_what_is_not_committed_and_commits_it_by_asking_for_more() -> None:
    leader = await leading()
    leader.append()
    answer = leader.session(leader.ask())
    assert sizes(answer) == {0: 1}
    assert leader.partition().high_watermark == 0
    answer = leader.session(leader.ask({0: 1}))
    assert leader.partition().high_watermark == 1
    assert answer[0].high_watermark == 1
    out = leader.replicas.metrics.replication.bytes_out.cell().value
    assert out == len(BATCH)


async def test_only_partitions_that_changed_are_looked_at_however_many_there_are() -> None:
    leader = await leading(50)
    assert len(leader.session(leader.ask())) == 50
    assert leader.lookup.looks == 50
    assert leader.session(leader.ask({})) == {}
    assert leader.lookup.looks == 0
    waiting = leader.ask({}, max_wait_ms=20_000)
    leader.append(7)
    answer = leader.session(await asyncio.wait_for(waiting, 5))
    assert sizes(answer) == {7: 1}
    assert leader.lookup.looks == 1
    answer = leader.session(leader.ask({7: 1}))
    assert answer[7].high_watermark == 1
    assert leader.lookup.looks == 1


async def test_records_that_were_not_asked_for_again_are_sent_again() -> None:
    leader = await leading(2)
    leader.session(leader.ask())
    leader.append(1)
    assert sizes(leader.session(leader.ask({}))) == {1: 1}
    assert sizes(leader.session(leader.ask({}))) == {1: 1}


async def test_a_parked_follower_learns_the_high_watermark_though_no_records_come() -> None:
    leader = await leading()
    await leader.lead(0, isr=(0, 1, 2), replicas=(0, 1, 2))
    leader.append()
    leader.session(leader.ask())
    waiting = leader.ask({0: 1}, max_wait_ms=20_000)
    assert leader.partition().high_watermark == 0
    leader.replicas.fetched(2, 1, topic="t0")
    answer = leader.session(await asyncio.wait_for(waiting, 5))
    assert answer[0].high_watermark == 1
    assert not answer[0].records


async def test_deleted_records_are_told_to_a_follower_that_is_parked() -> None:
    leader = await leading()
    leader.append()
    leader.session(leader.ask())
    leader.session(leader.ask({0: 1}))
    waiting = leader.ask({}, max_wait_ms=20_000)
    delete_records(leader.partition(), 1)
    answer = leader.session(await asyncio.wait_for(waiting, 5))
    assert answer[0].log_start_offset == 1


async def test_a_log_that_diverges_acknowledges_nothing() -> None:
    """KAFKA-13141: the high watermark advanced over what the follower was about to truncate."""
    leader = await leading()
    leader.append()
    leader.append()
    await leader.lead(0, epoch=5)
    leader.append()
    leader.session(leader.ask({0: 0}, leader_epoch=5))
    answer = leader.session(leader.ask({0: 3}, leader_epoch=5, epochs={0: 3}))
    assert (answer[0].diverging_epoch.epoch, answer[0].diverging_epoch.end_offset) == (0, 2)
    assert leader.partition().high_watermark == 0
    assert leader.partition().in_sync.followers[1].log_end == 0


async def test_another_leader_epoch_is_told_to_a_parked_follower_at_once() -> None:
    leader = await leading(2)
    leader.session(leader.ask())
    waiting = leader.ask({}, max_wait_ms=20_000)
    await leader.lead(1, epoch=1)
    answer = leader.session(await asyncio.wait_for(waiting, 5))
    assert {topic: each.error_code for topic, each in answer.items()} == {
        1: ErrorCode.FENCED_LEADER_EPOCH
    }


async def test_a_leader_that_is_none_any_more_says_so_to_a_parked_follower() -> None:
    leader = await leading(2)
    leader.session(leader.ask())
    waiting = leader.ask({}, max_wait_ms=20_000)
    await leader.lead(0, leader=2, isr=(2,), replicas=(0, 1, 2), epoch=1)
    answer = leader.session(await asyncio.wait_for(waiting, 5))
    assert answer[0].error_code == ErrorCode.FENCED_LEADER_EPOCH
    await leader.replicas.fetchers.stop()


@pytest.mark.parametrize(("replica", "broker_epoch"), [(3, 1), (1, 0)])
async def test_who_has_no_replica_or_is_of_the_past_gets_nothing(
    replica: int, broker_epoch: int
) -> None:
    leader = await leading()
    leader.append()
    leader.replicas.fetched(1, 0, topic="t0", broker_epoch=1)
    answer = leader.session(leader.ask({0: 1}, replica=replica, broker_epoch=broker_epoch))
    assert answer[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert leader.partition().high_watermark == 0


async def test_where_clients_are_nobody_is_a_follower() -> None:
    leader = await leading()
    leader.append()
    with pytest.raises(KafkaError) as caught:
        leader.ask({0: 1}, inter_broker=False)
    assert caught.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert leader.partition().high_watermark == 0


async def test_a_session_is_its_owners_alone() -> None:
    leader = await leading()
    leader.session(leader.ask())
    with pytest.raises(KafkaError) as caught:
        leader.ask({0: 1}, replica=2)
    assert caught.value.code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


async def test_a_new_incarnation_in_an_old_session_is_known_everywhere() -> None:
    leader = await leading(3)
    leader.session(leader.ask())
    leader.session(leader.ask({}, broker_epoch=9))
    epochs = [leader.partition(topic).in_sync.followers[1].broker_epoch for topic in range(3)]
    assert epochs == [9, 9, 9]


async def test_partitions_of_a_session_that_is_over_are_watched_no_more() -> None:
    leader = await leading(3)
    leader.session(leader.ask())
    leader.session(leader.ask({}, forget=(1,)))
    assert [len(leader.partition(topic).tails) for topic in range(3)] == [1, 0, 1]
    leader.session_epoch = 0
    leader.session(leader.ask())
    assert [len(leader.partition(topic).tails) for topic in range(3)] == [1, 1, 1]
    leader.session_epoch = -1
    leader.ask()
    assert [len(leader.partition(topic).tails) for topic in range(3)] == [0, 0, 0]


async def test_a_request_whose_connection_is_gone_leaves_nothing_behind() -> None:
    leader = await leading(2)
    waiting = leader.ask(max_wait_ms=20_000)
    waiting.cancel()
    await asyncio.sleep(0)
    assert [len(leader.partition(topic).tails) for topic in range(2)] == [0, 0]


async def test_max_bytes_serves_the_others_first_the_next_time() -> None:
    leader = await leading(2)
    for topic in (0, 1):
        leader.append(topic)
    size = len(BATCH)
    assert sizes(leader.session(leader.ask(max_bytes=size))) == {0: 1, 1: 0}
    assert sizes(leader.session(leader.ask({0: 1}, max_bytes=size)))[1] == 1


async def test_a_follower_out_of_sync_waits_where_the_leader_is_throttled() -> None:
    leader = await leading(leader_replication_throttled_replicas="*")
    quota = leader.replicas.quotas.leader
    quota._limit = lambda: 10
    leader.append()
    assert sizes(leader.session(leader.ask())) == {0: 1}
    assert quota.rate(leader.replicas.clock.seconds) == len(BATCH)
    assert sizes(leader.session(leader.ask({}))) == {0: 1}, "it is in sync"
    await leader.lead(0, isr=(0,))
    assert sizes(leader.session(leader.ask({}))) == {0: 0}


async def test_consumers_in_the_rack_of_a_follower_are_sent_there_once_it_has_the_offset() -> None:
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
        context = RequestContext(API.key, 17, 1, "c", "User:ANONYMOUS", "BROKERS", "h", 1, 0)
        response = leader.handler.handle(request, context)
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


async def test_a_follower_serves_consumers_up_to_what_it_knows_to_be_committed() -> None:
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
        context = RequestContext(API.key, version, 1, "c", "User:ANONYMOUS", "BROKERS", "h", 1, 0)
        return leader.handler.handle(request, context)

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
