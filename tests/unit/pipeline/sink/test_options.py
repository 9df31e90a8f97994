"""The options of the sink: each error is one line that says what to do."""

import pytest

from barnabas.pipeline.sink.options import (
    Delivery,
    SinkOptionsError,
    check_columns,
    parse_options,
)
from barnabas.protocol.records.compression import Compression

SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}
NAMED = {**SERVERS, "sinkid": "orders"}


def parsed(options: dict[str, str], *, streaming: bool = True):
    return parse_options(options, streaming=streaming)


def error_of(options: dict[str, str], *, streaming: bool = True) -> str:
    with pytest.raises(SinkOptionsError) as caught:
        parsed(options, streaming=streaming)
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_sink_is_named_by_its_query_and_delivers_exactly_once():
    options = parsed({**SERVERS, "queryname": "orders", "checkpointlocation": "/tmp/c"})
    assert (options.sink_id, options.delivery) == ("orders", Delivery.EXACTLY_ONCE)
    assert (options.transaction_timeout_ms, options.checkpoint) == (None, "/tmp/c")


def test_sink_id_precedes_the_name_of_the_query():
    assert parsed({**NAMED, "queryname": "other"}).sink_id == "orders"


def test_names_of_options_ignore_case():
    assert parsed({**SERVERS, "SinkID": "orders", "Compression": "ZSTD"}).compression == (
        Compression.ZSTD
    )


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [("90 s", 90_000), ("15m", 900_000), ("1h", 3_600_000), ("5000", 5000), ("7 ms", 7)],
)
def test_transaction_timeout_has_a_unit(text, milliseconds):
    assert parsed({**NAMED, "transactiontimeout": text}).transaction_timeout_ms == milliseconds


def test_keys_of_kafkas_producer_stand_for_options():
    options = parsed(
        {**NAMED, "kafka.compression.type": "lz4", "kafka.acks": "all", "kafka.batch.size": "1000"}
    )
    assert (options.compression, options.batch_size) == (Compression.LZ4, 1000)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"sinkid": "a"}, "kafka.bootstrap.servers is missing"),
        (SERVERS, "give the option sinkId, or the query a name"),
        ({**SERVERS, "queryname": "my query"}, "use letters, digits, _ and - only"),
        ({**SERVERS, "sinkid": "a.b"}, "use letters, digits, _ and - only"),
        ({**SERVERS, "sinkid": "a" * 201}, "200"),
        ({**NAMED, "compresion": "zstd"}, "did you mean compression?"),
        ({**NAMED, "sink_id": "x"}, "did you mean sinkId?"),
        ({**NAMED, "anything": "x"}, "option anything is unknown: remove it"),
        ({**NAMED, "compression": "br"}, "choose one of none, gzip, snappy, lz4, zstd"),
        ({**NAMED, "delivery": "maybe"}, "'exactly-once', 'exactly-once-bounded' or"),
        ({**NAMED, "transactiontimeout": "soon"}, "give a number with a unit"),
        ({**NAMED, "transactiontimeout": "0"}, "greater than 0"),
        ({**NAMED, "topic": ""}, "option topic="),
        ({**NAMED, "kafka.metadata.cluster.check.enable": "yes"}, "give true or false"),
        ({**SERVERS, "kafka.bootstrap.servers": "a:b", "sinkid": "a"}, "give HOST:PORT"),
        ({**NAMED, "kafka.sasl.jaas.config": "x"}, "has no effect without kafka.security.protocol"),
        ({**NAMED, "kafka.transactional.id": "x"}, "use sinkId instead"),
        ({**NAMED, "kafka.acks": "1"}, "the sink writes with acks=all"),
        ({**NAMED, "asyncprogresstrackingenabled": "true"}, "a batch could change after a crash"),
        ({**NAMED, "batchid": "1"}, "batchId is for writes without a stream"),
        (
            {**NAMED, "compression": "zstd", "kafka.compression.type": "lz4"},
            "contradicts option compression",
        ),
        (
            {**NAMED, "delivery": "at-least-once", "transactiontimeout": "1m"},
            "transactionTimeout has no effect with delivery=at-least-once",
        ),
        (
            {**NAMED, "delivery": "at-least-once", "takeoverfrom": "q"},
            "takeOverFrom has no effect with delivery=at-least-once",
        ),
    ],
)
def test_wrong_option_is_refused_in_one_line(options, text):
    assert text in error_of(options)


def test_error_does_not_show_a_secret():
    assert "hunter2" not in error_of({**NAMED, "kafka.sasl.jaas.config": "hunter2"})


def test_at_least_once_needs_no_name():
    options = parsed({**SERVERS, "delivery": "at-least-once"})
    assert not options.is_transactional


def test_batch_id_numbers_a_write_without_a_stream():
    assert parsed({**NAMED, "batchid": "17"}, streaming=False).batch_number == 17


def test_columns_of_the_stock_sink_are_accepted():
    columns = {
        "topic": "string",
        "key": "binary",
        "value": "string",
        "headers": "array<struct<key:string,value:binary>>",
        "partition": "int",
        "timestamp": "timestamp",
        "other": "double",
    }
    check_columns(columns, None)
    check_columns({"value": "binary"}, "orders")


@pytest.mark.parametrize(
    ("columns", "topic", "text"),
    [
        ({"key": "string"}, "t", "column value is missing"),
        ({"value": "string"}, None, "set the option topic, or add a column topic"),
        ({"value": "double"}, "t", "column value has the type double: cast it to string or binary"),
        ({"value": "string", "partition": "bigint"}, "t", "cast it to int"),
        ({"value": "string", "topic": "binary"}, None, "cast it to string"),
        ({"value": "string", "headers": "map<string,binary>"}, "t", "column headers has the type"),
    ],
)
def test_wrong_column_is_refused_in_one_line(columns, topic, text):
    with pytest.raises(SinkOptionsError, match=text) as caught:
        check_columns(columns, topic)
    assert "\n" not in str(caught.value)


def test_request_and_call_have_times_of_their_own_as_in_the_source():
    given = {**NAMED, "kafka.request.timeout.ms": "700", "kafka.default.api.timeout.ms": "1500"}
    found = parse_options(given, streaming=True)
    assert (found.request_timeout_ms, found.api_timeout_ms) == (700, 1500)


def test_client_checks_the_cluster_unless_told_otherwise():
    given = {**NAMED, "kafka.metadata.cluster.check.enable": "False"}
    assert (parsed(given).check_cluster, parsed(NAMED).check_cluster) == (False, True)
