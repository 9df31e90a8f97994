"""What the controller says of replicas: led, followed, stopped, deleted, fenced."""

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


async def test_strays_are_set_aside() -> None:
    replicas = Replicas()
    await replicas.lead()
    replicas.manager.set_strays_aside()
    assert replicas.logs.get("t", 0) is None
    assert any(name.endswith("-stray") for name in replicas.files.listdir("/data"))
