"""Records as JSON objects: every record comes back as it was."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from barnabas.cli.json_records import from_json, to_json
from barnabas.client.consumer import Message
from barnabas.operations.answers.records import Record

DATA = st.one_of(st.none(), st.binary(max_size=20), st.text(max_size=20).map(str.encode))
RECORD = TypeAdapter(Record)
LEFT_OUT = {
    "key": None,
    "key_base64": None,
    "value": None,
    "value_base64": None,
    "headers": [],
    "topic_partitions": None,
}
NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=9)


@given(
    DATA,
    DATA,
    st.lists(st.tuples(NAMES, DATA), max_size=3).map(tuple),
    st.integers(0, 9),
    st.sampled_from([None, 12]),
)
def test_record_comes_back(
    key: bytes | None,
    value: bytes | None,
    headers: tuple[tuple[str, bytes | None], ...],
    partition: int,
    partitions: int | None,
) -> None:
    line = to_json(Message("t", partition, 7, 99, 0, key, value, headers), partitions)
    assert line.count(b"\n") == 1
    assert from_json(line) == (key, value, headers, partition, partitions, 99)
    # The line is written by hand, for speed.
    record = RECORD.dump_json(RECORD.validate_json(line, strict=True))
    assert json.loads(record) == {**LEFT_OUT, **json.loads(line)}


def test_fields_may_be_left_out() -> None:
    assert from_json(b'{"value": "v", "offset": 1}') == (None, b"v", (), None, None, None)
    assert from_json(b"{}") == (None, None, (), None, None, None)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"{", "Invalid JSON"),
        (b"\xff", "Invalid JSON"),
        (b"[]", "should be an object"),
        (b'{"value": 1}', "value: Input should be a valid string, not 1"),
        (b'{"key_base64": "?"}', "key_base64"),
        (b'{"key_base64": 1}', "key_base64: .* string"),
        (b'{"headers": {}}', "headers: .* array"),
        (b'{"headers": [["a"]]}', r"headers\[0\]\[1\]: Field required"),
        (b'{"headers": [["a", 1]]}', r"headers\[0\]\[1\].* string"),
        (b'{"partition": "0"}', "partition: .* integer"),
        (b'{"timestamp_ms": true}', "timestamp_ms: .* integer"),
        (b'{"payload": "v"}', "payload: Extra inputs"),
    ],
)
def test_line_that_is_no_record_is_refused(line: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        from_json(line)
