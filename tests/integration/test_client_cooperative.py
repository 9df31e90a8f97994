"""Cooperative rebalances (KIP-429) of our own client, alone and together with confluent-kafka."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import suppress
from typing import Any

import confluent_kafka
import pytest

from barnabas.client.admin import Admin
from barnabas.client.cluster import Cluster
from barnabas.client.consumer import Consumer, FetchSettings
from barnabas.client.group import GroupMember, RebalanceListener
from barnabas.client.group_admin import GroupAdmin
from barnabas.client.groups import classic
from barnabas.client.offsets import EARLIEST
from barnabas.client.producer import Producer
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.testing import Broker
from tests.support.topic_names import topic_name
from tests.support.waiting import eventually

PARTITIONS = 4


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with Broker() as broker:
        yield broker.bootstrap_servers


@pytest.fixture(autouse=True)
def _members_hear_of_a_rebalance_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(classic, "HEARTBEAT_INTERVAL", 0.1)


@pytest.fixture
async def cluster(servers: str) -> AsyncIterator[Cluster]:
    async with Cluster(servers) as cluster:
        yield cluster


@pytest.fixture
async def topic(cluster: Cluster, request: pytest.FixtureRequest) -> str:
    name = topic_name(request)
    await Admin(cluster).create_topic(name, partitions=PARTITIONS)
    return name


class Owners:
    """The current owner of each partition as the members' callbacks report it; all in one
    thread."""

    def __init__(self) -> None:
        self.of: dict[int, object] = {}
        self.twice: list[int] = []

    def assigned(self, who: object, partitions: Sequence[int]) -> None:
        self.twice += [p for p in partitions if p in self.of]
        self.of |= dict.fromkeys(partitions, who)

    def revoked(self, who: object, partitions: Sequence[int]) -> None:
        for partition in partitions:
            assert self.of.pop(partition) is who

    def shared(self, *members: object) -> bool:
        """Return whether these members own all partitions, as evenly as possible."""
        counts = [sum(owner is each for owner in self.of.values()) for each in members]
        return sum(counts) == PARTITIONS and max(counts) - min(counts) <= 1


class Ours(RebalanceListener):
    """A member of our client, which polls and commits unless it is `paused`."""

    def __init__(self, servers: str, topic: str, owners: Owners) -> None:
        self._cluster = Cluster(servers)
        self._owners = owners
        settings = FetchSettings(max_wait=0.05, offset_reset=EARLIEST)
        self.consumer = Consumer(self._cluster, settings)
        self.member = GroupMember(
            self._cluster,
            self.consumer,
            topic,
            [topic],
            assignors=["cooperative-sticky"],
            listener=self,
        )
        self.read: list[bytes | None] = []
        self.revoked: list[int] = []
        self.lost: list[int] = []
        self.running = asyncio.Event()
        self.running.set()
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        await self._cluster.refresh(())
        while True:
            await self.running.wait()
            await self.member.ensure_joined()
            self.read += [message.value for message in await self.consumer.poll()]
            await self.member.commit()

    async def on_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        self._owners.assigned(self, [p for _, p in partitions])

    async def on_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self.revoked += [p for _, p in partitions]
        self._owners.revoked(self, [p for _, p in partitions])

    async def on_lost(self, partitions: Sequence[TopicPartition]) -> None:
        self.lost += [p for _, p in partitions]
        self._owners.revoked(self, [p for _, p in partitions])

    @property
    def partitions(self) -> set[int]:
        return {partition for _, partition in self.consumer.positions}

    @property
    def rejoins(self) -> bool:
        return self.member._member._joining is not None

    async def leave(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])
        await self.member.leave()
        await self._cluster.close()


class Theirs:
    """A member of confluent-kafka, which commits the partitions that it gives up."""

    def __init__(self, servers: str, topic: str, owners: Owners) -> None:
        self._owners = owners
        self.read: list[bytes | None] = []
        self.revoked: list[int] = []
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": topic,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "partition.assignment.strategy": "cooperative-sticky",
                "session.timeout.ms": 6000,
                "heartbeat.interval.ms": 100,
            }
        )
        self._consumer.subscribe([topic], on_assign=self._assigned, on_revoke=self._revoked)
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        while True:
            message = self._consumer.poll(0)
            if message is None:
                await asyncio.sleep(0.01)
            elif message.error() is None:
                self.read.append(message.value())

    def _assigned(self, _: object, partitions: list[Any]) -> None:
        self._owners.assigned(self, [tp.partition for tp in partitions])

    def _revoked(self, consumer: Any, partitions: list[Any]) -> None:
        done = [tp for tp in consumer.position(partitions) if tp.offset >= 0]
        if done:
            consumer.commit(offsets=done, asynchronous=False)
        self.revoked += [tp.partition for tp in partitions]
        self._owners.revoked(self, [tp.partition for tp in partitions])

    async def leave(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])
        with suppress(RuntimeError):
            self._consumer.close()


@pytest.mark.parametrize(
    "kinds", [(Ours, Theirs, Ours), (Theirs, Ours, Theirs)], ids=["we", "they"]
)
async def test_mixed_cooperative_group_reads_each_message_once_and_pauses_only_moved_partitions(
    servers: str, cluster: Cluster, topic: str, kinds: Sequence[type[Ours | Theirs]]
) -> None:
    """The first member to join is the group leader until it leaves."""
    owners = Owners()
    members: list[Ours | Theirs] = []
    sent: list[bytes] = []

    async def send() -> None:
        async with Producer(cluster) as producer:
            while True:
                sent.append(b"%d" % len(sent))
                await producer.send(topic, sent[-1], partition=len(sent) % PARTITIONS)
                await asyncio.sleep(0.01)

    sending = asyncio.create_task(send())
    try:
        for kind in kinds:
            before = dict(owners.of)
            revoked = [len(each.revoked) for each in members]
            members.append(kind(servers, topic, owners))
            await eventually(lambda: owners.shared(*members))
            moved = [len(each.revoked) - n for each, n in zip(members, revoked, strict=False)]
            assert sum(moved) == PARTITIONS // len(members) * bool(before)
            assert all(owners.of[p] in (each, members[-1]) for p, each in before.items())
        first = members.pop(0)
        revoked = [len(each.revoked) for each in members]
        await first.leave()
        await eventually(lambda: owners.shared(*members))
        assert [len(each.revoked) for each in members] == revoked
    finally:
        sending.cancel()
        await asyncio.wait([sending])
    everyone = [first, *members]
    try:
        await eventually(lambda: {v for each in everyone for v in each.read} >= set(sent[:-1]))
    finally:
        for each in members:
            await each.leave()
    read = [value for each in everyone for value in each.read]
    assert len(read) == len(set(read))
    assert not owners.twice


async def test_a_member_reads_on_while_the_group_waits_for_another(
    servers: str, cluster: Cluster, topic: str
) -> None:
    owners = Owners()
    one = Ours(servers, topic, owners)
    await eventually(lambda: owners.shared(one))
    two = Ours(servers, topic, owners)
    await eventually(lambda: owners.shared(one, two) and not (one.rejoins or two.rejoins))
    two.running.clear()
    three = Ours(servers, topic, owners)
    await eventually(lambda: one.rejoins)
    mine = min(one.partitions)
    async with Producer(cluster) as producer:
        await producer.send(topic, b"meanwhile", partition=mine)
    await eventually(lambda: one.read == [b"meanwhile"])
    assert one.rejoins
    described = await GroupAdmin(cluster).describe([topic])
    assert described[topic].group_state == "PreparingRebalance"
    two.running.set()
    await eventually(lambda: owners.shared(one, two, three))
    for each in (one, two, three):
        await each.leave()
    assert not owners.twice
    assert (await GroupAdmin(cluster).offsets(topic))[topic, mine] == 1


async def test_expelled_members_partitions_are_lost_not_revoked(servers: str, topic: str) -> None:
    owners = Owners()
    one = Ours(servers, topic, owners)
    await eventually(lambda: owners.shared(one))
    async with Cluster(servers) as other:
        # A LeaveGroup with its member id takes it out of the group, as an operator does.
        await other.refresh(())
        twin = GroupMember(other, Consumer(other), topic, [topic])
        twin._member._member_id = one.member.metadata.member_id
        await twin.leave()
    await eventually(lambda: one.lost == list(range(PARTITIONS)) and owners.shared(one))
    assert one.revoked == []
    await one.leave()


async def test_cooperative_and_eager_assignors_do_not_mix(cluster: Cluster) -> None:
    for names in (["range", "cooperative-sticky"], ["unheard-of"], []):
        with pytest.raises(ValueError, match="cooperative-sticky alone"):
            GroupMember(cluster, Consumer(cluster), "g", ["t"], assignors=names)
