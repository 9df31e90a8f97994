"""The creation, growth and deletion of topics by the active controller."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import NamedTuple

from barnabas.broker.cluster import znodes
from barnabas.broker.cluster.new_topics import CreatedTopic, NewTopic
from barnabas.broker.cluster.znodes import LeaderAndIsr, TopicAssignment
from barnabas.broker.controller.active_controller import ActiveController
from barnabas.broker.controller.cluster_store import first_state, install
from barnabas.broker.controller.rules.cluster_state import ClusterPartition, ClusterTopic
from barnabas.broker.controller.rules.leader_election import CLEAN_ONLY, decide
from barnabas.broker.controller.rules.new_topics import (
    MAX_NEW_PARTITIONS,
    assign_partitions,
    assign_topic,
    check_new_name,
    check_new_partitions,
    extended,
    new_partitions,
)
from barnabas.broker.store.metadata_store import Create, Delete, Op, SetData
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.topic_partition import TopicPartition

Delivery = list[asyncio.Future[None]]
"""Futures that are done when the registered brokers know of a change."""


class NewPartitions(NamedTuple):
    """The new number of partitions of a topic; without assignments the controller places them."""

    topic: str
    num_partitions: int
    assignments: Sequence[Sequence[int]] | None = None


class Defaults(NamedTuple):
    """The defaults for topics whose request names no numbers."""

    num_partitions: int
    replication_factor: int


class TopicAdmin:
    """The handler of requests about topics. The parts of a request succeed or fail separately."""

    def __init__(
        self,
        active: ActiveController,
        random: Random,
        *,
        defaults: Callable[[], Defaults],
        check_configs: Callable[[Mapping[str, str | None]], dict[str, str]],
        require_descriptors: Callable[[int], None],
    ) -> None:
        """`check_configs` returns overrides for a topic or raises INVALID_CONFIG.

        `require_descriptors` raises POLICY_VIOLATION if this broker has too few file descriptors
        for so many more replicas.
        """
        self._active = active
        self._random = random
        self._defaults = defaults
        self._check_configs = check_configs
        self._require_descriptors = require_descriptors

    async def create(
        self, wanted: Sequence[NewTopic], *, validate_only: bool
    ) -> tuple[dict[str, CreatedTopic | KafkaError], Delivery]:
        """Create topics, whose names must differ."""
        default, slicer = self._defaults().num_partitions, self._active.slicer
        try:
            count = 0
            async for new in slicer.each(wanted):
                count += new_partitions(new, default)
            check_new_partitions(count)
        except KafkaError as error:
            return {new.name: error for new in wanted}, []
        answers: dict[str, CreatedTopic | KafkaError] = {}
        topics: list[tuple[ClusterTopic, dict[str, str]]] = []
        here = 0
        async for new in slicer.each(wanted):
            try:
                topic, configs = await self._plan(new)
                here += self._check_here(topic.assignment.replicas, here)
            except KafkaError as error:
                answers[new.name] = error.with_traceback(None)
                continue
            topics.append((topic, configs))
            answers[new.name] = CreatedTopic(
                topic.topic_id, len(topic.partitions), topic.replication_factor
            )
        if validate_only or not topics:
            return answers, []
        await self._write(topics)
        return answers, await self._active.send_changes(
            list(self._active.state.partitions(topic for topic, _ in topics))
        )

    async def grow(
        self, wanted: Sequence[NewPartitions], *, validate_only: bool
    ) -> tuple[dict[str, KafkaError | None], Delivery]:
        """Add partitions to topics, whose names must differ; the result of a topic that grew is
        None."""
        answers: dict[str, KafkaError | None] = {}
        changed: list[TopicPartition] = []
        limit, here = MAX_NEW_PARTITIONS, 0
        async for new in self._active.slicer.each(wanted):
            try:
                added = await self._plan_partitions(new, limit)
                here += self._check_here(added, here)
            except KafkaError as error:
                answers[new.topic] = error.with_traceback(None)
                continue
            limit -= len(added)
            answers[new.topic] = None
            if not validate_only:
                topic = self._active.state.topics[new.topic]
                assignment = znodes.encode_topic(extended(topic, added))
                await self._active.commit([[SetData(znodes.topic_path(topic.name), assignment)]])
                topic.partitions.update(
                    (index, ClusterPartition(ids)) for index, ids in added.items()
                )
                changed += await self._active.decide(
                    TopicPartition(topic.name, index) for index in added
                )
        return answers, await self._active.send_changes(changed) if changed else []

    async def remove(
        self, wanted: Sequence[str | bytes]
    ) -> tuple[list[ClusterTopic | KafkaError], Delivery]:
        """Delete topics by name or id; return one result each, in order."""
        found = [self._find(each) async for each in self._active.slicer.each(wanted)]
        topics = {each.name: each for each in found if isinstance(each, ClusterTopic)}
        return found, await self.delete(list(topics.values())) if topics else []

    def _find(self, wanted: str | bytes) -> ClusterTopic | KafkaError:
        state = self._active.state
        if isinstance(wanted, bytes):
            name = state.names.get(wanted)
            return KafkaError(ErrorCode.UNKNOWN_TOPIC_ID) if name is None else state.topics[name]
        topic = state.topics.get(wanted)
        return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) if topic is None else topic

    async def delete(self, topics: Sequence[ClusterTopic]) -> Delivery:
        """Mark topics as deleted, then delete them. A marked topic is deleted even after a
        crash."""
        marks = [
            [Create(znodes.delete_topic_path(each.name))]
            async for each in self._active.slicer.each(topics)
        ]
        await self._active.commit(marks)
        return await self.finish_deletion(topics)

    async def finish_deletion(self, topics: Sequence[ClusterTopic]) -> Delivery:
        """Stop the replicas of marked topics and delete their nodes.

        A broker that is down finds its replicas to be strays when it comes back.
        """
        active = self._active
        delivered: Delivery = []
        run = active.slicer.run
        for broker in active.state.brokers.values():
            forget = await run(active.messages.forget_topics(active.state, broker, topics))
            active.send(broker.id, forget)
            stop = await run(active.messages.delete_replicas(broker, topics))
            delivered.append(active.send(broker.id, stop))
        groups: list[list[Op]] = []
        async for topic in active.slicer.each(topics):
            groups += _deletions(topic)
        await active.commit(groups)
        async for topic in active.slicer.each(topics):
            active.state.remove(topic)
        return delivered

    async def _plan(self, new: NewTopic) -> tuple[ClusterTopic, dict[str, str]]:
        state = self._active.state
        check_new_name(new, state.names_taken)
        configs = self._check_configs(new.configs)
        defaults = self._defaults()
        replicas = await self._active.slicer.run(
            assign_topic(
                new,
                state,
                self._random,
                default_partitions=defaults.num_partitions,
                default_replication_factor=defaults.replication_factor,
            )
        )
        topic_id = self._new_topic_id()
        return ClusterTopic.of(new.name, TopicAssignment(topic_id, replicas)), configs

    async def _plan_partitions(self, new: NewPartitions, limit: int) -> dict[int, tuple[int, ...]]:
        topic = self._active.state.topics.get(new.topic)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return await self._active.slicer.run(
            assign_partitions(
                topic,
                new.num_partitions,
                new.assignments,
                self._active.state,
                self._random,
                limit=limit,
            )
        )

    def _check_here(self, replicas: Mapping[int, Sequence[int]], planned: int) -> int:
        """Count the new partitions with a replica on this broker; `planned` others come too.

        Raises POLICY_VIOLATION. The descriptors of other brokers are not known here.
        """
        here = sum(self._active.messages.id in ids for ids in replicas.values())
        if here:
            self._require_descriptors(planned + here)
        return here

    def _new_topic_id(self) -> bytes:
        """Return a random (version 4) UUID whose text does not start with '-', which confuses
        command lines."""
        while True:
            raw = bytearray(self._random.randbytes(16))
            raw[6] = raw[6] & 0x0F | 0x40
            raw[8] = raw[8] & 0x3F | 0x80
            if raw[0] >> 2 != 62 and bytes(raw) not in self._active.state.names:
                return bytes(raw)

    async def _write(self, topics: Sequence[tuple[ClusterTopic, Mapping[str, str]]]) -> None:
        groups: list[list[Op]] = []
        decisions: list[tuple[int, ClusterPartition, LeaderAndIsr]] = []
        slicer = self._active.slicer
        async for topic, configs in slicer.each(topics):
            groups.append(
                [
                    Create(znodes.topic_path(topic.name), znodes.encode_topic(topic.assignment)),
                    Create(znodes.partitions_path(topic.name)),
                    Create(znodes.config_path("topics", topic.name), znodes.encode_config(configs)),
                ]
            )
            async for index, partition in slicer.each(topic.partitions.items()):
                decision = self._first_decision(partition)
                if decision is not None:
                    decisions.append((len(groups), partition, decision))
                    groups.append(first_state(TopicPartition(topic.name, index), decision))
        results = await self._active.commit(groups)
        async for group, partition, decision in slicer.each(decisions):
            install(partition, decision, results[group])
        async for topic, _ in slicer.each(topics):
            self._active.state.add(topic)

    def _first_decision(self, partition: ClusterPartition) -> LeaderAndIsr | None:
        state = self._active.state
        election_inputs = state.election_inputs(partition, CLEAN_ONLY)
        decision = decide(partition.replicas, None, election_inputs, self._active.messages.epoch)
        return None if decision is None else state.mark_judged(decision)


def _deletions(topic: ClusterTopic) -> list[list[Op]]:
    """Return the deletions of a topic's nodes, leaves first and the mark last."""
    groups: list[list[Op]] = []
    for index, partition in topic.partitions.items():
        if partition.state is not None:
            groups.append(
                [
                    Delete(znodes.state_path(topic.name, index)),
                    Delete(znodes.partition_path(topic.name, index)),
                ]
            )
    groups.append(
        [
            Delete(znodes.partitions_path(topic.name)),
            Delete(znodes.topic_path(topic.name)),
            Delete(znodes.config_path("topics", topic.name)),
            Delete(znodes.delete_topic_path(topic.name)),
        ]
    )
    return groups
