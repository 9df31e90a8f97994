"""Produce, Fetch and the offsets of a log, request by request on a running broker."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from barnabas.broker.cluster import znodes
from barnabas.client.connection import BrokerUnreachable
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import (
    api_versions,
    delete_records,
    describe_log_dirs,
    init_producer_id,
    metadata,
    offset_for_leader_epoch,
    produce,
)
from tests.support.data_path import NOW_MS, Client, batch, connected, running
from tests.support.waiting import eventually


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[Client]:
    """A client of a broker that has the topic `t` with one partition."""
    async with running(tmp_path) as broker, connected(broker) as connected_client:
        await connected_client.create()
        yield connected_client


@pytest.mark.parametrize("version", [3, 8, 12])
async def test_fetch_returns_produced_records(client: Client, version: int) -> None:
    answer = await client.produce(batch(b"a", b"b"), version=version)
    assert (answer.error_code, answer.base_offset) == (0, 0)
    assert (await client.produce(batch(b"c"), version=version)).base_offset == 2
    fetched = await client.fetch_one(0)
    assert fetched.high_watermark == fetched.last_stable_offset == 3
    assert bytes(fetched.records).endswith(batch(b"c")[61:])
    assert len(fetched.records) == len(batch(b"a", b"b")) + len(batch(b"c"))


async def test_topic_ids_name_the_topic(client: Client) -> None:
    topic_id = await client.create("named")
    answer = await client.produce(batch(b"a"), topic="", topic_id=topic_id, version=13)
    assert answer.error_code == 0
    fetched = await client.fetch_one(0, topic="", topic_id=topic_id, version=18)
    assert fetched.high_watermark == 1
    unknown = bytes(range(16))
    answer = await client.produce(batch(b"a"), topic="", topic_id=unknown, version=13)
    assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_ID
    fetched = await client.fetch_one(0, topic="", topic_id=unknown, version=18)
    assert fetched.error_code == ErrorCode.UNKNOWN_TOPIC_ID


async def test_acks_other_than_minus_1_0_and_1_are_refused(client: Client) -> None:
    assert (await client.produce(batch(b"a"), acks=1)).error_code == 0
    answer = await client.produce(batch(b"a"), acks=2)
    assert answer.error_code == ErrorCode.INVALID_REQUIRED_ACKS
    assert answer.base_offset == -1


def request_without_acks(topic: str) -> produce.ProduceRequest:
    data = produce.PartitionProduceData(index=0, records=batch(b"x"))
    return produce.ProduceRequest(
        acks=0,
        timeout_ms=1000,
        topic_data=[produce.TopicProduceData(name=topic, partition_data=[data])],
    )


async def send_without_acks(client: Client, topic: str) -> None:
    client.connection.broker_versions[produce.API.key] = range(3, 13)
    await client.connection.send_only(produce.API, request_without_acks(topic))


async def test_acks_0_is_not_answered(client: Client) -> None:
    await send_without_acks(client, "t")
    assert (await client.list_offset(-1)).offset == 1


async def test_an_error_with_acks_0_closes_the_connection(client: Client) -> None:
    await send_without_acks(client, "missing")
    with pytest.raises(BrokerUnreachable):
        await client.list_offset(-1)


async def test_clients_cannot_write_internal_topics(client: Client) -> None:
    await client.connection.request(
        metadata.API,
        metadata.MetadataRequest(
            topics=[metadata.MetadataRequestTopic(name="__consumer_offsets")],
            allow_auto_topic_creation=True,
        ),
    )
    answer = await client.produce(batch(b"a"), topic="__consumer_offsets")
    assert answer.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


async def test_transactional_batch_of_an_unknown_transaction_is_refused(client: Client) -> None:
    records = batch(b"a", producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    answer = await client.produce(records, transactional_id="t")
    assert answer.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    answer = await client.produce(records)
    assert answer.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert (await client.list_offset(-1)).offset == 0


async def test_a_repeated_batch_gets_its_first_offset(client: Client) -> None:
    request = init_producer_id.InitProducerIdRequest(
        transactional_id=None, transaction_timeout_ms=0
    )
    given = await client.connection.request(init_producer_id.API, request)
    options = {"producer_id": given.producer_id, "producer_epoch": given.producer_epoch}
    first = batch(b"a", base_sequence=0, **options)
    assert (await client.produce(first)).base_offset == 0
    assert (await client.produce(batch(b"b", base_sequence=1, **options))).base_offset == 1
    again = await client.produce(first)
    assert (again.error_code, again.base_offset) == (0, 0)
    gap = await client.produce(batch(b"d", base_sequence=3, **options))
    assert gap.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert (await client.list_offset(-1)).offset == 2


async def test_broker_reserves_producer_ids_before_the_first_request(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        store = broker._core.store
        await eventually(lambda: store.exists(znodes.PRODUCER_ID_BLOCK))
        block, _ = await store.get(znodes.PRODUCER_ID_BLOCK)
        assert znodes.decode_producer_id_block(block).first == 0


async def test_producer_ids_differ_and_transactional_ids_have_a_coordinator(client: Client) -> None:
    def request(transactional_id: str | None) -> init_producer_id.InitProducerIdRequest:
        return init_producer_id.InitProducerIdRequest(
            transactional_id=transactional_id, transaction_timeout_ms=1000
        )

    ids = [
        (await client.connection.request(init_producer_id.API, request(None))).producer_id
        for _ in range(3)
    ]
    assert len(set(ids)) == 3
    answer = await client.connection.request(init_producer_id.API, request("x"))
    assert answer.error_code == ErrorCode.NOT_COORDINATOR
    answer = await client.connection.request(init_producer_id.API, request(""))
    assert answer.error_code == ErrorCode.INVALID_REQUEST


async def test_missing_and_damaged_records_are_refused(client: Client) -> None:
    damaged = bytearray(batch(b"abc"))
    damaged[-1] ^= 1
    assert (await client.produce(bytes(damaged))).error_code == ErrorCode.CORRUPT_MESSAGE
    assert (await client.produce(b"")).error_code == ErrorCode.INVALID_RECORD
    answer = await client.produce(batch(b"a"), topic="missing")
    assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_parked_fetch_is_woken_by_an_append(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as one, connected(broker) as other:
        await one.create()
        parked = asyncio.create_task(one.fetch_one(0, max_wait_ms=30_000))
        await asyncio.sleep(0.02)
        assert not parked.done()
        await other.produce(batch(b"a"))
        assert len((await parked).records) == len(batch(b"a"))


async def test_a_parked_fetch_waits_for_min_bytes(tmp_path: Path) -> None:
    size = len(batch(b"a"))
    async with running(tmp_path) as broker, connected(broker) as one, connected(broker) as other:
        await one.create()
        wanted = one.fetch_one(0, max_wait_ms=30_000, min_bytes=2 * size)
        parked = asyncio.create_task(wanted)
        await other.produce(batch(b"a"))
        await asyncio.sleep(0.02)
        assert not parked.done()
        await other.produce(batch(b"b"))
        assert len((await parked).records) == 2 * size


async def test_empty_fetch_answers_after_max_wait(client: Client) -> None:
    started = asyncio.get_running_loop().time()
    assert len((await client.fetch_one(0, max_wait_ms=50)).records) == 0
    assert asyncio.get_running_loop().time() - started >= 0.045


async def test_fetch_returns_the_first_batch_whole_and_bounds_the_rest_by_max_bytes(
    client: Client,
) -> None:
    for _ in range(3):
        await client.produce(batch(bytes(1000)))
    size = len(batch(bytes(1000)))
    assert len((await client.fetch_one(0, max_bytes=10)).records) == size
    assert len((await client.fetch_one(0, max_bytes=2 * size + 10)).records) == 2 * size


async def test_incremental_fetch_returns_only_changed_partitions(client: Client) -> None:
    opened = await client.fetch(0, session_epoch=0)
    assert opened.session_id > 0
    await client.produce(batch(b"a"))
    news = await client.fetch(0, session_id=opened.session_id, session_epoch=1)
    assert len(news.responses[0].partitions[0].records) > 0
    quiet = await client.fetch(1, session_id=opened.session_id, session_epoch=2)
    assert quiet.responses == []
    wrong = await client.fetch(1, session_id=opened.session_id, session_epoch=7)
    assert wrong.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    unknown = await client.fetch(1, session_id=opened.session_id + 1, session_epoch=3)
    assert unknown.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


async def test_fetch_errors(client: Client) -> None:
    out = await client.fetch_one(5)
    assert out.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert out.high_watermark == -1
    behind = await client.fetch_one(0, leader_epoch=99)
    assert behind.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    missing = await client.fetch_one(0, topic="missing")
    assert missing.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    follower = await client.fetch_one(0, replica_id=3)
    assert follower.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_read_committed_has_a_list_of_aborted_transactions(client: Client) -> None:
    await client.produce(batch(b"a"))
    assert (await client.fetch_one(0, isolation_level=1)).aborted_transactions == []
    assert (await client.fetch_one(0, isolation_level=0)).aborted_transactions is None


async def test_fetch_with_an_unknown_last_epoch_returns_the_diverging_epoch(
    client: Client,
) -> None:
    await client.produce(batch(b"a"))
    epoch = (await client.list_offset(-1)).leader_epoch
    same = await client.fetch_one(0, last_fetched_epoch=epoch)
    assert len(same.records) > 0
    request = offset_for_leader_epoch.OffsetForLeaderEpochRequest(
        topics=[
            offset_for_leader_epoch.OffsetForLeaderTopic(
                topic="t",
                partitions=[
                    offset_for_leader_epoch.OffsetForLeaderPartition(
                        partition=0, leader_epoch=epoch
                    )
                ],
            )
        ]
    )
    answer = await client.connection.request(offset_for_leader_epoch.API, request)
    assert answer.topics[0].partitions[0].end_offset == 1


async def test_offsets_by_time(client: Client) -> None:
    await client.produce(batch(b"a", b"b", b"c"))
    assert (await client.list_offset(-1)).offset == 3
    assert (await client.list_offset(-2)).offset == 0
    greatest = await client.list_offset(-3)
    assert (greatest.offset, greatest.timestamp) == (2, NOW_MS + 2)
    assert (await client.list_offset(-4)).offset == 0
    assert (await client.list_offset(-5)).offset == -1
    assert (await client.list_offset(-6)).offset == -1
    assert (await client.list_offset(NOW_MS + 1)).offset == 1
    assert (await client.list_offset(NOW_MS + 9)).offset == -1
    assert (await client.list_offset(-3, version=6)).error_code == ErrorCode.UNSUPPORTED_VERSION


async def delete_before(client: Client, offset: int, topic: str = "t") -> tuple[int, int]:
    request = delete_records.DeleteRecordsRequest(
        topics=[
            delete_records.DeleteRecordsTopic(
                name=topic,
                partitions=[
                    delete_records.DeleteRecordsPartition(partition_index=0, offset=offset)
                ],
            )
        ],
        timeout_ms=1000,
    )
    answer = await client.connection.request(delete_records.API, request)
    result = answer.topics[0].partitions[0]
    return result.error_code, result.low_watermark


async def test_deleting_records_moves_the_start(client: Client) -> None:
    await client.produce(batch(b"a", b"b", b"c"))
    assert await delete_before(client, 2) == (0, 2)
    assert (await client.list_offset(-2)).offset == 2
    assert (await client.fetch_one(1)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert await delete_before(client, 9) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert await delete_before(client, -1) == (0, 3)
    await client.create("compacted", cleanup_policy="compact")
    assert await delete_before(client, 0, "compacted") == (ErrorCode.POLICY_VIOLATION, -1)


async def test_log_directories_are_described(client: Client, tmp_path: Path) -> None:
    await client.produce(batch(b"a"))
    request = describe_log_dirs.DescribeLogDirsRequest(topics=None)
    (answer,) = (await client.connection.request(describe_log_dirs.API, request)).results
    assert answer.log_dir == str(tmp_path)
    assert answer.topics[0].partitions[0].partition_size == len(batch(b"a"))
    assert answer.total_bytes > answer.usable_bytes > 0


async def test_api_versions_lists_the_served_apis(client: Client) -> None:
    def request(name: str) -> api_versions.ApiVersionsRequest:
        return api_versions.ApiVersionsRequest(
            client_software_name=name, client_software_version="1"
        )

    answer = await client.connection.request(api_versions.API, request("test"))
    served = {row.api_key: (row.min_version, row.max_version) for row in answer.api_keys}
    assert served[produce.API.key] == (0, 13)
    assert served[api_versions.API.key] == (0, 5)
    features = {row.name: row.max_version_level for row in answer.finalized_features}
    levels = {"transaction.version": 2, "group.version": 1, "barnabas.transaction.registration": 1}
    assert features == levels
    assert answer.finalized_features_epoch >= 0
    answer = await client.connection.request(api_versions.API, request("not a name"))
    assert answer.error_code == ErrorCode.INVALID_REQUEST
