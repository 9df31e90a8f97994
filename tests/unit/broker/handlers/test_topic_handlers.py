"""CreateTopics, DeleteTopics, CreatePartitions, Metadata, DescribeTopicPartitions, DescribeCluster
answer as Kafka does."""

from collections.abc import AsyncIterator
from typing import Any
from unittest.mock import Mock

import pytest

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from barnabas.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.protocol.messages.describe_cluster import DescribeClusterRequest
from barnabas.protocol.messages.describe_topic_partitions import (
    CursorInRequest,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.unit.broker.handlers.control_plane import ControlPlane, control_plane

ID = b"0123456789abcdef"


@pytest.fixture
async def plane() -> AsyncIterator[ControlPlane]:
    async with control_plane() as plane:
        yield plane


def topic(
    name: str,
    partitions: int = 1,
    factor: int = 1,
    *,
    manual: dict[int, list[int]] | None = None,
    **configs: str | None,
) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=-1 if manual else partitions,
        replication_factor=-1 if manual else factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=ids)
            for index, ids in (manual or {}).items()
        ],
        configs=[
            CreatableTopicConfig(name=key.replace("_", "."), value=value)
            for key, value in configs.items()
        ],
    )


async def create(plane: ControlPlane, *topics: CreatableTopic, **options: Any) -> list[Any]:
    version = options.pop("version", None)
    request = CreateTopicsRequest(topics=list(topics), **options)
    results: list[Any] = (await plane.ask(request, version)).topics
    return results


async def metadata(
    plane: ControlPlane, *names: str, version: int | None = None, **options: Any
) -> Any:
    topics = [MetadataRequestTopic(name=name) for name in names]
    return await plane.ask(MetadataRequest(topics=topics, **options), version)


async def test_created_topic_returns_its_configuration(plane: ControlPlane) -> None:
    (result,) = await create(plane, topic("t", 3, retention_ms="5000"))
    assert (result.error_code, result.error_message) == (0, None)
    assert (result.num_partitions, result.replication_factor) == (3, 1)
    configs = {config.name: config for config in result.configs}
    assert list(configs) == sorted(configs)
    assert (configs["retention.ms"].value, configs["retention.ms"].config_source) == ("5000", 1)
    assert (configs["segment.bytes"].value, configs["segment.bytes"].config_source) == (
        "1073741824",
        5,
    )
    (known,) = (await metadata(plane, "t")).topics
    assert known.topic_id == result.topic_id


@pytest.mark.parametrize(
    ("wanted", "error"),
    [
        (topic(""), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("."), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("a/b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("a\n"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("x" * 250), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("there"), ErrorCode.TOPIC_ALREADY_EXISTS),
        (topic("with_dots"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("__consumer_offsets"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("t", 0), ErrorCode.INVALID_PARTITIONS),
        (topic("t", -2), ErrorCode.INVALID_PARTITIONS),
        (topic("t", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (topic("t", 1, 2), ErrorCode.INVALID_REPLICATION_FACTOR),
        (topic("t", manual={0: [7]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (topic("t", manual={0: [1, 1]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (topic("t", manual={0: []}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (topic("t", manual={1: [1]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (topic("t", no_such="1"), ErrorCode.INVALID_CONFIG),
        (topic("t", retention_ms="soon"), ErrorCode.INVALID_CONFIG),
        (topic("t", retention_ms=None), ErrorCode.INVALID_CONFIG),
    ],
)
async def test_invalid_topics_are_refused(
    plane: ControlPlane, wanted: CreatableTopic, error: ErrorCode
) -> None:
    await create(plane, topic("there"), topic("with.dots"))
    (result,) = await create(plane, wanted)
    assert result.error_code == error
    assert result.error_message
    assert set(plane.broker.cache.topics) == {"there", "with.dots"}


async def test_manual_assignments_exclude_counts(plane: ControlPlane) -> None:
    both = topic("t", manual={0: [1]})
    both.num_partitions = 1
    assert (await create(plane, both))[0].error_code == ErrorCode.INVALID_REQUEST
    both.num_partitions, both.replication_factor = -1, 1
    assert (await create(plane, both))[0].error_code == ErrorCode.INVALID_REQUEST


async def test_topic_named_twice_is_refused_once(plane: ControlPlane) -> None:
    results = await create(plane, topic("twice"), topic("once"), topic("twice"), version=2)
    assert [(each.name, each.error_code) for each in results] == [
        ("once", 0),
        ("twice", ErrorCode.INVALID_REQUEST),
    ]


async def test_request_without_timeout_is_not_started(plane: ControlPlane) -> None:
    (result,) = await create(plane, topic("t"), timeout_ms=0)
    assert result.error_code == ErrorCode.REQUEST_TIMED_OUT
    assert not plane.broker.cache.topics


@pytest.mark.parametrize("version", [1, 5, 6])
async def test_topics_are_deleted_by_name(plane: ControlPlane, version: int) -> None:
    await create(plane, topic("t"))
    request = DeleteTopicsRequest(timeout_ms=5000)
    if version >= 6:
        request.topics = [DeleteTopicState(name="t"), DeleteTopicState(name="u")]
    else:
        request.topic_names = ["t", "u"]
    answer = await plane.ask(request, version)
    assert {each.name: each.error_code for each in answer.responses} == {
        "t": 0,
        "u": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert not plane.broker.cache.topics


async def test_topics_are_deleted_by_id(plane: ControlPlane) -> None:
    (created,) = await create(plane, topic("t"))
    states = [
        DeleteTopicState(name=None, topic_id=created.topic_id),
        DeleteTopicState(name=None, topic_id=ID),
        DeleteTopicState(name="both", topic_id=ID[::-1]),
        DeleteTopicState(name=None),
    ]
    answer = await plane.ask(DeleteTopicsRequest(topics=states, timeout_ms=5000))
    assert [(each.name, each.error_code) for each in answer.responses] == [
        ("t", 0),
        (None, ErrorCode.UNKNOWN_TOPIC_ID),
        ("both", ErrorCode.INVALID_REQUEST),
        (None, ErrorCode.INVALID_REQUEST),
    ]


async def test_id_that_only_the_controller_knows_needs_the_right(
    plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    (created,) = await create(plane, topic("t"))
    monkeypatch.setattr(plane.broker.cache, "topic_name", lambda _: None)
    plane.asker = Mock(allows=Mock(return_value=False))
    state = DeleteTopicState(name=None, topic_id=created.topic_id)
    answer = await plane.ask(DeleteTopicsRequest(topics=[state], timeout_ms=5000))
    assert answer.responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert plane.broker.cache.topic("t") is not None


async def test_only_brokers_create_internal_topics(plane: ControlPlane) -> None:
    (refused,) = await create(plane, topic("__consumer_offsets"))
    assert refused.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    await metadata(plane, "__consumer_offsets")
    (known,) = await create(plane, topic("__consumer_offsets"))
    assert known.error_code == ErrorCode.TOPIC_ALREADY_EXISTS


async def test_internal_topics_are_not_deleted(plane: ControlPlane) -> None:
    await metadata(plane, "__consumer_offsets")
    known = plane.broker.cache.topic("__consumer_offsets")
    assert known is not None
    for state in (
        DeleteTopicState(name=known.name),
        DeleteTopicState(name=None, topic_id=known.topic_id),
    ):
        answer = await plane.ask(DeleteTopicsRequest(topics=[state], timeout_ms=5000))
        assert answer.responses[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert plane.broker.cache.topic(known.name) is known


async def test_topic_deletion_can_be_disabled(plane: ControlPlane) -> None:
    await create(plane, topic("t"))
    plane.deletion_enabled = False
    request = DeleteTopicsRequest(topic_names=["t"], timeout_ms=5000)
    for version, error in (
        (2, ErrorCode.INVALID_REQUEST),
        (3, ErrorCode.TOPIC_DELETION_DISABLED),
    ):
        answer = await plane.ask(request, version)
        assert answer.responses[0].error_code == error


@pytest.mark.parametrize(
    ("name", "count", "assignments", "error"),
    [
        ("t", 4, None, 0),
        ("t", 4, [[1], [1]], 0),
        ("t", 2, None, ErrorCode.INVALID_PARTITIONS),
        ("t", 1, None, ErrorCode.INVALID_PARTITIONS),
        ("u", 4, None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("t", 4, [[1]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("t", 3, [[9]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("__consumer_offsets", 60, None, ErrorCode.INVALID_TOPIC_EXCEPTION),
    ],
)
async def test_partitions_are_added(
    plane: ControlPlane, name: str, count: int, assignments: list[list[int]] | None, error: int
) -> None:
    await create(plane, topic("t", 2))
    wanted = None
    if assignments is not None:
        wanted = [CreatePartitionsAssignment(broker_ids=ids) for ids in assignments]
    grown = CreatePartitionsTopic(name=name, count=count, assignments=wanted)
    for dry in (True, False):
        request = CreatePartitionsRequest(topics=[grown], timeout_ms=5000, validate_only=dry)
        answer = await plane.ask(request, 0 if dry else None)
        assert answer.results[0].error_code == error
        known = plane.broker.cache.topic("t")
        assert known is not None
        assert len(known.partitions) == (count if not (dry or error) else 2)


async def test_metadata_of_all_topics(plane: ControlPlane) -> None:
    await create(plane, topic("a"), topic("b"))
    for version, topics in ((0, []), (1, None), (13, None)):
        answer = await plane.ask(MetadataRequest(topics=topics), version)
        assert [each.name for each in answer.topics] == ["a", "b"]
    none = await plane.ask(MetadataRequest(topics=[]), 1)
    assert none.topics == []
    assert [(each.node_id, each.host) for each in none.brokers] == [(1, "host1")]


async def test_metadata_creates_topic_only_if_allowed(plane: ControlPlane) -> None:
    refused = await metadata(plane, "t", allow_auto_topic_creation=False)
    assert refused.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    plane.creation_enabled = False
    refused = await metadata(plane, "t")
    assert refused.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    plane.creation_enabled = True
    created = await metadata(plane, "t", "bad/name")
    assert [each.error_code for each in created.topics] == [0, ErrorCode.INVALID_TOPIC_EXCEPTION]
    assert [each.leader_id for each in created.topics[0].partitions] == [1]


async def test_internal_topic_is_not_created_with_fewer_replicas(plane: ControlPlane) -> None:
    plane.internal_replication_factor = 3
    answer = await metadata(plane, "__consumer_offsets")
    assert answer.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert answer.topics[0].is_internal
    plane.internal_replication_factor = 1
    answer = await metadata(plane, "__consumer_offsets")
    assert len(answer.topics[0].partitions) == 5


@pytest.mark.parametrize("name", ["__transaction_state", "__share_group_state"])
async def test_unknown_internal_topic_is_not_created(plane: ControlPlane, name: str) -> None:
    answer = await metadata(plane, name)
    assert answer.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert answer.topics[0].is_internal
    (refused,) = await create(plane, topic(name))
    assert refused.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


async def test_metadata_by_id(plane: ControlPlane) -> None:
    (created,) = await create(plane, topic("t"))
    topics = [MetadataRequestTopic(name=None, topic_id=each) for each in (created.topic_id, ID)]
    answer = await plane.ask(
        MetadataRequest(topics=topics, include_topic_authorized_operations=True), 12
    )
    assert [(each.name, each.error_code) for each in answer.topics] == [
        ("t", 0),
        (None, ErrorCode.UNKNOWN_TOPIC_ID),
    ]
    assert [each.topic_authorized_operations for each in answer.topics] == [3576, -(1 << 31)]
    named = [MetadataRequestTopic(name="t", topic_id=created.topic_id)]
    early = await plane.ask(MetadataRequest(topics=named), 11)
    assert early.topics[0].error_code == ErrorCode.INVALID_REQUEST


async def test_authorized_operations_are_all_operations(plane: ControlPlane) -> None:
    answer = await metadata(plane, version=8, include_cluster_authorized_operations=True)
    assert answer.cluster_authorized_operations == 8096
    silent = await metadata(plane, version=8)
    assert silent.cluster_authorized_operations == -(1 << 31)


async def test_leader_without_listener_is_listener_not_found(plane: ControlPlane) -> None:
    await create(plane, topic("t"))
    request = MetadataRequest(topics=[MetadataRequestTopic(name="t")])
    for version, error in (
        (5, ErrorCode.LEADER_NOT_AVAILABLE),
        (6, ErrorCode.LISTENER_NOT_FOUND),
    ):
        answer = await plane.ask(request, version, listener="OTHER")
        partition = answer.topics[0].partitions[0]
        assert (partition.error_code, partition.leader_id) == (error, -1)
        assert answer.brokers == []


async def test_metadata_is_refused_before_first_full_update(plane: ControlPlane) -> None:
    plane.broker.cache.ready = False
    answer = await metadata(plane, "t")
    assert answer.topics[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


async def test_describe_cluster(plane: ControlPlane) -> None:
    answer = await plane.ask(DescribeClusterRequest(include_cluster_authorized_operations=True))
    assert (answer.cluster_id, answer.controller_id) == ("cluster", 1)
    assert [(each.broker_id, each.host, each.port) for each in answer.brokers] == [
        (1, "host1", 9092)
    ]
    assert answer.cluster_authorized_operations == 8096
    for endpoint_type, error in (
        (2, ErrorCode.MISMATCHED_ENDPOINT_TYPE),
        (9, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
    ):
        request = DescribeClusterRequest(
            include_cluster_authorized_operations=False, endpoint_type=endpoint_type
        )
        assert (await plane.ask(request)).error_code == error


async def pages(plane: ControlPlane, limit: int, *names: str) -> list[list[tuple[str, list[int]]]]:
    """All pages of a description, as names and partitions."""
    cursor, found = None, []
    while True:
        request = DescribeTopicPartitionsRequest(
            topics=[TopicRequest(name=name) for name in names],
            response_partition_limit=limit,
            cursor=cursor,
        )
        answer = await plane.ask(request)
        found.append(
            [
                (each.name, [partition.partition_index for partition in each.partitions])
                for each in answer.topics
            ]
        )
        if answer.next_cursor is None:
            return found
        cursor = CursorInRequest(
            topic_name=answer.next_cursor.topic_name,
            partition_index=answer.next_cursor.partition_index,
        )


async def test_topics_are_described_page_by_page(plane: ControlPlane) -> None:
    await create(plane, topic("b", 3), topic("a", 2), topic("c", 1))
    assert await pages(plane, 2000) == [[("a", [0, 1]), ("b", [0, 1, 2]), ("c", [0])]]
    assert await pages(plane, 2) == [
        [("a", [0, 1])],
        [("b", [0, 1])],
        [("b", [2]), ("c", [0])],
    ]
    assert await pages(plane, 3, "c", "b") == [[("b", [0, 1, 2])], [("c", [0])]]


async def test_unknown_topic_is_described_with_error(plane: ControlPlane) -> None:
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name="no"), TopicRequest(name="a/b")]
    )
    answer = await plane.ask(request)
    assert [(each.name, each.error_code) for each in answer.topics] == [
        ("a/b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("no", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]


@pytest.mark.parametrize(("cursor_topic", "index"), [("a", -1), ("other", 0)])
async def test_invalid_cursor_is_refused(
    plane: ControlPlane, cursor_topic: str, index: int
) -> None:
    await create(plane, topic("a"))
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name="a")],
        cursor=CursorInRequest(topic_name=cursor_topic, partition_index=index),
    )
    answer = await plane.ask(request)
    assert [each.error_code for each in answer.topics] == [ErrorCode.INVALID_REQUEST]
