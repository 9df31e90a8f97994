"""The description of consumer groups for tools."""

from barnabas.coordinator.group.consumer.group import ConsumerGroup, ConsumerMember, Partitions
from barnabas.coordinator.group.table import GroupTable
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.consumer_group_describe import (
    Assignment,
    DescribedGroup,
    Member,
    TopicPartitions,
)
from barnabas.protocol.steps import Steps

_CLASSIC, _CONSUMER = 0, 1
"""Types of members (KIP-1099)."""


def describe(table: GroupTable, group_id: str) -> Steps[DescribedGroup]:
    """Return the steps that describe a group as it is now; raises GROUP_ID_NOT_FOUND."""
    group = table.consumers.get(group_id)
    if not group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID)
    if group is None:
        text = "is not a consumer group." if group_id in table.groups else "not found."
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {text}")
    described = DescribedGroup(
        group_id=group_id,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.assignor(table.settings_of(group_id).assignors),
    )
    return _describe_members(table, described, group, list(group.members.values()))


def _describe_members(
    table: GroupTable,
    described: DescribedGroup,
    group: ConsumerGroup,
    members: list[ConsumerMember],
) -> Steps[DescribedGroup]:
    targets = dict(group.targets)
    for member in members:
        yield None
        target = targets.get(member.member_id, {})
        described.members.append(
            Member(
                member_id=member.member_id,
                instance_id=member.instance_id,
                rack_id=member.rack_id,
                member_epoch=member.epoch,
                client_id=member.client_id,
                client_host=member.client_host,
                subscribed_topic_names=list(member.topics),
                subscribed_topic_regex=member.expression,
                assignment=_assignment(table, member.used),
                target_assignment=_assignment(
                    table, {topic_id: dict.fromkeys(target[topic_id], 0) for topic_id in target}
                ),
                member_type=_CONSUMER if member.classic is None else _CLASSIC,
            )
        )
    return described


def _assignment(table: GroupTable, partitions: Partitions) -> Assignment:
    """Return the partitions of topics that still exist."""
    found = []
    for topic_id, indexes in partitions.items():
        name = table.topics.name_of(topic_id)
        if name is not None:
            found.append(
                TopicPartitions(topic_id=topic_id, topic_name=name, partitions=sorted(indexes))
            )
    return Assignment(topic_partitions=found)
