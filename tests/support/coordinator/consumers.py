"""A coordinator of consumer groups over one partition, with members that behave as clients do."""

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from barnabas.coordinator.group.consumer.group import ConsumerGroup
from barnabas.coordinator.group.consumer.heartbeat import ConsumerClient
from barnabas.coordinator.group.consumer.records import ConsumerGroupRecord
from barnabas.coordinator.group.consumer.settings import ConsumerGroupSettings
from barnabas.coordinator.group.consumer.topics import Topic
from barnabas.coordinator.group.coordinator import GroupShard
from barnabas.coordinator.group.table import GroupTable
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from tests.support.coordinator.harness import GROUP, Groups

Owned = dict[bytes, list[int]]


class FakeTopics:
    """Topics that a test creates, grows and deletes."""

    def __init__(self) -> None:
        self.version = 0
        self.topics: dict[str, Topic] = {}
        self._created = 0

    def create(self, name: str, partitions: int) -> bytes:
        """Create a topic, or replace it by one with more partitions; return its id."""
        known = self.topics.get(name)
        self._created += known is None
        topic_id = self._created.to_bytes(16) if known is None else known.topic_id
        self.topics[name] = Topic(name, topic_id, partitions, ())
        self.version += 1
        return topic_id

    def delete(self, name: str) -> None:
        del self.topics[name]
        self.version += 1

    def names(self) -> list[str]:
        return list(self.topics)

    def find(self, name: str) -> Topic | None:
        return self.topics.get(name)

    def name_of(self, topic_id: bytes) -> str | None:
        return next((each.name for each in self.topics.values() if each.topic_id == topic_id), None)


class Consumers(Groups):
    """A group coordinator with topics, whose requests are those of consumer groups."""

    def __init__(self, **settings: Any) -> None:
        super().__init__()
        self.topics = FakeTopics()
        self.consumer_settings = ConsumerGroupSettings(**settings)
        self.offloaded = 0
        self.client = ConsumerClient(1, "c", "/h")
        self._ids = count()
        self.runtime._new_shard = lambda *_: self.new_shard()

    def new_shard(self) -> GroupShard:
        """Return a shard without records."""
        return GroupShard(
            GroupTable(
                self._settings,
                lambda: f"id-{next(self._ids)}",
                self.counts,
                self.memory,
                self.topics,
                lambda _: self.consumer_settings,
                self.offload,
            )
        )

    def offload(self, work: Callable[[], Any]) -> Any:
        """Run work at once, as if in a thread; return its future."""
        self.offloaded += 1
        future = asyncio.get_running_loop().create_future()
        future.set_result(work())
        return future

    @property
    def group(self) -> ConsumerGroup:
        return self.table.consumers[GROUP]

    def beat(
        self, member_id: str, epoch: int, *, version: int = 1, group_id: str = GROUP, **fields: Any
    ) -> Any:
        """Send a heartbeat: answered with the response or the error code, or a future of it."""
        request = ConsumerGroupHeartbeatRequest(
            group_id=group_id, member_id=member_id, member_epoch=epoch, **fields
        )
        client = self.client._replace(version=version)
        return self.coordinator.consumer_heartbeat(request, client)


@dataclass
class Member:
    """A member of the one group: it gives up and takes partitions as the answers say."""

    consumers: Consumers
    member_id: str
    topics: tuple[str, ...] = ("t",)
    instance_id: str | None = None
    epoch: int = 0
    owned: Owned = field(default_factory=dict)
    used: Owned = field(default_factory=dict)
    """The partitions in use: those to give up are used until the member has said so."""
    fences: list[ErrorCode] = field(default_factory=list)
    expression: str = ""
    lost: bool = False
    """Whether the last answer was lost: clients tell everything again then."""

    def join(self, **fields: Any) -> ConsumerGroupHeartbeatResponse | None:
        """Join or rejoin without partitions."""
        self.stop()
        told = {
            "subscribed_topic_names": list(self.topics),
            "rebalance_timeout_ms": 30_000,
            "topic_partitions": [],
            "instance_id": self.instance_id,
            "subscribed_topic_regex": self.expression,
        }
        return self.send(0, **told | fields)

    def beat(self, **fields: Any) -> ConsumerGroupHeartbeatResponse | None:
        """Send a heartbeat."""
        if self.lost:
            fields = {
                "subscribed_topic_names": list(self.topics),
                "subscribed_topic_regex": self.expression,
                "rebalance_timeout_ms": 30_000,
                "topic_partitions": self.told(),
            } | fields
        return self.send(self.epoch, instance_id=self.instance_id, **fields)

    def leave(self, epoch: int = -1) -> None:
        """Leave, for good or as a static member that comes back."""
        self.send(epoch, instance_id=self.instance_id)
        self.stop()

    def stop(self) -> None:
        """Use nothing any more."""
        self.owned, self.used, self.epoch = {}, {}, 0

    def tell(self) -> ConsumerGroupHeartbeatResponse | None:
        """Send a heartbeat that tells which partitions are used."""
        return self.beat(topic_partitions=self.told())

    def told(self) -> list[TopicPartitions]:
        self.used = {topic_id: list(indexes) for topic_id, indexes in self.owned.items()}
        return [
            TopicPartitions(topic_id=topic_id, partitions=indexes)
            for topic_id, indexes in self.owned.items()
        ]

    def send(self, epoch: int, **fields: Any) -> ConsumerGroupHeartbeatResponse | None:
        """Send a heartbeat, and do what the answer says; None if it is an error."""
        try:
            response: ConsumerGroupHeartbeatResponse = self.consumers.beat(
                self.member_id, epoch, **fields
            )
        except KafkaError as error:
            self.fences.append(error.code)
            return None
        self.epoch, self.lost = response.member_epoch, False
        if response.assignment is not None:
            self.owned = {
                each.topic_id: list(each.partitions)
                for each in response.assignment.topic_partitions
            }
            for topic_id, indexes in self.owned.items():
                known = self.used.setdefault(topic_id, [])
                known += [each for each in indexes if each not in known]
        return response

    @property
    def partitions(self) -> int:
        return sum(map(len, self.owned.values()))


def check_group(group: ConsumerGroup) -> None:
    """Check what follows from the members, and that each partition has one owner."""
    again = ConsumerGroup(group.group_id)
    for each in group.members.values():
        again.put(each)
    assert again.owners == group.owners
    assert again.subscribers == group.subscribers
    assert again.static_ids == group.static_ids
    assert again.expression_users == group.expression_users
    assert again.assignor_votes == group.assignor_votes
    assert again.classic_members == group.classic_members
    assert again.classic_protocols == group.classic_protocols
    owned = [
        (topic_id, index)
        for each in group.members.values()
        for partitions in (each.assigned, each.revoking)
        for topic_id, indexes in partitions.items()
        for index in indexes
    ]
    assert len(owned) == len(set(owned)), "two members have a partition"


async def consumers(partitions: int = 3, **settings: Any) -> Consumers:
    """Return a coordinator with the topic t; it computes assignments at once."""
    host = Consumers(**{"assignment_interval_ms": 0} | settings)
    host.topics.create("t", partitions)
    await host.load()
    return host


def joined(host: Consumers, *names: str, **fields: Any) -> list[Member]:
    """Let members join that have their parts in the end."""
    found = [Member(host, name, **fields) for name in names]
    for each in found:
        assert each.join() is not None
    for _ in range(4):
        for each in found:
            each.tell()
    assert host.group.state.value == "Stable"
    return found


def static(host: Consumers, name: str, instance: str = "i", **fields: Any) -> Member:
    """Return a static member."""
    return Member(host, name, instance_id=instance, **fields)


def written(host: Consumers, since: int = 0) -> list[ConsumerGroupRecord]:
    """Return the records of consumer groups in the log."""
    found = []
    for key, value in host.log.records[since:]:
        assert key is not None
        record = host.shard.decode(key, value)
        if isinstance(record, ConsumerGroupRecord):
            found.append(record)
    return found


def kinds(host: Consumers, since: int = 0) -> Counter[int]:
    """Return how many records of each kind there are."""
    return Counter(each.kind for each in written(host, since))


def end(host: Consumers) -> int:
    return len(host.log.records)


def listed(owned: dict[bytes, list[int]]) -> list[TopicPartitions]:
    return [TopicPartitions(topic_id=each, partitions=owned[each]) for each in owned]


def outcome(call: Callable[..., Any], *args: Any, **fields: Any) -> str:
    """Return the name of the error of a call."""
    try:
        call(*args, **fields)
    except KafkaError as error:
        return error.code.name
    return "NONE"


async def resolved(host: Consumers, *names: str, expression: str = "t") -> list[Member]:
    """Let members join whose expression is resolved."""
    found = [Member(host, name, (), expression=expression) for name in names]
    for each in found:
        each.join()
    host.time.pass_ms(1)
    assert set(host.group.expressions) == {expression}
    for _ in range(3):
        for each in found:
            each.tell()
    return found


JOINS: dict[str, Any] = {
    "rebalance_timeout_ms": 1,
    "topic_partitions": [],
    "subscribed_topic_names": ["t"],
    "instance_id": None,
}
"""The fields of a member that joins."""
