"""Records of `__transaction_state`, in the formats of Apache Kafka 4.4."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.coordinator.transaction.metadata import TV2, Producer, TransactionMetadata
from barnabas.coordinator.transaction.records import (
    TransactionRecord,
    decode_record,
    encode_record,
    encode_value,
)
from barnabas.coordinator.transaction.states import TransactionState
from barnabas.protocol.errors import ProtocolError
from barnabas.protocol.records.batch import iter_headers
from barnabas.protocol.records.record import iter_records
from barnabas.protocol.topic_partition import TopicPartition
from tests.unit.coordinator.transactions import FIRST_ID, ID, A, B, Transactions, transaction

FULL = transaction(
    TransactionState.PREPARE_COMMIT,
    32_767,
    partitions=frozenset({A, ("a", 7), B}),
    start_ms=5,
    last_epoch=32_766,
    client_version=TV2,
    previous_producer_id=999,
    next_producer_id=1234,
    next_epoch=0,
    ended=Producer(77, 3),
)
ADDED_BY_TAGS = {
    "last_epoch": -1,
    "client_version": 0,
    "previous_producer_id": -1,
    "next_producer_id": -1,
    "next_epoch": -1,
    "ended": None,
}


def there_and_back(txn: TransactionMetadata, *, flexible: bool) -> TransactionRecord | None:
    return decode_record(*encode_record(TransactionRecord(ID, txn, flexible)))


def test_newer_format_round_trips_every_field() -> None:
    assert there_and_back(FULL, flexible=True) == TransactionRecord(ID, FULL, True)


def test_older_format_keeps_fields_of_kip_98() -> None:
    plain = FULL._replace(**ADDED_BY_TAGS)
    assert there_and_back(FULL, flexible=False) == TransactionRecord(ID, plain, False)


@pytest.mark.parametrize("flexible", [True, False])
@pytest.mark.parametrize("state", TransactionState)
def test_every_state_round_trips(state: TransactionState, flexible: bool) -> None:
    read = there_and_back(transaction(state), flexible=flexible)
    assert read is not None
    assert read.value == transaction(state)


def test_older_format_has_bytes_of_kafka() -> None:
    """TransactionLogKey and TransactionLogValue v0 of Kafka's message definitions."""
    txn = transaction(
        TransactionState.ONGOING, 3, producer_id=1, updated_ms=6, start_ms=7, timeout_ms=5
    )._replace(partitions=frozenset({("t", 2)}))
    key, value = encode_record(TransactionRecord("x", txn, False))
    assert key == b"\0\0" + b"\0\1x"
    assert value == (
        b"\0\0"
        + (1).to_bytes(8, "big")
        + (3).to_bytes(2, "big")
        + (5).to_bytes(4, "big")
        + b"\1"
        + b"\0\0\0\1"
        + b"\0\1t"
        + b"\0\0\0\1"
        + b"\0\0\0\2"
        + (6).to_bytes(8, "big")
        + (7).to_bytes(8, "big")
    )


def test_an_empty_transaction_has_null_partitions() -> None:
    _, value = encode_record(TransactionRecord("x", transaction(), False))
    assert value is not None
    assert value[2 + 8 + 2 + 4 + 1 :][:4] == b"\xff\xff\xff\xff"


def test_defaults_are_left_out_of_the_newer_format() -> None:
    """Tagged fields at their defaults take no bytes, and our own field has a number that Kafka will
    not use."""
    _, bare = encode_record(TransactionRecord(ID, transaction(), True))
    _, tagged = encode_record(TransactionRecord(ID, transaction(last_epoch=4), True))
    assert bare is not None
    assert tagged is not None
    assert bare.endswith(b"\0")
    assert tagged.endswith(b"\1\x90\x4e\2\0\4"), "tag 10000, two bytes, epoch 4"


def test_tombstone_round_trips() -> None:
    key, value = encode_record(TransactionRecord(ID, None))
    assert value is None
    assert decode_record(key, None) == TransactionRecord(ID, None)


def test_unknown_kind_is_skipped_and_unknown_version_is_refused() -> None:
    key, value = encode_record(TransactionRecord(ID, transaction()))
    assert value is not None
    assert decode_record(key + b"\0later", value + b"\0later") == decode_record(key, value)
    assert decode_record(b"\0\1" + key[2:], value) is None
    with pytest.raises(ProtocolError, match="version 2, which is newer"):
        decode_record(key, b"\0\2" + value[2:])
    with pytest.raises(ProtocolError, match="state 9"):
        decode_record(key, value[:16] + b"\x09" + value[17:])
    for broken in (b"", b"\0"):
        with pytest.raises(ProtocolError):
            decode_record(broken, value)
        with pytest.raises(ProtocolError):
            decode_record(key, broken)


@pytest.mark.parametrize(("version", "flexible"), [(0, False), (1, True), (2, True)])
async def test_the_finalized_version_rules_the_format(version: int, flexible: bool) -> None:
    """transaction.version 0 is for brokers that know only the older format."""
    here = await Transactions(version=version).load()
    here.init()
    (batch,) = here.log.batches
    ((position, header),) = iter_headers(batch)
    (record,) = iter_records(batch, position, header)
    read = here.shard.decode(record.key or b"", record.value)
    assert read is not None
    assert read.flexible is flexible


async def test_log_with_both_formats_is_loaded() -> None:
    here = await Transactions(version=0).load()
    producer = here.ongoing(version=0)
    here.version = 2
    await here.load()
    assert here.end(producer) == Producer(FIRST_ID, 1)
    here.version = 0
    await here.load()
    here.mark()
    assert here.txn.producer == Producer(FIRST_ID, 1)


IDS = st.sampled_from((-1, 0, 7, 2**63 - 1))
LATER_EPOCHS = st.sampled_from((-1, 0, 1, 257, 258, 772, 32_766, 32_767))
TIMES = st.sampled_from((-1, 0, 5, 258, 772, 2**40 + 258, 2**63 - 1))
PLACES = st.builds(TopicPartition, st.sampled_from(("t", "u" * 40, "\u00e9")), st.integers(0, 300))
TRANSACTIONS = st.builds(
    TransactionMetadata,
    st.just(ID),
    IDS,
    LATER_EPOCHS,
    st.sampled_from((0, 258, 60_000, 2**31 - 1)),
    TIMES,
    st.sampled_from(list(TransactionState)[:6]),
    st.frozensets(PLACES, max_size=10),
    TIMES,
    LATER_EPOCHS,
    st.sampled_from((0, 1, 2, 258)),
    IDS,
    IDS,
    LATER_EPOCHS,
    st.none() | st.builds(Producer, IDS, LATER_EPOCHS),
    st.none() | st.sampled_from(("User:a", "User:" + "b" * 200)),
)


@given(st.lists(st.tuples(TRANSACTIONS, st.booleans()), min_size=1, max_size=8))
def test_value_from_template_is_what_the_encoder_makes(
    written: list[tuple[TransactionMetadata, bool]],
) -> None:
    for txn, flexible in written:
        _, value = encode_record(TransactionRecord(ID, txn, flexible))
        assert value == encode_value(txn, flexible=flexible)
        # The template is in memory now.
        later = txn._replace(updated_ms=77, start_ms=2**50, epoch=3, last_epoch=txn.last_epoch)
        _, value = encode_record(TransactionRecord(ID, later, flexible))
        assert value == encode_value(later, flexible=flexible)
