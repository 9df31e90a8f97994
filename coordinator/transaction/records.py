"""Records of `__transaction_state`, as Apache Kafka 4.3 writes and reads them.

A key begins with an int16 that names its kind, 0 for a transactional id; a value begins with an
int16 version: 1 carries what `transaction.version` 1 and 2 add, in tags.
"""

from struct import Struct
from typing import Final, NamedTuple

from barnabas.coordinator.transaction.metadata import Transaction
from barnabas.coordinator.transaction.states import BY_NUMBER, TransactionState
from barnabas.protocol.codec import decode, encode
from barnabas.protocol.errors import ProtocolError
from barnabas.protocol.internal.transaction_log import (
    TRANSACTION_LOG_VALUE,
    PartitionsSchema,
    TransactionLogKey,
    TransactionLogValue,
)
from barnabas.protocol.topic_partition import by_topic

_VERSION: Final = Struct(">h")
_KIND: Final = 0
_KEY_PREFIX: Final = _VERSION.pack(_KIND)
_PLAIN: Final = 0
_FLEXIBLE: Final = 1


class TransactionRecord(NamedTuple):
    """What a transactional id has become, or that it expired (None).

    `flexible` in the newer format: where `transaction.version` allows it, or nothing less will do.
    """

    transactional_id: str
    value: Transaction | None
    flexible: bool = True


def encode_record(record: TransactionRecord) -> tuple[bytes, bytes | None]:
    """Key and value; a value of None is a tombstone."""
    key = _KEY_PREFIX + encode(TransactionLogKey(transactional_id=record.transactional_id), 0)
    if record.value is None:
        return key, None
    version = _FLEXIBLE if record.flexible else _PLAIN
    value = _value(record.value)
    if record.flexible:
        _tag(value, record.value)
    return key, _VERSION.pack(version) + encode(value, version)


def _value(txn: Transaction) -> TransactionLogValue:
    empty = txn.state is TransactionState.EMPTY
    return TransactionLogValue(
        producer_id=txn.producer_id,
        producer_epoch=txn.epoch,
        transaction_timeout_ms=txn.timeout_ms,
        transaction_status=txn.state.number,
        transaction_partitions=None if empty else _topics(txn),
        transaction_last_update_timestamp_ms=txn.updated_ms,
        transaction_start_timestamp_ms=txn.start_ms,
    )


def _tag(value: TransactionLogValue, txn: Transaction) -> None:
    value.previous_producer_id = txn.previous_producer_id
    value.next_producer_id = txn.next_producer_id
    value.next_producer_epoch = txn.next_epoch
    value.client_transaction_version = txn.client_version
    value.last_producer_epoch = txn.last_epoch


def _topics(txn: Transaction) -> list[PartitionsSchema]:
    return [
        PartitionsSchema(topic=topic, partition_ids=ids)
        for topic, ids in by_topic(sorted(txn.partitions)).items()
    ]


def decode_record(key: bytes, value: bytes | None) -> TransactionRecord | None:
    """The inverse; None for kinds that only a newer broker knows. Raises ProtocolError."""
    if _number(key) != _KIND:
        return None
    transactional_id = decode(TransactionLogKey, 0, key, _VERSION.size).transactional_id
    if value is None:
        return TransactionRecord(transactional_id, None)
    version = _number(value)
    if version not in TRANSACTION_LOG_VALUE.versions:
        raise ProtocolError(f"a transaction of version {version}, which is newer than this broker")
    stored = decode(TransactionLogValue, version, value, _VERSION.size)
    state = BY_NUMBER.get(stored.transaction_status)
    if state is None:
        raise ProtocolError(f"a transaction in state {stored.transaction_status}")
    return TransactionRecord(
        transactional_id,
        Transaction(
            transactional_id,
            stored.producer_id,
            stored.producer_epoch,
            stored.transaction_timeout_ms,
            stored.transaction_last_update_timestamp_ms,
            state,
            frozenset(
                (each.topic, partition)
                for each in stored.transaction_partitions or ()
                for partition in each.partition_ids
            ),
            stored.transaction_start_timestamp_ms,
            stored.last_producer_epoch,
            stored.client_transaction_version,
            stored.previous_producer_id,
            stored.next_producer_id,
            stored.next_producer_epoch,
        ),
        version >= _FLEXIBLE,
    )


def _number(data: bytes) -> int:
    if len(data) < _VERSION.size:
        raise ProtocolError("a record without its version")
    number: int = _VERSION.unpack_from(data)[0]
    return number
