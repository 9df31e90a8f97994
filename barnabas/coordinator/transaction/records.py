"""Records of `__transaction_state`, as Apache Kafka 4.4 writes and reads them.

A key begins with an int16 that names its kind, 0 for a transactional id; a value begins with an
int16 version: 1 carries what `transaction.version` 1 and 2 add, in tags.
"""

from collections.abc import Callable
from functools import lru_cache
from struct import Struct
from typing import Any, Final, NamedTuple

from barnabas.coordinator.transaction.metadata import (
    NO_EPOCH,
    NO_PRODUCER_ID,
    Producer,
    TransactionMetadata,
)
from barnabas.coordinator.transaction.states import BY_NUMBER, TransactionState
from barnabas.protocol.codec import decode_prefix, encode
from barnabas.protocol.errors import ProtocolError
from barnabas.protocol.internal.transaction_log import (
    TRANSACTION_LOG_VALUE,
    PartitionsSchema,
    TransactionLogKey,
    TransactionLogValue,
)
from barnabas.protocol.topic_partition import TopicPartition, by_topic

_VERSION: Final = Struct(">h")
_KIND: Final = 0
_KEY_PREFIX: Final = _VERSION.pack(_KIND)
_PLAIN: Final = 0
_FLEXIBLE: Final = 1
_EPOCH: Final = Struct(">h")
_TIMES: Final = Struct(">qq")
_MARKS: Final = (0x0102, 0x0304)
"""Values of epochs and times, by whose difference their places are found."""
_PLACES: Final = 6
"""The bytes in which an epoch and two times differ."""
FEW: Final = 8
"""The partitions of a transaction up to which its values are made from a template."""
_TEMPLATES: Final = 4096
"""The number of templates in memory: each transaction writes three values."""
_KEYS: Final = 1024
"""The number of encoded keys in memory: each transaction writes three records of its id."""


class TransactionRecord(NamedTuple):
    """A step of a transactional id, or None for an id that expired.

    `flexible` is the newer format: used if `transaction.version` allows it, or if the older one
    has no field for a value.
    """

    transactional_id: str
    value: TransactionMetadata | None
    flexible: bool = True


def encode_record(record: TransactionRecord) -> tuple[bytes, bytes | None]:
    """Return key and value; a value of None is a tombstone."""
    transactional_id, txn, flexible = record
    key = key_of(transactional_id)
    if txn is None:
        return key, None
    if len(txn.partitions) > FEW:
        return key, encode_value(txn, flexible=flexible)
    return key, template_of(txn, flexible=flexible).value(txn[2], txn[4], txn[7], txn[8])


class ValueTemplate(NamedTuple):
    """The bytes of a value that repeat in the next transactions of an id, around its epochs and
    its times."""

    pack: Callable[..., bytes]
    head: bytes
    middle: bytes
    tail: bytes
    has_last_epoch: bool
    end: bytes

    def value(self, epoch: int, updated_ms: int, start_ms: int, last_epoch: int) -> bytes:
        """Return the value with these epochs and times."""
        pack, head, middle, tail, has_last_epoch, end = self
        if has_last_epoch:
            return pack(head, epoch, middle, updated_ms, start_ms, tail, last_epoch, end)
        return pack(head, epoch, middle, updated_ms, start_ms, tail)


def template_of(txn: TransactionMetadata, *, flexible: bool) -> ValueTemplate:
    """Return the template of the value of a transaction with at most `FEW` partitions."""
    (_, producer_id, _, timeout_ms, _, state, partitions, _, last_epoch,
     version, previous_id, next_id, next_epoch, ended, owner) = txn  # fmt: skip
    return _template(
        flexible, producer_id, timeout_ms, state, partitions, last_epoch == NO_EPOCH,
        version, previous_id, next_id, next_epoch, ended, owner,
    )  # fmt: skip


@lru_cache(maxsize=_TEMPLATES)
def _template(
    flexible: bool,
    producer_id: int,
    timeout_ms: int,
    state: TransactionState,
    partitions: frozenset[TopicPartition],
    lacks_last_epoch: bool,
    *rest: Any,
) -> ValueTemplate:
    """Return the template of the values that have these fields."""
    first, second = (
        encode_value(
            TransactionMetadata(
                "", producer_id, mark, timeout_ms, mark, state, partitions, mark,
                NO_EPOCH if lacks_last_epoch else mark, *rest,
            ),
            flexible=flexible,
        )
        for mark in _MARKS
    )  # fmt: skip
    # Marks differ in all bytes of an epoch, and in the last two bytes of a time.
    places = [at for at, byte in enumerate(first) if byte != second[at]]
    epoch, times = places[0], places[3] + 1 - _TIMES.size // 2
    after = times + _TIMES.size
    head, middle = first[:epoch], first[epoch + _EPOCH.size : times]
    if len(places) == _PLACES:
        tail, end = first[after:], b""
        pack = Struct(f">{len(head)}sh{len(middle)}sqq{len(tail)}s").pack
    else:
        last_epoch = places[_PLACES]
        tail, end = first[after:last_epoch], first[last_epoch + _EPOCH.size :]
        pack = Struct(f">{len(head)}sh{len(middle)}sqq{len(tail)}sh{len(end)}s").pack
    return ValueTemplate(pack, head, middle, tail, len(places) > _PLACES, end)


def encode_value(txn: TransactionMetadata, *, flexible: bool) -> bytes:
    """Return the value of a transactional id, by the encoder of messages."""
    version = _FLEXIBLE if flexible else _PLAIN
    value = _value(txn)
    if flexible:
        _tag(value, txn)
    return _VERSION.pack(version) + encode(value, version)


@lru_cache(maxsize=_KEYS)
def key_of(transactional_id: str) -> bytes:
    return _KEY_PREFIX + encode(TransactionLogKey(transactional_id=transactional_id), 0)


def _value(txn: TransactionMetadata) -> TransactionLogValue:
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


def _tag(value: TransactionLogValue, txn: TransactionMetadata) -> None:
    value.previous_producer_id = txn.previous_producer_id
    value.next_producer_id = txn.next_producer_id
    value.next_producer_epoch = txn.next_epoch
    value.client_transaction_version = txn.client_version
    value.last_producer_epoch = txn.last_epoch
    if txn.ended is not None:
        value.ended_producer_id, value.ended_producer_epoch = txn.ended
    value.principal = txn.owner


def _topics(txn: TransactionMetadata) -> list[PartitionsSchema]:
    # Sorting numbers costs a tenth of sorting partitions.
    topics = by_topic(txn.partitions)
    return [
        PartitionsSchema(topic=topic, partition_ids=sorted(topics[topic]))
        for topic in sorted(topics)
    ]


def decode_record(key: bytes, value: bytes | None) -> TransactionRecord | None:
    """Return the record; None for kinds that only a newer broker knows. Raises ProtocolError.

    Bytes behind the known fields are skipped, as in Kafka.
    """
    transactional_id = decode_key(key)
    if transactional_id is None:
        return None
    if value is None:
        return TransactionRecord(transactional_id, None)
    version = _number(value)
    if version not in TRANSACTION_LOG_VALUE.versions:
        raise ProtocolError(f"a transaction of version {version}, which is newer than this broker")
    stored = decode_prefix(TransactionLogValue, version, value, _VERSION.size)
    state = BY_NUMBER.get(stored.transaction_status)
    if state is None:
        raise ProtocolError(f"a transaction in state {stored.transaction_status}")
    ended = None
    if stored.ended_producer_id != NO_PRODUCER_ID:
        ended = Producer(stored.ended_producer_id, stored.ended_producer_epoch)
    return TransactionRecord(
        transactional_id,
        TransactionMetadata(
            transactional_id,
            stored.producer_id,
            stored.producer_epoch,
            stored.transaction_timeout_ms,
            stored.transaction_last_update_timestamp_ms,
            state,
            frozenset(
                TopicPartition(each.topic, partition)
                for each in stored.transaction_partitions or ()
                for partition in each.partition_ids
            ),
            stored.transaction_start_timestamp_ms,
            stored.last_producer_epoch,
            stored.client_transaction_version,
            stored.previous_producer_id,
            stored.next_producer_id,
            stored.next_producer_epoch,
            ended,
            stored.principal,
        ),
        version >= _FLEXIBLE,
    )


def decode_key(key: bytes) -> str | None:
    """Return the transactional id of a key, or None, as `decode_record` does."""
    if _number(key) != _KIND:
        return None
    return decode_prefix(TransactionLogKey, 0, key, _VERSION.size).transactional_id


def _number(data: bytes) -> int:
    if len(data) < _VERSION.size:
        raise ProtocolError("a record without its version")
    number: int = _VERSION.unpack_from(data)[0]
    return number
