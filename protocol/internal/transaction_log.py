"""Transactional ids as records of `__transaction_state`: key and value behind an int16 each.

v1 of the value is flexible (KIP-915); its tagged fields carry what tells a producer's retry from a
new request when its id or epoch has changed meanwhile (KIP-890).
"""

from barnabas.protocol.schema import FIRST_OWN_TAG, Schema, message, tagged
from barnabas.protocol.types import Array, Int8, Int16, Int32, Int64, NullableArray, String


@message
class TransactionLogKey:
    """The transactional id."""

    transactional_id: String


@message
class PartitionsSchema:
    """Partitions of one topic."""

    topic: String
    partition_ids: Array[Int32]


@message
class TransactionLogValue:
    """One state of a transactional id; times in ms since the epoch.

    `previous_producer_id` committed the last transaction; `next_producer_id` and its epoch have
    been told to the client whose epochs are exhausted. `last_producer_epoch` is ours, the one
    before `producer_epoch`: Kafka keeps it in memory only and forgets it with the coordinator.
    """

    producer_id: Int64
    previous_producer_id: Int64 = tagged(0, since=1, default=-1)
    next_producer_id: Int64 = tagged(1, since=1, default=-1)
    producer_epoch: Int16
    next_producer_epoch: Int16 = tagged(3, since=1, default=-1)
    transaction_timeout_ms: Int32
    transaction_status: Int8
    transaction_partitions: NullableArray[PartitionsSchema]
    transaction_last_update_timestamp_ms: Int64
    transaction_start_timestamp_ms: Int64
    client_transaction_version: Int16 = tagged(2, since=1, default=0)
    last_producer_epoch: Int16 = tagged(FIRST_OWN_TAG, since=1, default=-1)


TRANSACTION_LOG_KEY = Schema(TransactionLogKey, range(1))
TRANSACTION_LOG_VALUE = Schema(TransactionLogValue, range(2), flexible=1)
