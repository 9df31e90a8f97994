"""The removal of members from a consumer group."""

from collections.abc import Sequence

from barnabas.coordinator.group.consumer import records
from barnabas.coordinator.group.consumer.downgrade import downgrade, may_downgrade
from barnabas.coordinator.group.consumer.group import (
    LEAVE_STATIC,
    NO_PARTITIONS,
    ConsumerGroup,
    ConsumerMember,
    Partitions,
)
from barnabas.coordinator.group.consumer.topics import hash_of_topics
from barnabas.coordinator.group.draft import Draft
from barnabas.coordinator.group.table import named


def fence(
    draft: Draft, group: ConsumerGroup, members: Sequence[ConsumerMember], why: str = "leaves"
) -> None:
    """Remove members; the group moves to its next epoch without them, or becomes a classic one."""
    gone = {each.member_id for each in members}
    kept = [each for each in group.members.values() if each.member_id not in gone]
    if may_downgrade(draft.table, group, kept):
        downgrade(draft, group, kept)
        return
    for member in members:
        forget(draft, group.group_id, member.member_id)
    used = {each.expression for each in kept}
    for member in members:
        if member.expression in group.expressions and member.expression not in used:
            used.add(member.expression)
            draft.records.append(
                records.tombstone(records.EXPRESSION, group.group_id, member.expression)
            )
    names = {name for each in kept for name in group.topics_of(each)}
    metadata_hash = hash_of_topics(draft.table.topics, names)
    epoch = group.epoch + 1
    reason = f"{named([each.member_id for each in members])} {why}"
    draft.begin_epoch(group.group_id, epoch, metadata_hash, reason)
    if not kept:
        draft.records.append(records.target_epoch(group.group_id, epoch))


def forget(draft: Draft, group_id: str, member_id: str) -> None:
    """Delete the records of a member."""
    for kind in (records.CURRENT, records.TARGET, records.MEMBER):
        draft.records.append(records.tombstone(kind, group_id, member_id))


def away(member: ConsumerMember) -> ConsumerMember:
    """Return a static member that leaves and comes back: it keeps its partitions, which no longer
    have the epochs in which it got them."""
    return member._replace(
        epoch=LEAVE_STATIC,
        assigned=_without_epochs(member.assigned),
        revoking=NO_PARTITIONS,
    )


def _without_epochs(partitions: Partitions) -> Partitions:
    return {topic_id: dict.fromkeys(indexes, 0) for topic_id, indexes in partitions.items()}
