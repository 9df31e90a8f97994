"""Administration of topics, configurations and brokers, each call one honest request.

Answers are the protocol's own messages. A call about one thing raises its KafkaError; a call about
many returns the rows, and each row carries its error code.
"""

from collections.abc import Iterable, Mapping, Sequence

from barnabas.client.cluster import Cluster, check
from barnabas.protocol.config_resources import ConfigOperation, ResourceType
from barnabas.protocol.messages import (
    create_partitions,
    create_topics,
    delete_records,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_log_dirs,
    incremental_alter_configs,
    list_config_resources,
)
from barnabas.protocol.topic_partition import TopicPartition


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
