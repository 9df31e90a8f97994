"""The JSON of offsets, partitions and timestamps, as the stock connector writes them."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.pipeline.source.offsets import (
    OffsetsError,
    from_json,
    parse_offsets,
    parse_partitions,
    parse_timestamps,
    spell,
    to_json,
)
from barnabas.protocol.topic_partition import TopicPartition

partitions = st.builds(
    TopicPartition, st.text("abc.-_", min_size=1, max_size=5), st.integers(0, 2**31 - 1)
)
offsets = st.dictionaries(partitions, st.integers(0, 2**63 - 1))


def test_a_checkpoint_has_the_form_of_the_stock_connector():
    found = to_json({TopicPartition("b", 10): 7, TopicPartition("b", 9): 5, ("a", 0): 0})
    assert json.dumps(found) == '{"a": {"0": 0}, "b": {"9": 5, "10": 7}}'


@given(offsets)
def test_offsets_survive_a_checkpoint(found: dict[TopicPartition, int]):
    assert from_json(json.loads(json.dumps(to_json(found)))) == found


@given(offsets, st.randoms())
def test_equal_offsets_have_equal_texts(found: dict[TopicPartition, int], order):
    rows = list(found.items())
    order.shuffle(rows)
    assert json.dumps(to_json(dict(rows))) == json.dumps(to_json(found))


@given(offsets.filter(bool))
def test_an_option_may_have_any_offsets(found: dict[TopicPartition, int]):
    assert parse_offsets(json.dumps(to_json(found))) == found


def test_an_option_may_have_the_first_and_the_last_offset():
    assert parse_offsets('{"t":{"0":-2,"1":-1}}') == {("t", 0): -2, ("t", 1): -1}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "{}",
        '{"t":5}',
        '{"t":{}}',
        '{"t":{"x":5}}',
        '{"t":{"-1":5}}',
        '{"t":{"²":5}}',
        '{"t":{"2147483648":5}}',
        '{"t":{"0":-3}}',
        '{"t":{"0":1.5}}',
        '{"t":{"0":true}}',
        '{"t":{"0":"5"}}',
        '{"t":{"0":9223372036854775808}}',
        '{"t":{"0":1,"00":2}}',
        '{"t":{"0":1},"t":{"0":2}}',
        "[" * 100_000,
        '{"t":{"0":' + "1" * 5000 + "}}",
    ],
)
def test_other_texts_are_no_offsets(text: str):
    with pytest.raises(OffsetsError) as caught:
        parse_offsets(text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ['{"t":{"0":-1}}', '{"t":{"0":-2}}'])
def test_a_timestamp_is_not_negative(text: str):
    with pytest.raises(OffsetsError, match="give timestamps in ms"):
        parse_timestamps(text)


@pytest.mark.parametrize(
    "text", ["{}", '{"t":[]}', '{"t":[0,0]}', '{"t":[-1]}', '{"t":["0"]}', '{"t":[true]}', "t"]
)
def test_other_texts_are_no_partitions(text: str):
    with pytest.raises(OffsetsError, match="give partitions such as"):
        parse_partitions(text)


def test_many_partitions_are_cut_in_a_text():
    text = spell(TopicPartition("t", index) for index in range(12))
    assert text.startswith("t-0, t-1, ")
    assert text.endswith("t-9 and 2 more")
