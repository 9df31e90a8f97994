"""The setting of a scenario: topics, records, group members. Its requests are not compared."""

import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from barnabas.protocol.codec import encode
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.internal.consumer_protocol import ConsumerProtocolSubscription
from barnabas.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from barnabas.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.protocol.messages.heartbeat import HeartbeatRequest
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from barnabas.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from barnabas.protocol.records.record import Record, build_batch
from tests.referee.scenario import Peer

NOW = int(time.time() * 1000)
"""The timestamp of the records that scenarios produce, equal on both brokers, in ms."""

OFFSET_FETCH_BATCHED = 8
"""The first version of OffsetFetch that asks for several groups."""


class Topic(NamedTuple):
    """An existing topic."""

    name: str
    id: bytes


def topic(
    s: Peer,
    suffix: str = "t",
    *,
    partitions: int = 1,
    configs: Mapping[str, str] | None = None,
) -> Topic:
    """Create a topic; return when all its partitions have a leader that serves."""
    name = s.name(suffix)
    created = s.do(
        CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name=name,
                    num_partitions=partitions,
                    replication_factor=1,
                    assignments=[],
                    configs=[
                        CreatableTopicConfig(name=key, value=value)
                        for key, value in (configs or {}).items()
                    ],
                )
            ]
        )
    )
    (result,) = created.topics
    assert result.error_code == 0, result
    wait_for_leaders(s, name, partitions)
    return Topic(name, result.topic_id)


def wait_for_leaders(s: Peer, name: str, partitions: int = 1) -> None:
    """Wait until the leader of each partition answers."""
    s.do(
        list_offsets(name, *((partition, -2) for partition in range(partitions))),
        until=lambda r: all(p.error_code == 0 for p in r.topics[0].partitions),
    )


def list_offsets(name: str, *wanted: tuple[int, int], **options: int) -> ListOffsetsRequest:
    """Return the request for `(partition, timestamp)` pairs of one topic."""
    partitions = [ListOffsetsPartition(partition_index=p, timestamp=t) for p, t in wanted]
    topics = [ListOffsetsTopic(name=name, partitions=partitions)]
    return ListOffsetsRequest(replica_id=-1, topics=topics, **options)


def batch(
    *values: bytes | None, key: bytes | None = None, since: int = NOW, **options: Any
) -> bytes:
    """Return one record batch whose records are one ms apart, from `since` on."""
    records = [Record(i, since + i, key, value, ()) for i, value in enumerate(values)]
    return build_batch(records, **options)


def produce(
    to: Topic,
    *data: bytes,
    acks: int = -1,
    partition: int = 0,
    transactional_id: str | None = None,
) -> ProduceRequest:
    """Return the request that produces batches to one partition, with the topic's name and id."""
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=10_000,
        topic_data=[
            TopicProduceData(
                name=to.name,
                topic_id=to.id,
                partition_data=[PartitionProduceData(index=partition, records=b"".join(data))],
            )
        ],
    )


def records(s: Peer, to: Topic, *values: bytes, partition: int = 0, **options: Any) -> None:
    """Write one batch and wait until it is committed."""
    answer = s.do(produce(to, batch(*values, **options), partition=partition))
    (written,) = answer.responses[0].partition_responses
    assert written.error_code == 0, written


def producer_id(s: Peer) -> tuple[int, int]:
    """Return the id and epoch of a new idempotent producer."""
    answer = s.do(
        InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000),
        until=lambda r: r.error_code == 0,
    )
    return answer.producer_id, answer.producer_epoch


def fetch(
    to: Topic,
    offset: int = 0,
    *,
    partition: int = 0,
    partition_max_bytes: int = 1_000_000,
    max_wait_ms: int = 0,
    min_bytes: int = 0,
    current_leader_epoch: int = -1,
    last_fetched_epoch: int = -1,
    **options: Any,
) -> FetchRequest:
    """Return the request that reads one partition."""
    wanted = FetchPartition(
        partition=partition,
        fetch_offset=offset,
        partition_max_bytes=partition_max_bytes,
        current_leader_epoch=current_leader_epoch,
        last_fetched_epoch=last_fetched_epoch,
    )
    topics = [FetchTopic(topic=to.name, topic_id=to.id, partitions=[wanted])]
    return FetchRequest(max_wait_ms=max_wait_ms, min_bytes=min_bytes, topics=topics, **options)


def commit(
    group: str,
    to: Topic,
    offset: int,
    *,
    partition: int = 0,
    metadata: str | None = "",
    member_id: str = "",
    generation: int = -1,
    **options: Any,
) -> OffsetCommitRequest:
    """Return the request that commits one offset."""
    partitions = [
        OffsetCommitRequestPartition(
            partition_index=partition, committed_offset=offset, committed_metadata=metadata
        )
    ]
    return OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        topics=[OffsetCommitRequestTopic(name=to.name, topic_id=to.id, partitions=partitions)],
        **options,
    )


def committed(s: Peer, group: str, to: Topic, offset: int, partition: int = 0) -> None:
    """Commit an offset of a group without members."""
    answer = s.do(commit(group, to, offset, partition=partition))
    assert answer.topics[0].partitions[0].error_code == 0, answer


def subscription(*topics: str, note: bytes = b"") -> bytes:
    """Return the metadata that a consumer sends; Kafka cannot serve a group with other metadata."""
    wanted = ConsumerProtocolSubscription(topics=list(topics), user_data=note)
    return b"\x00\x00" + encode(wanted, 0)


def join(
    group: str,
    member_id: str = "",
    *,
    protocols: Mapping[str, bytes] | None = None,
    protocol_type: str = "consumer",
    session_timeout_ms: int = 30_000,
    **options: Any,
) -> JoinGroupRequest:
    """Return the request by which a member joins, for the first time or again."""
    offered = protocols or {"range": subscription("t")}
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=30_000,
        member_id=member_id,
        protocol_type=protocol_type,
        protocols=[JoinGroupRequestProtocol(name=n, metadata=m) for n, m in offered.items()],
        **options,
    )


def sync(
    group: str,
    generation: int,
    member_id: str,
    assignments: Mapping[str, bytes] | None = None,
    *,
    protocol_type: str | None = "consumer",
    protocol_name: str | None = "range",
    **options: Any,
) -> SyncGroupRequest:
    """Return a member's request for its assignment; the leader sends all assignments."""
    return SyncGroupRequest(
        group_id=group,
        generation_id=generation,
        member_id=member_id,
        protocol_type=protocol_type,
        protocol_name=protocol_name,
        assignments=[
            SyncGroupRequestAssignment(member_id=m, assignment=a)
            for m, a in (assignments or {}).items()
        ],
        **options,
    )


class Member(NamedTuple):
    """A member of a group, and the generation it knows."""

    group: str
    id: str
    generation: int


def member_id(s: Peer, group: str, *, on: str = "setting", **options: Any) -> str:
    """Return the member id that the coordinator assigns; static members need none."""
    if "group_instance_id" in options:
        return ""
    first = s.do(join(group, **options), on=on)
    assert first.error_code == ErrorCode.MEMBER_ID_REQUIRED, first
    return str(first.member_id)


def member(s: Peer, suffix: str = "g", **options: Any) -> Member:
    """Return the only member of a stable group, its leader, whose assignment is b"mine"."""
    group = s.name(suffix)
    joined = s.do(join(group, member_id(s, group, **options), **options))
    assert joined.error_code == 0, joined
    mine = {joined.member_id: b"mine"}
    kind = options.get("protocol_type", "consumer")
    synced = s.do(sync(group, joined.generation_id, joined.member_id, mine, protocol_type=kind))
    assert synced.error_code == 0, synced
    return Member(group, joined.member_id, joined.generation_id)


def heartbeat(member: Member, instance: str | None = None) -> HeartbeatRequest:
    """Return a member's heartbeat."""
    return HeartbeatRequest(
        group_id=member.group,
        generation_id=member.generation,
        member_id=member.id,
        group_instance_id=instance,
    )


def offset_fetch(
    version: int,
    group: str,
    *wanted: tuple[Topic, list[int]] | None,
    require_stable: bool = False,
) -> OffsetFetchRequest:
    """Return the request for committed offsets in the shape of a version; None asks for all
    topics."""
    everything = wanted == (None,)
    named = [pair for pair in wanted if pair is not None]
    if version < OFFSET_FETCH_BATCHED:
        topics = [OffsetFetchRequestTopic(name=t.name, partition_indexes=p) for t, p in named]
        return OffsetFetchRequest(
            group_id=group,
            topics=None if everything else topics,
            require_stable=require_stable,
        )
    of_group = [
        OffsetFetchRequestTopics(name=t.name, topic_id=t.id, partition_indexes=p) for t, p in named
    ]
    asked = OffsetFetchRequestGroup(group_id=group, topics=None if everything else of_group)
    return OffsetFetchRequest(groups=[asked], require_stable=require_stable)


def delete(s: Peer, to: Topic) -> None:
    """Delete the topic; return when it is gone."""
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=to.name)], timeout_ms=10_000)
    answer = s.do(request)
    assert answer.responses[0].error_code == 0, answer
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    asked = MetadataRequest(
        topics=[MetadataRequestTopic(name=to.name)], allow_auto_topic_creation=False
    )
    s.do(asked, until=lambda r: r.topics[0].error_code == unknown)


def delete_records(to: Topic, before: int) -> DeleteRecordsRequest:
    """Return the request that moves the log start of partition 0 to an offset; -1 is the log
    end."""
    partition = DeleteRecordsPartition(partition_index=0, offset=before)
    topic = DeleteRecordsTopic(name=to.name, partitions=[partition])
    return DeleteRecordsRequest(topics=[topic], timeout_ms=10_000)
