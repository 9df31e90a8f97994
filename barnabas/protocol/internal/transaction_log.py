"""Transactional ids as records of `__transaction_state`: key and value each follow an int16.

v1 of the value is flexible (KIP-915); with its tagged fields the coordinator distinguishes a
producer's retry from a new request after the id or the epoch has changed (KIP-890).
"""

from barnabas.protocol.schema import FIRST_OWN_TAG, Schema, message, tagged
from barnabas.protocol.types import (
    Array,
    Int8,
    Int16,
    Int32,
    Int64,
    NullableArray,
    NullableString,
    String,
)


@message
class TransactionLogKey:
    """The key: a transactional id."""

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
    been sent to the client whose epochs are exhausted, or that keeps the open transaction
    (KIP-939). Our own fields: `last_producer_epoch` is the epoch before `producer_epoch`, which
    Kafka keeps in memory only and loses with the coordinator; `ended_producer_id` and its epoch
    wrote the kept transaction that was decided; the producer id was given to `principal`, None
    without an authorizer and for a super user.
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
    ended_producer_id: Int64 = tagged(FIRST_OWN_TAG + 1, since=1, default=-1)
    ended_producer_epoch: Int16 = tagged(FIRST_OWN_TAG + 2, since=1, default=-1)
    principal: NullableString = tagged(FIRST_OWN_TAG + 3, since=1, default=None)


TRANSACTION_LOG_KEY = Schema(TransactionLogKey, range(1))
TRANSACTION_LOG_VALUE = Schema(TransactionLogValue, range(2), flexible=1)
