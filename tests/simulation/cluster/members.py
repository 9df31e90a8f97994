"""The members of a consumer group in the simulated cluster, of both protocols (KIP-848)."""

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from random import Random
from unittest.mock import patch
from uuid import UUID

from barnabas.client.cluster import Cluster
from barnabas.client.consumer import Consumer, FetchSettings
from barnabas.client.group import GroupMember, Protocol
from barnabas.client.groups import modern
from barnabas.client.offsets import EARLIEST
from barnabas.coordinator.group.consumer.group import ConsumerGroup
from barnabas.protocol.errors import KafkaError
from barnabas.protocol.topic_partition import TopicPartition
from tests.simulation.cluster.node import Node
from tests.simulation.cluster.workload import PARTITIONS, PLAIN

GROUP = "readers"
_QUIET_POLLS = 5
"""The polls without a record after which a partition counts as read to its end."""


class Members:
    """Members that come, read, commit, and go: in order or not."""

    def __init__(self, bootstrap: str, seed: int) -> None:
        self.read: set[bytes] = set()
        self.lives: list[str] = []
        """The protocol of each life of a member, and how it ended."""
        self.shares: dict[str, set[TopicPartition]] = {}
        """The partitions that each member reads."""
        self._bootstrap = bootstrap
        self._random = Random(seed)
        self._stopping = False
        self._finished = False
        self._quiet: dict[str, int] = {}

    def stop(self) -> None:
        """Begin the last lives: they end when all is read."""
        self._stopping = True

    def _all_read(self) -> bool:
        """Return whether the members share all partitions out, and have read them to their ends."""
        every = {TopicPartition(PLAIN, index) for index in range(PARTITIONS)}
        shares = [*self.shares.values()]
        return (
            set().union(*shares) == every
            and sum(map(len, shares)) == len(every)
            and all(count >= _QUIET_POLLS for count in self._quiet.values())
        )

    async def member(self, name: str) -> None:
        """Live as a member, again and again."""
        random = self._random
        while not self._finished:
            protocol: Protocol = "classic"
            if self._stopping or random.random() < 0.6:
                protocol = "consumer"
            end = "failed"
            with suppress(KafkaError, TimeoutError, OSError):
                async with Cluster(self._bootstrap) as cluster:
                    end = await self._live(name, protocol, cluster)
            self.lives.append(f"{protocol} {end}")
            await asyncio.sleep(random.uniform(0.0, 1.0))

    def _member(self, cluster: Cluster, consumer: Consumer, protocol: Protocol) -> GroupMember:
        # The seed is to give the member's id, too.
        drawn = UUID(int=self._random.getrandbits(128))
        with patch.object(modern, "uuid4", lambda: drawn):
            return GroupMember(
                cluster, consumer, GROUP, [PLAIN], protocol=protocol, session_timeout=6.0
            )

    async def _live(self, name: str, protocol: Protocol, cluster: Cluster) -> str:
        """Live once; return how it ended."""
        consumer = Consumer(cluster, FetchSettings(max_wait=0.1, offset_reset=EARLIEST))
        member = self._member(cluster, consumer, protocol)
        try:
            await self._read(name, member, consumer)
            if self._random.random() < 0.5:
                await member.leave()
                return "left"
            return "abandoned"
        finally:
            self.shares.pop(name, None)
            self._quiet.pop(name, None)
            await member.abandon()

    async def _read(self, name: str, member: GroupMember, consumer: Consumer) -> None:
        polls = self._random.randint(3, 60)
        while (polls > 0 or self._stopping) and not self._finished:
            polls -= 1
            await member.ensure_joined()
            messages = await consumer.poll()
            self.read.update(each.value or b"" for each in messages)
            self.shares[name] = set(consumer.positions)
            ends = all(map(consumer.at_end, consumer.positions))
            self._quiet[name] = self._quiet.get(name, 0) + 1 if ends and not messages else 0
            if messages and self._random.random() < 0.5:
                await member.commit()
            self._finished = self._finished or (self._stopping and self._all_read())
            await asyncio.sleep(0.05)


def require_exclusive(nodes: Iterable[Node]) -> None:
    """Raise AssertionError if a coordinator has given a partition to two members at once."""
    for node in nodes:
        if node.running and node.broker is not None:
            for group in _consumer_groups(node):
                _require_exclusive(group)


def _consumer_groups(node: Node) -> Iterable[ConsumerGroup]:
    assert node.broker is not None
    coordination = getattr(node.broker, "_coordination", None)
    if coordination is not None:
        for _, table in coordination.groups.runtime.served():
            yield from table.consumers.values()


def _require_exclusive(group: ConsumerGroup) -> None:
    owners: dict[tuple[bytes, int], str] = {}
    for member in group.members.values():
        for topic_id, indexes in member.used.items():
            for index in indexes:
                other = owners.setdefault((topic_id, index), member.member_id)
                assert other == member.member_id, f"{index} belongs to two members"
