"""Kafka's DumpLogSegments reads our records of `__transaction_state`, and our markers."""

import json
import re
from pathlib import Path
from struct import pack
from typing import Any

import pytest

from barnabas.protocol.codec import encode
from barnabas.protocol.internal.transaction_log import (
    PartitionsSchema,
    TransactionLogKey,
    TransactionLogValue,
)
from barnabas.protocol.records.control import ControlType, TxnMarker
from barnabas.protocol.records.record import Record, build_batch
from tests.support.kafka.tools import Tools
from tests.support.markers import marker_batch

pytestmark = pytest.mark.xdist_group("referee-tools")

NOW = 1_700_000_000_000
PLAIN = {
    "producerId": 1000,
    "producerEpoch": 5,
    "transactionTimeoutMs": 60000,
    "transactionStatus": "Ongoing",
    "transactionPartitions": [{"topic": "t", "partitionIds": [0, 3]}],
    "transactionLastUpdateTimestampMs": NOW,
    "transactionStartTimestampMs": NOW - 1,
}
TAGGED = {
    "previousProducerId": 7,
    "nextProducerId": 8,
    "nextProducerEpoch": 9,
    "clientTransactionVersion": 2,
}


def record(offset: int, name: str, version: int, **tags: int) -> Record:
    value = TransactionLogValue(
        producer_id=1000,
        producer_epoch=5,
        transaction_timeout_ms=60_000,
        transaction_status=1,
        transaction_partitions=[PartitionsSchema(topic="t", partition_ids=[0, 3])],
        transaction_last_update_timestamp_ms=NOW,
        transaction_start_timestamp_ms=NOW - 1,
        **tags,
    )
    return Record(offset, NOW, key(name), pack(">h", version) + encode(value, version))


def key(name: str) -> bytes:
    return pack(">h", 0) + encode(TransactionLogKey(transactional_id=name), 0)


def test_transaction_log_is_readable_and_our_tags_are_skipped(tools: Tools, tmp_path: Path) -> None:
    tags = {
        "previous_producer_id": 7,
        "next_producer_id": 8,
        "next_producer_epoch": 9,
        "client_transaction_version": 2,
        "last_producer_epoch": 4,
        "ended_producer_id": 5,
        "ended_producer_epoch": 6,
    }
    records = [
        record(0, "v0", 0),
        record(1, "v1", 1),
        record(2, "tags", 1, **tags),
        Record(3, NOW, key("gone"), None),
    ]
    segment = tmp_path / "00000000000000000000.log"
    segment.write_bytes(build_batch(records))
    said = tools.dump_log(segment, options=("--transaction-log-decoder",))
    found: dict[str, Any] = {
        json.loads(name)["data"]["transactionalId"]: value
        for name, value in re.findall(r" key: (.*) payload: (.*)$", said, re.MULTILINE)
    }
    assert found.pop("gone") == "<DELETE>"
    assert {name: json.loads(value) for name, value in found.items()} == {
        "v0": {"version": "0", "data": PLAIN},
        "v1": {"version": "1", "data": PLAIN},
        "tags": {"version": "1", "data": PLAIN | TAGGED},
    }


def test_markers(tools: Tools, tmp_path: Path) -> None:
    segment = tmp_path / "00000000000000000000.log"
    segment.write_bytes(
        b"".join(
            marker_batch(TxnMarker(8, 2, 12, bool(kind)), NOW, offset=kind) for kind in ControlType
        )
    )
    said = tools.dump_log(segment)
    assert said.count("isTransactional: true isControl: true") == 2
    assert said.count("producerId: 8 producerEpoch: 2") == 2
    assert "endTxnMarker: ABORT coordinatorEpoch: 12" in said
    assert "endTxnMarker: COMMIT coordinatorEpoch: 12" in said
    assert said.count("isvalid: true") == 2
