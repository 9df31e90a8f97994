"""The queries of a job on tables: what becomes of each record, and where errors stand."""

import signal
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.pipeline.jobs.reading import JobError, JobFile, read_job
from barnabas.pipeline.jobs.spec import Problem
from tests.support.spark import spark_session
from tests.support.waiting import until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.xdist_group("spark-jobs")

HEADERS = "array<struct<key: string, value: binary>>"
STOCK = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp,"
    f" headers {HEADERS}"
)
ROOT = Path(__file__).parents[2]
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)

JOB = """\
name: job
source:
  topic: in
  codec: json
  schema: {id: string not null, amount: int, at: timestamp}
steps:
  - view: timely
    watermark: {column: at, delay: 1 minute}
  - view: once
    dedupe: {columns: id}
  - view: large
    sql: |
      SELECT id, amount * 2 AS twice
      FROM once
      WHERE amount > 1
sink: {topic: out, key: id}
bad_records: bad
checkpoint: c
"""


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator["SparkSession"]:
    with spark_session(tmp_path_factory.mktemp("spark")) as session:
        yield session


def records(spark: "SparkSession", *values: bytes | None, key: bytes | None = None) -> "DataFrame":
    rows = [
        (key, value, "in", 3, offset, NOON, [("h", b"1")]) for offset, value in enumerate(values)
    ]
    return spark.createDataFrame(rows, STOCK)


def job_file(*changes: tuple[str, str]) -> JobFile:
    text = dedent(JOB)
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return JobFile(Path("job.yaml"), text)


def run(spark: "SparkSession", file: JobFile, source: "DataFrame") -> list[tuple[Any, ...]]:
    from barnabas.pipeline.spark.plan import build

    rows = file.located(lambda: build(spark, file.job, lambda *_: source, {})).rows.collect()
    plain = [
        (row.topic, row.key, row.value, {each.key: each.value for each in row.headers})
        for row in rows
    ]
    found = [
        (topic, key and bytes(key), value if value is None else bytes(value),
         {name: bytes(each) for name, each in headers.items()})
        for topic, key, value, headers in plain
    ]  # fmt: skip
    return sorted(found, key=repr)


def test_good_records_pass_the_steps_and_bad_ones_leave_unchanged(spark):
    good = b'{"id": "a", "amount": 5, "at": "2026-01-01T12:00:00Z"}'
    small = b'{"id": "b", "amount": 1, "at": "2026-01-01T12:00:00Z"}'
    source = records(spark, good, small, good, b"no", b'{"amount": 5}')
    places = {"barnabas.topic": b"in", "barnabas.partition": b"3", "h": b"1"}
    assert run(spark, job_file(), source) == [
        ("bad", None, b"no", {
            **places,
            "barnabas.offset": b"3",
            "barnabas.reason": b"value is not JSON",
        }),
        ("bad", None, b'{"amount": 5}', {
            **places, "barnabas.offset": b"4", "barnabas.reason": b"column id is null",
        }),
        ("out", b"a", b'{"id":"a","twice":10}', {}),
    ]  # fmt: skip


def test_a_column_may_have_dots_in_its_name(spark):
    text = """\
        name: job
        source: {topic: in, codec: string}
        steps:
          - view: logs
            parse: {schema: {"log.level": string, "log.text": string}}
        sinks:
          - {topic: out, key: log.level}
        checkpoint: c
        """
    file = JobFile(Path("job.yaml"), dedent(text))
    value = b'{"log.level":"warn","log.text":"a"}'
    assert run(spark, file, records(spark, value)) == [("out", b"warn", value, {"h": b"1"})]


def test_records_are_read_and_parsed_once_if_a_sink_writes_them_as_they_are(spark):
    from barnabas.pipeline.spark.plan import build

    text = JOB[: JOB.index("steps:")] + JOB[JOB.index("sink:") :]
    good, bad = b'{"id": "a", "amount": 5}', b"no"
    found = run(spark, JobFile(Path("job.yaml"), text), records(spark, good, bad))
    assert [each[:3] for each in found] == [
        ("bad", None, bad),
        ("out", b"a", b'{"id":"a","amount":5}'),
    ]
    job = JobFile(Path("job.yaml"), text).job
    rows = build(spark, job, lambda *_: records(spark, good), {}).rows
    plan = rows._jdf.queryExecution().executedPlan().toString()
    assert (plan.count("from_json("), plan.count("Scan")) == (1, 1)


PARSE = """\
name: job
source: {topic: in, codec: string}
steps:
  - view: orders
    sql: SELECT *, upper(_key) AS name FROM source
  - view: parsed
    parse: {column: value, schema: {id: string not null, amount: int}}
sink: {topic: out, key: name}
bad_records: bad
checkpoint: c
"""


def test_text_is_parsed_by_a_step_and_bad_records_leave_unchanged(spark):
    file = JobFile(Path("job.yaml"), PARSE)
    source = records(spark, b'{"id": "a"}', b"no", b'{"amount": 1}', b"\xff", None, key=b"k")
    found = [
        (topic, key, value, headers.get("barnabas.reason"), headers.get("barnabas.offset"))
        for topic, key, value, headers in run(spark, file, source)
    ]
    assert found == [
        ("bad", b"k", None, b"value is null", b"4"),
        ("bad", b"k", b"\xff", b"value is not UTF-8", b"3"),
        ("bad", b"k", b"no", b"value is not JSON", b"1"),
        ("bad", b"k", b'{"amount": 1}', b"column id is null", b"2"),
        ("out", b"K", b'{"id":"a","name":"K"}', None, None),
    ]


def test_bad_text_fails_the_job_and_is_named_if_its_place_is_known(spark):
    for query, place in (("*", " at in/3@0"), ("value", "")):
        text = PARSE.replace("*, upper(_key) AS name", query).replace("bad_records: bad\n", "")
        file = JobFile(Path("job.yaml"), text.replace(", key: name", ""))
        with pytest.raises(Exception, match=f"bad record{place}: value is not JSON;"):
            run(spark, file, records(spark, b"no"))


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        ("id: string not null", "_id: string", "7:5: column '_id': names that begin with _ are"),
        ("column: value", "column: valu", "7:13: no column 'valu'; did you mean 'value'?"),
        ("column: value", "column: _offset", "7:13: column '_offset' is bigint; it must be string"),
        ("amount: int", "name: int", "7:58: column 'name' is there already; rename one of both"),
    ],
)
def test_a_fault_of_a_parsing_step_has_line_and_column(spark, old, new, error):
    with pytest.raises(JobError) as raised:
        run(spark, JobFile(Path("job.yaml"), PARSE.replace(old, new)), records(spark, b"{}"))
    assert str(raised.value).startswith(f"job.yaml:{error}")


def test_a_record_is_parsed_once_for_each_kind_of_row(spark):
    from barnabas.pipeline.spark.plan import build

    file = job_file()
    rows = build(spark, file.job, lambda *_: records(spark, b"{}"), {}).rows
    plan = rows._jdf.queryExecution().executedPlan().toString()
    assert plan.count("from_json(") == 2


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, b"value is null"),
        (b"", b"value is not JSON"),
        (b'{"id": "\xff"}', b"value is not UTF-8"),
        (b'{"id": "a", "amount": "many"}', b"value does not fit the schema"),
        (b'{"id": "a", "amount": 99999999999}', b"value does not fit the schema"),
        (b"[]", b"value does not fit the schema"),
        (b'{"id": "a"', b"value is not JSON"),
    ],
)
def test_a_bad_record_has_its_reason(spark, value, reason):
    [(topic, _, same, headers)] = run(spark, job_file(), records(spark, value))
    assert (topic, same, headers["barnabas.reason"]) == ("bad", value, reason)


def test_a_key_that_is_not_text_makes_a_record_bad(spark):
    source = records(spark, b'{"id": "a"}', key=b"\xff")
    [(topic, key, _, headers)] = run(spark, job_file(), source)
    assert (topic, key) == ("bad", b"\xff")
    assert headers["barnabas.reason"] == b"key is not UTF-8; set source.key to binary"


def test_bad_records_are_counted_by_reason_with_the_first_of_each(spark):
    from barnabas.pipeline.spark.parsing import bad_counts, parse

    file = job_file()
    good, misfit = b'{"id": "a"}', b'{"amount": 1}'
    source = records(spark, b"no", good, misfit, b"[]", None, b"no", b'{"id": "\xff"}')
    [(location, given)] = file.job.inputs
    marked = parse(file.job, location, given, source)
    [found] = marked.rows.agg(*bad_counts(marked)).collect()
    assert {name: value for name, value in found.asDict().items() if "first" not in name} == {
        "key.not_utf8": 0,
        "value.not_utf8": 1,
        "value.null": 1,
        "value.not_json": 2,
        "value.misfit": 2,
    }
    assert found["first.value.misfit"].asDict() == {
        "topic": "in", "partition": 3, "offset": 2, "schema": None,
    }  # fmt: skip
    assert found["first.key.not_utf8"] is None


def test_a_bad_record_fails_the_job_and_is_named(spark):
    file = job_file(("bad_records: bad\n", ""))
    with pytest.raises(Exception, match=r"bad record at in/3@1: value is not JSON;"):
        run(spark, file, records(spark, b'{"id": "a"}', b"no"))


def test_lineage_names_the_input_of_each_row_and_of_bad_ones(spark):
    file = job_file(
        ("id, amount * 2 AS twice", "collect_list(_lineage) AS _lineage, sum(amount) AS total"),
        ("WHERE amount > 1", "GROUP BY amount"),
        ("key: id", "codec: json"),
        ("checkpoint: c", "checkpoint: c\nlineage: true"),
    )
    source = records(spark, b'{"id":"a","amount":3}', b'{"id":"b","amount":3}', b"no")
    (_, _, _, bad), (_, _, value, headers) = run(spark, file, source)
    assert value == b'{"total":6}'
    assert sorted(headers["barnabas.lineage"].split(b",")) == [b"in/3@0", b"in/3@1"]
    assert bad["barnabas.lineage"] == b"in/3@2"


SIMPLE = """\
name: job
source: {topic: in, codec: string}
sink: {topic: out, codec: string}
checkpoint: c
"""


def test_strings_pass_with_key_and_headers(spark):
    file = JobFile(Path("job.yaml"), SIMPLE)
    assert run(spark, file, records(spark, "grün".encode(), key=b"k")) == [
        ("out", b"k", "grün".encode(), {"h": b"1"})
    ]
    [(_, _, value, _)] = run(spark, file, records(spark, None))
    assert value is None


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (("FROM once", "FROM onse"), "14:12: no view 'onse' stands before; did you mean 'once'?"),
        (("amount * 2", "amuont * 2"), "13:18: "),
        (("SELECT id", "SELEC id"), "13:7: "),
        (("column: at", "column: ta"), "8:17: no column 'ta'; did you mean 'at'?"),
        (("column: at", "column: id"), "8:17: the watermark needs a column of type timestamp"),
        (("columns: id", "columns: [i]"), "10:14: no column 'i'; did you mean 'id'?"),
        (("key: id", "key: di"), "16:20: no column 'di'; did you mean 'id'?"),
        (("key: id", "codec: string"), "16:20: codec string needs a column 'value'"),
        (("key: id", "timestamp: id"), "16:20: column 'id' must be of type timestamp"),
        (("amount: int", "amount: array<imt>"), "5:33: 'array<imt>' is not a type of Spark SQL"),
        (("name: job", "lineage: true\nname: job"), "1:1: the last view has no column _lineage"),
    ],
)
def test_an_error_of_a_query_has_line_and_column(spark, change, error):
    file = job_file(change)
    with pytest.raises(JobError) as raised:
        run(spark, file, records(spark, b"{}"))
    assert str(raised.value).startswith(f"job.yaml:{error}")
    assert "\n" not in str(raised.value)


def test_the_example_of_the_documentation_sums_orders(spark):
    file = read_job(ROOT / "docs" / "examples" / "orders.yaml")
    order = b'{"id": "%s", "customer": %d, "amount": 1.5, "at": "2026-01-01T12:00:30Z"}'
    values = [order % (b"a", 2), order % (b"b", 4), order % (b"a", 2), order % (b"c", 1), b"no"]
    broken, north, south = run(spark, file, records(spark, *values))
    assert broken[0] == "orders-broken"
    assert north[:3] == (
        "orders-per-minute",
        b"north",
        b'{"minute":"2026-01-01T12:00:00.000Z","region":"north","orders":2,"total":3.00}',
    )
    assert south[1] == b"south"


@pytest.mark.parametrize(
    ("part", "option", "error"),
    [
        (
            "topic: in",
            "maxOfsetsPerTrigger: 1",
            "4:13: unknown option maxofsetspertrigger: did you",
        ),
        ("topic: out", "delivery: twice", "18:13: option delivery=twice is wrong"),
    ],
)
def test_an_option_that_is_refused_is_told_where_it_stands(part, option, error):
    from barnabas.pipeline.spark.job_options import check_options

    file = job_file(
        ("sink: {topic: out, key: id}", "sink:\n  topic: out"),
        (part, f"{part}\n  options: {{{option}}}"),
    )
    with pytest.raises(JobError, match=f"^job.yaml:{error}"):
        file.located(lambda: check_options(file.job))


def test_queries_that_cannot_be_a_stream_are_told(spark):
    file = job_file(
        ("id, amount * 2 AS twice", "amount, count(*) AS number"),
        ("WHERE amount > 1", "GROUP BY amount"),
        ("key: id", "mode: append"),
    )
    with pytest.raises(JobError, match=r"^job.yaml:15:7: rows of a group .* mode append"):
        check_as_stream(spark, file)


def check_as_stream(spark: "SparkSession", file: JobFile, **tables: "DataFrame") -> None:
    """Check the queries of a job whose sources are streams without brokers."""
    from barnabas.pipeline.spark.plan import build
    from barnabas.pipeline.spark.stream_rules import check_streaming

    rate = spark.readStream.format("rate")
    names = {"key": "binary", "value": "binary", "topic": "string", "partition": "int"}

    def read(*_: object) -> "DataFrame":
        return rate.load().selectExpr(
            *(f"CAST(null AS {kind}) AS {name}" for name, kind in names.items()),
            "value AS offset",
            "timestamp",
            f"CAST(null AS {HEADERS}) AS headers",
        )

    file.located(lambda: check_streaming(spark, file.job, build(spark, file.job, read, tables)))


CLICKS = "  - {topic: clicks, view: clicks, codec: json, schema: {id: string, at: timestamp}}"
TWO = f"""\
name: job
sources:
{CLICKS}
  - view: orders
    topic: orders
    codec: json
    schema: {{id: string, amount: int, at: timestamp}}
    watermark: {{column: at, delay: 1 minute}}
steps:
  - view: joined
    sql: |
      SELECT o.id, o.amount, c.at
      FROM orders o
      JOIN clicks c ON o.id = c.id
sink: {{topic: out, key: id}}
checkpoint: c
"""
CLICKS_WATERMARK = (
    "at: timestamp}}\n",
    "at: timestamp}, watermark: {column: at, delay: 1 minute}}\n",
)
BOUND = "c.id AND c.at BETWEEN o.at - INTERVAL 1 MINUTE AND o.at"


def two_sources(*changes: tuple[str, str]) -> JobFile:
    text = TWO
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return JobFile(Path("job.yaml"), text)


def test_views_of_two_sources_are_joined_and_bad_records_of_both_are_named(spark):
    from barnabas.pipeline.spark.plan import build

    file = two_sources(("checkpoint", "bad_records: bad\ncheckpoint"))
    values = {
        "orders": [b'{"id": "a", "amount": 5}', b'{"id": "b"}', b"no"],
        "clicks": [b'{"id": "a", "at": "2026-01-01T12:00:00Z"}', b"none"],
    }

    def read(_: object, source: object) -> "DataFrame":
        return records(spark, *values[source.view])  # type: ignore[attr-defined]

    rows = build(spark, file.job, read, {}).rows.collect()
    assert sorted((row.topic, bytes(row.value)) for row in rows) == [
        ("bad", b"no"),
        ("bad", b"none"),
        ("out", b'{"id":"a","amount":5,"at":"2026-01-01T12:00:00.000Z"}'),
    ]


@pytest.mark.parametrize(
    "changes",
    [
        (),
        (CLICKS_WATERMARK, ("JOIN clicks", "LEFT JOIN clicks"), ("c.id\n", f"{BOUND}\n")),
        (("key: id", "key: id, mode: update"),),
    ],
)
def test_joins_that_spark_can_run_are_accepted(spark, changes):
    check_as_stream(spark, two_sources(*changes))


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ((("JOIN clicks", "LEFT JOIN clicks"),), "14:7: a LEFT JOIN of two streams has to know"),
        (
            (("JOIN clicks", "FULL OUTER JOIN clicks"), CLICKS_WATERMARK),
            "14:7: a FULL JOIN of two streams has to know when no match can come any more: give"
            " both sides a watermark, and ON a bound of time",
        ),
        (
            (("o.amount, c.at", "o.amount"), ("JOIN clicks", "LEFT ANTI JOIN clicks")),
            "14:7: a LEFT ANTI JOIN cannot have a stream on its right",
        ),
        (
            (("JOIN clicks", "LEFT JOIN clicks"), ("key: id", "key: id, mode: update")),
            "14:7: a LEFT JOIN of two streams needs the mode append",
        ),
        (
            (("o.id = c.id", "o.id < c.id"),),
            "14:7: a join of two streams needs an equality in ON, such as a.id = b.id",
        ),
        (
            (("JOIN clicks c ON o.id = c.id", "JOIN clicks c ON o.id = c.id ORDER BY o.id"),),
            "14:36: a stream has no end at which it could be sorted: remove ORDER BY",
        ),
        (
            (
                ("o.id, o.amount, c.at", "count(DISTINCT o.amount) AS id"),
                ("o.id = c.id", "o.id = c.id GROUP BY o.at"),
            ),
            "12:19: a stream cannot count distinct values",
        ),
        (
            (("c.at\n", "row_number() OVER (PARTITION BY o.id ORDER BY o.at) AS n\n"),),
            "12:43: a stream has no functions OVER a window of rows",
        ),
        ((("column: at", "column: ta"),), "8:17: no column 'ta'; did you mean 'at'?"),
    ],
)
def test_a_join_that_spark_refuses_is_told_before_the_start(spark, changes, error):
    with pytest.raises(JobError) as raised:
        check_as_stream(spark, two_sources(*changes))
    assert str(raised.value).startswith(f"job.yaml:{error}")
    assert "\n" not in str(raised.value)


ENRICH = """\
name: job
source: {topic: in, codec: json, schema: {id: string, parity: int}}
tables:
  - {view: sides, TABLE}
steps:
  - view: enriched
    sql: SELECT s.id, t.name FROM source s LEFT JOIN sides t ON s.parity = t.parity
sink: {topic: out, key: id}
checkpoint: c
"""


def enriched(spark: "SparkSession", table: str, folder: Path) -> list[bytes]:
    from barnabas.pipeline.spark.plan import build
    from barnabas.pipeline.spark.tables import Tables

    file = JobFile(folder / "job.yaml", ENRICH.replace("TABLE", table))
    source = records(spark, b'{"id": "a", "parity": 1}', b'{"id": "b", "parity": 2}')
    tables = Tables(spark, file.job, folder)
    rows = file.located(lambda: build(spark, file.job, lambda *_: source, tables.read()))
    return sorted(bytes(row.value) for row in rows.rows.collect())


def write_table(spark: "SparkSession", kind: str, folder: Path) -> str:
    """Write one row, parity 1 with the name odd; return the keys of the table."""
    rows = spark.createDataFrame([(1, "odd")], "parity int, name string")
    writer = rows.write.mode("overwrite")
    if kind == "jdbc":
        url = f"jdbc:derby:{folder}/derby;create=true"
        writer.format("jdbc").options(url=url, dbtable="sides").save()
        return f'format: jdbc, options: {{url: "{url}", dbtable: sides}}'
    writer.format(kind).save(str(folder / "sides"))
    return f"format: {kind}, path: sides, schema: {{parity: int, name: string}}"


@pytest.mark.parametrize("kind", ["parquet", "csv", "json", "jdbc"])
def test_records_are_joined_with_a_table(spark, tmp_path, kind):
    log = str(tmp_path / "derby.log")
    spark._jvm.java.lang.System.setProperty("derby.stream.error.file", log)
    table = write_table(spark, kind, tmp_path)
    assert enriched(spark, table, tmp_path) == [b'{"id":"a","name":"odd"}', b'{"id":"b"}']


@pytest.mark.parametrize(
    ("table", "error"),
    [
        ("format: parquet, path: none", "4:36: table sides: Path does not exist: "),
        (
            "format: delta, path: x",
            "4:19: Spark has no package for delta; give spark.jars",
        ),
        (
            "format: jdbc, options: {url: jdbc:none:x, dbtable: t}",
            "4:19: Spark has no package for jdbc; give spark.jars.packages",
        ),
        (
            "format: jdbc, options: {url: jdbc:x, dbtable: t, driver: org.none.Driver}",
            "4:19: Spark has no package for jdbc; give spark.jars.packages",
        ),
        ("format: csv, path: bad, schema: {parity: int, name: string}", "4:6: table sides: "),
    ],
)
def test_a_table_that_cannot_be_read_is_told_before_the_start(spark, tmp_path, table, error):
    (tmp_path / "bad").write_text("one,odd\n")
    with pytest.raises(JobError) as raised:
        enriched(spark, table, tmp_path)
    assert str(raised.value).startswith(f"{tmp_path}/job.yaml:{error}")
    assert "\n" not in str(raised.value)


def test_a_table_of_a_topic_has_the_last_value_of_each_key(spark):
    from barnabas.pipeline.spark.tables import last_of_each_key

    def record(key: bytes | None, value: bytes | None, partition: int, offset: int, at: int):
        moment = NOON.replace(second=at)
        return (key, value, "in", partition, offset, moment, [])

    rows = [
        record(b"a", b"1", 0, 0, 9),
        record(b"a", b"2", 0, 1, 5),
        record(b"gone", b"1", 0, 2, 5),
        record(b"gone", None, 0, 3, 5),
        record(None, b"no key", 0, 4, 5),
        record(b"moved", b"old", 0, 9, 5),
        record(b"moved", b"new", 1, 0, 6),
    ]
    found = last_of_each_key(spark.createDataFrame(rows, STOCK)).collect()
    assert sorted((bytes(row.key), bytes(row.value), row.offset) for row in found) == [
        (b"a", b"2", 1),
        (b"moved", b"new", 0),
    ]


def test_a_table_is_read_again_when_it_is_due_and_stays_if_it_cannot_be(spark, tmp_path):
    from barnabas.pipeline.spark.tables import Tables

    table = write_table(spark, "parquet", tmp_path)
    text = ENRICH.replace("TABLE", f"{table}, refresh: 1 millisecond")
    file = JobFile(tmp_path / "job.yaml", text)
    tables = Tables(spark, file.job, tmp_path)

    def names() -> list[str]:
        return [row.name for row in tables.read()["sides"].collect()]

    assert names() == ["odd"]
    # Spark would forget what it keeps of a folder, if it wrote there itself.
    spark.sql("SELECT 3 AS parity, 'new' AS name").coalesce(1).write.parquet(str(tmp_path / "new"))
    [added] = (tmp_path / "new").glob("*.parquet")
    added.rename(tmp_path / "sides" / "added.parquet")
    until(lambda: tables.are_due)
    assert sorted(names()) == ["new", "odd"]
    tables.drop_old()
    (tmp_path / "sides").rename(tmp_path / "away")
    until(lambda: tables.are_due)
    with pytest.raises(Problem, match="Path does not exist"):
        tables.read()


JOINED = """\
  - {view: prices, format: csv, path: x, schema: {id: string, price: int}}
"""


@pytest.mark.parametrize(
    ("join", "error"),
    [
        ("orders o JOIN prices p", None),
        ("prices p JOIN orders o", None),
        ("orders o LEFT JOIN prices p", None),
        ("orders o RIGHT JOIN prices p", "a RIGHT JOIN cannot keep the rows of a table"),
        ("prices p RIGHT JOIN orders o", None),
        ("prices p LEFT JOIN orders o", "a LEFT JOIN cannot keep the rows of a table"),
        ("orders o FULL JOIN prices p", "a FULL JOIN cannot keep the rows of a table"),
        ("prices p FULL JOIN orders o", "a FULL JOIN cannot keep the rows of a table"),
        ("orders o LEFT SEMI JOIN prices p", None),
        ("prices p LEFT SEMI JOIN orders o", "a LEFT SEMI JOIN cannot keep the rows of a table"),
        ("orders o LEFT ANTI JOIN prices p", None),
        ("prices p LEFT ANTI JOIN orders o", "a LEFT ANTI JOIN cannot have a stream on its right"),
    ],
)
def test_joins_of_a_stream_with_a_table(spark, join, error):
    file = two_sources(
        (f"{CLICKS}\n", ""),
        ("orders o\n      JOIN clicks c ON o.id = c.id", f"{join} ON o.id = p.id"),
        ("o.id, o.amount, c.at", "o.id" if not join.startswith("prices p LEFT") else "p.id"),
        ("steps:", f"tables:\n{JOINED}steps:"),
    )
    prices = spark.createDataFrame([("a", 1)], "id string, price int")
    if error is None:
        check_as_stream(spark, file, prices=prices)
        return
    with pytest.raises(JobError, match=f"job.yaml:14:[0-9]+: {error}"):
        check_as_stream(spark, file, prices=prices)


SUMS = """\
name: job
source: {topic: in, codec: json, schema: {id: string, amount: int, at: timestamp}}
steps:
  - view: sums
    sql: SELECT id AS _key, sum(amount) AS total FROM source GROUP BY id
  - view: names
    sql: SELECT DISTINCT id AS value FROM source
sinks:
  - {topic: sums, from: sums}
  - {topic: large, from: sums, where: total > 5, mode: update}
  - {topic: names, codec: string}
checkpoint: c
"""


def test_rows_go_to_several_topics_in_one_pass_for_each_view(spark):
    from barnabas.pipeline.spark.plan import build

    file = JobFile(Path("job.yaml"), SUMS)
    values = [b'{"id": "a", "amount": 4}', b'{"id": "a", "amount": 2}', b'{"id": "b", "amount": 1}']
    assert [each[:3] for each in run(spark, file, records(spark, *values))] == [
        ("large", b"a", b'{"total":6}'),
        ("names", None, b"a"),
        ("names", None, b"b"),
        ("sums", b"a", b'{"total":6}'),
        ("sums", b"b", b'{"total":1}'),
    ]
    rows = build(spark, file.job, lambda *_: records(spark, b"{}"), {}).rows
    plan = rows._jdf.queryExecution().optimizedPlan().toString()
    # One for the sums of two topics, one for the names.
    assert plan.count("Aggregate") == 2


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (("total > 5", "totl > 5"), "10:39: "),
        (("total > 5", "total >"), "10:46: "),
        (("from: sums}", "from: sums, key: id}"), "9:31: no column 'id'; known: _key, total"),
    ],
)
def test_an_error_of_a_sink_has_line_and_column(spark, change, error):
    with pytest.raises(JobError) as raised:
        run(spark, JobFile(Path("job.yaml"), SUMS.replace(*change)), records(spark, b"{}"))
    assert str(raised.value).startswith(f"job.yaml:{error}")
    assert "\n" not in str(raised.value)


FILES = """\
name: job
source: {topic: in, codec: json, schema: {id: string, amount: int}}
steps:
  - view: large
    sql: SELECT _key, id, amount * 2 AS twice FROM source WHERE amount > 1
sinks:
  - {topic: out, from: source}
  - {path: large, format: csv}
  - {path: all, format: json, from: source, where: id != 'b'}
bad_records: bad
checkpoint: c
"""


def test_rows_of_files_are_beside_the_records_of_topics(spark):
    from barnabas.pipeline.spark.plan import RECORD, build

    file = JobFile(Path("job.yaml"), FILES)
    values = [b'{"id": "a", "amount": 4}', b'{"id": "b", "amount": 2}', b"no"]
    rows = file.located(lambda: build(spark, file.job, lambda *_: records(spark, *values), {})).rows
    assert rows.columns == [*RECORD, "_file_1", "_file_2"]
    found = [row for row in rows.collect() if row.topic is None]
    assert {
        (row._file_1 and tuple(row._file_1), row._file_2 and tuple(row._file_2)) for row in found
    } == {
        (("a", 8), None),
        (("b", 4), None),
        (None, ("a", 4)),
    }
    topics = sorted((row.topic, bytes(row.value)) for row in rows.collect() if row.topic)
    assert topics == [
        ("bad", b"no"),
        ("out", b'{"id":"a","amount":4}'),
        ("out", b'{"id":"b","amount":2}'),
    ]


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (
            ("amount * 2 AS twice", "amount AS Batch"),
            "8:6: column 'Batch' has the name of a folder",
        ),
        (("amount * 2 AS twice", "array(1) AS a"), "8:19: column 'a' is array<int>, which csv"),
        (("id != 'b'", "ix != 'b'"), "9:52: "),
        (("_key, id, amount * 2 AS twice", "_key"), "8:19: the view has no column for the value"),
    ],
)
def test_an_error_of_a_sink_of_files_has_line_and_column(spark, change, error):
    assert change[0] in FILES
    with pytest.raises(JobError) as raised:
        run(spark, JobFile(Path("job.yaml"), FILES.replace(*change)), records(spark, b"{}"))
    assert str(raised.value).startswith(f"job.yaml:{error}")
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("bad_records", ["", "bad_records: bad\n"])
def test_a_source_whose_view_is_not_read_is_told_with_line_and_column(spark, bad_records):
    text = f"""\
name: job
sources:
  - {{topic: orders}}
  - {{topic: clicks, view: clicks}}
steps:
  - {{view: unused, sql: SELECT * FROM clicks}}
  - {{view: out, sql: "SELECT * FROM source"}}
sink: {{topic: out, codec: binary}}
{bad_records}checkpoint: c
"""
    with pytest.raises(JobError) as raised:
        run(spark, JobFile(Path("job.yaml"), text), records(spark, b"{}"))
    assert str(raised.value) == (
        "job.yaml:4:21: no sink gets rows of view 'clicks': remove the source, or query its view"
    )
    used = text.replace("* FROM source", "s.value FROM source s, (SELECT * FROM unused)")
    assert len(run(spark, JobFile(Path("job.yaml"), used), records(spark, b"1"))) == 1


def test_ctrl_c_stays_with_the_command_when_spark_has_started():
    from barnabas.pipeline.spark.job import own_interrupts

    before = signal.getsignal(signal.SIGINT)
    with own_interrupts():
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    assert signal.getsignal(signal.SIGINT) is before


def test_spark_without_java_is_told_in_one_line(monkeypatch, tmp_path):
    from barnabas.pipeline.spark.job import JobFailed, session_of

    job = job_file().job
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(JobFailed, match=r"JAVA_HOME is .*; correct or unset it"):
        session_of(job, log_level="off").__enter__()
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(JobFailed, match="install Java 17 or newer"):
        session_of(job, log_level="off").__enter__()
