"""What the controller says of replicas: led, followed, stopped, deleted, fenced."""

import asyncio
from typing import Any

import pytest

from barnabas.broker.replication.partition import Partition
from barnabas.protocol.errors import ErrorCode, KafkaError
from tests.unit.broker.replication.replicas import TOPIC_ID, Replicas


class Observer:
    """Writes down what it is told."""

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


async def test_a_partition_is_unknown_until_the_controller_has_spoken() -> None:
    replicas = Replicas()
    assert refused(replicas) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await replicas.lead() == ErrorCode.NONE
    partition = replicas.manager.partition("t", 0)
    assert (partition.is_leader, partition.leader_epoch, partition.isr) == (True, 0, (0,))
    assert partition.topic_id == TOPIC_ID


async def test_the_observers_of_a_topic_hear_of_every_change_of_leadership() -> None:
    replicas, observer, stranger = Replicas(), Observer(), Observer()
    replicas.manager.observe("t", observer)
    replicas.manager.observe("other", stranger)
    await replicas.lead(epoch=0, replicas=(0, 1), isr=(0, 1))
    await replicas.lead(epoch=0, replicas=(0, 1), isr=(0,))
    await replicas.lead(epoch=1, leader=1, replicas=(0, 1))
    await replicas.lead(epoch=2, replicas=(0, 1))
    await replicas.lead(epoch=3, replicas=(0, 1))
    assert observer.told == [("elected", 0), ("resigned", 1), ("elected", 2), ("elected", 3)]
    assert stranger.told == []


async def test_decisions_that_are_old_or_about_another_topic_are_refused() -> None:
    replicas = Replicas()
    await replicas.lead(epoch=5)
    assert await replicas.lead(epoch=4) == ErrorCode.STALE_CONTROLLER_EPOCH
    assert (
        await replicas.lead(epoch=6, topic_id=bytes(15) + b"x") == ErrorCode.INCONSISTENT_TOPIC_ID
    )
    assert await replicas.lead(epoch=6, replicas=(1,)) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert replicas.manager.partition("t", 0).leader_epoch == 5


async def test_a_deleted_replica_is_gone_from_the_disk_and_the_metrics() -> None:
    replicas = Replicas()
    await replicas.lead()
    replicas.manager.partition("t", 0).cells.bytes_in.value += 1
    assert replicas.files.is_dir("/data/t-0")
    assert await replicas.stop(delete=True) == ErrorCode.NONE
    assert refused(replicas) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert not replicas.files.exists("/data/t-0")
    assert replicas.topics.bytes_in.snapshot().samples == []


async def test_a_stopped_replica_keeps_its_log_and_may_come_back() -> None:
    replicas = Replicas()
    await replicas.lead()
    log = replicas.manager.partition("t", 0).log
    assert await replicas.stop(delete=False) == ErrorCode.NONE
    await replicas.lead(epoch=1)
    assert replicas.manager.partition("t", 0).log is log


async def test_stopping_on_behalf_of_an_older_leader_is_refused() -> None:
    replicas = Replicas()
    await replicas.lead(epoch=3)
    assert await replicas.stop(delete=True, epoch=2) == ErrorCode.FENCED_LEADER_EPOCH
    assert replicas.manager.partition("t", 0).is_leader


async def test_the_log_of_an_older_topic_of_the_same_name_is_not_taken_over() -> None:
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


async def test_a_directory_that_fails_while_a_log_is_made_in_it_takes_the_replica_along() -> None:
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


async def test_a_broker_that_stops_does_not_lead_again_because_the_controller_repeats_itself() -> (
    None
):
    replicas, observer = Replicas(), Observer()
    replicas.manager.observe("t", observer)
    await replicas.lead(replicas=(0, 1), isr=(0, 1))
    replicas.manager.resign_all()
    assert await replicas.lead(replicas=(0, 1), isr=(0,)) == ErrorCode.BROKER_NOT_AVAILABLE
    assert not replicas.manager.partition("t", 0).is_leader
    assert observer.told == [("elected", 0), ("resigned", 0)]


async def test_a_leader_that_resigned_proposes_nothing_any_more() -> None:
    """Its in-sync set is its successor's business, who may have been elected already."""
    replicas = Replicas()
    await replicas.lead(replicas=(0, 1), isr=(0, 1))
    partition = replicas.manager.partition("t", 0)
    partition.in_sync.proposed = (0,)
    replicas.manager.log_dir_failed("/data")
    assert partition.in_sync.proposed is None
    assert partition.in_sync.followers == {}


async def test_what_a_full_request_does_not_name_is_set_aside() -> None:
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


async def test_nobody_leads_a_log_that_is_still_cut_for_the_leader_before() -> None:
    replicas = Replicas()
    await replicas.lead(leader=1, replicas=(0, 1), isr=(0, 1))
    partition = replicas.manager.partition("t", 0)
    cut = asyncio.Event()
    cutting = asyncio.create_task(cut.wait())
    (following,) = replicas.fetchers
    following.work = cutting  # type: ignore[assignment]
    leading = asyncio.create_task(replicas.lead(epoch=1, replicas=(0, 1), isr=(0, 1)))
    for _ in range(20):
        await asyncio.sleep(0)
    assert not partition.is_leader
    assert following.stopped
    cut.set()
    assert await leading == ErrorCode.NONE
    assert partition.is_leader
    assert list(replicas.fetchers) == []


async def test_a_partition_is_followed_in_each_epoch_anew_and_not_where_it_has_no_leader() -> None:
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
