"""The administration of consumer groups: members, state and committed offsets."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress

from barnabas.client.cluster import Cluster, check
from barnabas.client.connection import Connection
from barnabas.client.groups.offsets import commit_offsets, fetch_all_offsets
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages import (
    consumer_group_describe,
    delete_groups,
    describe_groups,
    list_groups,
    offset_delete,
)
from barnabas.protocol.schema import Api
from barnabas.protocol.topic_partition import TopicPartition, by_topic

Description = describe_groups.DescribedGroup | consumer_group_describe.DescribedGroup
"""State and members of a group, of either protocol."""


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

    async def describe(self, groups: Iterable[str]) -> dict[str, Description]:
        """Return the state and members of groups of either protocol, by group.

        Raises the first error, GROUP_ID_NOT_FOUND for a group that does not exist or has another
        protocol. Kafka before 4.0 reports the state Dead in place of that error.
        """
        wanted = list(groups)
        found = await self._found(
            wanted,
            describe_groups.API,
            lambda ids: describe_groups.DescribeGroupsRequest(groups=ids),
        )
        if others := [each for each in wanted if each not in found]:
            # Brokers without the protocol of KIP-848 refuse the request.
            with suppress(KafkaError):
                found |= await self._found(
                    others,
                    consumer_group_describe.API,
                    lambda ids: consumer_group_describe.ConsumerGroupDescribeRequest(
                        group_ids=ids, include_authorized_operations=False
                    ),
                )
        for each in others:
            if each not in found:
                text = f"there is no classic or consumer group {each}"
                raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, text)
        return found

    async def _found(
        self, groups: Iterable[str], api: Api, request_of: Callable[[list[str]], object]
    ) -> dict[str, Description]:
        """Return the descriptions of those groups that this API knows."""

        async def ask(connection: Connection, group_ids: list[str]) -> dict[str, Description]:
            request = request_of(group_ids)
            response = await connection.request(api, request, timeout=self._cluster.request_timeout)
            found = {}
            for row in response.groups:
                if row.error_code != ErrorCode.GROUP_ID_NOT_FOUND:
                    check(row.error_code, row.error_message)
                    found[row.group_id] = row
            return found

        return await self._cluster.ask_coordinators(groups, ask)

    async def delete(self, group: str) -> None:
        """Delete an empty group with its offsets; NON_EMPTY_GROUP while it has members."""
        request = delete_groups.DeleteGroupsRequest(groups_names=[group])

        async def attempt() -> None:
            response = await self._cluster.ask_coordinator(delete_groups.API, request, group)
            check(response.results[0].error_code, f"group {group}")

        await self._cluster.retrying(attempt)

    async def offsets(self, group: str) -> dict[TopicPartition, int]:
        """Return every committed offset of a group."""
        return (await self.offsets_of([group]))[group]

    async def offsets_of(self, groups: Iterable[str]) -> dict[str, dict[TopicPartition, int]]:
        """Return every committed offset of several groups, by group."""
        return await fetch_all_offsets(self._cluster, groups)

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
