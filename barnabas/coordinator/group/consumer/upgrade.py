"""A classic group becomes a consumer group when a member of the newer protocol joins (KIP-848).

Its members continue in the classic protocol, as members of the consumer group.
"""

from collections.abc import Sequence
from functools import partial

from barnabas.coordinator.decision import Instant
from barnabas.coordinator.group.consumer import records, sessions
from barnabas.coordinator.group.consumer.embedded import by_id, read_assignment, read_subscription
from barnabas.coordinator.group.consumer.group import ConsumerGroup, ConsumerMember, classic_part
from barnabas.coordinator.group.consumer.replay import replay
from barnabas.coordinator.group.consumer.topics import hash_of_topics
from barnabas.coordinator.group.draft import Draft
from barnabas.coordinator.group.group import Group, Member
from barnabas.coordinator.group.rebalance import end_timers
from barnabas.coordinator.group.records import GroupRecord
from barnabas.coordinator.group.states import GroupState
from barnabas.coordinator.group.table import GroupDecision, GroupTable
from barnabas.protocol.errors import ErrorCode, KafkaError, ProtocolError


def upgrade(draft: Draft, classic: Group) -> ConsumerGroup:
    """Return the consumer group that a classic group with members becomes. Raises
    GROUP_ID_NOT_FOUND."""
    table, group_id, epoch = draft.table, classic.group_id, classic.generation
    settings = table.settings_of(group_id)
    if not settings.migration_policy.upgrades:
        raise _refusal(classic, "online upgrade is disabled")
    if not classic.uses_consumer_protocol:
        raise _refusal(classic, "the group does not use the consumer embedded protocol")
    if len(classic.members) > settings.max_size:
        raise _refusal(classic, "the group size exceeds the consumer group maximum size")
    try:
        members = [_member(table, classic, each) for each in classic.members.values()]
    except ProtocolError:
        raise _refusal(classic, "the embedded consumer protocol is malformed") from None
    converted = [
        *(records.subscription(group_id, each) for each in members),
        records.group_epoch(group_id, epoch, _metadata_hash(table, classic, members)),
        *(records.target(group_id, each.member_id, each.assigned) for each in members),
        records.target_epoch(group_id, epoch),
        *(records.current(group_id, each) for each in members),
    ]
    draft.records += [GroupRecord(group_id, None), *converted]
    draft.whole = True
    draft.afterwards(partial(_upgraded, table, classic))
    groups: dict[str, ConsumerGroup] = {}
    for record in converted:
        replay(groups, record)
    return groups[group_id]


def _refusal(group: Group, reason: str) -> KafkaError:
    return KafkaError(
        ErrorCode.GROUP_ID_NOT_FOUND,
        f"Cannot upgrade classic group {group.group_id} to consumer group because {reason}.",
    )


def _member(table: GroupTable, group: Group, member: Member) -> ConsumerMember:
    """Return a member with its last assignment. Raises ProtocolError, GROUP_ID_NOT_FOUND."""
    # One that came after the protocol was chosen may not have it; all tell the same topics.
    subscription = read_subscription(
        member.metadata(group.protocol_name or "") or member.protocols[0][1]
    )
    assignment = read_assignment(member.assignment)
    if assignment.user_data:
        raise _refusal(
            group,
            "an unsupported custom assignor is in use. Please refer to the documentation or "
            "switch to a default assignor before re-attempting the upgrade",
        )
    return ConsumerMember(
        member.member_id,
        member.instance_id,
        subscription.rack_id,
        member.client_id,
        member.client_host,
        tuple(sorted(set(subscription.topics))),
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        classic=classic_part(member.session_timeout_ms, member.protocols),
        epoch=group.generation,
        previous_epoch=group.generation,
        assigned={
            topic_id: dict.fromkeys(indexes, group.generation)
            for topic_id, indexes in by_id(table.topics, assignment.assigned_partitions).items()
        },
    )


def _metadata_hash(table: GroupTable, classic: Group, members: Sequence[ConsumerMember]) -> int:
    """Return the hash of the subscribed topics; 0 if members have come or gone, or topics have
    grown, since the assignment. The next epoch begins then; Kafka 4.4 continues with it."""
    names = {name for each in members for name in each.topics}
    found = [topic for topic in map(table.topics.find, names) if topic is not None]
    wanted = {(topic.topic_id, index) for topic in found for index in range(topic.partitions)}
    assigned = {
        (topic_id, index)
        for each in members
        for topic_id, indexes in each.assigned.items()
        for index in indexes
    }
    if classic.state is not GroupState.STABLE or wanted - assigned:
        return 0
    return hash_of_topics(table.topics, names)


def _upgraded(
    table: GroupTable, classic: Group, error: KafkaError | None, now: Instant
) -> GroupDecision[None]:
    """Ask members whose requests wait to join again, and begin the sessions of all."""
    draft = Draft(table, now)
    group = table.consumers.get(classic.group_id)
    if error is not None or group is None:
        return draft.decision(None)
    end_timers(draft, classic)
    for member in classic.members.values():
        again = KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
        draft.answer_join(member, again)
        draft.answer_sync(member, again)
        if member.member_id in group.members:
            sessions.extend_session(draft, group, member.member_id)
    return draft.decision(None)
