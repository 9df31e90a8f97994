"""The administration of replicas and leaders.

It covers reassignments (KIP-455), elections (KIP-460) and moves between log directories (KIP-113).
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from barnabas.client.cluster import Cluster, check
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages import (
    alter_partition_reassignments,
    alter_replica_log_dirs,
    elect_leaders,
    list_partition_reassignments,
)
from barnabas.protocol.topic_partition import TopicPartition

Outcomes = dict[TopicPartition, KafkaError | None]
"""The error of each partition; None for success."""


class Reassignment(NamedTuple):
    """The replicas of a partition during a reassignment: all, those being added and removed."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]

    @property
    def target(self) -> tuple[int, ...]:
        """The replicas at the end of the reassignment."""
        return tuple(each for each in self.replicas if each not in self.removing)


class PartitionAdmin:
    """An admin client for partitions; retriable errors are retried until the cluster's timeout."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    @property
    def _timeout_ms(self) -> int:
        return int(self._cluster.timeout * 1000)

    async def reassign(
        self,
        wanted: Mapping[TopicPartition, Sequence[int] | None],
        *,
        allow_factor_change: bool = True,
    ) -> Outcomes:
        """Start reassignments to other replicas; None cancels the reassignment of a partition.

        Without `allow_factor_change` a changed replication factor is refused; brokers that cannot
        do that (Kafka before 4.0) raise UNSUPPORTED_VERSION.
        """
        api = alter_partition_reassignments.API
        request = alter_partition_reassignments.AlterPartitionReassignmentsRequest(
            timeout_ms=self._timeout_ms,
            allow_replication_factor_change=allow_factor_change,
            topics=[
                alter_partition_reassignments.ReassignableTopic(
                    name=topic,
                    partitions=[
                        alter_partition_reassignments.ReassignablePartition(
                            partition_index=index, replicas=None if ids is None else list(ids)
                        )
                        for index, ids in partitions.items()
                    ],
                )
                for topic, partitions in _by_topic(wanted).items()
            ],
        )
        if not allow_factor_change:
            connection = await self._cluster.any_connection()
            if connection.version_for(api) < 1:
                text = "the broker lets any reassignment change the replication factor"
                raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, text)

        async def attempt() -> Outcomes:
            response = await self._cluster.ask_controller(api, request)
            check(response.error_code, response.error_message)
            return {
                TopicPartition(topic.name, row.partition_index): _error(
                    row.error_code, row.error_message
                )
                for topic in response.responses
                for row in topic.partitions
            }

        return await self._cluster.retrying(attempt)

    async def reassignments(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, Reassignment]:
        """Return the ongoing reassignments, of these partitions or of all."""
        messages = list_partition_reassignments
        topics = None
        if partitions is not None:
            topics = [
                messages.ListPartitionReassignmentsTopics(name=name, partition_indexes=list(found))
                for name, found in _by_topic(dict.fromkeys(partitions)).items()
            ]
        request = messages.ListPartitionReassignmentsRequest(
            timeout_ms=self._timeout_ms, topics=topics
        )

        async def attempt() -> dict[TopicPartition, Reassignment]:
            response = await self._cluster.ask_controller(messages.API, request)
            check(response.error_code, response.error_message)
            return {
                TopicPartition(topic.name, row.partition_index): Reassignment(
                    tuple(row.replicas), tuple(row.adding_replicas), tuple(row.removing_replicas)
                )
                for topic in response.topics
                for row in topic.partitions
            }

        return await self._cluster.retrying(attempt)

    async def elect_leaders(
        self, partitions: Iterable[TopicPartition] | None = None, *, unclean: bool = False
    ) -> Outcomes:
        """Elect the preferred replicas as leaders, of these partitions or of all.

        With `unclean`, partitions without a leader get any live replica as leader: records may be
        lost. For all partitions, the result leaves out those that need no election.
        """
        topics = None
        if partitions is not None:
            topics = [
                elect_leaders.TopicPartitions(topic=name, partitions=list(found))
                for name, found in _by_topic(dict.fromkeys(partitions)).items()
            ]
        request = elect_leaders.ElectLeadersRequest(
            election_type=elect_leaders.UNCLEAN if unclean else elect_leaders.PREFERRED,
            topic_partitions=topics,
            timeout_ms=self._timeout_ms,
        )

        async def attempt() -> Outcomes:
            response = await self._cluster.ask_controller(elect_leaders.API, request)
            check(response.error_code)
            return {
                TopicPartition(topic.topic, row.partition_id): _error(
                    row.error_code, row.error_message
                )
                for topic in response.replica_election_results
                for row in topic.partition_result
            }

        return await self._cluster.retrying(attempt)

    async def move_within(self, broker: int, wanted: Mapping[TopicPartition, str]) -> Outcomes:
        """Move replicas of one broker to other log directories (KIP-113).

        Returns when the moves have started. REPLICA_NOT_AVAILABLE: the broker has no such replica
        yet, and will create it in that directory.
        """
        messages = alter_replica_log_dirs
        by_path: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
        for (topic, index), path in wanted.items():
            by_path[path][topic].append(index)
        request = messages.AlterReplicaLogDirsRequest(
            dirs=[
                messages.AlterReplicaLogDir(
                    path=path,
                    topics=[
                        messages.AlterReplicaLogDirTopic(name=name, partitions=indexes)
                        for name, indexes in topics.items()
                    ],
                )
                for path, topics in by_path.items()
            ]
        )
        response = await self._cluster.ask(messages.API, request, node=broker)
        return {
            TopicPartition(topic.topic_name, row.partition_index): _error(row.error_code, None)
            for topic in response.results
            for row in topic.partitions
        }


def _error(code: int, message: str | None) -> KafkaError | None:
    return KafkaError(ErrorCode.of(code), message) if code else None


def _by_topic(
    partitions: Mapping[TopicPartition, Sequence[int] | None],
) -> dict[str, dict[int, Sequence[int] | None]]:
    found: dict[str, dict[int, Sequence[int] | None]] = defaultdict(dict)
    for (topic, index), replicas in partitions.items():
        found[topic][index] = replicas
    return found
