"""The controller decides, writes and sends; its successor continues its work."""

from collections.abc import AsyncIterator

import pytest

from barnabas.broker.cluster import znodes
from barnabas.broker.cluster.cache import FULL, INCREMENTAL
from barnabas.broker.cluster.new_topics import CreatedTopic, NewTopic
from barnabas.broker.cluster.registration import (
    BrokerIdInUse,
    announce_log_dir_failure,
    register_broker,
)
from barnabas.broker.cluster.topic_names import CONSUMER_OFFSETS, TRANSACTION_STATE
from barnabas.broker.cluster.znodes import LeaderAndIsr, Restart
from barnabas.broker.controller.topic_admin import NewPartitions
from barnabas.broker.loop.offload import InlineOffload
from barnabas.broker.store.embedded import open_store
from barnabas.broker.store.metadata_store import StoreUnavailable
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.update_metadata import UpdateMetadataRequest
from tests.support.mem_files import Fault, MemFiles
from tests.unit.broker.controller.harness import (
    FakeBroker,
    FakeCluster,
    eventually,
    open_cluster,
    until,
)


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    cluster = await open_cluster()
    yield cluster
    await cluster.close()
    assert not cluster.fatal


async def create(broker: FakeBroker, *topics: NewTopic) -> dict[str, CreatedTopic | KafkaError]:
    return await broker.controller.create_topics(topics, timeout=5)


async def state_of(cluster: FakeCluster, topic: str, partition: int = 0) -> LeaderAndIsr:
    session = cluster.store.session()
    data, stat = await session.get(znodes.state_path(topic, partition))
    await session.close()
    return znodes.decode_state(data, stat.version)


async def test_topics_whose_partitions_would_have_no_descriptors_are_refused(
    cluster: FakeCluster,
) -> None:
    asked: list[int] = []

    def require(new: int) -> None:
        asked.append(new)
        if new > 5:
            raise KafkaError(ErrorCode.POLICY_VIOLATION)

    cluster.require_descriptors = require
    first, _ = [await cluster.start(1), await cluster.start(2)]
    elsewhere = NewTopic("elsewhere", assignments=[(n, [2]) for n in range(9)])
    answers = await create(
        first, NewTopic("a", 3, 2), NewTopic("b", 3, 2), elsewhere, NewTopic("c", 2, 2)
    )
    assert {name for name, each in answers.items() if isinstance(each, KafkaError)} == {"b"}
    assert asked == [3, 6, 5]
    grown = await first.controller.create_partitions(
        [NewPartitions("a", 9), NewPartitions("c", 3)], timeout=5
    )
    refused = grown["a"]
    assert refused is not None
    assert refused.code is ErrorCode.POLICY_VIOLATION
    assert grown["c"] is None
    assert asked == [3, 6, 5, 6, 1]


async def test_single_broker_is_elected_and_gets_full_metadata(cluster: FakeCluster) -> None:
    broker = await cluster.start(1)
    assert broker.controller.active
    assert broker.cache.controller_id == 1
    assert broker.cache.endpoint(1, "PLAINTEXT") == ("host1", 9092)
    assert broker.cache.cluster_id == "cluster"


async def test_created_topic_is_known_when_the_response_comes(cluster: FakeCluster) -> None:
    broker = await cluster.start(1)
    answer = (await create(broker, NewTopic("t", 3, 1)))["t"]
    assert isinstance(answer, CreatedTopic)
    assert (answer.num_partitions, answer.replication_factor) == (3, 1)
    assert sorted(broker.replicas.states) == [("t", 0), ("t", 1), ("t", 2)]
    topic = broker.cache.topic("t")
    assert topic is not None
    assert topic is broker.cache.topic_by_id(answer.topic_id)
    assert [each.leader for each in topic.partitions.values()] == [1, 1, 1]
    assert await state_of(cluster, "t") == LeaderAndIsr(1, 0, (1,), 1)


async def test_each_topic_succeeds_or_fails_separately(cluster: FakeCluster) -> None:
    broker = await cluster.start(1)
    answers = await create(broker, NewTopic("good"), NewTopic("bad", replication_factor=2))
    assert isinstance(answers["good"], CreatedTopic)
    refused = answers["bad"]
    assert isinstance(refused, KafkaError)
    assert refused.code is ErrorCode.INVALID_REPLICATION_FACTOR
    assert broker.cache.topic("bad") is None


async def test_validate_only_changes_nothing(cluster: FakeCluster) -> None:
    broker = await cluster.start(1)
    answers = await broker.controller.create_topics(
        [NewTopic("t", 2, 1)], timeout=5, validate_only=True
    )
    assert isinstance(answers["t"], CreatedTopic)
    assert broker.cache.topic("t") is None
    assert isinstance((await create(broker, NewTopic("t", 2, 1)))["t"], CreatedTopic)


async def test_timed_out_request_is_not_begun(cluster: FakeCluster) -> None:
    broker = await cluster.start(1)
    with pytest.raises(KafkaError) as caught:
        await broker.controller.create_topics([NewTopic("t")], timeout=0)
    assert caught.value.code is ErrorCode.REQUEST_TIMED_OUT
    assert broker.cache.topic("t") is None


async def test_topic_of_many_partitions_takes_several_transactions(
    cluster: FakeCluster,
) -> None:
    broker = await cluster.start(1)
    await create(broker, NewTopic("wide", 1200, 1))
    assert len(broker.replicas.states) == 1200
    await broker.controller.delete_topics(["wide"], timeout=5)
    assert len(broker.replicas.deleted) == 1200
    session = cluster.store.session()
    assert await session.children(znodes.TOPICS) == []
    await session.close()


async def test_new_partitions_follow_the_last_one(cluster: FakeCluster) -> None:
    broker = await cluster.start(1)
    await create(broker, NewTopic("t", 2, 1))
    answers = await broker.controller.create_partitions([NewPartitions("t", 4)], timeout=5)
    assert answers == {"t": None}
    topic = broker.cache.topic("t")
    assert topic is not None
    assert sorted(topic.partitions) == [0, 1, 2, 3]
    assert (await state_of(cluster, "t", 3)).leader == 1
    shrinking = await broker.controller.create_partitions([NewPartitions("t", 3)], timeout=5)
    assert isinstance(shrinking["t"], KafkaError)


async def test_deleted_topic_leaves_no_node_and_its_name_is_free(cluster: FakeCluster) -> None:
    broker = await cluster.start(1)
    first = (await create(broker, NewTopic("t")))["t"]
    assert isinstance(first, CreatedTopic)
    by_id, unknown = await broker.controller.delete_topics([first.topic_id, "other"], timeout=5)
    assert not isinstance(by_id, KafkaError)
    assert by_id.name == "t"
    assert isinstance(unknown, KafkaError)
    assert broker.cache.topic("t") is None
    assert broker.cache.topic_by_id(first.topic_id) is None
    assert broker.replicas.deleted == [("t", 0)]
    session = cluster.store.session()
    for path in (znodes.TOPICS, znodes.DELETE_TOPICS, "/config/topics"):
        assert await session.children(path) == []
    await session.close()
    second = (await create(broker, NewTopic("t")))["t"]
    assert isinstance(second, CreatedTopic)
    assert second.topic_id != first.topic_id


@pytest.mark.parametrize("how", Restart)
async def test_restart_raises_leader_epochs_unless_it_is_clean(how: Restart) -> None:
    """Partitions of coordinators always get a new epoch."""
    files = MemFiles()
    cluster = await open_cluster(files)
    names = ("t", CONSUMER_OFFSETS, TRANSACTION_STATE)
    await create(await cluster.start(1), *(NewTopic(name, 2, 1, internal=True) for name in names))
    before = {name: await state_of(cluster, name) for name in names}
    await cluster.close()
    for start in (1, 2):
        cluster = await open_cluster(files)
        broker = await cluster.start(1, restart=how)
        assert broker.replicas.full_requests == 1
        for name in names:
            state, kept = broker.replicas.states[name, 1], how is Restart.CLEAN and name == "t"
            epoch = 0 if kept else start
            assert (state.leader, state.leader_epoch, state.isr) == (1, epoch, [1])
            stored = await state_of(cluster, name)
            assert stored.controller_epoch == (1 if kept else 1 + start)
            assert (stored.partition_epoch == before[name].partition_epoch) is kept
        await cluster.close()


async def test_unclean_restart_after_clean_ones_raises_every_leader_epoch() -> None:
    files = MemFiles()
    for how in (Restart.CLEAN, Restart.CLEAN, Restart.CLEAN, Restart.KILLED):
        cluster = await open_cluster(files)
        broker = await cluster.start(1, restart=how)
        if not broker.cache.topics:
            await create(broker, NewTopic("t", 2, 1))
        assert broker.replicas.states["t", 1].leader_epoch == (how is Restart.KILLED)
        await cluster.close()


async def test_unfinished_deletion_is_finished_after_a_restart() -> None:
    files = MemFiles()
    cluster = await open_cluster(files)
    await create(await cluster.start(1), NewTopic("gone"), NewTopic("kept"))
    session = cluster.store.session()
    await session.create(znodes.delete_topic_path("gone"))
    await cluster.close()
    cluster = await open_cluster(files)
    broker = await cluster.start(1)
    assert list(broker.cache.topics) == ["kept"]
    assert broker.replicas.deleted == [("gone", 0)]
    await cluster.close()
    store = await open_store(files, "/metadata", InlineOffload())
    assert await store.session().children(znodes.TOPICS) == ["kept"]
    await store.close()


async def test_next_broker_replaces_a_dead_controller(cluster: FakeCluster) -> None:
    first, second = await cluster.start(1), await cluster.start(2)
    assert first.controller.active
    assert not second.controller.active
    with pytest.raises(KafkaError) as caught:
        await create(second, NewTopic("t"))
    assert caught.value.code is ErrorCode.NOT_CONTROLLER
    await create(first, NewTopic("t", assignments=[(0, [1, 2])]))
    await cluster.kill(1)
    await until(lambda: second.controller.active)
    await until(lambda: ("t", 0) in second.replicas.states)
    await until(lambda: second.replicas.states["t", 0].leader == 2)
    assert await state_of(cluster, "t") == LeaderAndIsr(2, 1, (2,), 2)
    await until(lambda: second.cache.controller_id == 2)
    assert list(second.cache.brokers) == [2]


async def test_dead_leader_is_replaced_from_the_isr(cluster: FakeCluster) -> None:
    controller = await cluster.start(1)
    for broker in (2, 3):
        await cluster.start(broker)
    await create(controller, NewTopic("t", assignments=[(0, [2, 3, 1])]))
    await cluster.kill(2)
    await until(lambda: controller.replicas.states["t", 0].leader == 3)
    assert await state_of(cluster, "t") == LeaderAndIsr(3, 1, (3, 1), 1)
    partition = controller.cache.partition("t", 0)
    assert partition is not None
    assert partition.offline_replicas == (2,)


async def test_dead_sole_replica_leads_again_after_its_return(cluster: FakeCluster) -> None:
    controller = await cluster.start(1)
    await cluster.start(2)
    await create(controller, NewTopic("t", assignments=[(0, [2])]))
    await cluster.kill(2)
    await until(lambda: controller.cache.partition("t", 0).leader == -1)  # type: ignore[union-attr]
    assert await state_of(cluster, "t") == LeaderAndIsr(-1, 1, (2,), 1)
    back = await cluster.start(2)
    await until(lambda: ("t", 0) in back.replicas.states)
    assert back.replicas.full_requests == 1
    assert await state_of(cluster, "t") == LeaderAndIsr(2, 2, (2,), 1)


async def test_unclean_election_needs_the_topics_consent(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    controller = await cluster.start(1)
    await cluster.start(2)
    await cluster.start(3)
    cluster.unclean.add("careless")
    both = [NewTopic(name, assignments=[(0, [2, 3])]) for name in ("careful", "careless")]
    await create(controller, *both)
    await cluster.kill(3)
    await cluster.kill(2)
    await cluster.start(3)

    async def elected() -> bool:
        return (await state_of(cluster, "careless")).leader == 3

    await eventually(elected)
    assert (await state_of(cluster, "careless")).isr == (3,)
    assert (await state_of(cluster, "careful")).leader == -1
    assert (await state_of(cluster, "careful")).isr == (2,)
    told = [text for text in caplog.messages if text.startswith("unclean election")]
    (one,) = told
    assert one.startswith("unclean election topic='careless' partition=0 before=-1 leader=3 ")


async def test_replicas_of_failed_directory_go_offline(cluster: FakeCluster) -> None:
    broker = await cluster.start(1)
    await create(broker, NewTopic("t", 2, 1))
    broker.replicas.broken.add(("t", 1))
    await announce_log_dir_failure(broker.session, 1)
    await until(lambda: broker.cache.partition("t", 1).leader == -1)  # type: ignore[union-attr]
    broken, healthy = broker.cache.partition("t", 1), broker.cache.partition("t", 0)
    assert broken is not None
    assert healthy is not None
    assert broken.offline_replicas == (1,)
    assert healthy.leader == 1
    session = cluster.store.session()
    assert await session.children(znodes.LOG_DIR_EVENTS) == []


async def test_deposed_controller_writes_nothing_more(cluster: FakeCluster) -> None:
    broker = await cluster.start(1)
    session = cluster.store.session()
    await session.set(znodes.CONTROLLER_EPOCH, b"7")
    with pytest.raises(KafkaError) as caught:
        await create(broker, NewTopic("t"))
    assert caught.value.code is ErrorCode.NOT_CONTROLLER
    assert await session.children(znodes.TOPICS) == []
    # It resigned, which causes another election.
    await until(lambda: broker.controller.active)
    await create(broker, NewTopic("t"))
    assert await state_of(cluster, "t") == LeaderAndIsr(1, 0, (1,), 8)


async def test_requests_of_earlier_epochs_are_refused(cluster: FakeCluster) -> None:
    broker = await cluster.start(1)

    def update(controller_epoch: int, broker_epoch: int) -> UpdateMetadataRequest:
        return UpdateMetadataRequest(
            controller_id=9,
            controller_epoch=controller_epoch,
            broker_epoch=broker_epoch,
            live_brokers=[],
        )

    epoch = broker.info.epoch
    stale = await broker.receiver.update_metadata(update(0, epoch))
    assert stale.error_code == ErrorCode.STALE_CONTROLLER_EPOCH
    other_life = await broker.receiver.update_metadata(update(1, epoch - 1))
    assert other_life.error_code == ErrorCode.STALE_BROKER_EPOCH


async def test_reregistered_broker_has_no_full_metadata_until_the_controller_sends_it(
    cluster: FakeCluster,
) -> None:
    """It would answer for partitions that other brokers lead by now (KIP-98's coordinators)."""
    broker = await cluster.start(1)
    receiver = broker.receiver
    await until(lambda: receiver.has_full_metadata)
    epoch = broker.info.epoch + 1
    receiver.broker_registered(broker.info._replace(epoch=epoch))
    assert not receiver.has_full_metadata

    async def update(kind: int, broker_epoch: int) -> None:
        await receiver.update_metadata(
            UpdateMetadataRequest(
                controller_id=1,
                controller_epoch=1,
                broker_epoch=broker_epoch,
                live_brokers=[],
                type=kind,
            )
        )

    await update(INCREMENTAL, epoch)
    await update(FULL, epoch - 1)
    assert not receiver.has_full_metadata
    await update(FULL, epoch)
    assert receiver.has_full_metadata
    assert broker.cache.controller_id == 1


async def test_two_brokers_cannot_have_one_id(cluster: FakeCluster) -> None:
    broker = await cluster.start(1)
    with pytest.raises(BrokerIdInUse, match="give this one another"):
        await register_broker(cluster.store.session(), broker.info, 0)


async def test_failed_disk_of_the_controller_is_fatal() -> None:
    files = MemFiles()
    cluster = await open_cluster(files)
    broker = await cluster.start(1)
    files.faults.append(Fault("sync", from_then_on=True))
    with pytest.raises(StoreUnavailable):
        await create(broker, NewTopic("t"))
    assert not broker.controller.active
    assert len(cluster.fatal) == 1
    await cluster.close()
