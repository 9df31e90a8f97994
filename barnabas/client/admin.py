"""The administration of topics, configurations, brokers and features; one request for each call.

Results are the rows of the protocol's response messages. A call for a single object raises its
KafkaError; in a call for several objects each row has an error code.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from barnabas.client.cluster import Cluster, check
from barnabas.protocol.config_resources import ConfigOperation, ConfigResourceType
from barnabas.protocol.messages import (
    alter_client_quotas,
    create_acls,
    create_partitions,
    create_topics,
    delete_acls,
    delete_records,
    delete_topics,
    describe_acls,
    describe_client_quotas,
    describe_cluster,
    describe_configs,
    describe_log_dirs,
    incremental_alter_configs,
    list_config_resources,
    update_features,
)
from barnabas.protocol.topic_partition import TopicPartition, by_topic
from barnabas.security.acl import rules as acl
from barnabas.security.principal import Principal

Entity = Mapping[str, str | None]
"""The owner of quotas: names by type (user, client-id, ip); None is the default of a type."""

_DESCRIBED_AT_ONCE: Final = 500
"""Topics in a request for their configuration."""
UPGRADE = 1
SAFE_DOWNGRADE = 2
UNSAFE_DOWNGRADE = 3


class Admin:
    """An admin client of a cluster; retriable errors are retried until the cluster's timeout."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    @property
    def _timeout_ms(self) -> int:
        return int(self._cluster.timeout * 1000)

    # -- topics ----------------------------------------------------------------------------------

    async def create_topic(
        self,
        name: str,
        *,
        partitions: int = -1,
        replication_factor: int = -1,
        configs: Mapping[str, str] | None = None,
        validate_only: bool = False,
    ) -> create_topics.CreatableTopicResult:
        """Create a topic; -1 stands for the broker's default."""
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
        """Delete a topic and its records."""

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

    async def create_partitions(
        self, name: str, count: int, *, validate_only: bool = False
    ) -> None:
        """Increase the number of partitions of a topic to `count`."""
        request = create_partitions.CreatePartitionsRequest(
            topics=[
                create_partitions.CreatePartitionsTopic(name=name, count=count, assignments=None)
            ],
            timeout_ms=self._timeout_ms,
            validate_only=validate_only,
        )

        async def attempt() -> None:
            response = await self._cluster.ask_controller(create_partitions.API, request)
            check(response.results[0].error_code, response.results[0].error_message)

        await self._cluster.retrying(attempt)
        self._cluster.topics.pop(name, None)

    async def delete_records(
        self, offsets: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Delete records below each offset (-1: high watermark); return the log start offsets."""

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
            done[TopicPartition(topic, partition)] = await self._cluster.retrying(
                lambda t=topic, p=partition, o=offset: one(t, p, o)  # type: ignore[misc]
            )
        return done

    # -- brokers and configurations --------------------------------------------------------------

    async def describe_cluster(self) -> describe_cluster.DescribeClusterResponse:
        """Return the id, controller and brokers of the cluster."""
        request = describe_cluster.DescribeClusterRequest(
            include_cluster_authorized_operations=False
        )
        response: describe_cluster.DescribeClusterResponse = await self._cluster.ask(
            describe_cluster.API, request
        )
        check(response.error_code, response.error_message)
        return response

    async def describe_log_dirs(
        self, node: int, partitions: Iterable[TopicPartition] | None = None
    ) -> list[describe_log_dirs.DescribeLogDirsResult]:
        """Return the log directories of a broker and the sizes of their replicas in bytes, of all
        or of some `partitions`."""
        topics = None
        if partitions is not None:
            topics = [
                describe_log_dirs.DescribableLogDirTopic(topic=topic, partitions=indexes)
                for topic, indexes in by_topic(partitions).items()
            ]
        request = describe_log_dirs.DescribeLogDirsRequest(topics=topics)
        response = await self._cluster.ask(describe_log_dirs.API, request, node=node)
        check(response.error_code)
        rows: list[describe_log_dirs.DescribeLogDirsResult] = response.results
        return rows

    async def topic_configs(
        self, topics: Iterable[str], keys: Sequence[str] | None = None
    ) -> dict[str, list[describe_configs.DescribeConfigsResourceResult]]:
        """Return the configuration entries of topics, by name; all, or those of `keys`."""
        names = sorted(topics)
        found = {}
        for start in range(0, len(names), _DESCRIBED_AT_ONCE):
            request = describe_configs.DescribeConfigsRequest(
                resources=[
                    describe_configs.DescribeConfigsResource(
                        resource_type=ConfigResourceType.TOPIC,
                        resource_name=name,
                        configuration_keys=None if keys is None else list(keys),
                    )
                    for name in names[start : start + _DESCRIBED_AT_ONCE]
                ]
            )
            response = await self._cluster.ask(describe_configs.API, request)
            for result in response.results:
                check(result.error_code, result.error_message)
                found[result.resource_name] = result.configs
        return found

    async def describe_configs(
        self, kind: ConfigResourceType, name: str, *, documented: bool = False
    ) -> list[describe_configs.DescribeConfigsResourceResult]:
        """Return every configuration entry of a resource; `documented` ones have their text."""
        request = describe_configs.DescribeConfigsRequest(
            resources=[
                describe_configs.DescribeConfigsResource(
                    resource_type=kind, resource_name=name, configuration_keys=None
                )
            ],
            include_synonyms=True,
            include_documentation=documented,
        )
        response = await self._cluster.ask(
            describe_configs.API, request, node=self._owner(kind, name)
        )
        result = response.results[0]
        check(result.error_code, result.error_message)
        rows: list[describe_configs.DescribeConfigsResourceResult] = result.configs
        return rows

    async def min_isr(self, topics: Iterable[str]) -> dict[str, int]:
        """Return min.insync.replicas of topics, by name."""
        found = await self.topic_configs(topics, ["min.insync.replicas"])
        return {topic: int(entry.value or 1) for topic, (entry,) in found.items()}

    async def alter_configs(
        self,
        kind: ConfigResourceType,
        name: str,
        changes: Iterable[tuple[str, ConfigOperation, str | None]],
        *,
        validate_only: bool = False,
    ) -> None:
        """Change configuration entries of a resource, all or none (KIP-339)."""
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
            validate_only=validate_only,
        )
        response = await self._cluster.ask(
            incremental_alter_configs.API, request, node=self._owner(kind, name)
        )
        check(response.responses[0].error_code, response.responses[0].error_message)

    async def list_config_resources(
        self, kinds: Sequence[ConfigResourceType] = ()
    ) -> list[list_config_resources.ConfigResource]:
        """Return the resources that have configurations, of all kinds by default (KIP-1142)."""
        response = await self._cluster.ask(
            list_config_resources.API,
            list_config_resources.ListConfigResourcesRequest(resource_types=list(kinds)),
        )
        check(response.error_code)
        rows: list[list_config_resources.ConfigResource] = response.config_resources
        return rows

    # -- access control rules ---------------------------------------------------------------------

    async def describe_acls(self, wanted: acl.AclFilter) -> list[acl.AclBinding]:
        """Return the rules that a filter matches. Raises SECURITY_DISABLED without an
        authorizer."""
        response = await self._cluster.ask(
            describe_acls.API, describe_acls.DescribeAclsRequest(**_acl_filter(wanted))
        )
        check(response.error_code, response.error_message)
        return [
            _acl_rule(resource, entry) for resource in response.resources for entry in resource.acls
        ]

    async def create_acls(self, rules: Sequence[acl.AclBinding]) -> None:
        """Add rules. Raises the first error; the other rules are added."""
        creations = [
            create_acls.AclCreation(
                resource_type=pattern.type,
                resource_name=pattern.name,
                resource_pattern_type=pattern.pattern_type,
                principal=str(entry.principal),
                host=entry.host,
                operation=entry.operation,
                permission_type=entry.permission,
            )
            for pattern, entry in rules
        ]
        response = await self._cluster.ask(
            create_acls.API, create_acls.CreateAclsRequest(creations=creations)
        )
        for row in response.results:
            check(row.error_code, row.error_message)

    async def delete_acls(self, filters: Sequence[acl.AclFilter]) -> list[acl.AclBinding]:
        """Delete the rules that any of the filters matches, and return them. Raises the first
        error; what could be deleted is deleted."""
        wanted = [delete_acls.DeleteAclsFilter(**_acl_filter(each)) for each in filters]
        response = await self._cluster.ask(
            delete_acls.API, delete_acls.DeleteAclsRequest(filters=wanted)
        )
        deleted: dict[acl.AclBinding, None] = {}
        for result in response.filter_results:
            check(result.error_code, result.error_message)
            for row in result.matching_acls:
                check(row.error_code, row.error_message)
                deleted[_acl_rule(row, row)] = None
        return list(deleted)

    # -- quotas -----------------------------------------------------------------------------------

    async def describe_client_quotas(
        self, wanted: Entity, *, strict: bool = False
    ) -> list[tuple[Entity, dict[str, float]]]:
        """Return the entities with these names, and their quotas; all entities if none is given.

        If strict, entities that have other types too are left out.
        """
        components = [
            describe_client_quotas.ComponentData(
                entity_type=kind,
                match_type=describe_client_quotas.OF_OTHERS
                if name is None
                else describe_client_quotas.EXACT,
                match=name,
            )
            for kind, name in wanted.items()
        ]
        response = await self._cluster.ask(
            describe_client_quotas.API,
            describe_client_quotas.DescribeClientQuotasRequest(
                components=components, strict=strict
            ),
        )
        check(response.error_code, response.error_message)
        return [
            (
                {part.entity_type: part.entity_name for part in entry.entity},
                {quota.key: quota.value for quota in entry.values},
            )
            for entry in response.entries
        ]

    async def alter_client_quotas(
        self, entity: Entity, changes: Mapping[str, float | None], *, validate_only: bool = False
    ) -> None:
        """Set quotas of an entity, or remove those whose value is None; all or none."""
        request = alter_client_quotas.AlterClientQuotasRequest(
            entries=[
                alter_client_quotas.AlterEntryData(
                    entity=[
                        describe_client_quotas.EntityData(entity_type=kind, entity_name=name)
                        for kind, name in entity.items()
                    ],
                    ops=[
                        alter_client_quotas.OpData(
                            key=key, value=0.0 if value is None else value, remove=value is None
                        )
                        for key, value in changes.items()
                    ],
                )
            ],
            validate_only=validate_only,
        )
        response = await self._cluster.ask(alter_client_quotas.API, request)
        check(response.entries[0].error_code, response.entries[0].error_message)

    @staticmethod
    def _owner(kind: ConfigResourceType, name: str) -> int | None:
        # Only the broker itself knows its configuration and its loggers.
        on_broker = kind in (ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER)
        return int(name) if on_broker and name else None


def _acl_filter(wanted: acl.AclFilter) -> dict[str, Any]:
    return {
        "resource_type_filter": wanted.type,
        "resource_name_filter": wanted.name,
        "pattern_type_filter": wanted.pattern_type,
        "principal_filter": wanted.principal,
        "host_filter": wanted.host,
        "operation": wanted.operation,
        "permission_type": wanted.permission,
    }


def _acl_rule(resource: Any, entry: Any) -> acl.AclBinding:
    pattern = acl.ResourcePattern(
        acl.ResourceType(resource.resource_type),
        resource.resource_name,
        acl.PatternType(resource.pattern_type),
    )
    return acl.AclBinding(
        pattern,
        acl.AccessControlEntry(
            Principal.parse(entry.principal),
            entry.host,
            acl.AclOperation(entry.operation),
            acl.AclPermissionType(entry.permission_type),
        ),
    )


async def finalized_features(cluster: Cluster) -> dict[str, int]:
    """Return the finalized level of each feature by name, as a broker knows it (KIP-584)."""

    async def attempt() -> dict[str, int]:
        connection = await cluster.any_connection()
        await connection.learn_features(timeout=cluster.timeout)
        return dict(connection.features)

    return await cluster.retrying(attempt)


async def update_feature(
    cluster: Cluster, name: str, level: int, *, change: int = UPGRADE, validate_only: bool = False
) -> None:
    """Change the finalized level of a feature (KIP-584); level 0 removes it.

    `change` is UPGRADE, SAFE_DOWNGRADE (only if no metadata is lost) or UNSAFE_DOWNGRADE. Raises
    FEATURE_UPDATE_FAILED, INVALID_UPDATE_VERSION or INVALID_REQUEST if the change is refused.
    """
    request = update_features.UpdateFeaturesRequest(
        timeout_ms=int(cluster.timeout * 1000),
        feature_updates=[
            update_features.FeatureUpdateKey(
                feature=name, max_version_level=level, upgrade_type=change
            )
        ],
        validate_only=validate_only,
    )

    async def attempt() -> None:
        response = await cluster.ask_controller(update_features.API, request)
        check(response.error_code, response.error_message)
        for row in response.results:
            check(row.error_code, row.error_message)

    await cluster.retrying(attempt)
