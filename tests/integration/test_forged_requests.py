"""Forged requests of brokers leave a cluster as it is, on the inter-broker listener and on that for
clients."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Place

from barnabas.broker.app import Broker
from barnabas.broker.cluster import znodes
from barnabas.broker.cluster.cache import EPOCH_DURING_DELETE, FULL
from barnabas.broker.cluster.topic_names import CONSUMER_OFFSETS, TRANSACTION_STATE
from barnabas.broker.replication.follower.fetcher import Fetcher
from barnabas.broker.store.embedded import EmbeddedStore
from barnabas.broker.store.metadata_store import MetadataStore
from barnabas.protocol.codec import decode, encode
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.header import decode_response_header, encode_request_header
from barnabas.protocol.messages import (
    add_partitions_to_txn,
    allocate_producer_ids,
    alter_partition,
    controlled_shutdown,
    create_topics,
    describe_transactions,
    fetch,
    leader_and_isr,
    offset_fetch,
    stop_replica,
    update_metadata,
    write_txn_markers,
)
from barnabas.protocol.schema import Api
from tests.support.data_path import batch
from tests.support.in_cluster import BROKERS, CLIENTS, connected_to, member, shared_metadata
from tests.support.waiting import eventually

LEADER, FOLLOWER, THIRD = 0, 1, 2
TOPIC, APART = "t", "apart"
GROUP, TRANSACTION = "g", "x"
NEVER = 2**62
REFUSED = {
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.INVALID_REQUEST,
}
"""The errors of markers that are not written."""
CONFIGS = {
    "offsets_topic_num_partitions": 1,
    "transaction_state_log_num_partitions": 1,
    "replica_lag_time_max_ms": 600_000,
    "transaction_refuse_future_markers": "true",
}


class Forgery(NamedTuple):
    """A request that no broker of the cluster would send, and the broker that gets it."""

    name: str
    to: int
    api: Api
    version: int
    request: Any


class World:
    """Three brokers with a group, an open transaction, and a record that is not committed."""

    def __init__(self, store: EmbeddedStore, brokers: list[Broker]) -> None:
        self.store: MetadataStore = store.session()
        self.brokers = brokers
        self.intact = True
        """Whether every broker still has its metadata."""

    @property
    def controller(self) -> int:
        return self.brokers[LEADER]._core.cache.controller_id

    def leads(self, topic: str) -> Broker:
        found = self.brokers[LEADER]._core.cache.partition(topic, 0)
        assert found is not None
        return self.brokers[found.leader]

    def broker_epoch(self, broker_id: int) -> int:
        return self.brokers[broker_id]._core.membership.broker_epoch

    async def controller_epoch(self) -> int:
        data, _ = await self.store.get(znodes.CONTROLLER_EPOCH)
        return znodes.decode_controller_epoch(data)

    async def state(self) -> dict[str, object]:
        """Return everything that a forged request might change."""
        return {
            **self.of_brokers(),
            **{path: data async for path, data in self._nodes("/")},
            "transaction": await self.transaction(),
            "offsets": await self._offsets(),
        }

    def of_brokers(self) -> dict[str, object]:
        """Return metadata, in-sync sets, and the ends of the logs."""
        found: dict[str, object] = {}
        for number, broker in enumerate(self.brokers):
            cache, controller = broker._core.cache, broker._control.controller
            found[f"{number}: brokers"] = dict(cache.brokers), cache.controller_id
            found |= {
                f"{number}: metadata of {name}": (topic.topic_id, dict(topic.partitions))
                for name, topic in cache.topics.items()
            }
            if controller._active is not None:
                found[f"{number}: leaving"] = set(controller._active.state.leaving)
            for each in broker._replication.replicas:
                isr, log = each.isr_state, each.log
                found[f"{number}: {each.topic}-{each.index}"] = (
                    (each.is_leader, each.leader_epoch, each.partition_epoch),
                    (isr.isr, isr.proposed, isr.replicas),
                    (log.log_start_offset, log.high_watermark, log.last_stable_offset),
                    log.log_end_offset,
                    {id: (at.log_end, at.broker_epoch) for id, at in isr.followers.items()},
                )
        return found

    async def _nodes(self, path: str) -> AsyncIterator[tuple[str, object]]:
        data, stat = await self.store.get(path)
        yield path, (data, stat.version, stat.czxid)
        for name in await self.store.children(path):
            async for node in self._nodes(f"{path.rstrip('/')}/{name}"):
                yield node

    async def transaction(self) -> Any:
        """Return the description of the open transaction."""
        async with connected_to(self.leads(TRANSACTION_STATE), CLIENTS) as client:
            request = describe_transactions.DescribeTransactionsRequest(
                transactional_ids=[TRANSACTION]
            )
            answer = await client.connection.request(describe_transactions.API, request)
        return answer.transaction_states[0]

    async def _offsets(self) -> object:
        async with connected_to(self.leads(CONSUMER_OFFSETS), CLIENTS) as client:
            group = offset_fetch.OffsetFetchRequestGroup(group_id=GROUP, topics=None)
            request = offset_fetch.OffsetFetchRequest(groups=[group])
            return await client.connection.request(offset_fetch.API, request, version=8)

    async def create(self, topic: str, *replicas: int) -> None:
        async with connected_to(self.brokers[self.controller], CLIENTS) as client:
            place = create_topics.CreatableReplicaAssignment(
                partition_index=0, broker_ids=list(replicas)
            )
            request = create_topics.CreateTopicsRequest(
                topics=[
                    create_topics.CreatableTopic(
                        name=topic,
                        num_partitions=-1,
                        replication_factor=-1,
                        assignments=[place],
                        configs=[],
                    )
                ],
                timeout_ms=10_000,
            )
            answer = await client.connection.request(create_topics.API, request)
        assert answer.topics[0].error_code == 0

    async def send(self, forgery: Forgery, listener: str) -> Any:
        """Send a forgery, and return the answer; None if the connection was closed instead."""
        port = self.brokers[forgery.to].ports[listener]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        api, version = forgery.api, forgery.version
        body = encode_request_header(api.key, version, 1, "broker-1")
        body += encode(forgery.request, version)
        try:
            async with asyncio.timeout(10):
                writer.write(len(body).to_bytes(4, "big") + body)
                size = int.from_bytes(await reader.readexactly(4), "big")
                answer = await reader.readexactly(size)
        except (asyncio.IncompleteReadError, ConnectionResetError):
            return None
        finally:
            writer.close()
        _, at = decode_response_header(api.key, version, answer)
        return decode(api.response, version, answer, at)


def use(servers: str) -> Producer:
    """Commit a group's offset and begin a transaction; return its producer."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": GROUP, "log_level": 0})
    consumer.commit(offsets=[Place(TOPIC, 0, 1)], asynchronous=False)
    consumer.close()
    producer = Producer(
        {"bootstrap.servers": servers, "transactional.id": TRANSACTION, "log_level": 0}
    )
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(TOPIC, b"in a transaction", partition=0)
    assert producer.flush(60) == 0
    return producer


@pytest.fixture
async def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    free, fetching = asyncio.Event(), set()
    free.set()
    fetch_once = Fetcher._fetch_once

    async def fetch_unless_held(self: Fetcher) -> None:
        await free.wait()
        fetching.add(self)
        try:
            await fetch_once(self)
        finally:
            fetching.discard(self)

    monkeypatch.setattr(Fetcher, "_fetch_once", fetch_unless_held)
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(shared_metadata(tmp_path / "metadata"))
        brokers = [
            await stack.enter_async_context(member(store, tmp_path, each, **CONFIGS))
            for each in (LEADER, FOLLOWER, THIRD)
        ]
        world = World(store, brokers)
        await world.create(TOPIC, LEADER, FOLLOWER, THIRD)
        await world.create(APART, LEADER, FOLLOWER)
        producer = await asyncio.to_thread(use, brokers[LEADER].bootstrap_servers)
        free.clear()
        await eventually(lambda: not fetching)
        async with connected_to(brokers[LEADER], CLIENTS) as client:
            for topic in (TOPIC, APART):
                answer = await client.produce(batch(b"not committed"), topic=topic, acks=1)
                assert answer.error_code == 0
        yield world
        free.set()
        if world.intact:
            await asyncio.to_thread(producer.abort_transaction, 60)


def wrong_epochs(world: World, broker_id: int) -> tuple[int, ...]:
    """Return broker epochs that are not that of a broker's registration."""
    epoch = world.broker_epoch(broker_id)
    another = world.broker_epoch((broker_id + 1) % len(world.brokers))
    return -1, 0, epoch - 1, epoch + 1, NEVER, another


async def control_forgeries(world: World) -> list[Forgery]:
    """Return the controller's requests with a wrong broker epoch or controller epoch."""
    now = await world.controller_epoch()
    found = []
    for to in (LEADER, FOLLOWER):
        present = world.broker_epoch(to)
        claims = [(now, each) for each in wrong_epochs(world, to)]
        claims += [(each, present) for each in (-1, 0, now - 1, now + 1, 2**31 - 1)]
        for controller_epoch, broker_epoch in claims:
            who: dict[str, Any] = {
                "controller_id": THIRD,
                "controller_epoch": controller_epoch,
                "broker_epoch": broker_epoch,
            }
            for api, version, request in control_requests(world, who):
                name = f"{api.name} to {to}, epochs {controller_epoch}, {broker_epoch}"
                found.append(Forgery(name, to, api, version, request))
    return found


def control_requests(world: World, who: dict[str, Any]) -> Iterator[tuple[Api, int, Any]]:
    """Yield requests that move the leadership, delete the replicas and empty the metadata."""
    topic = world.brokers[LEADER]._core.cache.topic(TOPIC)
    assert topic is not None
    known = topic.partitions[0]
    state = leader_and_isr.LeaderAndIsrPartitionState(
        partition_index=0,
        controller_epoch=who["controller_epoch"],
        leader=THIRD,
        leader_epoch=known.leader_epoch + 1,
        isr=[THIRD],
        partition_epoch=known.partition_epoch + 1,
        replicas=[THIRD],
    )
    topics = [
        leader_and_isr.LeaderAndIsrTopicState(
            topic_name=TOPIC, topic_id=topic.topic_id, partition_states=[state]
        )
    ]
    for states in (topics, []):
        yield (
            leader_and_isr.API,
            7,
            leader_and_isr.LeaderAndIsrRequest(
                **who, type=FULL, topic_states=states, live_leaders=[]
            ),
        )
    yield (
        update_metadata.API,
        8,
        update_metadata.UpdateMetadataRequest(**who, type=FULL, topic_states=[], live_brokers=[]),
    )
    gone = stop_replica.StopReplicaPartitionState(
        partition_index=0, leader_epoch=EPOCH_DURING_DELETE, delete_partition=True
    )
    yield (
        stop_replica.API,
        4,
        stop_replica.StopReplicaRequest(
            **who,
            topic_states=[
                stop_replica.StopReplicaTopicState(topic_name=TOPIC, partition_states=[gone])
            ],
        ),
    )


def controller_forgeries(world: World) -> Iterator[Forgery]:
    """Yield requests to the controller, and to a broker that is not controller."""
    for to in (world.controller, (world.controller + 1) % len(world.brokers)):
        for claimed in (LEADER, FOLLOWER, 77):
            epochs = wrong_epochs(world, claimed % len(world.brokers))
            for epoch in epochs:
                name = f"of broker {claimed}, epoch {epoch}, to {to}"
                for api, version, request in (
                    (
                        controlled_shutdown.API,
                        3,
                        controlled_shutdown.ControlledShutdownRequest(
                            broker_id=claimed, broker_epoch=epoch
                        ),
                    ),
                    (
                        allocate_producer_ids.API,
                        0,
                        allocate_producer_ids.AllocateProducerIdsRequest(
                            broker_id=claimed, broker_epoch=epoch
                        ),
                    ),
                    (alter_partition.API, 3, alter(world, claimed, epoch, isr=[LEADER])),
                ):
                    yield Forgery(f"{api.name} {name}", to, api, version, request)
    true = world.broker_epoch(LEADER)
    for name, request in {
        "of a follower": alter(world, FOLLOWER, world.broker_epoch(FOLLOWER), isr=[FOLLOWER]),
        "with an old leader epoch": alter(world, LEADER, true, isr=[LEADER], leader=-1),
        "with a later leader epoch": alter(world, LEADER, true, isr=[LEADER], leader=1),
        "with an old partition epoch": alter(world, LEADER, true, isr=[LEADER], partition=-1),
        "with a later partition epoch": alter(world, LEADER, true, isr=[LEADER], partition=1),
        "of another topic": alter(world, LEADER, true, isr=[LEADER], topic_id=bytes(16)),
        "with a broker that has no replica": alter(world, LEADER, true, isr=[0, 1, 2, 77]),
        "of another's partition": alter(world, LEADER, true, isr=[0, 1, 2], topic=APART),
        "without any replica": alter(world, LEADER, true, isr=[]),
    }.items():
        yield Forgery(f"AlterPartition {name}", world.controller, alter_partition.API, 3, request)


def alter(
    world: World,
    broker_id: int,
    broker_epoch: int,
    *,
    isr: list[int],
    topic: str = TOPIC,
    topic_id: bytes | None = None,
    leader: int = 0,
    partition: int = 0,
) -> Any:
    found = world.brokers[LEADER]._core.cache.topic(topic)
    assert found is not None
    known = found.partitions[0]
    data = alter_partition.PartitionData(
        partition_index=0,
        leader_epoch=known.leader_epoch + leader,
        new_isr_with_epochs=[alter_partition.BrokerState(broker_id=each) for each in isr],
        partition_epoch=known.partition_epoch + partition,
    )
    topics = [
        alter_partition.TopicData(
            topic_id=found.topic_id if topic_id is None else topic_id, partitions=[data]
        )
    ]
    return alter_partition.AlterPartitionRequest(
        broker_id=broker_id, broker_epoch=broker_epoch, topics=topics
    )


def fetch_forgeries(world: World) -> Iterator[Forgery]:
    """Yield requests of followers that claim to have every record of the leader."""
    claims = [(id, each) for id in (FOLLOWER, THIRD) for each in wrong_epochs(world, id)]
    claims += [(77, 0), (77, world.broker_epoch(FOLLOWER)), (LEADER, world.broker_epoch(LEADER))]
    for replica_id, epoch in claims:
        for version in (17, 15, 12, 4) if epoch == NEVER else (17,):
            yield fetch_forgery(world, TOPIC, replica_id, epoch, version)
    # The third broker is registered, and has no replica of the other topic.
    yield fetch_forgery(world, APART, THIRD, world.broker_epoch(THIRD), 17)


def fetch_forgery(world: World, topic: str, replica_id: int, epoch: int, version: int) -> Forgery:
    leader = world.brokers[LEADER]._replication.replicas.partition(topic, 0)
    wanted = fetch.FetchPartition(
        partition=0, fetch_offset=leader.log.log_end_offset, partition_max_bytes=1 << 20
    )
    if version >= 15:
        who: dict[str, Any] = {
            "replica_state": fetch.ReplicaState(replica_id=replica_id, replica_epoch=epoch)
        }
    else:
        who = {"replica_id": replica_id}
    named: dict[str, Any] = {"topic_id": leader.topic_id} if version >= 13 else {"topic": topic}
    request = fetch.FetchRequest(
        **who,
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1 << 20,
        topics=[fetch.FetchTopic(**named, partitions=[wanted])],
    )
    name = f"Fetch v{version} of broker {replica_id}, epoch {epoch}"
    return Forgery(name, LEADER, fetch.API, version, request)


async def transaction_forgeries(world: World) -> list[Forgery]:
    """Return requests about the open transaction, of which each names one thing wrong."""
    real = await world.transaction()
    coordinator = world.leads(TRANSACTION_STATE)._config.broker_id
    found = []
    for id, epoch in (
        (real.producer_id, real.producer_epoch - 1),
        (real.producer_id, real.producer_epoch + 1),
        (real.producer_id + 1, real.producer_epoch),
    ):
        transaction = add_partitions_to_txn.AddPartitionsToTxnTransaction(
            transactional_id=TRANSACTION,
            producer_id=id,
            producer_epoch=epoch,
            topics=[add_partitions_to_txn.AddPartitionsToTxnTopic(name=APART, partitions=[0])],
        )
        request = add_partitions_to_txn.AddPartitionsToTxnRequest(transactions=[transaction])
        name = f"AddPartitionsToTxn of {id}, epoch {epoch}"
        found.append(Forgery(name, coordinator, add_partitions_to_txn.API, 5, request))
    return found


async def marker_forgeries(world: World, listener: str) -> list[Forgery]:
    """Return markers that no coordinator would write, nor operators on their listener."""
    real = await world.transaction()
    found = []
    epochs = [
        (real.producer_epoch, 2**31 - 1),
        (real.producer_epoch, 1),
        (real.producer_epoch - 1, 0),
    ]
    if listener == CLIENTS:
        epochs += [(real.producer_epoch + 1, 0), (2**15 - 1, 0)]
    for epoch, coordinator_epoch in epochs:
        marker = write_txn_markers.WritableTxnMarker(
            producer_id=real.producer_id,
            producer_epoch=epoch,
            transaction_result=True,
            coordinator_epoch=coordinator_epoch,
            transaction_version=0,
            topics=[write_txn_markers.WritableTxnMarkerTopic(name=TOPIC, partition_indexes=[0])],
        )
        request = write_txn_markers.WriteTxnMarkersRequest(markers=[marker])
        name = f"WriteTxnMarkers of epoch {epoch}, coordinator epoch {coordinator_epoch}"
        found.append(Forgery(name, LEADER, write_txn_markers.API, 2, request))
    return found


async def test_forged_requests_change_nothing(world: World) -> None:
    before, of_brokers = await world.state(), world.of_brokers()
    forgeries = [
        *await control_forgeries(world),
        *controller_forgeries(world),
        *fetch_forgeries(world),
        *await transaction_forgeries(world),
    ]
    for listener in (CLIENTS, BROKERS):
        for forgery in forgeries:
            answer = await world.send(forgery, listener)
            if listener == CLIENTS and forgery.api is not fetch.API:
                assert answer is None, forgery.name
            else:
                assert answer is not None, forgery.name
            assert world.of_brokers() == of_brokers, forgery.name
        assert await world.state() == before
    for listener in (CLIENTS, BROKERS):
        for forgery in await marker_forgeries(world, listener):
            answer = await world.send(forgery, listener)
            result = answer.markers[0].topics[0].partitions[0]
            assert result.error_code in REFUSED, forgery.name
            assert await world.state() == before, forgery.name
    # The controller and the brokers do what they have put off before they create a topic.
    await world.create("later", LEADER, FOLLOWER, THIRD)
    after = await world.state()
    assert {name: after.get(name) for name in before} == before


async def test_true_requests_of_the_same_form_do_change_something(world: World) -> None:
    """The forgeries are refused for what is wrong in them, not for their form."""
    before = await world.state()
    leader = world.brokers[LEADER]._replication.replicas.partition(TOPIC, 0)
    for follower in (FOLLOWER, THIRD):
        forgery = fetch_forgery(world, TOPIC, follower, world.broker_epoch(follower), 17)
        await world.send(forgery, BROKERS)
    assert leader.high_watermark == leader.log.log_end_offset
    request = alter(world, LEADER, world.broker_epoch(LEADER), isr=[LEADER])
    true = Forgery("", world.controller, alter_partition.API, 3, request)
    await world.send(true, BROKERS)
    assert (await world.state())["/brokers/topics/t/partitions/0/state"] != before[
        "/brokers/topics/t/partitions/0/state"
    ]
    who = {
        "controller_id": world.controller,
        "controller_epoch": await world.controller_epoch(),
        "broker_epoch": world.broker_epoch(THIRD),
    }
    # The broker may coordinate the open transaction.
    world.intact = False
    for api, version, message in control_requests(world, who):
        if api is update_metadata.API:
            await world.send(Forgery("", THIRD, api, version, message), BROKERS)
    assert not world.brokers[THIRD]._core.cache.topics
