"""Records of `__transaction_state`, compared with the bytes that Kafka 4.4's own classes write."""

from typing import Any

import pytest

from barnabas.protocol.codec import decode, encode
from barnabas.protocol.errors import ProtocolError
from barnabas.protocol.internal.transaction_log import (
    PartitionsSchema,
    TransactionLogKey,
    TransactionLogValue,
)

HEAD = "00000000000003e8 0005 0000ea60 02"
TIMES = "0000018bcfe56800 0000018bcfe567ff"
TAGS = {
    "previous_producer_id": (7, "00 08 0000000000000007"),
    "next_producer_id": (8, "01 08 0000000000000008"),
    "client_transaction_version": (2, "02 02 0002"),
    "next_producer_epoch": (9, "03 02 0009"),
}
OURS = {
    "last_producer_epoch": (4, "904e 02 0004"),
    "ended_producer_id": (5, "914e 08 0000000000000005"),
    "ended_producer_epoch": (6, "924e 02 0006"),
}


def value(**changed: Any) -> TransactionLogValue:
    fields: dict[str, Any] = {
        "producer_id": 1000,
        "producer_epoch": 5,
        "transaction_timeout_ms": 60_000,
        "transaction_status": 2,
        "transaction_partitions": [PartitionsSchema(topic="t", partition_ids=[0, 3])],
        "transaction_last_update_timestamp_ms": 1_700_000_000_000,
        "transaction_start_timestamp_ms": 1_699_999_999_999,
    }
    return TransactionLogValue(**fields | changed)


def tagged(*tables: dict[str, tuple[int, str]]) -> TransactionLogValue:
    return value(**{name: number for table in tables for name, (number, _) in table.items()})


def section(*tables: dict[str, tuple[int, str]]) -> str:
    return " ".join(text for table in tables for _, text in table.values())


@pytest.mark.parametrize(
    ("message", "version", "written"),
    [
        (TransactionLogKey(transactional_id="x"), 0, "0001 78"),
        (value(), 0, f"{HEAD} 00000001 0001 74 00000002 00000000 00000003 {TIMES}"),
        (value(transaction_partitions=None), 0, f"{HEAD} ffffffff {TIMES}"),
        (value(), 1, f"{HEAD} 02 02 74 03 00000000 00000003 00 {TIMES} 00"),
        (value(transaction_partitions=None), 1, f"{HEAD} 00 {TIMES} 00"),
        (tagged(TAGS), 1, f"{HEAD} 02 02 74 03 00000000 00000003 00 {TIMES} 04 {section(TAGS)}"),
        (
            tagged(TAGS, OURS),
            1,
            f"{HEAD} 02 02 74 03 00000000 00000003 00 {TIMES} 07 {section(TAGS, OURS)}",
        ),
    ],
)
def test_bytes_are_those_of_kafka_and_ours_follow_them(
    message: Any, version: int, written: str
) -> None:
    assert encode(message, version) == bytes.fromhex(written)
    assert decode(type(message), version, bytes.fromhex(written)) == message


@pytest.mark.parametrize("name", [*TAGS, *OURS])
def test_version_0_refuses_to_lose_what_only_tags_can_carry(name: str) -> None:
    number, _ = (TAGS | OURS)[name]
    with pytest.raises(ProtocolError, match=f"cannot carry {name}"):
        encode(value(**{name: number}), 0)
