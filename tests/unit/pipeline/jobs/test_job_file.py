"""Job files: what their keys mean, and the error with line and column for each mistake."""

from pathlib import Path

import pytest

from barnabas.pipeline.jobs.reading import JobError, JobFile, TextProblem, read_job
from barnabas.pipeline.jobs.spec import Problem, seconds_of

GOOD = """\
name: orders
source: {topic: in, codec: json, schema: {id: string not null, price: "decimal(10, 2)"}}
steps:
  - view: timely
    watermark: {column: at, delay: 10 minutes}
  - view: once
    dedupe: {from: timely, columns: id}
  - view: all
    sql: |
      SELECT *
      FROM once
sink:
  topic: out
checkpoint: points
spark: {spark.sql.shuffle.partitions: 4, spark.ui.enabled: false}
"""
PATH = Path("/jobs/job.yaml")


def problem_of(text: str) -> str:
    with pytest.raises(JobError) as raised:
        JobFile(PATH, text)
    return str(raised.value).replace(str(PATH), "job.yaml")


def test_keys_that_are_left_out_have_defaults():
    file = JobFile(PATH, GOOD)
    job = file.job
    assert [source.topics for _, source in job.inputs] == [["in"]]
    assert (job.sink_id, job.last_view, job.bad_topic) == ("orders", "all", None)
    assert (job.trigger, job.mode, job.outputs[0][1].codec) == ("0 seconds", "append", "json")
    assert job.spark == {"spark.sql.shuffle.partitions": "4", "spark.ui.enabled": "false"}
    assert job.steps[1].input == "timely"
    assert job.topics == ["out"]
    assert file.checkpoint == "/jobs/points"


@pytest.mark.parametrize(
    ("sinks", "keeps_all"),
    [
        ("[{topic: a}, {topic: b, where: x > 1}]", True),
        ("[{topic: a, where: x < 1}, {topic: b, where: x > 1}]", False),
    ],
)
def test_verify_expects_no_records_that_a_where_drops(sinks, keeps_all):
    text = f"name: a\nsource: {{topic: in}}\nsinks: {sinks}\ncheckpoint: points\n"
    assert JobFile(PATH, text).job.keeps_all == keeps_all


def test_a_checkpoint_with_a_scheme_stands_as_it_is():
    assert JobFile(PATH, GOOD.replace("points", "s3a://a/b")).checkpoint == "s3a://a/b"


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        ("topic: out", "topik: out", "13:3: unknown key 'topik'; did you mean 'topic'?"),
        ("column: at", "colum: at", "5:17: unknown key 'colum'; did you mean 'column'?"),
        ("codec: json", "codec: jsn", "2:21: codec: 'jsn' is not possible; did you mean 'json'?"),
        ("topic: in", "topic: 5", "2:10: topic must be text; put 5 in quotes"),
        ("topic: in", "topic: [in, 5]", "2:22: topic must be text; put 5 in quotes"),
        ("topic: in", "topic: a b", "2:10: topic: 'a b' has characters that are not allowed"),
        (
            "topic: in",
            "topic: in, pattern: a.*",
            "2:1: a source needs one of the keys 'topic' and 'pattern'",
        ),
        (
            "schema: {id: string not null",
            "schema: {id: strng not null",
            "2:43: 'strng not null' is not a type of Spark SQL; did you mean 'string'?",
        ),
        ("{id: string", "{_id: string", "2:1: column '_id': names that begin with _ are for the "),
        (
            'schema: {id: string not null, price: "decimal(10, 2)"}',
            "",
            "2:1: codec json needs the ",
        ),
        ("codec: json", "codec: string", "2:1: 'schema' and 'json_options' need codec json"),
        ("10 minutes", "10 minuts", "5:29: '10 minuts' is not a duration such as '10 seconds'"),
        (
            "from: timely",
            "from: timly",
            "7:14: no view 'timly' stands before; did you mean 'timely'?",
        ),
        ("view: once", "view: timely", "6:5: view 'timely' is there already; choose another name"),
        ("view: once", "view: Timely", "6:5: view 'Timely' is there already; choose another name"),
        ("columns: id", "columns: []", "7:28: columns must not be empty"),
        (
            "    sql: |\n      SELECT *\n      FROM once",
            "",
            "8:5: step 'all' needs one of the keys",
        ),
        ("topic: out", "topic: out\n  from: al", "14:3: no view 'al' stands before; did you mean"),
        (
            "topic: out",
            "topic: out\n  options: {sinkID: a}",
            "14:13: option 'sinkID' is set by sink.id; remove it",
        ),
        ("checkpoint: points\n", "", "1:1: the job needs the key 'checkpoint'"),
        ("source: {", "sourc: {", "2:1: unknown key 'sourc'; did you mean 'source'?"),
        ("source: {", "sources: []\nsource: {", "2:1: sources must not be empty"),
        ("source: {", "sources: [{topic: a}]\nsource: {", "1:1: the job needs one of the keys"),
        (
            "source: {topic: in, codec: json",
            "sources:\n  - {topic: in}\n  - {topic: in, codec: json",
            "4:5: view 'source' is there already; choose another name",
        ),
        (
            "source: {topic: in, codec: json",
            "sources:\n  - {topic: in}\n  - {codec: json",
            "4:5: a source needs one of the keys 'topic' and 'pattern'",
        ),
        ("column: at, ", "", "5:5: steps[0].watermark needs the key 'column'"),
        ("spark: {", "bad_records: out\nx: {", "16:1: unknown key 'x'; known: bad_records, "),
        ("spark: {", "bad_records: out\nspark: {", "15:1: bad records need a topic of their own"),
        ("spark: {", "lineage: maybe\nspark: {", "15:1: lineage must be true or false"),
        ("spark: {", "trigger: 5\nspark: {", "15:1: 5 is not a duration such as '10 seconds'"),
        (
            "spark: {",
            "trigger: {continuous: 1 second}\nspark: {",
            "15:1: continuous processing and real-time mode have no batches that a sink could",
        ),
        (
            "spark: {",
            "trigger: real-time\nspark: {",
            "15:1: continuous processing and real-time mode have no batches that a sink could",
        ),
        ("steps:", "steps: {a: 1}\nfoo:", "3:1: steps must be a list"),
        ("name: orders", "name: a.b", "1:1: name: 'a.b' has characters that are not allowed"),
        ("name: orders", "name: a\nname: b", "2:1: key 'name' stands here twice"),
        ("name: orders", "name: &a [*a]", "1:7: too many values; is it a job file?"),
        ("name: orders", "? [a]\n: b", "1:3: a key must be plain text"),
        ("topic: out", "topic: [out", "14:11: not YAML: expected ',' or ']'"),
        (GOOD, "", "1:1: the file is empty"),
        (GOOD, "- 1", "1:1: the file must be a mapping of keys to values"),
    ],
)
def test_a_mistake_is_told_with_line_and_column(old, new, error):
    assert old in GOOD
    first, *_ = problem_of(GOOD.replace(old, new, 1)).splitlines()
    assert first.startswith(f"job.yaml:{error}")


TABLES = """\
name: orders
source: {topic: in}
tables:
  - {view: products, topic: products, codec: json, schema: {id: string}}
  - {view: regions, format: csv, path: regions.csv, schema: {id: string}}
  - view: users
    format: jdbc
    options: {url: jdbc:x, dbtable: users, password: {env: TABLE_PASSWORD}}
    refresh: 10 minutes
sink: {topic: out, codec: binary}
checkpoint: points
"""


def test_a_table_has_its_secrets_elsewhere(monkeypatch):
    monkeypatch.setenv("TABLE_PASSWORD", "hidden")
    file = JobFile(PATH, TABLES)
    assert file.job.tables[2].options["password"] == "hidden"
    assert "hidden" not in repr(file.job)
    assert seconds_of(file.job.tables[2].refresh or "") == 600


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        ("format: csv", "format: cvs", "5:21: format: 'cvs' is not possible; did you mean 'csv'?"),
        ("format: csv, ", "", "5:5: table 'regions' needs one of the keys 'topic' and 'format'"),
        ("format: csv", "topic: a", "5:5: table 'regions': key 'path' is for a format"),
        (", path: regions.csv", "", "5:5: table 'regions': format csv needs the key 'path'"),
        (", schema: {id: string}}\n  - view: users", "}\n  - view: users", "5:5: table 'regions':"),
        ("jdbc\n", "jdbc\n    path: x\n", "6:5: table 'users': format jdbc needs the options"),
        ("topic: products", "topic: products, pattern: p.*", "4:5: table 'products': key"),
        ("view: regions", "view: products", "5:6: view 'products' is there already"),
        ("{env: TABLE_PASSWORD}", "hidden", "8:5: password: a secret does not belong into a job"),
        ("TABLE_PASSWORD", "NO_PASSWORD", "8:5: password: set the environment variable NO_PAS"),
        ("10 minutes", "sometimes", "9:5: 'sometimes' is not a duration such as"),
        ("topic: out", "topic: out, from: regions", "10:20: view 'regions' is a table; a sink"),
    ],
)
def test_a_mistake_in_a_table_is_told_with_line_and_column(monkeypatch, old, new, error):
    monkeypatch.setenv("TABLE_PASSWORD", "hidden")
    assert old in TABLES
    first, *_ = problem_of(TABLES.replace(old, new, 1)).splitlines()
    assert first.startswith(f"job.yaml:{error}")


SINKS = """\
name: orders
source: {topic: in}
sinks:
  - {topic: a, codec: binary, id: one, mode: update, options: {compression: zstd}}
  - {topic: b, codec: binary, id: one, options: {compression: zstd}}
checkpoint: points
"""


def test_sinks_have_one_id_one_mode_and_one_set_of_options():
    job = JobFile(PATH, SINKS).job
    assert (job.sink_id, job.mode, job.topics) == ("one", "update", ["a", "b"])
    assert job.sink_options == {"compression": "zstd"}


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        ("b, codec: binary, id: one", "b, codec: binary, id: two", "5:31: id 'two' contradicts"),
        ("id: one, options", "mode: append, options", "5:31: mode 'append' contradicts 'update'"),
        ("zstd}}\nch", "lz4}}\nch", "5:50: compression 'lz4' contradicts 'zstd' of the sink for a"),
        ("topic: b, codec: binary", "topic: a, codec: string", "5:16: topic a has codec binary in"),
        ("topic: b", "topic: a", "5:6: an earlier sink writes these rows to a already; remove"),
        ("topic: b", "topic: b, from: al", "5:16: no view 'al' stands before; known: source"),
        ("name:", "bad_records: b\nname:", "1:1: bad records need a topic of their own"),
        ("sinks:", "sink: {topic: c}\nsinks:", "1:1: the job needs one of the keys 'sink' and"),
    ],
)
def test_sinks_that_contradict_each_other_are_told_with_line_and_column(old, new, error):
    assert old in SINKS
    first, *_ = problem_of(SINKS.replace(old, new, 1)).splitlines()
    assert first.startswith(f"job.yaml:{error}")


def test_several_mistakes_are_told_in_the_order_of_the_file():
    text = GOOD.replace("codec: json", "codec: jsn").replace("name:", "nam:")
    lines = problem_of(text).splitlines()
    assert [line.split(": ")[0] for line in lines] == [
        "job.yaml:1:1",
        "job.yaml:2:21",
    ]


def test_a_character_that_yaml_forbids_is_refused():
    assert problem_of("name: \x01").startswith("job.yaml: not YAML: ")


def test_aliases_cannot_stand_for_too_many_values():
    doubled = "".join(f"  - &a{n} [{', '.join(4 * [f'*a{n - 1}'])}]\n" for n in range(1, 9))
    assert "too many values" in problem_of(f"name:\n  - &a0 x\n{doubled}")


@pytest.mark.parametrize(
    ("sql", "position"),
    [
        ("|\n      SELECT *\n      FROM once", "11:9"),
        (">\n      SELECT *\n      FROM once", "9:10"),
        ("SELECT * FROM once", "9:12"),
        ('"SELECT * FROM once"', "9:13"),
    ],
)
def test_a_position_in_a_query_becomes_one_in_the_file(sql, position):
    file = JobFile(PATH, GOOD.replace("|\n      SELECT *\n      FROM once", sql))
    line = 1 if sql.startswith("|") else 0
    problem = TextProblem(("steps", 2, "sql"), "wrong", line, 2)
    assert str(file.failure([problem])) == f"{PATH}:{position}: wrong"


def test_a_problem_inside_an_unknown_place_is_told_at_the_next_mapping():
    file = JobFile(PATH, GOOD)
    assert str(file.failure([Problem(("sink", "mode"), "wrong")])) == f"{PATH}:12:1: wrong"


def test_a_file_that_is_not_text_is_refused(tmp_path):
    path = tmp_path / "job.yaml"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(JobError, match="not UTF-8; is it a job file"):
        read_job(path)


FILES = """\
name: job
source: {topic: in}
sinks:
  - {topic: out, codec: binary}
  - {path: archive, format: parquet, from: source}
checkpoint: c
"""


def test_sinks_of_files_stand_beside_those_of_topics():
    job = JobFile(PATH, FILES).job
    assert [(location, sink.topic) for location, sink in job.outputs] == [(("sinks", 0), "out")]
    assert [(location, sink.path) for location, sink in job.files] == [(("sinks", 1), "archive")]
    assert job.topics == ["out"]


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        ("format: parquet", "format: csw", "5:21: format: 'csw' is not possible; did you mean"),
        ("format: parquet", "forma: csv", "5:21: unknown key 'forma'; did you mean 'format'?"),
        (", format: parquet", "", "5:5: sinks[1] needs the key 'format'"),
        ("path: archive, ", "", "5:5: sinks[1] needs the key 'path'"),
        ("path: archive", "topic: b, path: archive", "5:16: unknown key 'path'; known: codec"),
        ("from: source", "from: sourse", "5:38: no view 'sourse' stands before; did you mean"),
        ("from: source", "options: {Path: a}", "5:48: option 'Path' is set by path; remove it"),
        ("from: source", "options: {password: a}", "5:38: password: a secret does not belong"),
        ("codec: binary", "codec: binary, mode: update", "5:5: files take rows that stay as they"),
        ("  - {topic: out, codec: binary}\n", "", "1:1: the job needs a sink with a topic"),
        (
            "checkpoint",
            "  - {path: archive/, format: csv}\ncheckpoint",
            "6:6: an earlier sink writes files to archive; choose another path",
        ),
    ],
)
def test_faults_of_sinks_of_files_are_told_with_line_and_column(old, new, error):
    assert old in FILES
    assert problem_of(FILES.replace(old, new)).startswith(f"job.yaml:{error}")
