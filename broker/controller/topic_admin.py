"""Creating, growing and deleting topics during one tenure."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import NamedTuple

from barnabas.broker.controller.election import CAREFUL, decide
from barnabas.broker.controller.register import first_state, install
from barnabas.broker.controller.state import Partition, Topic, TopicPartition
from barnabas.broker.controller.tenure import Tenure
from barnabas.broker.controller.topics import (
    MAX_NEW_PARTITIONS,
    CreatedTopic,
    NewTopic,
    assign_partitions,
    assign_topic,
    check_new_name,
    check_new_partitions,
    extended,
    new_partitions,
)
from barnabas.broker.metadata import znodes
from barnabas.broker.metadata.store import Create, Delete, Op, SetData
from barnabas.broker.metadata.znodes import LeaderAndIsr, TopicAssignment
from barnabas.protocol.errors import ErrorCode, KafkaError

Delivery = list[asyncio.Future[None]]
"""Done when the brokers that are alive know."""


class NewPartitions(NamedTuple):
    """A topic's new number of partitions; without assignments the controller places them."""

    topic: str
    num_partitions: int
    assignments: Sequence[Sequence[int]] | None = None


class Defaults(NamedTuple):
    """What a creator who does not say gets."""

    num_partitions: int
    replication_factor: int


class TopicAdmin:
    """Requests about topics. Each request's parts succeed or fail on their own."""

    def __init__(
        self,
        tenure: Tenure,
        random: Random,
        *,
        defaults: Callable[[], Defaults],
        check_configs: Callable[[Mapping[str, str | None]], dict[str, str]],
    ) -> None:
        """`check_configs` returns overrides for a topic or raises INVALID_CONFIG."""
        self._tenure = tenure
        self._random = random
        self._defaults = defaults
        self._check_configs = check_configs

    async def create(
        self, wanted: Sequence[NewTopic], *, validate_only: bool
    ) -> tuple[dict[str, CreatedTopic | KafkaError], Delivery]:
        """Names must be different."""
        default = self._defaults().num_partitions
        try:
            check_new_partitions(sum(new_partitions(new, default) for new in wanted))
        except KafkaError as error:
            return {new.name: error for new in wanted}, []
        answers: dict[str, CreatedTopic | KafkaError] = {}
        topics: list[tuple[Topic, dict[str, str]]] = []
        for new in wanted:
            try:
                topic, configs = self._plan(new)
            except KafkaError as error:
                answers[new.name] = error
                continue
            topics.append((topic, configs))
            answers[new.name] = CreatedTopic(
                topic.topic_id, len(topic.partitions), topic.replication_factor
            )
        if validate_only or not topics:
            return answers, []
        await self._write(topics)
        return answers, self._tenure.tell(
            list(self._tenure.state.partitions(topic for topic, _ in topics))
        )

    async def grow(
        self, wanted: Sequence[NewPartitions], *, validate_only: bool
    ) -> tuple[dict[str, KafkaError | None], Delivery]:
        """Names must be different. The answer to a topic that grew is None."""
        answers: dict[str, KafkaError | None] = {}
        changed: list[TopicPartition] = []
        limit = MAX_NEW_PARTITIONS
        for new in wanted:
            try:
                added = self._plan_partitions(new, limit)
            except KafkaError as error:
                answers[new.topic] = error
                continue
            limit -= len(added)
            answers[new.topic] = None
            if not validate_only:
                topic = self._tenure.state.topics[new.topic]
                assignment = znodes.encode_topic(extended(topic, added))
                await self._tenure.commit([[SetData(znodes.topic_path(topic.name), assignment)]])
                topic.partitions.update((index, Partition(ids)) for index, ids in added.items())
                changed += await self._tenure.decide(
                    TopicPartition(topic.name, index) for index in added
                )
        return answers, self._tenure.tell(changed) if changed else []

    async def remove(
        self, wanted: Sequence[str | bytes]
    ) -> tuple[list[Topic | KafkaError], Delivery]:
        """Delete topics by name or id; the answers are in the same order."""
        found = [self._find(each) for each in wanted]
        topics = {each.name: each for each in found if isinstance(each, Topic)}
        return found, await self.delete(list(topics.values())) if topics else []

    def _find(self, wanted: str | bytes) -> Topic | KafkaError:
        state = self._tenure.state
        if isinstance(wanted, bytes):
            name = state.names.get(wanted)
            return KafkaError(ErrorCode.UNKNOWN_TOPIC_ID) if name is None else state.topics[name]
        topic = state.topics.get(wanted)
        return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) if topic is None else topic

    async def delete(self, topics: Sequence[Topic]) -> Delivery:
        """From the moment on at which the marks are written the topics are as good as gone."""
        await self._tenure.commit(
            [[Create(znodes.delete_topic_path(each.name))] for each in topics]
        )
        return await self.finish_deletion(topics)

    async def finish_deletion(self, topics: Sequence[Topic]) -> Delivery:
        """Of topics that bear the mark: stop their replicas and forget them.

        Brokers that are away find out when they come back: their replicas are strays then.
        """
        tenure = self._tenure
        delivered: Delivery = []
        for broker in tenure.state.brokers.values():
            tenure.send(broker.id, tenure.sender.forget_topics(tenure.state, broker, topics))
            stop = tenure.sender.delete_replicas(broker, topics)
            delivered.append(tenure.send(broker.id, stop))
        groups: list[list[Op]] = []
        for topic in topics:
            groups += _deletions(topic)
        await tenure.commit(groups)
        for topic in topics:
            tenure.state.remove(topic)
        return delivered

    def _plan(self, new: NewTopic) -> tuple[Topic, dict[str, str]]:
        state = self._tenure.state
        check_new_name(new, state.names_taken)
        configs = self._check_configs(new.configs)
        defaults = self._defaults()
        replicas = assign_topic(
            new,
            state,
            self._random,
            default_partitions=defaults.num_partitions,
            default_replication_factor=defaults.replication_factor,
        )
        topic_id = self._new_topic_id()
        return Topic.of(new.name, TopicAssignment(topic_id, replicas)), configs

    def _plan_partitions(self, new: NewPartitions, limit: int) -> dict[int, tuple[int, ...]]:
        topic = self._tenure.state.topics.get(new.topic)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return assign_partitions(
            topic,
            new.num_partitions,
            new.assignments,
            self._tenure.state,
            self._random,
            limit=limit,
        )

    def _new_topic_id(self) -> bytes:
        """A random (version 4) UUID; those whose text begins with '-' trouble command lines."""
        while True:
            raw = bytearray(self._random.randbytes(16))
            raw[6] = raw[6] & 0x0F | 0x40
            raw[8] = raw[8] & 0x3F | 0x80
            if raw[0] >> 2 != 62 and bytes(raw) not in self._tenure.state.names:
                return bytes(raw)

    async def _write(self, topics: Sequence[tuple[Topic, Mapping[str, str]]]) -> None:
        groups: list[list[Op]] = []
        decisions: list[tuple[int, Partition, LeaderAndIsr]] = []
        for topic, configs in topics:
            groups.append(
                [
                    Create(znodes.topic_path(topic.name), znodes.encode_topic(topic.assignment)),
                    Create(znodes.partitions_path(topic.name)),
                    Create(znodes.config_path("topics", topic.name), znodes.encode_config(configs)),
                ]
            )
            for index, partition in topic.partitions.items():
                decision = self._first_decision(partition)
                if decision is not None:
                    decisions.append((len(groups), partition, decision))
                    groups.append(first_state(TopicPartition(topic.name, index), decision))
        results = await self._tenure.commit(groups)
        for group, partition, decision in decisions:
            install(partition, decision, results[group])
        for topic, _ in topics:
            self._tenure.state.add(topic)

    def _first_decision(self, partition: Partition) -> LeaderAndIsr | None:
        state = self._tenure.state
        situation = state.situation(partition, CAREFUL)
        decision = decide(partition.replicas, None, situation, self._tenure.sender.epoch)
        return None if decision is None else state.judged(decision)


def _deletions(topic: Topic) -> list[list[Op]]:
    """The topic's nodes from the leaves up; the mark goes last."""
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
