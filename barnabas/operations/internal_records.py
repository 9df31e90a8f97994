"""The records of `__consumer_offsets` and `__transaction_state` as JSON objects."""

from typing import Any, Final

from barnabas.client.groups.protocol import read_assignment, read_subscription
from barnabas.coordinator.group.consumer.records import EXPRESSION, ConsumerGroupRecord
from barnabas.coordinator.group.records import GroupRecord, OffsetRecord
from barnabas.coordinator.group.records import decode_record as decode_group_record
from barnabas.coordinator.transaction.metadata import TransactionMetadata
from barnabas.coordinator.transaction.records import TransactionRecord
from barnabas.coordinator.transaction.records import decode_record as decode_transaction_record
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
_CONSUMER_GROUP_KINDS: Final = {
    3: "consumer group",
    4: "consumer group topics",
    5: "consumer group member",
    6: "consumer group target epoch",
    7: "consumer group target",
    8: "consumer group assignment",
    16: "consumer group expression",
}


def fields(topic: str, key: bytes | None, value: bytes | None) -> dict[str, Any]:
    """Return a record as its `kind`, `key` and `value`, or with the `error` of a damaged one."""
    try:
        record = DECODERS[topic](key or b"", value)
    except ProtocolError as error:
        return {"error": str(error)}
    return {"kind": "unknown"} if record is None else _fields(record)


def _fields(
    record: OffsetRecord | GroupRecord | ConsumerGroupRecord | TransactionRecord,
) -> dict[str, Any]:
    match record:
        case OffsetRecord(group, topic, partition, committed):
            key = {"group": group, "topic": topic, "partition": partition}
            value = None
            if committed is not None:
                value = {
                    "offset": committed.offset,
                    "leader_epoch": committed.leader_epoch,
                    "metadata": committed.metadata,
                    "commit_timestamp_ms": committed.commit_timestamp,
                    "expire_timestamp_ms": committed.expire_timestamp,
                    "topic_id": uuid_text(committed.topic_id),
                }
            return {"kind": "offset", "key": key, "value": value}
        case GroupRecord(group, state):
            return {"kind": "group", "key": {"group": group}, "value": _group(state)}
        case ConsumerGroupRecord(kind, group, name, of_consumers):
            key = {"group": group}
            if name:
                key["expression" if kind == EXPRESSION else "member"] = name
            named = _CONSUMER_GROUP_KINDS[kind]
            return {"kind": named, "key": key, "value": _plain(of_consumers)}
        case TransactionRecord(transactional_id, txn):
            key = {"transactional_id": transactional_id}
            return {"kind": "transaction", "key": key, "value": _transaction(txn)}


def _plain(value: Any) -> Any:
    """Return a message of a record as JSON: topic ids as text."""
    if isinstance(value, ProtocolMessage):
        return {each.name: _plain(getattr(value, each.name)) for each in fields_of(type(value))}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, bytes):
        return uuid_text(value) if len(value) == len(ZERO_UUID) else value.hex()
    return value


def _group(state: GroupMetadataValue | None) -> dict[str, Any] | None:
    if state is None:
        return None
    return {
        "protocol_type": state.protocol_type,
        "generation": state.generation,
        "assignor": state.protocol,
        "leader": state.leader,
        "timestamp_ms": state.current_state_timestamp,
        "members": [_member(each, state.protocol_type) for each in state.members],
    }


def _member(member: MemberMetadata, protocol_type: str) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "member": member.member_id,
        "instance": member.group_instance_id,
        "client_id": member.client_id,
        "host": member.client_host,
        "rebalance_timeout_ms": member.rebalance_timeout,
        "session_timeout_ms": member.session_timeout,
    }
    fields |= {"topics": None, "assigned": None, "error": None}
    if protocol_type == "consumer":
        try:
            fields["topics"] = list(read_subscription(member.subscription).topics)
            assigned = read_assignment(member.assignment)
            fields["assigned"] = [f"{topic}:{partition}" for topic, partition in assigned]
        except ProtocolError as error:
            fields["error"] = str(error)
    return fields


def _transaction(txn: TransactionMetadata | None) -> dict[str, Any] | None:
    if txn is None:
        return None
    return {
        "producer_id": txn.producer_id,
        "epoch": txn.epoch,
        "last_epoch": txn.last_epoch,
        "state": txn.state.value,
        "timeout_ms": txn.timeout_ms,
        "start_ms": txn.start_ms,
        "updated_ms": txn.updated_ms,
        "partitions": [f"{topic}:{partition}" for topic, partition in sorted(txn.partitions)],
        "client_transaction_version": txn.client_version,
        "previous_producer_id": txn.previous_producer_id,
        "next_producer_id": txn.next_producer_id,
        "next_epoch": txn.next_epoch,
        "owner": txn.owner,
    }
