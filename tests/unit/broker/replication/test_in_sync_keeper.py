"""Changes of in-sync sets: what leaders propose, and what they do with the controller's answers."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from barnabas.broker.metadata.cache import BrokerNode
from barnabas.broker.replication import in_sync_keeper
from barnabas.broker.replication.in_sync_keeper import InSyncKeeper
from barnabas.broker.replication.partition import Partition
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    PartitionResponse,
    TopicResponse,
)
from barnabas.protocol.messages.update_metadata import (
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from barnabas.protocol.records.record import Record, build_batch
from tests.unit.broker.replication.replicas import TOPIC_ID, Replicas

BATCH = build_batch([Record(0, 1, b"k", b"v", ())])
MY_EPOCH = 100


class Controller:
    """Writes what is proposed, or fails as the test says."""

    def __init__(self) -> None:
        self.asked: list[AlterPartitionRequest] = []
        self.errors: list[ErrorCode | KafkaError] = []
        """Of the next answers; then all is well."""
        self.held: asyncio.Event | None = None

    @property
    def proposals(self) -> list[dict[int, int]]:
        """Members and their broker epochs, by request."""
        return [
            {each.broker_id: each.broker_epoch for each in partition.new_isr_with_epochs}
            for request in self.asked
            for topic in request.topics
            for partition in topic.partitions
        ]

    async def alter_partition(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        self.asked.append(request)
        if self.held is not None:
            await self.held.wait()
        error = self.errors.pop(0) if self.errors else ErrorCode.NONE
        if isinstance(error, KafkaError):
            raise error
        return AlterPartitionResponse(
            topics=[
                TopicResponse(
                    topic_id=topic.topic_id,
                    partitions=[
                        PartitionResponse(
                            partition_index=asked.partition_index,
                            error_code=error,
                            leader_id=0,
                            leader_epoch=asked.leader_epoch,
                            isr=[each.broker_id for each in asked.new_isr_with_epochs],
                            partition_epoch=asked.partition_epoch + 1,
                        )
                        for asked in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )


class Rig:
    def __init__(self) -> None:
        self.replicas = Replicas()
        self.controller = Controller()
        self.alive(0, 1, 2)

    @property
    def keeper(self) -> InSyncKeeper:
        return self.replicas.in_sync

    @property
    def partition(self) -> Partition:
        return self.replicas.manager.partition("t", 0)

    def alive(self, *brokers: int) -> None:
        self.replicas.cache._brokers = {each: BrokerNode(each, None, {}) for each in brokers}

    async def lead(self, isr: tuple[int, ...], replicas: tuple[int, ...] = (0, 1, 2)) -> None:
        await self.replicas.lead(isr=isr, replicas=replicas)
        self.keeper.begin(self.controller, lambda: MY_EPOCH, self.replicas.manager)

    def append(self) -> None:
        self.partition.append_as_leader(BATCH, now_ms=1)

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(5):
            while not condition():  # noqa: ASYNC110
                await asyncio.sleep(0.001)

    def counted(self) -> tuple[float, float, float]:
        """In-sync sets that grew, that shrank, and changes that failed."""
        metrics = self.replicas.metrics.replicas
        return (
            metrics.isr_expands.cell().value,
            metrics.isr_shrinks.cell().value,
            metrics.failed_isr_updates.cell().value,
        )


@pytest.fixture
def rig() -> Rig:
    return Rig()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_sync_keeper, "SHORTEST_BACKOFF_S", 0.001)
    monkeypatch.setattr(in_sync_keeper, "RETURN_S", 0.01)
    monkeypatch.setattr(in_sync_keeper, "RECONSIDER_S", 0.01)


async def test_a_follower_that_has_what_is_committed_is_proposed_with_its_broker_epoch(
    rig: Rig,
) -> None:
    await rig.lead(isr=(0,))
    rig.append()
    rig.replicas.fetched(1, 0, broker_epoch=7)
    assert rig.partition.in_sync.proposed is None
    rig.replicas.fetched(1, 1, broker_epoch=7)
    await rig.until(lambda: rig.partition.isr == (0, 1))
    assert rig.controller.proposals == [{0: MY_EPOCH, 1: 7}]
    assert rig.controller.asked[0].broker_epoch == MY_EPOCH
    assert rig.counted() == (1, 0, 0)


async def test_while_it_is_proposed_a_follower_counts_though_it_is_no_member_yet(rig: Rig) -> None:
    await rig.lead(isr=(0,), replicas=(0, 1))
    rig.controller.held = asyncio.Event()
    rig.replicas.fetched(1, 0)
    rig.append()
    assert rig.partition.high_watermark == 0
    rig.replicas.fetched(1, 1)
    assert rig.partition.high_watermark == 1
    assert rig.partition.isr == (0,)
    rig.controller.held.set()
    await rig.until(lambda: rig.partition.isr == (0, 1))


async def test_a_member_that_is_proposed_to_leave_counts_until_it_has_left(rig: Rig) -> None:
    await rig.lead(isr=(0, 1), replicas=(0, 1))
    rig.append()
    rig.controller.held = asyncio.Event()
    rig.replicas.clock.seconds += 31
    await rig.keeper.review()
    await rig.until(lambda: bool(rig.controller.asked))
    assert rig.partition.high_watermark == 0
    rig.controller.held.set()
    await rig.until(lambda: rig.partition.isr == (0,))
    assert rig.partition.high_watermark == 1
    assert rig.counted() == (0, 1, 0)


async def test_followers_that_lag_leave_together(rig: Rig) -> None:
    await rig.lead(isr=(0, 1, 2))
    rig.append()
    rig.replicas.clock.seconds += 30
    await rig.keeper.review()
    assert rig.partition.in_sync.proposed is None
    rig.replicas.clock.seconds += 0.1
    await rig.keeper.review()
    await rig.until(lambda: rig.partition.isr == (0,))
    assert len(rig.controller.asked) == 1


async def test_all_partitions_are_proposed_in_one_request(rig: Rig) -> None:
    await rig.lead(isr=(0, 1))
    await rig.replicas.lead(topic="u", topic_id=bytes(15) + b"u", isr=(0, 1), replicas=(0, 1))
    for topic in ("t", "u"):
        rig.replicas.manager.partition(topic, 0).append_as_leader(BATCH, now_ms=1)
    rig.replicas.clock.seconds += 31
    await rig.keeper.review()
    await rig.until(lambda: rig.partition.isr == (0,))
    assert len(rig.controller.asked) == 1
    assert len(rig.controller.asked[0].topics) == 2


@pytest.mark.usefixtures("quick")
async def test_a_follower_whose_connection_is_closed_leaves_at_once(rig: Rig) -> None:
    await rig.lead(isr=(0, 1, 2))
    rig.replicas.fetched(1, 0, connection_id=11)
    rig.replicas.fetched(2, 0, connection_id=12)
    rig.keeper.connection_closed(11)
    await rig.until(lambda: rig.partition.isr == (0, 2))


@pytest.mark.usefixtures("quick")
async def test_a_follower_that_is_back_over_another_connection_stays(rig: Rig) -> None:
    await rig.lead(isr=(0, 1))
    rig.replicas.fetched(1, 0, connection_id=11)
    rig.keeper.connection_closed(11)
    rig.keeper.connection_closed(99)
    rig.replicas.clock.seconds += 0.001
    rig.replicas.fetched(1, 0, connection_id=13)
    await asyncio.sleep(0.02)
    assert rig.partition.in_sync.proposed is None
    assert rig.partition.isr == (0, 1)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    "error",
    [
        KafkaError(ErrorCode.BROKER_NOT_AVAILABLE),
        KafkaError(ErrorCode.NOT_CONTROLLER),
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ],
)
async def test_a_proposal_is_repeated_until_the_controller_has_spoken(
    rig: Rig, error: ErrorCode | KafkaError
) -> None:
    await rig.lead(isr=(0,))
    rig.controller.errors = [error] * 3
    rig.replicas.fetched(1, 0)
    await rig.until(lambda: rig.partition.isr == (0, 1))
    assert rig.controller.proposals == [{0: MY_EPOCH, 1: 1}] * 4
    assert rig.counted() == (1, 0, 3)


@pytest.mark.usefixtures("quick")
async def test_a_fault_where_an_answer_is_taken_over_is_not_the_end_of_all_proposals(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The partition would stay out of sync for ever: a proposal of it would be under way."""
    await rig.lead(isr=(0,))
    change, faults = Partition.in_sync_set_changed, [RuntimeError("a fault")]

    def changed(*decision: Any) -> None:
        if faults:
            raise faults.pop()
        change(*decision)

    monkeypatch.setattr(Partition, "in_sync_set_changed", changed)
    rig.replicas.fetched(1, 0)
    await rig.until(lambda: rig.partition.isr == (0, 1))
    assert len(rig.controller.asked) == 2


@pytest.mark.usefixtures("quick")
async def test_what_is_refused_for_a_member_is_proposed_again_later(rig: Rig) -> None:
    await rig.lead(isr=(0,))
    rig.controller.errors = [ErrorCode.INELIGIBLE_REPLICA]
    rig.replicas.fetched(1, 0)
    await rig.until(lambda: bool(rig.controller.asked) and rig.partition.in_sync.proposed is None)
    await rig.until(lambda: rig.partition.isr == (0, 1))
    assert len(rig.controller.asked) == 2


@pytest.mark.usefixtures("quick")
async def test_a_follower_is_proposed_once_the_cluster_knows_that_it_is_back(rig: Rig) -> None:
    await rig.lead(isr=(0,))
    rig.alive(0)
    rig.replicas.fetched(1, 0)
    assert rig.partition.in_sync.proposed is None
    rig.alive(0, 1)
    await rig.until(lambda: rig.partition.isr == (0, 1))


async def test_the_second_follower_is_proposed_after_the_first_though_it_says_no_more(
    rig: Rig,
) -> None:
    await rig.lead(isr=(0,))
    rig.controller.held = asyncio.Event()
    rig.replicas.fetched(1, 0)
    rig.replicas.fetched(2, 0)
    rig.controller.held.set()
    await rig.until(lambda: set(rig.partition.isr) == {0, 1, 2})


async def test_a_decision_overtakes_a_proposal(rig: Rig) -> None:
    await rig.lead(isr=(0,), replicas=(0, 1))
    rig.controller.held = asyncio.Event()
    rig.replicas.fetched(1, 0)
    await rig.until(lambda: bool(rig.controller.asked))
    await rig.replicas.lead(isr=(0,), replicas=(0, 1), epoch=1)
    rig.controller.held.set()
    for _ in range(5):
        await asyncio.sleep(0)
    assert rig.partition.isr == (0,)
    assert rig.partition.in_sync.proposed is None


@pytest.mark.usefixtures("quick")
async def test_an_answer_that_was_lost_is_learnt_from_the_metadata(rig: Rig) -> None:
    await rig.lead(isr=(0,), replicas=(0, 1))
    rig.controller.errors = [ErrorCode.INVALID_UPDATE_VERSION] * 100
    rig.replicas.fetched(1, 0)
    await rig.until(lambda: len(rig.controller.asked) > 1)
    state = UpdateMetadataPartitionState(
        partition_index=0,
        controller_epoch=1,
        leader=0,
        leader_epoch=0,
        isr=[0, 1],
        zk_version=rig.partition.partition_epoch + 1,
        replicas=[0, 1],
    )
    rig.replicas.cache.apply(
        UpdateMetadataRequest(
            controller_id=0,
            controller_epoch=1,
            topic_states=[
                UpdateMetadataTopicState(
                    topic_name="t", topic_id=TOPIC_ID, partition_states=[state]
                )
            ],
            live_brokers=[],
        )
    )
    rig.alive(0, 1)
    await rig.until(lambda: rig.partition.isr == (0, 1))


async def test_a_request_of_an_earlier_incarnation_does_not_count(rig: Rig) -> None:
    await rig.lead(isr=(0, 1), replicas=(0, 1))
    rig.append()
    rig.replicas.fetched(1, 0, broker_epoch=9)
    with pytest.raises(KafkaError) as caught:
        rig.replicas.fetched(1, 1, broker_epoch=8)
    assert caught.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert rig.partition.high_watermark == 0


async def test_a_broker_that_has_no_replica_cannot_acknowledge(rig: Rig) -> None:
    await rig.lead(isr=(0, 1), replicas=(0, 1))
    with pytest.raises(KafkaError) as caught:
        rig.replicas.fetched(2, 1)
    assert caught.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
