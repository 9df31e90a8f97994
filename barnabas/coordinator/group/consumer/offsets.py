"""The members of consumer groups that commit and fetch offsets."""

from collections.abc import Iterable

from barnabas.coordinator.group.consumer.group import ConsumerGroup, ConsumerMember
from barnabas.protocol.errors import ErrorCode, KafkaError


def check_commit(
    group: ConsumerGroup,
    member_id: str,
    epoch: int,
    partitions: Iterable[tuple[bytes, int]],
    *,
    has_instance: bool,
    in_transaction: bool,
    knows_epochs: bool,
) -> None:
    """Check the member of a commit and its epoch.

    A commit in an earlier epoch counts for partitions that the member had by then, and still has
    (KIP-1251). Raises UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH, and UNSUPPORTED_VERSION for a version
    that knows generations only; such a commit in a transaction, or one of a classic member, is
    refused with ILLEGAL_GENERATION.
    """
    if epoch < 0 and not group.members:
        # A consumer that assigns partitions itself, or an administrator.
        return
    if in_transaction and epoch < 0 and not member_id and not has_instance:
        return
    member = group.require(member_id)
    if not knows_epochs and not in_transaction and member.classic is None:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            "OffsetCommit version 9 or above must be used by members using the modern group "
            "protocol",
        )
    if epoch == member.epoch:
        return
    if member.classic is not None:
        raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
    if epoch > member.epoch or not all(
        _had(member, topic_id, index, epoch) for topic_id, index in partitions
    ):
        raise KafkaError(
            ErrorCode.STALE_MEMBER_EPOCH if knows_epochs else ErrorCode.ILLEGAL_GENERATION
        )


def _had(member: ConsumerMember, topic_id: bytes, index: int, epoch: int) -> bool:
    since = member.assigned.get(topic_id, {}).get(index)
    if since is None:
        since = member.revoking.get(topic_id, {}).get(index)
    return since is not None and epoch >= since


def check_fetch(group: ConsumerGroup, member_id: str | None, epoch: int) -> None:
    """Check the member of a fetch and its epoch. Raises UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH,
    ILLEGAL_GENERATION."""
    if member_id is None and epoch < 0:
        return
    member = group.require(member_id or "")
    if epoch != member.epoch:
        raise KafkaError(
            ErrorCode.STALE_MEMBER_EPOCH if member.classic is None else ErrorCode.ILLEGAL_GENERATION
        )
