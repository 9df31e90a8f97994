"""Finalized features: reported to every client, updated by requests, kept across a restart."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from kafka.admin import KafkaAdminClient, UpdateFeatureType
from kafka.errors import KafkaError

from barnabas.broker.app import Broker
from barnabas.broker.cluster.znodes import FEATURE, decode_features, encode_features
from barnabas.broker.loop.offload import InlineOffload
from barnabas.broker.store.embedded import open_store
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import (
    api_versions,
    consumer_group_describe,
    consumer_group_heartbeat,
    find_coordinator,
    offset_commit,
    update_features,
)
from barnabas.protocol.records.batch import iter_headers
from barnabas.protocol.records.record import iter_records
from barnabas.storage.files.files import OsFiles
from barnabas.testing import Broker as ThreadedBroker
from tests.support.data_path import Client, connected, running, running_in_memory
from tests.support.mem_files import Fault, MemFiles
from tests.support.waiting import eventually

SAFE_DOWNGRADE = 2
OURS = "barnabas.transaction.registration"


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with running(tmp_path) as broker:
        yield broker


async def told(client: Client, version: int = 4) -> Any:
    request = api_versions.ApiVersionsRequest(
        client_software_name="test", client_software_version="1"
    )
    return await client.connection.request(api_versions.API, request, version=version)


async def finalized(client: Client) -> dict[str, int]:
    answer = await told(client)
    assert all(row.min_version_level == row.max_version_level for row in answer.finalized_features)
    return {row.name: row.max_version_level for row in answer.finalized_features}


async def update(client: Client, feature: str, level: int, upgrade_type: int = 1) -> Any:
    change = update_features.FeatureUpdateKey(
        feature=feature, max_version_level=level, upgrade_type=upgrade_type
    )
    request = update_features.UpdateFeaturesRequest(feature_updates=[change])
    return await client.connection.request(update_features.API, request)


async def test_a_level_outlives_a_restart(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as client:
        assert (await update(client, "transaction.version", 1, SAFE_DOWNGRADE)).error_code == 0
        assert await finalized(client) == {"transaction.version": 1, "group.version": 1, OURS: 1}
        epoch = (await told(client)).finalized_features_epoch
    async with running(tmp_path) as broker, connected(broker) as client:
        assert await finalized(client) == {"transaction.version": 1, "group.version": 1, OURS: 1}
        assert (await told(client)).finalized_features_epoch == epoch
        assert (await update(client, "transaction.version", 2)).error_code == 0
        assert (await told(client)).finalized_features_epoch > epoch


async def test_a_cluster_from_before_features_gets_the_highest(tmp_path: Path) -> None:
    async with running(tmp_path):
        pass
    store = await open_store(OsFiles(), str(tmp_path / "metadata"), InlineOffload())
    await store.session().delete(FEATURE)
    await store.close()
    async with running(tmp_path) as broker, connected(broker) as client:
        assert await finalized(client) == {"transaction.version": 2, "group.version": 1, OURS: 1}


async def test_old_api_versions_leave_out_features_with_minimum_zero(broker: Broker) -> None:
    async with connected(broker) as client:
        newer, older = await told(client, 4), await told(client, 3)
    supported = {row.name: (row.min_version, row.max_version) for row in newer.supported_features}
    assert supported == {"transaction.version": (0, 2), "group.version": (0, 1), OURS: (0, 1)}
    assert older.supported_features == []
    assert older.finalized_features == newer.finalized_features


async def test_consumer_groups_are_announced_and_served_at_their_level_alone(
    broker: Broker,
) -> None:
    beat = consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
        group_id="g", member_id="m", member_epoch=-1
    )

    async def answers(client: Client) -> tuple[set[int], ErrorCode]:
        announced = {each.api_key for each in (await told(client)).api_keys}
        answer = await client.connection.request(consumer_group_heartbeat.API, beat)
        return announced & {68, 69}, ErrorCode.of(answer.error_code)

    async with connected(broker) as client:
        served = await answers(client)
        assert served[0] == {68, 69}
        assert served[1] is not ErrorCode.UNSUPPORTED_VERSION
        assert (await update(client, "group.version", 0, SAFE_DOWNGRADE)).error_code == 0
        assert await answers(client) == (set(), ErrorCode.UNSUPPORTED_VERSION)
        assert (await update(client, "group.version", 1)).error_code == 0
        assert await answers(client) == served


async def forget_level(directory: Path, feature: str) -> None:
    """Take a feature from the levels of a cluster: it has not known it."""
    store = await open_store(OsFiles(), str(directory / "metadata"), InlineOffload())
    session = store.session()
    data, stat = await session.get(FEATURE)
    levels = decode_features(data)
    del levels[feature]
    await session.set(FEATURE, encode_features(levels), stat.version)
    await store.close()


class ConsumerGroups(Client):
    """A client that sends the requests of consumer groups, announced or not."""

    async def announced(self) -> bool:
        return {each.api_key for each in (await told(self)).api_keys} >= {68, 69}

    async def beat(self, epoch: int, **fields: Any) -> tuple[int, int]:
        """Return error code and epoch."""
        request = consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
            group_id="g", member_id="m", member_epoch=epoch, **fields
        )
        answer = await self.connection.request(consumer_group_heartbeat.API, request, version=1)
        return answer.error_code, answer.member_epoch

    async def join(self) -> tuple[int, int]:
        return await self.beat(
            0, subscribed_topic_names=["t"], topic_partitions=[], rebalance_timeout_ms=60_000
        )

    async def describe(self) -> tuple[int, str]:
        """Return error code and state."""
        request = consumer_group_describe.ConsumerGroupDescribeRequest(
            group_ids=["g"], include_authorized_operations=False
        )
        answer = await self.connection.request(consumer_group_describe.API, request, version=1)
        return answer.groups[0].error_code, answer.groups[0].group_state

    async def commit(self) -> bool:
        """Commit an offset for another group, unless the coordinator loads."""
        find = find_coordinator.FindCoordinatorRequest(coordinator_keys=["other"])
        await self.connection.request(find_coordinator.API, find)
        partition = offset_commit.OffsetCommitRequestPartition(
            partition_index=0, committed_offset=1, committed_metadata=None
        )
        topic = offset_commit.OffsetCommitRequestTopic(name="t", partitions=[partition])
        request = offset_commit.OffsetCommitRequest(group_id="other", member_id="", topics=[topic])
        answer = await self.connection.request(offset_commit.API, request, version=8)
        return answer.topics[0].partitions[0].error_code == 0

    async def kinds(self) -> set[int]:
        """Return the kinds of the records in the log of the coordinator."""
        read = await self.fetch_one(0, topic="__consumer_offsets")
        return {
            int.from_bytes(record.key[:2])
            for position, header in iter_headers(read.records)
            for record in iter_records(read.records, position, header)
            if record.key is not None
        }


async def test_older_cluster_has_no_consumer_groups_until_their_level_is_raised(
    tmp_path: Path,
) -> None:
    """A release that does not know their records would forget the groups (docs/upgrade.md)."""
    keys = {"offsets.topic.num.partitions": "1"}
    async with running(tmp_path, keys) as broker, connected(broker) as client:
        await client.create()
    await forget_level(tmp_path, "group.version")

    async with running(tmp_path, keys) as broker, connected(broker) as client:
        groups = ConsumerGroups(client.connection)
        assert "group.version" not in await finalized(client)
        assert not await groups.announced()
        for beat in (groups.join(), groups.beat(1), groups.beat(-1)):
            assert (await beat)[0] == ErrorCode.UNSUPPORTED_VERSION
        assert await groups.describe() == (ErrorCode.UNSUPPORTED_VERSION, "")
        await eventually(groups.commit)
        assert await groups.kinds() == {1}

        assert (await update(client, "group.version", 1)).error_code == 0
        assert await groups.announced()
        assert await groups.join() == (0, 2)
        assert await groups.describe() == (0, "Stable")
        assert await groups.kinds() == {1, 3, 5, 6, 7, 8}
    async with running(tmp_path, keys) as broker, connected(broker) as client:
        groups = ConsumerGroups(client.connection)
        assert (await finalized(client))["group.version"] == 1
        await eventually(groups.commit)
        assert await groups.beat(2) == (0, 2)
        assert await groups.describe() == (0, "Stable")


async def test_longest_unknown_feature_name_is_refused(broker: Broker) -> None:
    async with connected(broker) as client:
        answer = await update(client, "f" * 32767, 1)
    assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert answer.error_message.startswith("The update failed for all features")


async def test_a_lost_store_changes_nothing() -> None:
    files = MemFiles()
    async with running_in_memory(files) as broker, connected(broker) as client:
        files.faults.append(Fault("append", "metadata.journal", from_then_on=True))
        answer = await update(client, "transaction.version", 1, SAFE_DOWNGRADE)
        assert answer.error_code == ErrorCode.FEATURE_UPDATE_FAILED
        assert await finalized(client) == {"transaction.version": 2, "group.version": 1, OURS: 1}


@pytest.fixture
def admin() -> Iterator[KafkaAdminClient]:
    with ThreadedBroker() as broker:
        client = KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
        yield client
        client.close()


def test_kafka_python_describes_and_updates(admin: KafkaAdminClient) -> None:
    described = admin.describe_features()
    assert described["transaction.version"]["supported"] == (0, 2)
    assert described["transaction.version"]["finalized"] == (2, 2)
    lower = {"transaction.version": (UpdateFeatureType.SAFE_DOWNGRADE, 1)}
    assert admin.update_features(lower) == {"transaction.version": "OK"}
    assert admin.describe_features()["transaction.version"]["finalized"] == (1, 1)
    with pytest.raises(KafkaError, match="InvalidUpdateVersion"):
        admin.update_features({"transaction.version": 3})
