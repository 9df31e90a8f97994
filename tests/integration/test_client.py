"""Barnabas's own client: the same tests, with the same results, on Barnabas and on Apache Kafka."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from barnabas.client.admin import Admin
from barnabas.client.cluster import Cluster
from barnabas.client.consumer import Consumer, FetchSettings, Message
from barnabas.client.group import GroupMember, RebalanceListener
from barnabas.client.group_admin import GroupAdmin
from barnabas.client.groups import classic
from barnabas.client.offsets import EARLIEST, LATEST, MAX_TIMESTAMP, find_offsets
from barnabas.client.producer import ALL, Producer, ProducerSettings
from barnabas.protocol.config_resources import ConfigOperation, ConfigResourceType
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages import heartbeat
from barnabas.protocol.records.compression import Compression
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.testing import Broker
from tests.support.waiting import eventually

DEADLINE = 20.0
SHORT_SESSIONS = {"group.min.session.timeout.ms": "500"}


@pytest.fixture(
    scope="module",
    params=["barnabas", pytest.param("kafka", marks=pytest.mark.xdist_group("client-on-kafka"))],
)
def servers(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "barnabas":
        with Broker(SHORT_SESSIONS) as broker:
            yield broker.bootstrap_servers
    else:
        yield request.getfixturevalue("kafka_for_clients")


@pytest.fixture
async def cluster(servers: str) -> AsyncIterator[Cluster]:
    async with Cluster(servers) as cluster:
        yield cluster


async def read(cluster: Cluster, topic: str, count: int, *, start: int = EARLIEST) -> list[Message]:
    """Return the first `count` messages of all partitions."""
    info = await cluster.retrying(lambda: cluster.topic(topic))
    consumer = Consumer(cluster, FetchSettings(max_wait=0.1))
    consumer.assign({(topic, partition): start for partition in info.leaders})
    messages: list[Message] = []
    async with asyncio.timeout(DEADLINE):
        while len(messages) < count:
            messages += await consumer.poll()
    return messages


@pytest.mark.parametrize("codec", list(Compression))
async def test_records_of_each_codec_are_read_back(cluster: Cluster, codec: Compression) -> None:
    topic = f"codec-{codec.name}"
    headers = (("trace", b"1"), ("nothing", None))
    sent = [
        (None, None),
        (b"", b""),
        (b"key", b"value" * 1000),
        ("schl\u00fcssel".encode(), bytes(range(256))),
    ]
    async with Producer(cluster, ProducerSettings(compression=codec)) as producer:
        for key, value in sent:
            await producer.send(
                topic, value, key=key, headers=headers, partition=0, timestamp=1234567890123
            )
    messages = await read(cluster, topic, len(sent))
    assert [(m.key, m.value) for m in messages] == sent
    assert {m.headers for m in messages} == {headers}
    assert {m.timestamp for m in messages} == {1234567890123}
    assert [m.offset for m in messages] == [0, 1, 2, 3]


@pytest.mark.parametrize("acks", [0, 1, ALL])
async def test_each_acks_delivers_all_records_and_returns_offsets(
    cluster: Cluster, acks: int
) -> None:
    topic = f"acks-{acks}"
    await Admin(cluster).create_topic(topic, partitions=2)
    # With acks=0 no error would report that the leaders are not ready yet.
    await find_offsets(cluster, {(topic, 0): LATEST, (topic, 1): LATEST})
    async with Producer(cluster, ProducerSettings(acks=acks, batch_size=2000)) as producer:
        sent = [await producer.send(topic, b"%d" % n, partition=n % 2) for n in range(500)]
    told = [future.result() for future in sent]
    messages = await read(cluster, topic, 500)
    assert sorted(int(m.value or b"") for m in messages) == list(range(500))
    if acks:
        where = {(m.partition, m.offset): int(m.value or b"") for m in messages}
        assert [where[row.partition, row.offset] for row in told] == list(range(500))
    else:
        assert {row.offset for row in told} == {-1}


async def test_close_sends_pending_records_of_acks_0(servers: str) -> None:
    async with Cluster(servers) as cluster:
        await Admin(cluster).create_topic("closing", partitions=1)
        async with Producer(cluster, ProducerSettings(acks=0)) as producer:
            for _ in range(40):
                await producer.send("closing", bytes(500_000))
    async with Cluster(servers) as cluster:
        assert len(await read(cluster, "closing", 40)) == 40


async def test_keys_decide_the_partition_and_keyless_records_take_turns(cluster: Cluster) -> None:
    await Admin(cluster).create_topic("keys", partitions=5)
    async with Producer(cluster, ProducerSettings(batch_size=100)) as producer:
        keyed = [await producer.send("keys", b"", key=b"%d" % (n % 7)) for n in range(70)]
        await producer.flush()
        keyless = []
        for _ in range(50):
            keyless.append(await producer.send("keys", bytes(50)))
            await asyncio.sleep(0)
    partitions = [future.result().partition for future in keyed]
    assert all(partitions[n] == partitions[n % 7] for n in range(70))
    assert {future.result().partition for future in keyless} == {0, 1, 2, 3, 4}


async def test_too_large_batch_is_split_in_order(cluster: Cluster) -> None:
    await Admin(cluster).create_topic("small", partitions=1, configs={"max.message.bytes": "1000"})
    async with Producer(cluster) as producer:
        for n in range(100):
            await producer.send("small", b"%03d" % n + bytes(97))
        too_large = await producer.send("small", bytes(2000))
    assert [int((m.value or b"")[:3]) for m in await read(cluster, "small", 100)] == list(
        range(100)
    )
    with pytest.raises(KafkaError) as caught:
        too_large.result()
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE


async def test_offsets_are_found_by_timestamp_and_by_position(cluster: Cluster) -> None:
    await Admin(cluster).create_topic("times", partitions=1)
    async with Producer(cluster, ProducerSettings(batch_size=100)) as producer:
        for n in range(10):
            await producer.send("times", bytes(60), timestamp=1_700_000_000_000 + n * 1000)
    tp = ("times", 0)

    async def found(timestamp: int) -> int:
        return (await find_offsets(cluster, {tp: timestamp}))[tp].offset

    assert await found(EARLIEST) == 0
    assert await found(LATEST) == 10
    assert await found(MAX_TIMESTAMP) == 9
    assert await found(1_700_000_004_001) == 5
    assert await found(1_700_000_010_000) == -1
    consumer = Consumer(cluster, FetchSettings(max_wait=0.1))
    await consumer.seek_to_timestamp({tp: 1_700_000_007_000})
    assert [m.offset for m in await consumer.poll()] == [7, 8, 9]
    assert consumer.at_end(tp)
    await consumer.seek_back([tp], 2)
    assert [m.offset for m in await consumer.poll()] == [8, 9]


async def test_a_fetch_that_waits_delays_no_produce(cluster: Cluster) -> None:
    """Both went over one connection, which has its responses in the order of the requests."""
    for topic in ("waiting", "written"):
        await cluster.retrying(lambda name=topic: cluster.topic(name, create=True))
    consumer = Consumer(cluster, FetchSettings(max_wait=DEADLINE))
    consumer.assign({TopicPartition("waiting", 0): 0})
    waiting = asyncio.create_task(consumer.poll())
    async with Producer(cluster) as producer:
        for value in (b"1", b"2", b"3"):
            async with asyncio.timeout(DEADLINE / 2):
                await (await producer.send("written", value, partition=0))
    assert not waiting.done()
    waiting.cancel()


async def test_a_position_outside_the_log_is_reset(cluster: Cluster) -> None:
    await Admin(cluster).create_topic("outside", partitions=1)
    async with Producer(cluster) as producer:
        for n in range(3):
            await producer.send("outside", b"%d" % n)
    assert [m.value for m in await read_from(cluster, "outside", 99, EARLIEST)] == [
        b"0",
        b"1",
        b"2",
    ]
    with pytest.raises(KafkaError) as caught:
        await read_from(cluster, "outside", 99, None)
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


async def read_from(cluster: Cluster, topic: str, start: int, reset: int | None) -> list[Message]:
    consumer = Consumer(cluster, FetchSettings(max_wait=0.1, offset_reset=reset))
    consumer.assign({(topic, 0): start})
    async with asyncio.timeout(DEADLINE):
        while not (messages := await consumer.poll()):
            continue
    return messages


async def test_admin_calls(cluster: Cluster) -> None:
    admin = Admin(cluster)
    created = await admin.create_topic("admin", partitions=2, configs={"retention.ms": "1000"})
    assert created.num_partitions == 2
    with pytest.raises(KafkaError, match="already exists"):
        await admin.create_topic("admin")
    await admin.create_partitions("admin", 3)
    async with asyncio.timeout(DEADLINE):
        # Kafka's broker sees the change a moment after the controller has answered.
        while len((await cluster.retrying(lambda: cluster.topic("admin"))).leaders) < 3:
            await cluster.refresh(["admin"])
    await admin.alter_configs(
        ConfigResourceType.TOPIC,
        "admin",
        [
            ("retention.ms", ConfigOperation.DELETE, None),
            ("cleanup.policy", ConfigOperation.APPEND, "compact"),
        ],
    )

    async def altered() -> bool:
        rows = await admin.describe_configs(ConfigResourceType.TOPIC, "admin")
        found = {row.name: row.value for row in rows}
        return (found["retention.ms"], found["cleanup.policy"]) == ("604800000", "delete,compact")

    await eventually(altered)
    async with Producer(cluster) as producer:
        for _ in range(5):
            await producer.send("admin", b"x", key=b"k", partition=0)
    description = await admin.describe_cluster()
    assert [broker.broker_id for broker in description.brokers] == list(cluster.nodes)
    (directory,) = await admin.describe_log_dirs(description.brokers[0].broker_id)
    assert {t.name for t in directory.topics} >= {"admin"}
    await admin.alter_configs(
        ConfigResourceType.TOPIC, "admin", [("cleanup.policy", ConfigOperation.SET, "delete")]
    )
    assert await admin.delete_records({("admin", 0): 3}) == {("admin", 0): 3}
    assert await admin.delete_records({("admin", 0): -1}) == {("admin", 0): 5}
    await admin.delete_topic("admin")
    await cluster.refresh()
    assert "admin" not in cluster.topics
    with pytest.raises(KafkaError) as caught:
        await admin.delete_topic("admin")
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class Member:
    """A member of a group in its own task, which polls and commits until it leaves or crashes."""

    def __init__(self, servers: str, group: str, topic: str) -> None:
        self._cluster = Cluster(servers)
        settings = FetchSettings(max_wait=0.1, offset_reset=EARLIEST)
        self._consumer = Consumer(self._cluster, settings)
        self._member = GroupMember(
            self._cluster, self._consumer, group, [topic], session_timeout=1.5
        )
        self._task = asyncio.create_task(self._run())
        self.seen: list[bytes | None] = []

    async def _run(self) -> None:
        await self._cluster.refresh(())
        while True:
            await self._member.ensure_joined()
            self.seen += [message.value for message in await self._consumer.poll()]
            await self._member.commit()

    @property
    def partitions(self) -> set[int]:
        if self._task.done():
            self._task.result()
        return {partition for _, partition in self._consumer.positions}

    async def stop_polling(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])

    async def die(self) -> None:
        """Close its connections without a LeaveGroup; its heartbeats cannot be sent any more."""
        await self.stop_polling()
        await self._member.abandon()
        await self._cluster.close()

    async def leave(self) -> None:
        await self.stop_polling()
        await self._member.leave()
        await self._cluster.close()


async def test_a_group_shares_partitions_and_outlives_the_crash_of_a_member(
    servers: str, cluster: Cluster
) -> None:
    await Admin(cluster).create_topic("shared", partitions=4)

    async def produce(first: int, last: int) -> None:
        async with Producer(cluster) as producer:
            for n in range(first, last):
                await producer.send("shared", b"%d" % n, partition=n % 4)

    one = Member(servers, "sharers", "shared")
    two = Member(servers, "sharers", "shared")
    await eventually(lambda: len(one.partitions) == len(two.partitions) == 2)
    assert one.partitions | two.partitions == {0, 1, 2, 3}
    await produce(0, 100)
    await eventually(lambda: len(one.seen) == len(two.seen) == 50)
    described = (await GroupAdmin(cluster).describe(["sharers"]))["sharers"]
    assert (described.group_state, len(described.members)) == ("Stable", 2)
    await two.die()
    await produce(100, 200)
    await eventually(lambda: len({*one.seen, *two.seen}) == 200)
    assert one.partitions == {0, 1, 2, 3}
    await one.leave()
    assert await GroupAdmin(cluster).offsets("sharers") == {("shared", p): 50 for p in range(4)}


async def test_member_whose_heartbeats_ended_with_an_error_joins_again(
    servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(classic, "HEARTBEAT_INTERVAL", 0.1)
    listener = Refusals()
    async with Cluster(servers) as cluster:
        async with Producer(cluster) as producer:
            await producer.send("again", b"v", partition=0)
        consumer = Consumer(cluster, FetchSettings(max_wait=0.1, offset_reset=EARLIEST))
        async with GroupMember(cluster, consumer, "again", ["again"], listener=listener) as member:
            await member.ensure_joined()
            with monkeypatch.context() as refusing:
                refusing.setattr(cluster, "ask_coordinator", refuse_heartbeats(cluster))
                with pytest.raises(KafkaError, match="GROUP_AUTHORIZATION_FAILED"):
                    await stay_joined(member)
            assert (listener.lost, consumer.positions) == (1, {})
            await member.ensure_joined()
            assert [message.value for message in await consumer.poll()] == [b"v"]


async def stay_joined(member: GroupMember) -> None:
    async with asyncio.timeout(DEADLINE):
        while True:
            await member.ensure_joined()
            await asyncio.sleep(0.05)


class Refusals(RebalanceListener):
    """Counts how often partitions are lost."""

    lost = 0

    async def on_lost(self, partitions: Sequence[TopicPartition]) -> None:  # noqa: ARG002
        self.lost += 1


def refuse_heartbeats(cluster: Cluster) -> Callable[..., Any]:
    """Return `ask_coordinator` as for a client that has lost its right to the group."""
    ask = cluster.ask_coordinator

    async def ask_or_refuse(api: Any, *arguments: Any) -> Any:
        if api is heartbeat.API:
            raise KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        return await ask(api, *arguments)

    return ask_or_refuse


async def test_group_continues_at_reset_offsets(servers: str, cluster: Cluster) -> None:
    await Admin(cluster).create_topic("moved", partitions=2)
    async with Producer(cluster) as producer:
        for n in range(10):
            await producer.send("moved", b"%d" % n, partition=n % 2)
    groups = GroupAdmin(cluster)
    await groups.set_offsets("movers", {("moved", 0): 5, ("moved", 1): 3})
    member = Member(servers, "movers", "moved")
    await eventually(lambda: len(member.seen) == 2)
    assert member.seen == [b"7", b"9"]
    with pytest.raises(KafkaError) as caught:
        await groups.delete("movers")
    assert caught.value.code is ErrorCode.NON_EMPTY_GROUP
    await member.leave()
    assert "movers" in [row.group_id for row in await groups.groups()]
    await groups.delete_offsets("movers", [("moved", 1)])
    assert await groups.offsets("movers") == {("moved", 0): 5}
    await groups.delete("movers")
    assert "movers" not in [row.group_id for row in await groups.groups()]


async def test_poll_of_an_unknown_topic_fails_soon(cluster: Cluster) -> None:
    consumer = Consumer(cluster, FetchSettings())
    consumer.assign({("absent", 0): 0})
    with pytest.raises(KafkaError) as caught:
        async with asyncio.timeout(5):
            await consumer.poll()
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_an_idempotent_producer_outlives_a_restart_of_the_broker(tmp_path: Path) -> None:
    broker = Broker(data_dir=tmp_path).start()
    port = int(broker.bootstrap_servers.rpartition(":")[2])
    async with Cluster(broker.bootstrap_servers) as cluster:
        await Admin(cluster).create_topic("restarted", partitions=2)
        async with Producer(cluster, ProducerSettings(batch_size=500)) as producer:
            sent = []
            for n in range(600):
                sent.append(await producer.send("restarted", b"%d" % n, partition=n % 2))
                if n == 300:
                    await asyncio.to_thread(broker.stop)
                    broker = Broker(data_dir=tmp_path, port=port)
                    starting = asyncio.create_task(asyncio.to_thread(broker.start))
            await starting
        assert sorted(future.result().offset for future in sent) == sorted([*range(300)] * 2)
        messages = await read(cluster, "restarted", 600)
    await asyncio.to_thread(broker.stop)
    for partition in range(2):
        values = [int(m.value or b"") for m in messages if m.partition == partition]
        assert values == list(range(partition, 600, 2))
