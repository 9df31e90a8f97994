"""The controller's requests for replicas: lead, follow, stop, delete, and fenced ones."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from barnabas.broker.replication.partition import Partition
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.protocol.errors import ErrorCode, KafkaError
from tests.support.mutants import mutated
from tests.unit.broker.replication.replicas import TOPIC_ID, Replicas


class Observer:
    """An observer that records its calls."""

    def __init__(self) -> None:
        self.told: list[tuple[str, int]] = []

    def elected(self, partition: Partition) -> None:
        self.told.append(("elected", partition.leader_epoch))

    def resigned(self, partition: Partition) -> None:
        self.told.append(("resigned", partition.leader_epoch))


def refused(replicas: Replicas) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        replicas.manager.partition("t", 0)
    return caught.value.code


async def test_partition_is_unknown_until_the_first_leader_and_isr() -> None:
    replicas = Replicas()
    assert refused(replicas) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await replicas.lead() == ErrorCode.NONE
    partition = replicas.manager.partition("t", 0)
    assert (partition.is_leader, partition.leader_epoch, partition.isr) == (True, 0, (0,))
    assert partition.topic_id == TOPIC_ID


async def test_observers_are_notified_of_every_change_of_leadership() -> None:
    replicas, observer, stranger = Replicas(), Observer(), Observer()
    replicas.manager.observe("t", observer)
    replicas.manager.observe("other", stranger)
    await replicas.lead(epoch=0, replicas=(0, 1), isr=(0, 1))
    await replicas.lead(epoch=0, replicas=(0, 1), isr=(0,))
    await replicas.lead(epoch=1, leader=1, replicas=(0, 1))
    await replicas.lead(epoch=2, replicas=(0, 1))
    await replicas.lead(epoch=3, replicas=(0, 1))
    assert observer.told == [
        ("elected", 0),
        ("resigned", 0),
        ("resigned", 1),
        ("elected", 2),
        ("resigned", 2),
        ("elected", 3),
    ]
    assert stranger.told == []


async def test_observers_resign_while_the_partition_still_takes_records() -> None:
    replicas, led = Replicas(), []

    class Writer(Observer):
        def resigned(self, partition: Partition) -> None:
            led.append((partition.is_leader, partition.leader_epoch))

    replicas.manager.observe("t", Writer())
    await replicas.lead(epoch=0)
    await replicas.lead(epoch=1)
    await replicas.lead(epoch=2, leader=1, replicas=(0, 1))
    await replicas.lead(epoch=3)
    replicas.manager.resign_all()
    assert led == [(True, 0), (True, 1), (False, 2), (True, 3)]


@pytest.mark.parametrize("function", [ReplicaManager._resign, ReplicaManager._apply])
async def test_observers_that_resign_too_late_are_found(
    function: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    code = mutated(function, "self._resign_coordinators(partition)", "pass")
    monkeypatch.setattr(function, "__code__", code)
    with pytest.raises(AssertionError):
        await test_observers_resign_while_the_partition_still_takes_records()


async def test_decisions_with_an_old_epoch_or_another_topic_id_are_refused() -> None:
    replicas = Replicas()
    await replicas.lead(epoch=5)
    assert await replicas.lead(epoch=4) == ErrorCode.STALE_CONTROLLER_EPOCH
    assert (
        await replicas.lead(epoch=6, topic_id=bytes(15) + b"x") == ErrorCode.INCONSISTENT_TOPIC_ID
    )
    assert await replicas.lead(epoch=6, replicas=(1,)) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert replicas.manager.partition("t", 0).leader_epoch == 5


async def test_deleted_replica_leaves_no_files_and_no_metrics() -> None:
    replicas = Replicas()
    await replicas.lead()
    replicas.manager.partition("t", 0).cells.bytes_in.value += 1
    assert replicas.files.is_dir("/data/t-0")
    assert await replicas.stop(delete=True) == ErrorCode.NONE
    assert refused(replicas) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert not replicas.files.exists("/data/t-0")
    assert replicas.topics.bytes_in.snapshot().samples == []


async def test_stopped_replica_keeps_its_log_and_may_come_back() -> None:
    replicas = Replicas()
    await replicas.lead()
    log = replicas.manager.partition("t", 0).log
    assert await replicas.stop(delete=False) == ErrorCode.NONE
    await replicas.lead(epoch=1)
    assert replicas.manager.partition("t", 0).log is log


async def test_stop_replica_with_an_older_leader_epoch_is_fenced() -> None:
    replicas = Replicas()
    await replicas.lead(epoch=3)
    assert await replicas.stop(delete=True, epoch=2) == ErrorCode.FENCED_LEADER_EPOCH
    assert replicas.manager.partition("t", 0).is_leader


async def test_log_of_an_older_topic_of_the_same_name_is_not_reused() -> None:
    replicas = Replicas()
    await replicas.lead()
    old = replicas.manager.partition("t", 0).log
    await replicas.stop(delete=False)
    assert await replicas.lead(topic_id=bytes(15) + b"x") == ErrorCode.NONE
    assert replicas.manager.partition("t", 0).log is not old


async def test_replicas_of_a_failed_directory_are_offline() -> None:
    replicas, observer = Replicas(), Observer()
    replicas.manager.observe("t", observer)
    await replicas.lead()
    told: list[KafkaError | None] = []
    replicas.manager.partition("t", 0).add_waiter(1, told.append)
    replicas.manager.log_dir_failed("/data")
    assert refused(replicas) is ErrorCode.KAFKA_STORAGE_ERROR
    assert [error.code for error in told if error] == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert observer.told == [("elected", 0), ("resigned", 0)]
    assert replicas.manager.offline_count == 1


async def test_directory_failing_during_log_creation_takes_the_replica_offline() -> None:
    replicas = Replicas()
    create = replicas.logs.create

    def create_too_late(*args: Any, **kwargs: Any) -> Any:
        log = create(*args, **kwargs)
        log.log_dir.take_offline(OSError(5, "input/output error"))
        replicas.manager.log_dir_failed("/data")
        return log

    replicas.logs.create = create_too_late  # type: ignore[method-assign]
    assert await replicas.lead() == ErrorCode.KAFKA_STORAGE_ERROR
    assert refused(replicas) is ErrorCode.KAFKA_STORAGE_ERROR
    assert (len(replicas.manager), replicas.manager.offline_count) == (0, 1)


async def test_stopping_broker_refuses_a_repeated_leader_and_isr() -> None:
    replicas, observer = Replicas(), Observer()
    replicas.manager.observe("t", observer)
    await replicas.lead(replicas=(0, 1), isr=(0, 1))
    replicas.manager.resign_all()
    assert await replicas.lead(replicas=(0, 1), isr=(0,)) == ErrorCode.BROKER_NOT_AVAILABLE
    assert not replicas.manager.partition("t", 0).is_leader
    assert observer.told == [("elected", 0), ("resigned", 0)]


async def test_resigned_leader_drops_its_isr_proposal() -> None:
    """Its successor, which may be elected already, decides about the ISR."""
    replicas = Replicas()
    await replicas.lead(replicas=(0, 1), isr=(0, 1))
    partition = replicas.manager.partition("t", 0)
    partition.isr_state.proposed = (0,)
    replicas.manager.log_dir_failed("/data")
    assert partition.isr_state.proposed is None
    assert partition.isr_state.followers == {}


async def test_replica_missing_in_a_full_request_becomes_a_stray() -> None:
    replicas, observer = Replicas(), Observer()
    replicas.manager.observe("t", observer)
    await replicas.lead()
    await replicas.lead(topic="other", epoch=1)
    assert len(replicas.manager) == 2
    await replicas.lead(topic="other", epoch=1, full=True)
    assert refused(replicas) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert observer.told == [("elected", 0), ("resigned", 0)]
    assert replicas.logs.get("t", 0) is None
    assert replicas.logs.get("other", 0) is not None
    names = replicas.files.listdir("/data")
    assert [name.partition(".")[0] for name in names if name.endswith("-stray")] == ["t-0"]


async def test_leadership_waits_for_a_truncation_in_progress() -> None:
    replicas = Replicas()
    await replicas.lead(leader=1, replicas=(0, 1), isr=(0, 1))
    partition = replicas.manager.partition("t", 0)
    cut = asyncio.Event()
    cutting = asyncio.create_task(cut.wait())
    (follower,) = replicas.fetchers
    follower.work = cutting  # type: ignore[assignment]
    leading = asyncio.create_task(replicas.lead(epoch=1, replicas=(0, 1), isr=(0, 1)))
    for _ in range(20):
        await asyncio.sleep(0)
    assert not partition.is_leader
    assert follower.stopped
    cut.set()
    assert await leading == ErrorCode.NONE
    assert partition.is_leader
    assert list(replicas.fetchers) == []


async def test_partition_is_followed_again_in_each_epoch_and_not_without_a_leader() -> None:
    replicas = Replicas()
    both = {"replicas": (0, 1, 2), "isr": (1, 2)}
    await replicas.lead(leader=1, epoch=1, **both)
    (first,) = replicas.fetchers
    await replicas.lead(leader=1, epoch=1, replicas=(0, 1, 2), isr=(0, 1, 2))
    assert list(replicas.fetchers) == [first]
    await replicas.lead(leader=2, epoch=2, **both)
    (second,) = replicas.fetchers
    assert (second.leader_id, second.leader_epoch) == (2, 2)
    assert first.stopped
    await replicas.lead(leader=-1, epoch=3, **both)
    assert list(replicas.fetchers) == []
    await replicas.lead(leader=1, epoch=4, **both)
    assert len(list(replicas.fetchers)) == 1
    await replicas.stop(delete=False)
    assert list(replicas.fetchers) == []
    await replicas.fetchers.stop()
    await replicas.lead(leader=1, epoch=5, **both)
    assert list(replicas.fetchers) == []
