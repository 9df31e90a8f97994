"""Keys that change while the broker runs take effect at once, not only in DescribeConfigs."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.app import Broker
from barnabas.broker.cluster.topic_names import CONSUMER_OFFSETS
from barnabas.client.connection import BrokerUnreachable, Connection
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import (
    alter_configs,
    create_topics,
    find_coordinator,
    incremental_alter_configs,
)
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.records.batch import BatchHeader, iter_headers
from barnabas.protocol.records.compression import Compression
from barnabas.protocol.records.record import Record, build_batch
from barnabas.storage.log.truncation import truncate
from tests.support.data_path import NOW_MS, Client, batch, connected, running
from tests.support.waiting import eventually

TOPIC, BROKER = 2, 4
HOUR_MS = 3_600_000


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with running(tmp_path, log_retention_ms=-1, log_retention_check_interval_ms=20) as broker:
        yield broker


@pytest.fixture
async def client(broker: Broker) -> AsyncIterator[Client]:
    async with connected(broker) as client:
        await client.create()
        yield client


async def alter(client: Client, kind: int, name: str, **values: str | None) -> None:
    """Set keys of one resource, or delete their overrides where the value is None."""
    answer = await altered(client, kind, name, **values)
    assert answer.error_code == 0, answer.error_message


async def altered(client: Client, kind: int, name: str, **values: str | None) -> Any:
    """Return the answer to an alteration as `alter` asks for."""
    request = incremental_alter_configs.IncrementalAlterConfigsRequest(
        resources=[
            incremental_alter_configs.AlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=[
                    incremental_alter_configs.AlterableConfig(
                        name=key.replace("_", "."),
                        config_operation=1 if value is None else 0,
                        value=value,
                    )
                    for key, value in values.items()
                ],
            )
        ],
        validate_only=False,
    )
    answer = await client.connection.request(incremental_alter_configs.API, request)
    return answer.responses[0]


async def test_topics_of_coordinators_stay_compacted(client: Client) -> None:
    request = FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])
    await eventually(partial(_is_found, client, request))
    for values in ({"cleanup_policy": "compact,delete"}, {"cleanup_policy": None}):
        answer = await altered(client, TOPIC, CONSUMER_OFFSETS, **values)
        assert answer.error_code == ErrorCode.INVALID_CONFIG
    replaced = alter_configs.AlterConfigsRequest(
        resources=[
            alter_configs.AlterConfigsResource(
                resource_type=TOPIC, resource_name=CONSUMER_OFFSETS, configs=[]
            )
        ],
        validate_only=False,
    )
    (answer,) = (await client.connection.request(alter_configs.API, replaced)).responses
    assert answer.error_code == ErrorCode.INVALID_CONFIG
    await alter(client, TOPIC, CONSUMER_OFFSETS, segment_bytes="1048576")


async def _is_found(client: Client, request: FindCoordinatorRequest) -> bool:
    answer = await client.connection.request(find_coordinator.API, request)
    return bool(answer.coordinators[0].error_code == 0)


def at(timestamp: int, key: bytes | None = b"k", size: int = 1) -> bytes:
    return build_batch([Record(0, timestamp, key, bytes(size), ())])


async def last_header(client: Client) -> BatchHeader:
    end = (await client.list_offset(-1)).offset
    fetched = await client.fetch_one(end - 1)
    return [header for _, header in iter_headers(fetched.records)][-1]


def now_ms(broker: Broker) -> int:
    return broker._platform.clock.now_ms()


@pytest.mark.parametrize(
    ("topic_key", "broker_key", "value", "records", "refusal"),
    [
        (
            "max_message_bytes",
            "message_max_bytes",
            "1000",
            at(NOW_MS, size=2000),
            ErrorCode.MESSAGE_TOO_LARGE,
        ),
        (
            "message_timestamp_before_max_ms",
            "log_message_timestamp_before_max_ms",
            str(HOUR_MS),
            at(NOW_MS),
            ErrorCode.INVALID_TIMESTAMP,
        ),
        (
            "cleanup_policy",
            "log_cleanup_policy",
            "compact",
            at(NOW_MS, key=None),
            ErrorCode.INVALID_RECORD,
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
@pytest.mark.parametrize("scope", ["topic", "cluster", "broker"])
async def test_message_size_limit_changes_at_every_scope_and_back(
    client: Client,
    scope: str,
    topic_key: str,
    broker_key: str,
    value: str,
    records: bytes,
    refusal: ErrorCode,
) -> None:
    kind, name = {"topic": (TOPIC, "t"), "cluster": (BROKER, ""), "broker": (BROKER, "0")}[scope]
    key = topic_key if scope == "topic" else broker_key
    assert (await client.produce(records)).error_code == 0
    await alter(client, kind, name, **{key: value})
    assert (await client.produce(records)).error_code == refusal
    await alter(client, kind, name, **{key: None})
    assert (await client.produce(records)).error_code == 0


@pytest.mark.parametrize(
    ("kind", "name", "key"),
    [
        (TOPIC, "t", "message_timestamp_after_max_ms"),
        (BROKER, "", "log_message_timestamp_after_max_ms"),
    ],
)
async def test_timestamp_limit_change_accepts_records_from_the_future(
    client: Client, kind: int, name: str, key: str
) -> None:
    assert (await client.produce(at(2**42))).error_code == ErrorCode.INVALID_TIMESTAMP
    await alter(client, kind, name, **{key: str(2**62)})
    assert (await client.produce(at(2**42))).error_code == 0


async def test_a_topics_value_beats_the_brokers_and_the_brokers_beats_the_clusters(
    client: Client,
) -> None:
    async def refused() -> bool:
        answer = await client.produce(at(NOW_MS, size=2000))
        return bool(answer.error_code == ErrorCode.MESSAGE_TOO_LARGE)

    await alter(client, BROKER, "", message_max_bytes="1000")
    assert await refused()
    await alter(client, BROKER, "0", message_max_bytes="5000")
    assert not await refused()
    await alter(client, TOPIC, "t", max_message_bytes="1000")
    assert await refused()


@pytest.mark.parametrize(
    ("kind", "name", "key"),
    [(TOPIC, "t", "message_timestamp_type"), (BROKER, "", "log_message_timestamp_type")],
)
async def test_the_broker_stamps_records_from_now_on(
    broker: Broker, client: Client, kind: int, name: str, key: str
) -> None:
    assert (await client.produce(at(NOW_MS))).log_append_time_ms == -1
    await alter(client, kind, name, **{key: "LogAppendTime"})
    before = now_ms(broker)
    answer = await client.produce(at(NOW_MS))
    assert before <= answer.log_append_time_ms <= now_ms(broker)
    header = await last_header(client)
    assert header.max_timestamp == answer.log_append_time_ms
    assert header.timestamp_type == 1
    assert (await client.list_offset(answer.log_append_time_ms)).offset == 1


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
async def test_batches_are_recompressed_from_now_on(client: Client, codec: str) -> None:
    await client.produce(batch(b"a" * 1000))
    assert (await last_header(client)).compression == Compression.NONE
    await alter(client, TOPIC, "t", compression_type=codec)
    await client.produce(batch(b"a" * 1000))
    assert (await last_header(client)).compression == Compression[codec.upper()]
    await alter(client, TOPIC, "t", compression_type="uncompressed")
    await client.produce(batch(b"a" * 1000, compression=Compression[codec.upper()]))
    assert (await last_header(client)).compression == Compression.NONE


@pytest.mark.parametrize("codec", ["gzip", "lz4", "zstd"])
async def test_a_compression_level_shows_in_the_size(client: Client, codec: str) -> None:
    text = b"".join(b"%d once upon a time %d, " % (n * n, n) for n in range(3000))
    await alter(client, TOPIC, "t", compression_type=codec)
    sizes = []
    for level in ("1", "9"):
        await alter(client, TOPIC, "t", **{f"compression_{codec}_level": level})
        await client.produce(batch(text))
        sizes.append((await last_header(client)).size)
    assert sizes[0] != sizes[1]


def segments(tmp_path: Path) -> list[str]:
    return sorted(path.name for path in tmp_path.glob("t-0/*.log"))


async def test_segments_roll_by_size_from_now_on(client: Client, tmp_path: Path) -> None:
    for _ in range(3):
        await client.produce(at(NOW_MS, size=700_000))
    assert len(segments(tmp_path)) == 1
    await alter(client, TOPIC, "t", segment_bytes=str(1 << 20))
    for _ in range(3):
        await client.produce(at(NOW_MS, size=700_000))
    assert len(segments(tmp_path)) == 4


@pytest.mark.parametrize(
    ("kind", "name", "key"), [(TOPIC, "t", "segment_ms"), (BROKER, "", "log_roll_ms")]
)
async def test_segments_roll_by_time_from_now_on(
    client: Client, tmp_path: Path, kind: int, name: str, key: str
) -> None:
    await client.produce(at(NOW_MS))
    await client.produce(at(NOW_MS + HOUR_MS))
    assert len(segments(tmp_path)) == 1
    await alter(client, kind, name, **{key: str(HOUR_MS)})
    await client.produce(at(NOW_MS + HOUR_MS + 1))
    assert len(segments(tmp_path)) == 2


@pytest.mark.parametrize(
    ("kind", "name", "values"),
    [
        (TOPIC, "t", {"retention_ms": "1000"}),
        (TOPIC, "t", {"retention_bytes": "0"}),
        (BROKER, "", {"log_retention_ms": "1000"}),
        (BROKER, "0", {"log_retention_bytes": "0"}),
    ],
)
async def test_old_records_go_when_retention_is_shortened(
    broker: Broker, client: Client, kind: int, name: str, values: dict[str, str]
) -> None:
    await alter(client, BROKER, "", log_segment_delete_delay_ms="0")
    await client.produce(at(now_ms(broker) - 3 * HOUR_MS, size=100))
    await client.produce(at(now_ms(broker) - 2 * HOUR_MS, size=100))
    assert (await client.list_offset(-2)).offset == 0
    await alter(client, kind, name, **values)

    def start() -> int:
        return broker._replication.replicas.partition("t", 0).log.log_start_offset

    await eventually(lambda: start() == 2)
    assert (await client.list_offset(-2)).offset == 2
    assert (await client.fetch_one(0)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert (await client.produce(batch(b"next"))).base_offset == 2


async def test_connection_limits_hold_from_now_on(broker: Broker, client: Client) -> None:
    async def admitted() -> bool:
        try:
            connection = await Connection.open("127.0.0.1", broker.port, timeout=5)
        except BrokerUnreachable:
            return False
        await connection.close()
        await eventually(lambda: broker.connections == 1)
        return True

    for key, tight in [
        ("max_connections_per_ip", "1"),
        ("max_connections_per_ip_overrides", "127.0.0.1:1"),
    ]:
        assert await admitted()
        await alter(client, BROKER, "", **{key: tight})
        assert not await admitted(), key
        await alter(client, BROKER, "", **{key: None})


@pytest.mark.parametrize("key", ["max_connections", "listener_name_plaintext_max_connections"])
async def test_a_connection_waits_until_the_limit_is_raised(
    broker: Broker, client: Client, key: str
) -> None:
    await alter(client, BROKER, "", **{key: "1"})
    waiting = asyncio.create_task(Connection.open("127.0.0.1", broker.port, timeout=5))
    done, _ = await asyncio.wait([waiting], timeout=0.05)
    assert not done
    await alter(client, BROKER, "", **{key: None})
    await (await waiting).close()


async def test_new_segments_are_reserved_from_now_on(client: Client, tmp_path: Path) -> None:
    await client.produce(batch(b"a"))
    await alter(client, TOPIC, "t", preallocate="true", segment_bytes=str(1 << 20))
    await client.produce(at(NOW_MS, size=1_000_000))
    await client.produce(at(NOW_MS, size=100_000))
    newest = tmp_path / "t-0" / segments(tmp_path)[-1]
    assert newest.stat().st_blocks * 512 >= 1 << 20


async def test_idle_producers_are_forgotten_when_their_time_is_shortened(tmp_path: Path) -> None:
    async with (
        running(tmp_path, producer_id_expiration_check_interval_ms=20) as broker,
        connected(broker) as client,
    ):
        await client.create()
        await client.produce(batch(b"a", producer_id=7, producer_epoch=0, base_sequence=0))
        log = broker._replication.replicas.partition("t", 0).log
        assert len(log.producers) == 1
        await alter(client, BROKER, "", producer_id_expiration_ms="1")
        await eventually(lambda: not len(log.producers))


async def test_created_topics_show_and_follow_the_clusters_values(client: Client) -> None:
    await alter(client, BROKER, "", min_insync_replicas="2", compression_type="zstd")
    request = create_topics.CreateTopicsRequest(
        topics=[
            create_topics.CreatableTopic(
                name="new", num_partitions=-1, replication_factor=-1, assignments=[], configs=[]
            )
        ],
        timeout_ms=5000,
    )
    answer = await client.connection.request(create_topics.API, request)
    shown = {each.name: each.value for each in answer.topics[0].configs}
    assert (shown["min.insync.replicas"], shown["compression.type"]) == ("2", "zstd")
    produced = await client.produce(batch(b"a" * 500), topic="new")
    assert produced.error_code == 0, "min.insync.replicas is never above the number of replicas"
    header = next(iter_headers((await client.fetch_one(0, topic="new")).records))[1]
    assert header.compression == Compression.ZSTD


async def test_truncated_log_keeps_producers_by_the_current_expiration(
    tmp_path: Path,
) -> None:
    """With the value of the start a truncated follower forgot producers that its leader knew."""
    async with (
        running(tmp_path, producer_id_expiration_ms=1) as broker,
        connected(broker) as client,
    ):
        await client.create()
        await alter(client, BROKER, "", producer_id_expiration_ms=str(HOUR_MS))
        now = now_ms(broker)
        ids = {"producer_id": 5, "producer_epoch": 0, "base_sequence": 0}
        await client.produce(build_batch([Record(0, now, None, b"", ())], **ids))
        log = broker._replication.replicas.partition("t", 0).log
        # The producer is in the snapshot between two segments, and not in the truncated part.
        log.roll(now_ms=now)
        await client.produce(batch(b"cut"))
        truncate(log, 1, now_ms=now + HOUR_MS - 1).complete()
        assert [each.producer_id for each in log.producers] == [5]
