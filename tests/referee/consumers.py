"""Members of consumer groups in scenarios (KIP-848)."""

from typing import Any

from barnabas.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from barnabas.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.referee import given
from tests.referee.given import Topic
from tests.referee.scenario import Peer


def beat(group: str, member: str, epoch: int, **fields: Any) -> ConsumerGroupHeartbeatRequest:
    """Return a heartbeat that tells nothing else."""
    return ConsumerGroupHeartbeatRequest(
        group_id=group, member_id=member, member_epoch=epoch, **fields
    )


def join(
    group: str, member: str, *topics: str | Topic, **fields: Any
) -> ConsumerGroupHeartbeatRequest:
    """Return the heartbeat of a member that joins."""
    names = [each.name if isinstance(each, Topic) else each for each in topics]
    told: dict[str, Any] = {
        "subscribed_topic_names": names,
        "rebalance_timeout_ms": 30_000,
        "topic_partitions": [],
    }
    return beat(group, member, 0, **told | fields)


def owned(response: Any) -> list[TopicPartitions]:
    """Return the partitions of an answer, as a member tells them."""
    return list(response.assignment.topic_partitions)


def describe(*groups: str, **options: bool) -> ConsumerGroupDescribeRequest:
    return ConsumerGroupDescribeRequest(
        group_ids=list(groups), **{"include_authorized_operations": False} | options
    )


def topic(s: Peer, suffix: str = "t", partitions: int = 1) -> Topic:
    """Create a topic; return when it is assigned: in Kafka later than when its leaders answer."""
    made = given.topic(s, suffix, partitions=partitions)
    group = s.name(f"probe-{suffix}")

    def has_all(answer: Any) -> bool:
        assert answer.error_code == 0, answer
        s.do(beat(group, "m", -1))
        return bool(answer.assignment.topic_partitions)

    s.do(join(group, "m", made), until=has_all)
    return made


def name_topics(s: Peer, *topics: Topic) -> None:
    """Let the ids of several topics appear in a fixed order: answers have that of a hash."""
    for each in topics:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=each.name)])
        s.ask(request, pick=lambda r: r.topics[0])


def stable(s: Peer, group: str, member: str, *topics: str | Topic, **fields: Any) -> Any:
    """Let a member join as part of the setting; return the answer."""
    answer = s.do(join(group, member, *topics, **fields))
    assert answer.error_code == 0, answer
    return answer
