"""The metadata cache applies the controller's updates."""

from barnabas.broker.cluster.cache import FULL, LEADER_DURING_DELETE, MetadataCache
from barnabas.protocol.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from barnabas.protocol.steps import at_once
from barnabas.protocol.types import ZERO_UUID
from tests.support.steps import taken


def update(
    *topics: tuple[str, int, list[int]], kind: int = 1, leader: int = 1
) -> UpdateMetadataRequest:
    """Return an update with topics as tuples of name, first byte of the id, and partitions."""
    return UpdateMetadataRequest(
        controller_id=1,
        controller_epoch=1,
        type=kind,
        topic_states=[
            UpdateMetadataTopicState(
                topic_name=name,
                topic_id=bytes([number]) * 16,
                partition_states=[
                    UpdateMetadataPartitionState(
                        partition_index=index,
                        controller_epoch=1,
                        leader=leader,
                        leader_epoch=3,
                        isr=[1],
                        zk_version=2,
                        replicas=[1, 2],
                        offline_replicas=[2],
                    )
                    for index in partitions
                ],
            )
            for name, number, partitions in topics
        ],
        live_brokers=[
            UpdateMetadataBroker(
                id=1,
                rack="r",
                endpoints=[UpdateMetadataEndpoint(host="h", port=9, listener="L")],
            )
        ],
    )


def test_only_a_full_update_makes_it_ready() -> None:
    cache = MetadataCache("c")
    taken(cache.apply(update()))
    assert not cache.ready
    taken(cache.apply(update(kind=FULL)))
    assert cache.ready


def test_incremental_update_adds_and_full_update_replaces() -> None:
    cache = MetadataCache("c")
    taken(cache.apply(update(("a", 1, [0]), ("b", 2, [0, 1]))))
    taken(cache.apply(update(("b", 2, [2]))))
    assert {name: list(topic.partitions) for name, topic in cache.topics.items()} == {
        "a": [0],
        "b": [0, 1, 2],
    }
    taken(cache.apply(update(("c", 3, [0]), kind=FULL)))
    assert list(cache.topics) == ["c"]
    assert cache.topic_by_id(bytes([1]) * 16) is None
    assert cache.topic_name(bytes([3]) * 16) == "c"


def test_topics_without_ids_are_not_found_by_the_zero_id() -> None:
    """Kafka's brokers before topic ids (KIP-516) made topics that have none."""
    cache = MetadataCache("c")
    taken(cache.apply(update(("a", 0, [0]), ("b", 0, [0]))))
    assert cache.topic_name(ZERO_UUID) is None
    taken(cache.apply(update(("a", 0, [0]), ("b", 0, [0]), leader=LEADER_DURING_DELETE)))
    assert not cache.topics


def test_partition_has_all_its_fields() -> None:
    cache = MetadataCache("c")
    taken(cache.apply(update(("a", 1, [0]))))
    partition = cache.partition("a", 0)
    assert partition is not None
    assert (partition.leader, partition.leader_epoch, partition.partition_epoch) == (1, 3, 2)
    assert (partition.isr, partition.replicas, partition.offline_replicas) == ((1,), (1, 2), (2,))
    assert cache.partition("a", 1) is None
    assert cache.partition("b", 0) is None
    assert cache.endpoint(1, "L") == ("h", 9)
    assert cache.endpoint(1, "M") is None
    assert cache.endpoint(2, "L") is None


def test_partitions_out_of_sync_are_those_with_a_replica_outside_the_isr() -> None:
    cache = MetadataCache("c")
    taken(cache.apply(update(("a", 1, [0, 1]), ("b", 2, [0]))))
    assert at_once(cache.out_of_sync(1)) == [], "it is in every ISR"
    assert at_once(cache.out_of_sync(2)) == ["a-0", "a-1", "b-0"]
    assert at_once(cache.out_of_sync(3)) == [], "it has no replica"


def test_topic_goes_with_its_last_partition() -> None:
    cache = MetadataCache("c")
    taken(cache.apply(update(("a", 1, [0, 1]))))
    taken(cache.apply(update(("a", 1, [0]), leader=LEADER_DURING_DELETE)))
    assert list(cache.topics["a"].partitions) == [1]
    taken(cache.apply(update(("a", 1, [1]), leader=LEADER_DURING_DELETE)))
    assert not cache.topics
    assert cache.topic_name(bytes([1]) * 16) is None


def test_name_with_another_id_is_another_topic() -> None:
    cache = MetadataCache("c")
    taken(cache.apply(update(("a", 1, [0, 1]))))
    taken(cache.apply(update(("a", 2, [0]))))
    assert list(cache.topics["a"].partitions) == [0]
    assert cache.topic_name(bytes([1]) * 16) is None


def test_listeners_are_called_at_every_update() -> None:
    cache = MetadataCache("c")
    heard: list[int] = []
    cache.on_change(lambda: heard.append(len(cache.topics)))
    taken(cache.apply(update(("a", 1, [0]))))
    taken(cache.apply(update(("b", 2, [0]))))
    assert heard == [1, 2]
