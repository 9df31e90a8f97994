"""`consume --decode`: the JSON of records of internal topics."""

import json

import pytest

from barnabas.cli.internal_records import to_json
from barnabas.client.consumer import Message
from barnabas.coordinator.group.consumer.records import (
    EXPRESSION,
    MEMBER,
    TARGET_EPOCH,
    ConsumerGroupRecord,
    encode_consumer_record,
    target_epoch,
    tombstone,
)


@pytest.mark.parametrize(
    ("record", "kind", "key", "value"),
    [
        (
            target_epoch("g", 7, 99),
            "consumer group target epoch",
            {"member": None, "expression": None},
            {"assignment_epoch": 7, "assignment_timestamp": 99},
        ),
        (
            tombstone(MEMBER, "g", "m"),
            "consumer group member",
            {"member": "m", "expression": None},
            None,
        ),
        (
            tombstone(EXPRESSION, "g", "o.*"),
            "consumer group expression",
            {"member": None, "expression": "o.*"},
            None,
        ),
        (
            tombstone(TARGET_EPOCH, "g"),
            "consumer group target epoch",
            {"member": None, "expression": None},
            None,
        ),
    ],
)
def test_record_of_a_consumer_group_is_decoded(
    record: ConsumerGroupRecord, kind: str, key: dict[str, str | None], value: object
) -> None:
    line = to_json(Message("__consumer_offsets", 3, 8, 99, 0, *encode_consumer_record(record), ()))
    assert json.loads(line) == {
        "topic": "__consumer_offsets",
        "partition": 3,
        "offset": 8,
        "timestamp_ms": 99,
        "kind": kind,
        "key": {"group": "g", **key},
        "value": value,
    }
