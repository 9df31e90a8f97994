"""The way of a member from what it has to its target: revocation comes before assignment."""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from barnabas.coordinator.group.consumer.group import (
    NO_PARTITIONS,
    ConsumerMember,
    Partitions,
    Target,
)
from barnabas.coordinator.group.consumer.states import MemberState
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.consumer_group_heartbeat import TopicPartitions

_NONE: Final[frozenset[int]] = frozenset()
_NOTHING: Final[Mapping[int, int]] = {}
Owned = list[TopicPartitions] | None
"""The partitions that a member still uses; None if it does not tell."""


def require_known_state(member: ConsumerMember, owned: Owned) -> None:
    """Raise FENCED_MEMBER_EPOCH for a member in a state that only a newer broker knows, unless it
    uses nothing."""
    if member.state is MemberState.UNKNOWN and (owned is None or owned):
        raise KafkaError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            "The consumer group member is in a unknown state. The member must abandon all its "
            "partitions and rejoin.",
        )


def reconciled(
    member: ConsumerMember,
    target: Target,
    target_epoch: int,
    owned: Owned,
    is_free: Callable[[bytes, int], bool],
    subscribed: Callable[[bytes], bool],
    *,
    has_changed: bool = False,
) -> ConsumerMember:
    """Return the member after a step towards that part of its target to which it subscribes: there
    may be no target yet for its present subscription.

    If its subscription `has_changed`, it loses what it no longer subscribes to at once.
    """
    if member.state is MemberState.UNREVOKED_PARTITIONS:
        if owned is None or _uses(owned, member.revoking):
            return _unsubscribed(member, owned, subscribed) if has_changed else member
    elif member.is_at(target_epoch):
        return _unsubscribed(member, owned, subscribed) if has_changed else member
    return _towards(member, target, target_epoch, owned, is_free, subscribed)


def _towards(
    member: ConsumerMember,
    target: Target,
    target_epoch: int,
    owned: Owned,
    is_free: Callable[[bytes, int], bool],
    subscribed: Callable[[bytes], bool],
) -> ConsumerMember:
    assigned: dict[bytes, dict[int, int]] = {}
    revoked: dict[bytes, dict[int, int]] = {}
    unreleased = False
    missing: dict[bytes, list[int]] = {}
    for topic_id in dict.fromkeys((*target, *member.assigned)):
        wanted = target.get(topic_id, _NONE) if subscribed(topic_id) else _NONE
        has = member.assigned.get(topic_id, _NOTHING)
        if has:
            _divide(topic_id, has, wanted, assigned, revoked)
        for index in wanted:
            if index not in has:
                if is_free(topic_id, index):
                    missing.setdefault(topic_id, []).append(index)
                else:
                    unreleased = True
    if revoked and (owned is None or _uses(owned, revoked)):
        return member.moved(
            epoch=member.epoch,
            previous_epoch=member.epoch,
            state=MemberState.UNREVOKED_PARTITIONS,
            assigned=assigned,
            revoking=revoked,
        )
    for topic_id, indexes in missing.items():
        assigned.setdefault(topic_id, {}).update(dict.fromkeys(indexes, target_epoch))
    return member.moved(
        previous_epoch=member.epoch,
        epoch=target_epoch,
        state=MemberState.UNRELEASED_PARTITIONS if unreleased else MemberState.STABLE,
        assigned=assigned,
        revoking=NO_PARTITIONS,
    )


def _unsubscribed(
    member: ConsumerMember, owned: Owned, subscribed: Callable[[bytes], bool]
) -> ConsumerMember:
    """Return the member without partitions of topics to which it no longer subscribes."""
    assigned: dict[bytes, dict[int, int]] = {}
    lost: dict[bytes, dict[int, int]] = {}
    for topic_id, has in member.assigned.items():
        (assigned if subscribed(topic_id) else lost)[topic_id] = dict(has)
    if not lost:
        return member
    # What it may still use stays its own until it says otherwise.
    revoking = {topic_id: dict(epochs) for topic_id, epochs in member.revoking.items()}
    if owned is None or _uses(owned, lost):
        for topic_id, epochs in lost.items():
            revoking.setdefault(topic_id, {}).update(epochs)
    if not revoking:
        return member._replace(previous_epoch=member.epoch, assigned=assigned)
    return member._replace(
        state=MemberState.UNREVOKED_PARTITIONS,
        previous_epoch=member.epoch,
        assigned=assigned,
        revoking=revoking,
    )


def _divide(
    topic_id: bytes,
    has: Mapping[int, int],
    wanted: frozenset[int],
    kept: dict[bytes, dict[int, int]],
    lost: dict[bytes, dict[int, int]],
) -> None:
    for index, epoch in has.items():
        into = kept if index in wanted else lost
        into.setdefault(topic_id, {})[index] = epoch


def _uses(owned: Iterable[TopicPartitions], partitions: Partitions) -> bool:
    """Return whether some of the partitions are among those that a member still uses."""
    return any(
        not partitions[each.topic_id].keys().isdisjoint(each.partitions)
        for each in owned
        if each.topic_id in partitions
    )


def is_subset(owned: Owned, assigned: Partitions) -> bool:
    """Return whether a member tells what it uses, and all of that is assigned to it."""
    return owned is not None and all(
        assigned.get(each.topic_id, {}).keys() >= set(each.partitions) for each in owned
    )
