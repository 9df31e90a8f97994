"""The administration of consumer groups: members, state and committed offsets."""

from collections.abc import Iterable, Mapping
from contextlib import suppress

from barnabas.client.cluster import Cluster, check
from barnabas.client.groups.offsets import commit_offsets, fetch_offsets
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages import (
    consumer_group_describe,
    delete_groups,
    describe_groups,
    list_groups,
    offset_delete,
)
from barnabas.protocol.topic_partition import TopicPartition, by_topic


class GroupAdmin:
    """An admin client for groups; retriable errors are retried until the cluster's timeout."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def groups(self) -> list[list_groups.ListedGroup]:
        """Return the groups of every broker."""
        await self._cluster.refresh(())
        groups: list[list_groups.ListedGroup] = []
        for node in sorted(self._cluster.nodes):
            response = await self._cluster.ask(
                list_groups.API, list_groups.ListGroupsRequest(), node=node
            )
            check(response.error_code)
            groups += response.groups
        return sorted(groups, key=lambda group: group.group_id)

    async def describe(self, group: str) -> describe_groups.DescribedGroup:
        """Return the state and members of a classic group; GROUP_ID_NOT_FOUND for other groups.

        Kafka before 4.0 reports the state Dead in place of the error.
        """
        request = describe_groups.DescribeGroupsRequest(groups=[group])

        async def attempt() -> describe_groups.DescribedGroup:
            response = await self._cluster.ask_coordinator(describe_groups.API, request, group)
            row: describe_groups.DescribedGroup = response.groups[0]
            check(row.error_code, row.error_message)
            return row

        return await self._cluster.retrying(attempt)

    async def describe_modern(self, group: str) -> consumer_group_describe.DescribedGroup:
        """Return the state and members of a group of the consumer protocol (KIP-848).

        GROUP_ID_NOT_FOUND for other groups, UNSUPPORTED_VERSION from brokers without the protocol.
        """
        request = consumer_group_describe.ConsumerGroupDescribeRequest(
            group_ids=[group], include_authorized_operations=False
        )

        async def attempt() -> consumer_group_describe.DescribedGroup:
            response = await self._cluster.ask_coordinator(
                consumer_group_describe.API, request, group
            )
            row: consumer_group_describe.DescribedGroup = response.groups[0]
            check(row.error_code, row.error_message)
            return row

        return await self._cluster.retrying(attempt)

    async def describe_either(
        self, group: str
    ) -> describe_groups.DescribedGroup | consumer_group_describe.DescribedGroup:
        """Return the state and members of a group of either protocol; GROUP_ID_NOT_FOUND too."""
        try:
            return await self.describe(group)
        except KafkaError as error:
            if error.code is ErrorCode.GROUP_ID_NOT_FOUND:
                with suppress(KafkaError):
                    return await self.describe_modern(group)
            raise

    async def delete(self, group: str) -> None:
        """Delete an empty group with its offsets; NON_EMPTY_GROUP while it has members."""
        request = delete_groups.DeleteGroupsRequest(groups_names=[group])

        async def attempt() -> None:
            response = await self._cluster.ask_coordinator(delete_groups.API, request, group)
            check(response.results[0].error_code, f"group {group}")

        await self._cluster.retrying(attempt)

    async def offsets(self, group: str) -> dict[TopicPartition, int]:
        """Return every committed offset of a group."""
        return await fetch_offsets(self._cluster, group)

    async def set_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit `offsets` for a group without members; UNKNOWN_MEMBER_ID if it has members."""
        await commit_offsets(self._cluster, group, offsets)

    async def delete_offsets(self, group: str, wanted: Iterable[TopicPartition]) -> None:
        """Delete offsets of a group; GROUP_SUBSCRIBED_TO_TOPIC while members read the topic."""
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
                for topic, partitions in by_topic(wanted).items()
            ],
        )

        async def attempt() -> None:
            response = await self._cluster.ask_coordinator(offset_delete.API, request, group)
            check(response.error_code, f"group {group}")
            for topic in response.topics:
                for row in topic.partitions:
                    check(row.error_code, f"{topic.name}-{row.partition_index}")

        await self._cluster.retrying(attempt)
