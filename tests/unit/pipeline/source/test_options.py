"""The options of the source: defaults, values, and one-line refusals."""

from pathlib import Path

import pytest

from barnabas.pipeline.source.offsets import (
    EARLIEST,
    LATEST,
    AtTime,
    AtTimes,
    ByPartition,
    Everywhere,
)
from barnabas.pipeline.source.option_values import OptionError
from barnabas.pipeline.source.options import (
    KNOWN,
    Assign,
    Pattern,
    Subscribe,
    includes_headers,
    read_options,
)

LEAST = {"kafka.bootstrap.servers": "one:9092,two", "subscribe": "orders"}


def batch(**given: str):
    return read_options(LEAST | spelled(given), stream=False)


def stream(**given: str):
    return read_options(LEAST | spelled(given), stream=True)


def spelled(given: dict[str, str]) -> dict[str, str]:
    return {name.replace("_", "."): value for name, value in given.items()}


def refusal(given: dict[str, str], *, is_stream: bool = False) -> str:
    with pytest.raises(OptionError) as caught:
        read_options(given, stream=is_stream)
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_a_batch_reads_everything_and_a_stream_new_records_by_default():
    assert (batch().start, batch().end) == (Everywhere(EARLIEST), Everywhere(LATEST))
    assert stream().start == Everywhere(LATEST)


def test_defaults_are_the_stock_connectors_but_for_the_isolation_level():
    found = stream()
    assert found.fetching.read_committed
    assert found.fail_on_data_loss
    assert not found.include_headers
    assert found.error_without_match
    assert (found.min_partitions, found.max_records) == (None, None)
    assert (found.min_offsets, found.max_offsets, found.max_delay) == (None, None, 900)
    assert found.progress_group is None


def test_names_are_known_in_any_case():
    given = {"KAFKA.bootstrap.SERVERS": "one:9092", "SUBSCRIBEpattern": "a.*"}
    assert read_options(given, stream=False).selection == Pattern("a.*")
    assert includes_headers({**LEAST, "INCLUDEHEADERS": "True"})


def test_schema_refuses_what_neither_a_stream_nor_a_batch_can_have():
    """Only names were checked there: load() returned, and the first batch failed."""
    with pytest.raises(OptionError, match="minPartitions is 'many'"):
        includes_headers({**LEAST, "minPartitions": "many"})
    for one_sided in ({"endingOffsets": "latest"}, {"startingOffsets": "latest"}):
        assert not includes_headers(LEAST | one_sided)


def test_topics_are_given_by_name_by_pattern_or_as_partitions():
    servers = {"kafka.bootstrap.servers": "one:9092"}
    found = read_options({**servers, "subscribe": " a, b ,,a"}, stream=True)
    assert found.selection == Subscribe(("a", "b"))
    found = read_options({**servers, "assign": '{"a":[1,0],"b":[2]}'}, stream=True)
    assert found.selection == Assign((("a", 1), ("a", 0), ("b", 2)))


def test_keys_of_kafka_that_have_an_effect_are_taken():
    found = batch(
        kafka_client_id="me",
        kafka_isolation_level="read_uncommitted",
        kafka_default_api_timeout_ms="1500",
        kafka_request_timeout_ms="700",
        kafka_fetch_min_bytes="0",
        kafka_fetch_max_bytes="2000",
        kafka_fetch_max_wait_ms="10",
        kafka_max_partition_fetch_bytes="1000",
        kafka_security_protocol="plaintext",
        kafka_metadata_cluster_check_enable="False",
    ).fetching
    assert (found.client_id, found.read_committed) == ("me", False)
    assert (found.timeout, found.request_timeout) == (1.5, 0.7)
    assert (found.max_bytes, found.partition_max_bytes, found.max_wait) == (2000, 1000, 0.01)
    assert (found.check_cluster, batch().fetching.check_cluster) == (False, True)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, Everywhere(EARLIEST)),
        ({"startingOffsets": "Earliest"}, Everywhere(EARLIEST)),
        ({"startingOffsets": '{"t":{"0":5,"1":-2}}'}, ByPartition({("t", 0): 5, ("t", 1): -2})),
        ({"startingOffsetsByTimestamp": '{"t":{"0":5}}'}, AtTimes({("t", 0): 5})),
        ({"startingTimestamp": "7"}, AtTime(7)),
        # The stock connector has this precedence.
        ({"startingTimestamp": "7", "startingOffsetsByTimestamp": '{"t":{"0":5}}'}, AtTime(7)),
        (
            {"startingOffsetsByTimestamp": '{"t":{"0":5}}', "startingOffsets": "earliest"},
            AtTimes({("t", 0): 5}),
        ),
    ],
)
def test_a_start_is_a_word_offsets_or_timestamps(given: dict[str, str], expected: object):
    assert batch(**given).start == expected


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("15m", 900), ("2min", 120), ("1h", 3600), ("1d", 86400), ("30s", 30), ("5", 0.005)],
)
def test_a_delay_is_written_as_spark_does(text: str, seconds: float):
    assert stream(maxTriggerDelay=text).max_delay == seconds


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"subscribe": "a"}, "option kafka.bootstrap.servers is missing"),
        ({"kafka.bootstrap.servers": "a:1"}, "give one of subscribe, subscribePattern and assign"),
        (LEAST | {"kafka.bootstrap.servers": "a:b"}, "give HOST:PORT"),
        (LEAST | {"assign": "{}"}, "options subscribe and assign contradict each other"),
        (LEAST | {"subscribe": " , "}, "give topics"),
        (LEAST | {"subscribe": "orders\nbills"}, "'orders\\nbills' cannot be the name of a topic"),
        (LEAST | {"orders\nbills": "x"}, "unknown option orders bills"),
        (LEAST | {"startingOfsets": "latest"}, "did you mean startingOffsets?"),
        (LEAST | {"bootstrap.servers": "a:1"}, "did you mean kafka.bootstrap.servers?"),
        (LEAST | {"kafka.isolation.levl": "x"}, "did you mean kafka.isolation.level?"),
        (LEAST | {"zzzz": "1"}, "the options are assign, "),
        (LEAST | {"path": "orders"}, "call load() without a path"),
        (LEAST | {"kafka.sasl.mechanism": "PLAIN"}, "without kafka.security.protocol"),
        (LEAST | {"kafka.ssl.truststore.location": "/x"}, "without kafka.security.protocol"),
        (LEAST | {"kafka.group.id": "g"}, "progressGroup"),
        (LEAST | {"kafka.auto.offset.reset": "latest"}, "set startingOffsets"),
        (LEAST | {"kafka.enable.auto.commit": "true"}, "checkpoint holds the position"),
        (LEAST | {"kafka.value.deserializer": "x"}, "CAST"),
        (LEAST | {"kafka.isolation.level": "dirty"}, "read_committed or read_uncommitted"),
        (LEAST | {"minPartitions": "0"}, "a whole number from 1"),
        (LEAST | {"maxRecordsPerPartition": "1.5"}, "a whole number from 1"),
        (LEAST | {"maxOffsetsPerTrigger": "9" * 19}, "a whole number from 1"),
        (LEAST | {"failOnDataLoss": "yes"}, "give true or false"),
        (LEAST | {"includeHeaders": ""}, "give true or false"),
        (LEAST | {"maxTriggerDelay": "soon"}, "give a duration such as"),
        (LEAST | {"maxTriggerDelay": "-5s"}, "give a duration such as"),
        (LEAST | {"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"}, "lower it"),
        (LEAST | {"startingOffsets": "now"}, "give earliest, latest or offsets"),
        (LEAST | {"startingOffsets": '{"t":{"0":-3}}'}, "partition t-0 has -3"),
        (LEAST | {"startingTimestamp": "yesterday"}, "a whole number from 0"),
        (LEAST | {"startingOffsetsByTimestampStrategy": "x"}, "give error or latest"),
        (LEAST | {"progressGroup": " "}, "give the name of a group"),
        (
            {"kafka.bootstrap.servers": "a:1", "subscribePattern": "a(b"},
            "correct the pattern",
        ),
        ({"kafka.bootstrap.servers": "a:1", "subscribePattern": ""}, "give a pattern"),
        ({"kafka.bootstrap.servers": "a:1", "assign": "a"}, "give partitions such as"),
    ],
)
@pytest.mark.parametrize("is_stream", [False, True])
def test_a_refusal_says_what_to_do(given: dict[str, str], words: str, is_stream: bool):
    assert words in refusal(given, is_stream=is_stream)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"startingOffsets": "latest"}, "a batch cannot start at the end"),
        ({"startingOffsets": '{"t":{"0":-1}}'}, "startingOffsets is latest for t-0"),
        ({"endingOffsets": "earliest"}, "a batch cannot end at the start"),
        ({"endingOffsets": '{"t":{"1":-2}}'}, "endingOffsets is earliest for t-1"),
        (
            {"startingOffsets": '{"t":{"0":1}}', "endingOffsets": '{"t":{"1":2}}'},
            "only one of them has t-0, t-1",
        ),
        (
            {"startingOffsets": '{"t":{"0":3}}', "endingOffsets": '{"t":{"0":2}}'},
            "it starts at 3 and ends at 2",
        ),
        (
            {
                "startingOffsetsByTimestamp": '{"t":{"0":3}}',
                "endingOffsetsByTimestamp": '{"t":{"0":2}}',
            },
            "it starts at 3 and ends at 2",
        ),
    ],
)
def test_a_batch_has_a_start_before_its_end(given: dict[str, str], words: str):
    assert words in refusal(LEAST | given)


def test_a_stream_with_an_end_has_a_start_before_it():
    given = LEAST | {"endingTimestamp": "5"}
    assert "cannot start at the end" in refusal(given, is_stream=True)
    assert read_options(given | {"startingTimestamp": "4"}, stream=True).end == AtTime(5)


def test_an_end_of_latest_is_behind_any_start():
    found = batch(startingOffsets='{"t":{"0":3}}', endingOffsets='{"t":{"0":-1}}')
    assert found.end == ByPartition({("t", 0): -1})


def test_a_long_value_is_cut_in_the_refusal():
    assert len(refusal(LEAST | {"startingOffsets": "x" * 10_000})) < 300


def test_the_page_of_the_pipeline_has_every_option():
    page = (Path(__file__).parents[4] / "docs" / "PIPELINE.md").read_text()
    assert [name for name in KNOWN if f"`{name}`" not in page] == []
