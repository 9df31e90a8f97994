"""Administration: topics, configurations, groups and offsets, each call one honest request.

Answers are the protocol's own messages. A call about one thing raises its KafkaError; a call about
many returns the rows, and each row carries its error code.
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum

from barnabas.client.cluster import Cluster, check
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages import (
    create_partitions,
    create_topics,
    delete_groups,
    delete_records,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    incremental_alter_configs,
    list_config_resources,
    list_groups,
    list_offsets,
    offset_commit,
    offset_delete,
    offset_fetch,
)

TopicPartition = tuple[str, int]

EARLIEST = -2
LATEST = -1
MAX_TIMESTAMP = -3


class ConfigOperation(IntEnum):
    """What IncrementalAlterConfigs does with a value (KIP-339)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ResourceType(IntEnum):
    """What a configuration belongs to; the protocol's numbers."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class Admin:
    """Administers the cluster behind `cluster`; errors that pass are retried until its timeout."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    @property
    def _timeout_ms(self) -> int:
        return int(self._cluster.timeout * 1000)

    # Topics.

    async def create_topic(
        self,
        name: str,
        *,
        partitions: int = -1,
        replication_factor: int = -1,
        configs: Mapping[str, str] | None = None,
        validate_only: bool = False,
    ) -> create_topics.CreatableTopicResult:
        """Creates a topic; -1 takes the broker's default."""
        request = create_topics.CreateTopicsRequest(
            topics=[
                create_topics.CreatableTopic(
                    name=name,
                    num_partitions=partitions,
                    replication_factor=replication_factor,
                    assignments=[],
                    configs=[
                        create_topics.CreatableTopicConfig(name=key, value=value)
                        for key, value in (configs or {}).items()
                    ],
                )
            ],
            timeout_ms=self._timeout_ms,
            validate_only=validate_only,
        )

        async def attempt() -> create_topics.CreatableTopicResult:
            response = await self._cluster.ask_controller(create_topics.API, request)
            row: create_topics.CreatableTopicResult = response.topics[0]
            check(row.error_code, row.error_message)
            return row

        return await self._cluster.retrying(attempt)

    async def delete_topic(self, name: str) -> None:
        """Deletes a topic and its records."""

        async def attempt() -> None:
            connection_version = (await self._cluster.any_connection()).version_for(
                delete_topics.API
            )
            request = (
                delete_topics.DeleteTopicsRequest(
                    topics=[delete_topics.DeleteTopicState(name=name)], timeout_ms=self._timeout_ms
                )
                if connection_version >= 6
                else delete_topics.DeleteTopicsRequest(
                    topic_names=[name], timeout_ms=self._timeout_ms
                )
            )
            response = await self._cluster.ask_controller(delete_topics.API, request)
            check(response.responses[0].error_code, response.responses[0].error_message)

        await self._cluster.retrying(attempt)
        self._cluster.topics.pop(name, None)

    async def create_partitions(self, name: str, count: int) -> None:
        """Raises a topic's number of partitions to `count`."""
        request = create_partitions.CreatePartitionsRequest(
            topics=[
                create_partitions.CreatePartitionsTopic(name=name, count=count, assignments=None)
            ],
            timeout_ms=self._timeout_ms,
            validate_only=False,
        )

        async def attempt() -> None:
            response = await self._cluster.ask_controller(create_partitions.API, request)
            check(response.results[0].error_code, response.results[0].error_message)

        await self._cluster.retrying(attempt)
        self._cluster.topics.pop(name, None)

    async def delete_records(
        self, offsets: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Deletes records below each offset (-1: the high watermark); gives the new log starts."""

        async def one(topic: str, partition: int, offset: int) -> int:
            request = delete_records.DeleteRecordsRequest(
                topics=[
                    delete_records.DeleteRecordsTopic(
                        name=topic,
                        partitions=[
                            delete_records.DeleteRecordsPartition(
                                partition_index=partition, offset=offset
                            )
                        ],
                    )
                ],
                timeout_ms=self._timeout_ms,
            )
            leader = await self._cluster.leader(topic, partition)
            response = await self._cluster.ask(delete_records.API, request, node=leader)
            row = response.topics[0].partitions[0]
            check(row.error_code, f"{topic}-{partition}")
            return int(row.low_watermark)

        done = {}
        for (topic, partition), offset in offsets.items():
            done[topic, partition] = await self._cluster.retrying(
                lambda t=topic, p=partition, o=offset: one(t, p, o)  # type: ignore[misc]
            )
        return done

    async def find_offsets(
        self, wanted: Mapping[TopicPartition, int], *, read_committed: bool = False
    ) -> dict[TopicPartition, list_offsets.ListOffsetsPartitionResponse]:
        """Offsets by timestamp in ms, or by EARLIEST, LATEST, MAX_TIMESTAMP."""
        return await self._cluster.retrying(lambda: self._find_offsets(wanted, read_committed))

    async def _find_offsets(
        self, wanted: Mapping[TopicPartition, int], read_committed: bool
    ) -> dict[TopicPartition, list_offsets.ListOffsetsPartitionResponse]:
        by_leader: dict[int, dict[str, list[list_offsets.ListOffsetsPartition]]] = defaultdict(
            lambda: defaultdict(list)
        )
        for (topic, partition), timestamp in wanted.items():
            by_leader[await self._cluster.leader(topic, partition)][topic].append(
                list_offsets.ListOffsetsPartition(partition_index=partition, timestamp=timestamp)
            )
        answers = await asyncio.gather(
            *(
                self._cluster.ask(
                    list_offsets.API,
                    list_offsets.ListOffsetsRequest(
                        replica_id=-1,
                        isolation_level=int(read_committed),
                        topics=[
                            list_offsets.ListOffsetsTopic(name=topic, partitions=rows)
                            for topic, rows in topics.items()
                        ],
                    ),
                    node=leader,
                )
                for leader, topics in by_leader.items()
            )
        )
        found = {}
        for answer in answers:
            for topic in answer.topics:
                for row in topic.partitions:
                    check(row.error_code, f"{topic.name}-{row.partition_index}")
                    found[topic.name, row.partition_index] = row
        return found

    # Cluster and configurations.

    async def describe_cluster(self) -> describe_cluster.DescribeClusterResponse:
        """The cluster's id, controller and brokers."""
        request = describe_cluster.DescribeClusterRequest(
            include_cluster_authorized_operations=False
        )
        response: describe_cluster.DescribeClusterResponse = await self._cluster.ask(
            describe_cluster.API, request
        )
        check(response.error_code, response.error_message)
        return response

    async def describe_log_dirs(self, node: int) -> list[describe_log_dirs.DescribeLogDirsResult]:
        """A broker's log directories and what lies in them, in bytes."""
        response = await self._cluster.ask(
            describe_log_dirs.API,
            describe_log_dirs.DescribeLogDirsRequest(topics=None),
            node=node,
        )
        check(response.error_code)
        rows: list[describe_log_dirs.DescribeLogDirsResult] = response.results
        return rows

    async def describe_configs(
        self, kind: ResourceType, name: str
    ) -> list[describe_configs.DescribeConfigsResourceResult]:
        """Every configuration entry of one resource."""
        request = describe_configs.DescribeConfigsRequest(
            resources=[
                describe_configs.DescribeConfigsResource(
                    resource_type=kind, resource_name=name, configuration_keys=None
                )
            ],
            include_synonyms=True,
        )
        response = await self._cluster.ask(
            describe_configs.API, request, node=self._owner(kind, name)
        )
        result = response.results[0]
        check(result.error_code, result.error_message)
        rows: list[describe_configs.DescribeConfigsResourceResult] = result.configs
        return rows

    async def alter_configs(
        self,
        kind: ResourceType,
        name: str,
        changes: Iterable[tuple[str, ConfigOperation, str | None]],
    ) -> None:
        """Changes configuration entries of one resource, all or none (KIP-339)."""
        request = incremental_alter_configs.IncrementalAlterConfigsRequest(
            resources=[
                incremental_alter_configs.AlterConfigsResource(
                    resource_type=kind,
                    resource_name=name,
                    configs=[
                        incremental_alter_configs.AlterableConfig(
                            name=key, config_operation=operation, value=value
                        )
                        for key, operation, value in changes
                    ],
                )
            ],
            validate_only=False,
        )
        response = await self._cluster.ask(
            incremental_alter_configs.API, request, node=self._owner(kind, name)
        )
        check(response.responses[0].error_code, response.responses[0].error_message)

    async def list_config_resources(
        self, kinds: Sequence[ResourceType] = ()
    ) -> list[list_config_resources.ConfigResource]:
        """The resources that have configurations; all kinds if none is named (KIP-1142)."""
        response = await self._cluster.ask(
            list_config_resources.API,
            list_config_resources.ListConfigResourcesRequest(resource_types=list(kinds)),
        )
        check(response.error_code)
        rows: list[list_config_resources.ConfigResource] = response.config_resources
        return rows

    @staticmethod
    def _owner(kind: ResourceType, name: str) -> int | None:
        # What lives in one broker's memory is asked of that broker.
        on_broker = kind in (ResourceType.BROKER, ResourceType.BROKER_LOGGER)
        return int(name) if on_broker and name else None

    # Groups.

    async def list_groups(self) -> list[list_groups.ListedGroup]:
        """The groups of every broker."""
        await self._cluster.refresh(())
        groups: list[list_groups.ListedGroup] = []
        for node in sorted(self._cluster.nodes):
            response = await self._cluster.ask(
                list_groups.API, list_groups.ListGroupsRequest(), node=node
            )
            check(response.error_code)
            groups += response.groups
        return sorted(groups, key=lambda group: group.group_id)

    async def describe_group(self, group: str) -> describe_groups.DescribedGroup:
        """State and members of a group; GROUP_ID_NOT_FOUND if there is none."""
        request = describe_groups.DescribeGroupsRequest(groups=[group])

        async def attempt() -> describe_groups.DescribedGroup:
            response = await self._cluster.ask_coordinator(describe_groups.API, request, group)
            row: describe_groups.DescribedGroup = response.groups[0]
            check(row.error_code, row.error_message)
            return row

        return await self._cluster.retrying(attempt)

    async def delete_group(self, group: str) -> None:
        """Deletes an empty group with its offsets; NON_EMPTY_GROUP while it has members."""
        request = delete_groups.DeleteGroupsRequest(groups_names=[group])

        async def attempt() -> None:
            response = await self._cluster.ask_coordinator(delete_groups.API, request, group)
            check(response.results[0].error_code, f"group {group}")

        await self._cluster.retrying(attempt)

    async def group_offsets(
        self, group: str, *, require_stable: bool = False
    ) -> dict[TopicPartition, offset_fetch.OffsetFetchResponsePartitions]:
        """Every committed offset of a group."""
        version = min((await self._cluster.any_connection()).version_for(offset_fetch.API), 9)
        if version < 8:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "the broker is older than Kafka 3.0")
        request = offset_fetch.OffsetFetchRequest(
            groups=[offset_fetch.OffsetFetchRequestGroup(group_id=group, topics=None)],
            require_stable=require_stable,
        )

        async def attempt() -> dict[TopicPartition, offset_fetch.OffsetFetchResponsePartitions]:
            connection = await self._cluster.coordinator_connection(group)
            response = await connection.request(
                offset_fetch.API, request, version=version, timeout=self._cluster.timeout
            )
            answer = response.groups[0]
            check(answer.error_code, f"group {group}")
            return {
                (topic.name, row.partition_index): row
                for topic in answer.topics
                for row in topic.partitions
            }

        return await self._cluster.retrying(attempt)

    async def set_group_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commits `offsets` for a group without members."""
        await commit_offsets(self._cluster, group, offsets)

    async def delete_group_offsets(self, group: str, wanted: Iterable[TopicPartition]) -> None:
        """Forgets a group's offsets; GROUP_SUBSCRIBED_TO_TOPIC while members read the topic."""
        by_topic: dict[str, list[int]] = defaultdict(list)
        for topic, partition in wanted:
            by_topic[topic].append(partition)
        request = offset_delete.OffsetDeleteRequest(
            group_id=group,
            topics=[
                offset_delete.OffsetDeleteRequestTopic(
                    name=topic,
                    partitions=[
                        offset_delete.OffsetDeleteRequestPartition(partition_index=partition)
                        for partition in partitions
                    ],
                )
                for topic, partitions in by_topic.items()
            ],
        )

        async def attempt() -> None:
            response = await self._cluster.ask_coordinator(offset_delete.API, request, group)
            check(response.error_code, f"group {group}")
            for topic in response.topics:
                for row in topic.partitions:
                    check(row.error_code, f"{topic.name}-{row.partition_index}")

        await self._cluster.retrying(attempt)


async def commit_offsets(
    cluster: Cluster,
    group: str,
    offsets: Mapping[TopicPartition, int],
    *,
    generation: int = -1,
    member_id: str = "",
    instance_id: str | None = None,
) -> None:
    """Commits offsets as a group's member, or as nobody where the group has none."""
    by_topic: dict[str, list[offset_commit.OffsetCommitRequestPartition]] = defaultdict(list)
    for (topic, partition), offset in offsets.items():
        by_topic[topic].append(
            offset_commit.OffsetCommitRequestPartition(
                partition_index=partition, committed_offset=offset, committed_metadata=""
            )
        )
    request = offset_commit.OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        group_instance_id=instance_id,
        topics=[
            offset_commit.OffsetCommitRequestTopic(name=topic, partitions=rows)
            for topic, rows in by_topic.items()
        ],
    )

    async def attempt() -> None:
        connection = await cluster.coordinator_connection(group)
        # Version 10 names topics by id; names are what a person gave.
        version = min(connection.version_for(offset_commit.API), 9)
        response = await connection.request(
            offset_commit.API, request, version=version, timeout=cluster.timeout
        )
        for topic in response.topics:
            for row in topic.partitions:
                check(row.error_code, f"{topic.name}-{row.partition_index}")

    await cluster.retrying(attempt)
