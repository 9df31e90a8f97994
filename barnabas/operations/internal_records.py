"""The records of `__consumer_offsets` and `__transaction_state` as JSON objects."""

from typing import Any, Final

from barnabas.client.groups.protocol import read_assignment, read_subscription
from barnabas.coordinator.group.consumer.records import EXPRESSION, ConsumerGroupRecord
from barnabas.coordinator.group.records import GroupRecord, OffsetAndMetadata, OffsetRecord
from barnabas.coordinator.group.records import decode_record as decode_group_record
from barnabas.coordinator.transaction.metadata import TransactionMetadata
from barnabas.coordinator.transaction.records import TransactionRecord
from barnabas.coordinator.transaction.records import decode_record as decode_transaction_record
from barnabas.operations.answers import records
from barnabas.protocol.errors import ProtocolError
from barnabas.protocol.internal.group_metadata import GroupMetadataValue, MemberMetadata
from barnabas.protocol.schema import Message as ProtocolMessage
from barnabas.protocol.schema import fields_of
from barnabas.protocol.types import ZERO_UUID, uuid_text

DECODERS: Final = {
    "__consumer_offsets": decode_group_record,
    "__transaction_state": decode_transaction_record,
}
"""The function that decodes key and value, by topic."""


def decoded(
    place: tuple[str, int, int, int], key: bytes | None, value: bytes | None
) -> records.Place:
    """Return a record with its `kind`, `key` and `value`, or with the `error` of a damaged one.

    `place` is topic, partition, offset and timestamp.
    """
    try:
        record = DECODERS[place[0]](key or b"", value)
    except ProtocolError as error:
        return records.DamagedRecord(*place, error=str(error))
    match record:
        case OffsetRecord(group, topic, partition, committed):
            offset_key = records.OffsetKey(group=group, topic=topic, partition=partition)
            offset = None if committed is None else _offset(committed)
            return records.OffsetRecord(*place, kind="offset", key=offset_key, value=offset)
        case GroupRecord(group, state):
            group_key = records.GroupKey(group=group)
            stored = None if state is None else _group(state)
            return records.GroupRecord(*place, kind="group", key=group_key, value=stored)
        case ConsumerGroupRecord(kind, group, name, of_consumers):
            return records.ConsumerGroupRecord(
                *place,
                kind=records.CONSUMER_GROUP_KINDS[kind],
                key=records.ConsumerGroupKey(
                    group=group,
                    member=None if kind == EXPRESSION else name or None,
                    expression=name if kind == EXPRESSION else None,
                ),
                value=_plain(of_consumers),
            )
        case TransactionRecord(transactional_id, txn):
            id_key = records.TransactionKey(transactional_id=transactional_id)
            latest = None if txn is None else _transaction(txn)
            return records.TransactionRecord(*place, kind="transaction", key=id_key, value=latest)
    return records.UnknownRecord(*place, kind="unknown")


def _offset(committed: OffsetAndMetadata) -> records.CommittedOffset:
    return records.CommittedOffset(
        offset=committed.offset,
        leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        commit_timestamp_ms=committed.commit_timestamp,
        expire_timestamp_ms=committed.expire_timestamp,
        topic_id=uuid_text(committed.topic_id),
    )


def _plain(value: Any) -> Any:
    """Return a message of a record as JSON; topic ids are text."""
    if isinstance(value, ProtocolMessage):
        return {each.name: _plain(getattr(value, each.name)) for each in fields_of(type(value))}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, bytes):
        return uuid_text(value) if len(value) == len(ZERO_UUID) else value.hex()
    return value


def _group(state: GroupMetadataValue) -> records.StoredGroup:
    return records.StoredGroup(
        protocol_type=state.protocol_type,
        generation=state.generation,
        assignor=state.protocol,
        leader=state.leader,
        timestamp_ms=state.current_state_timestamp,
        members=[_member(each, state.protocol_type) for each in state.members],
    )


def _member(member: MemberMetadata, protocol_type: str) -> records.StoredMember:
    topics = assigned = error = None
    if protocol_type == "consumer":
        try:
            topics = list(read_subscription(member.subscription).topics)
            partitions = read_assignment(member.assignment)
            assigned = [f"{topic}:{partition}" for topic, partition in partitions]
        except ProtocolError as unreadable:
            error = str(unreadable)
    return records.StoredMember(
        member=member.member_id,
        instance=member.group_instance_id,
        client_id=member.client_id,
        host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout,
        session_timeout_ms=member.session_timeout,
        topics=topics,
        assigned=assigned,
        error=error,
    )


def _transaction(txn: TransactionMetadata) -> records.StoredTransaction:
    return records.StoredTransaction(
        producer_id=txn.producer_id,
        epoch=txn.epoch,
        last_epoch=txn.last_epoch,
        state=txn.state.value,
        timeout_ms=txn.timeout_ms,
        start_ms=txn.start_ms,
        updated_ms=txn.updated_ms,
        partitions=[f"{topic}:{partition}" for topic, partition in sorted(txn.partitions)],
        client_transaction_version=txn.client_version,
        previous_producer_id=txn.previous_producer_id,
        next_producer_id=txn.next_producer_id,
        next_epoch=txn.next_epoch,
        owner=txn.owner,
    )
