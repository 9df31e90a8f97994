"""The ISR manager: proposals of leaders, and the controller's answers to them."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from barnabas.broker.cluster.cache import BrokerNode
from barnabas.broker.replication.leader import isr_manager
from barnabas.broker.replication.leader.isr_manager import IsrManager
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
from tests.support.steps import taken
from tests.unit.broker.replication.replicas import TOPIC_ID, Replicas

BATCH = build_batch([Record(0, 1, b"k", b"v", ())])
MY_EPOCH = 100


class Controller:
    """A controller that records proposals, and fails as the test says."""

    def __init__(self) -> None:
        self.asked: list[AlterPartitionRequest] = []
        self.errors: list[ErrorCode | KafkaError] = []
        """Errors of the next answers; the answers after them succeed."""
        self.held: asyncio.Event | None = None

    @property
    def proposals(self) -> list[dict[int, int]]:
        """The proposed members with their broker epochs, by request."""
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
    def manager(self) -> IsrManager:
        return self.replicas.isr_manager

    @property
    def partition(self) -> Partition:
        return self.replicas.manager.partition("t", 0)

    def alive(self, *brokers: int) -> None:
        self.replicas.cache._brokers = {each: BrokerNode(each, None, {}) for each in brokers}

    async def lead(self, isr: tuple[int, ...], replicas: tuple[int, ...] = (0, 1, 2)) -> None:
        await self.replicas.lead(isr=isr, replicas=replicas)
        self.manager.begin(self.controller, lambda: MY_EPOCH, self.replicas.manager)

    def append(self) -> None:
        self.partition.append(BATCH, now_ms=1)

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(5):
            while not condition():  # noqa: ASYNC110
                await asyncio.sleep(0.001)

    def counted(self) -> tuple[float, float, float]:
        """Return the counts of ISR expansions, shrinks and failed changes."""
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
    monkeypatch.setattr(isr_manager, "SHORTEST_BACKOFF_S", 0.001)
    monkeypatch.setattr(isr_manager, "RECONNECT_S", 0.01)
    monkeypatch.setattr(isr_manager, "RETRY_S", 0.01)


async def test_follower_with_all_committed_records_is_proposed_with_its_broker_epoch(
    rig: Rig,
) -> None:
    await rig.lead(isr=(0,))
    rig.append()
    rig.replicas.fetched(1, 0, broker_epoch=7)
    assert rig.partition.isr_state.proposed is None
    rig.replicas.fetched(1, 1, broker_epoch=7)
    await rig.until(lambda: rig.partition.isr == (0, 1))
    assert rig.controller.proposals == [{0: MY_EPOCH, 1: 7}]
    assert rig.controller.asked[0].broker_epoch == MY_EPOCH
    assert rig.counted() == (1, 0, 0)


async def test_proposed_follower_counts_for_the_high_watermark_before_it_is_a_member(
    rig: Rig,
) -> None:
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


async def test_member_proposed_to_leave_counts_until_it_has_left(rig: Rig) -> None:
    await rig.lead(isr=(0, 1), replicas=(0, 1))
    rig.append()
    rig.controller.held = asyncio.Event()
    rig.replicas.clock.seconds += 31
    await rig.manager.review()
    await rig.until(lambda: bool(rig.controller.asked))
    assert rig.partition.high_watermark == 0
    rig.controller.held.set()
    await rig.until(lambda: rig.partition.isr == (0,))
    assert rig.partition.high_watermark == 1
    assert rig.counted() == (0, 1, 0)


async def test_lagging_followers_leave_in_one_proposal(rig: Rig) -> None:
    await rig.lead(isr=(0, 1, 2))
    rig.append()
    rig.replicas.clock.seconds += 30
    await rig.manager.review()
    assert rig.partition.isr_state.proposed is None
    rig.replicas.clock.seconds += 0.1
    await rig.manager.review()
    await rig.until(lambda: rig.partition.isr == (0,))
    assert len(rig.controller.asked) == 1


async def test_all_partitions_are_proposed_in_one_request(rig: Rig) -> None:
    await rig.lead(isr=(0, 1))
    await rig.replicas.lead(topic="u", topic_id=bytes(15) + b"u", isr=(0, 1), replicas=(0, 1))
    for topic in ("t", "u"):
        rig.replicas.manager.partition(topic, 0).append(BATCH, now_ms=1)
    rig.replicas.clock.seconds += 31
    await rig.manager.review()
    await rig.until(lambda: rig.partition.isr == (0,))
    assert len(rig.controller.asked) == 1
    assert len(rig.controller.asked[0].topics) == 2


@pytest.mark.usefixtures("quick")
async def test_follower_with_a_closed_connection_leaves_at_once(rig: Rig) -> None:
    await rig.lead(isr=(0, 1, 2))
    rig.replicas.fetched(1, 0, connection_id=11)
    rig.replicas.fetched(2, 0, connection_id=12)
    rig.manager.connection_closed(11)
    await rig.until(lambda: rig.partition.isr == (0, 2))


@pytest.mark.usefixtures("quick")
async def test_follower_that_reconnects_in_time_stays(rig: Rig) -> None:
    await rig.lead(isr=(0, 1))
    rig.replicas.fetched(1, 0, connection_id=11)
    rig.manager.connection_closed(11)
    rig.manager.connection_closed(99)
    rig.replicas.clock.seconds += 0.001
    rig.replicas.fetched(1, 0, connection_id=13)
    await asyncio.sleep(0.02)
    assert rig.partition.isr_state.proposed is None
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
async def test_proposal_is_repeated_until_the_controller_decides(
    rig: Rig, error: ErrorCode | KafkaError
) -> None:
    await rig.lead(isr=(0,))
    rig.controller.errors = [error] * 3
    rig.replicas.fetched(1, 0)
    await rig.until(lambda: rig.partition.isr == (0, 1))
    assert rig.controller.proposals == [{0: MY_EPOCH, 1: 1}] * 4
    assert rig.counted() == (1, 0, 3)


def failure_lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if "AlterPartition" in each.getMessage()]


@pytest.mark.usefixtures("quick")
async def test_failed_requests_are_logged_once_and_counted_at_the_end(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    await rig.lead(isr=(0,))
    rig.controller.errors = [
        *[KafkaError(ErrorCode.NOT_CONTROLLER)] * 4,
        *[KafkaError(ErrorCode.BROKER_NOT_AVAILABLE)] * 2,
    ]
    rig.replicas.fetched(1, 0)
    await rig.until(lambda: rig.partition.isr == (0, 1))
    first, last = failure_lines(caplog)
    assert first == "AlterPartition fails, retrying partitions=1 error='NOT_CONTROLLER'"
    assert last.startswith("AlterPartition no longer fails attempts=6 ")
    assert "errors={'NOT_CONTROLLER': 4, 'BROKER_NOT_AVAILABLE': 2}" in last


@pytest.mark.usefixtures("quick")
async def test_lasting_failure_is_logged_once_a_minute(
    rig: Rig, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(isr_manager, "LONGEST_BACKOFF_S", 0.001)
    caplog.set_level("INFO")
    await rig.lead(isr=(0,))
    rig.controller.errors = [KafkaError(ErrorCode.NOT_CONTROLLER)] * 1000
    rig.replicas.fetched(1, 0)
    for minute in (1, 2, 3):
        asked = len(rig.controller.asked)
        await rig.until(lambda least=asked + 20: len(rig.controller.asked) > least)
        assert len(failure_lines(caplog)) == minute
        rig.replicas.clock.seconds += 60
    await rig.until(lambda: len(failure_lines(caplog)) == 4)
    assert failure_lines(caplog)[1].startswith("AlterPartition still fails attempts=")
    await rig.manager.stop()


@pytest.mark.usefixtures("quick")
async def test_failure_ends_when_no_proposal_is_left(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    await rig.lead(isr=(0,))
    rig.controller.errors = [KafkaError(ErrorCode.NOT_CONTROLLER)] * 1000
    rig.replicas.fetched(1, 0)
    await rig.until(lambda: len(rig.controller.asked) > 3)
    rig.partition.proposal_refused(ineligible=False)
    await rig.until(lambda: len(failure_lines(caplog)) == 2)
    assert failure_lines(caplog)[1].startswith("AlterPartition no longer fails attempts=")


@pytest.mark.usefixtures("quick")
async def test_exception_while_applying_an_answer_does_not_end_all_proposals(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the proposal would stay in flight, and the partition out of sync, for ever."""
    await rig.lead(isr=(0,))
    change, faults = Partition.isr_changed, [RuntimeError("a fault")]

    def changed(*decision: Any) -> None:
        if faults:
            raise faults.pop()
        change(*decision)

    monkeypatch.setattr(Partition, "isr_changed", changed)
    rig.replicas.fetched(1, 0)
    await rig.until(lambda: rig.partition.isr == (0, 1))
    assert len(rig.controller.asked) == 2


@pytest.mark.usefixtures("quick")
async def test_proposal_refused_as_ineligible_is_repeated_later(rig: Rig) -> None:
    await rig.lead(isr=(0,))
    rig.controller.errors = [ErrorCode.INELIGIBLE_REPLICA]
    rig.replicas.fetched(1, 0)
    await rig.until(lambda: bool(rig.controller.asked) and rig.partition.isr_state.proposed is None)
    await rig.until(lambda: rig.partition.isr == (0, 1))
    assert len(rig.controller.asked) == 2


async def test_follower_that_is_ineligible_is_not_awaited_until_it_fetches_again(rig: Rig) -> None:
    """Its log directory has failed after its last Fetch: writes waited 30 s for it."""
    await rig.lead(isr=(0,))
    rig.controller.errors = [ErrorCode.INELIGIBLE_REPLICA]
    rig.replicas.fetched(1, 0)
    await rig.until(lambda: bool(rig.controller.asked) and rig.partition.isr_state.proposed is None)
    rig.append()
    assert rig.partition.high_watermark == 1
    rig.replicas.fetched(1, 1)
    rig.append()
    assert rig.partition.high_watermark == 1
    await rig.until(lambda: rig.partition.isr == (0, 1))


@pytest.mark.usefixtures("quick")
async def test_repeated_refusals_of_a_partition_are_logged_once_and_counted(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    await rig.lead(isr=(0,))
    rig.controller.errors = [ErrorCode.INELIGIBLE_REPLICA] * 3
    rig.replicas.fetched(1, 0)
    await rig.until(lambda: rig.partition.isr == (0, 1))
    lines = [each.getMessage() for each in caplog.records]
    assert len([line for line in lines if line.startswith("ISR proposal refused")]) == 1
    assert [line for line in lines if line.startswith("ISR changed")][-1].endswith("refused=3")


@pytest.mark.usefixtures("quick")
async def test_follower_is_proposed_once_metadata_counts_it_as_alive(rig: Rig) -> None:
    await rig.lead(isr=(0,))
    rig.alive(0)
    rig.replicas.fetched(1, 0)
    assert rig.partition.isr_state.proposed is None
    rig.alive(0, 1)
    await rig.until(lambda: rig.partition.isr == (0, 1))


async def test_second_follower_is_proposed_after_the_first_without_another_fetch(
    rig: Rig,
) -> None:
    await rig.lead(isr=(0,))
    rig.controller.held = asyncio.Event()
    rig.replicas.fetched(1, 0)
    rig.replicas.fetched(2, 0)
    rig.controller.held.set()
    await rig.until(lambda: set(rig.partition.isr) == {0, 1, 2})


async def test_newer_decision_voids_a_proposal(rig: Rig) -> None:
    await rig.lead(isr=(0,), replicas=(0, 1))
    rig.controller.held = asyncio.Event()
    rig.replicas.fetched(1, 0)
    await rig.until(lambda: bool(rig.controller.asked))
    await rig.replicas.lead(isr=(0,), replicas=(0, 1), epoch=1)
    rig.controller.held.set()
    for _ in range(5):
        await asyncio.sleep(0)
    assert rig.partition.isr == (0,)
    assert rig.partition.isr_state.proposed is None


async def test_follower_of_a_voided_proposal_is_proposed_again_without_another_fetch(
    rig: Rig,
) -> None:
    await rig.lead(isr=(0, 2))
    rig.controller.held = asyncio.Event()
    rig.replicas.fetched(1, 0)
    await rig.until(lambda: bool(rig.controller.asked))
    await rig.replicas.lead(isr=(0,), replicas=(0, 1, 2))
    assert rig.partition.isr_state.proposed == (0, 1)
    rig.controller.held.set()
    await rig.until(lambda: rig.partition.isr == (0, 1))


@pytest.mark.usefixtures("quick")
async def test_lost_answer_is_taken_from_the_metadata_cache(rig: Rig) -> None:
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
    taken(
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
    )
    rig.alive(0, 1)
    await rig.until(lambda: rig.partition.isr == (0, 1))


async def test_fetch_with_an_older_broker_epoch_does_not_count(rig: Rig) -> None:
    await rig.lead(isr=(0, 1), replicas=(0, 1))
    rig.append()
    rig.replicas.fetched(1, 0, broker_epoch=9)
    with pytest.raises(KafkaError) as caught:
        rig.replicas.fetched(1, 1, broker_epoch=8)
    assert caught.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert rig.partition.high_watermark == 0


async def test_fetch_of_a_broker_without_a_replica_does_not_count(rig: Rig) -> None:
    await rig.lead(isr=(0, 1), replicas=(0, 1))
    with pytest.raises(KafkaError) as caught:
        rig.replicas.fetched(2, 1)
    assert caught.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
