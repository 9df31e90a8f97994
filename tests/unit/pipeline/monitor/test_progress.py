"""The figures of a job from Spark's progress events."""

import json
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import pytest

from barnabas.pipeline.jobs.reading import JobFile
from barnabas.pipeline.monitor.events import failure_text, read_event, view_finder
from barnabas.pipeline.monitor.file import ProgressFile
from barnabas.pipeline.monitor.progress import (
    BadExample,
    BadRecords,
    BatchEvent,
    DecisionCounts,
    LastDecision,
    Monitor,
    Progress,
    SinkState,
    SinkTransaction,
    SourceLag,
    StateOperator,
    TopicLag,
)

NOON = 1767268800.0


def event(number: int = 5, **changes: object) -> str:
    """Return a progress event as Spark 4.3 writes it."""
    return json.dumps(
        {
            "batchId": number,
            "timestamp": "2026-01-01T12:00:00.000Z",
            "numInputRows": 40,
            "durationMs": {
                "addBatch": 500,
                "commitOffsets": 20,
                "getBatch": 1,
                "latestOffset": 9,
                "queryPlanning": 70,
                "triggerExecution": 1000,
                "walCommit": 30,
            },
            "eventTime": {"watermark": "2026-01-01T11:50:00.000Z"},
            "stateOperators": [
                {
                    "operatorName": "dedupe",
                    "numRowsTotal": 7,
                    "numRowsDroppedByWatermark": 2,
                    "numRowsRemoved": 3,
                    "memoryUsedBytes": 900,
                },
                {"operatorName": "symmetricHashJoin", "numRowsTotal": 1, "memoryUsedBytes": 50},
            ],
            "sources": [
                {
                    "endOffset": json.dumps({"in": {"0": 10, "1": 20}}),
                    "latestOffset": {"in": {"0": 15, "1": 20, "2": 3}},
                    "numInputRows": 40,
                }
            ],
            "sink": {"numOutputRows": 18},
            "observedMetrics": {
                "barnabas_input_orders": {
                    "rows": 15,
                    "value.not_json": 2,
                    "first.value.not_json": {
                        "topic": "in",
                        "partition": 0,
                        "offset": 4,
                        "schema": None,
                    },
                    "key.misfit": 0,
                    "first.key.misfit": None,
                },
                "barnabas_input_clicks": {"rows": 5},
                "other": {"rows": 2},
            },
            **changes,
        }
    )


def read(text: str, tasks_ended: float | None = None) -> BatchEvent:
    def view_of(topics: Collection[str]) -> str:
        return f"view of {', '.join(sorted(topics))}"

    return read_event(text, view_of, tasks_ended)


def test_an_event_has_the_figures_of_its_batch():
    batch = read(event(), NOON + 0.83).batch
    assert (batch.number, batch.ended_at_seconds) == (5, NOON + 1)
    assert (batch.rows_in, batch.rows_out, batch.bad_rows, batch.late_rows) == (20, 18, 2, 2)
    assert (batch.source_ms, batch.tasks_ms, batch.commit_ms) == (10, 350, 150)
    assert (batch.checkpoint_ms, batch.total_ms, batch.state_rows) == (50, 1000, 8)
    assert batch.lag == 5 + 3
    assert (batch.watermark, batch.watermark_delay_ms) == ("2026-01-01T11:50:00.000Z", 600_000)


def test_an_event_has_the_lag_of_each_source_and_each_operator_with_state():
    pair = {
        "endOffset": {"a": {"0": 1}, "b": {"0": 5}},
        "latestOffset": {"a": {"0": 4}, "b": {"0": 5}},
    }
    again = {**pair, "latestOffset": {"a": {"0": 9}, "b": {"0": 5}}}
    found = read(
        event(sources=[pair, again, {"endOffset": {"c": {}}, "latestOffset": {"c": {"1": 2}}}])
    )
    # A source that the plan has twice is one.
    both = SourceLag("view of a, b", (TopicLag("a", 8), TopicLag("b", 0)))
    assert found.sources == (both, SourceLag("view of c", (TopicLag("c", 2),)))
    assert found.batch.lag == 10
    assert found.operators == (
        StateOperator(0, "dedupe", 7, 900, 2, 3),
        StateOperator(1, "symmetricHashJoin", 1, 50, 0, 0),
    )


def test_bad_records_are_counted_by_reason_with_the_last_example():
    first = BadRecords("orders", "value", "not_json", 2, BadExample("in", 0, 4, None))
    none = BadRecords("orders", "key", "misfit", 0, None)
    assert read(event()).bad == (first, none)
    monitor = Monitor("job", "sink", NOON)
    monitor.add(read(event()))
    monitor.add(read(event(6)))
    # Spark repeats the metrics of the last batch in one without data.
    monitor.add(read(event(7, numInputRows=0)))
    progress = monitor.progress(NOON)
    assert [each.records for each in progress.bad] == [4, 0]
    assert progress.bad[0].example == BadExample("in", 0, 4, None)
    assert (progress.bad_rows, progress.late_rows) == (4, 6)
    assert [each.late_rows for each in progress.operators] == [6, 0]
    assert [(each.rows, each.removed_rows) for each in progress.operators] == [(7, 9), (1, 0)]


def test_a_watermark_of_1970_is_none_yet():
    text = event(eventTime={"watermark": "1970-01-01T00:00:00.000Z"})
    assert read(text).batch.watermark_delay_ms is None


JOB = """\
name: job
sources:
  - {topic: [a, b], view: both}
  - {topic: a, view: one}
  - {pattern: 'c.*', view: some}
steps: [{view: all, sql: "SELECT b.value FROM both b, one, some"}]
sink: {topic: out}
checkpoint: c
"""


@pytest.mark.parametrize(
    ("topics", "view"),
    [({"b", "a"}, "both"), ({"a"}, "one"), ({"c1", "c2"}, "some"), ({"c", "d"}, "c, d")],
)
def test_a_source_of_an_event_is_found_by_its_topics(topics, view):
    assert view_finder(JobFile(Path("job.yaml"), JOB).job)(topics) == view


def test_waiting_and_the_end_of_a_batch_are_progress():
    monitor = Monitor("job", "sink", NOON)
    assert monitor.progress(NOON + 9).progressed_at_seconds == NOON
    monitor.add(read(event()))
    assert monitor.progress(NOON + 9).progressed_at_seconds == NOON + 1
    monitor.progressed_at = NOON + 5
    monitor.add(read(event(6)))
    assert monitor.progress(NOON + 9).progressed_at_seconds == NOON + 5


def test_the_progress_is_kept_in_the_folder_of_the_checkpoint(tmp_path):
    file = ProgressFile(str(tmp_path / "points"))
    assert file.read() is None
    progress = full_progress()
    file.write(progress)
    # Spark makes the folder.
    assert file.read() is None
    (tmp_path / "points").mkdir()
    file.write(progress)
    assert ProgressFile((tmp_path / "points").as_uri()).read() == progress
    soon = replace(progress, at_seconds=progress.at_seconds + 1)
    file.write(soon)
    assert file.read() == progress
    for new in (replace(soon, batches=9), replace(soon, batches=9, at_seconds=NOON + 100)):
        file.write(new)
        assert file.read() == new
    [path] = (tmp_path / "points").iterdir()
    path.write_text("{}")
    assert file.read() is None
    ProgressFile("hdfs://points").write(progress)


def test_unknown_figures_are_left_open():
    sources = [{"endOffset": "7", "latestOffset": None}]
    text = event(sink={"numOutputRows": -1}, sources=sources, observedMetrics={})
    batch = read(text).batch
    assert (batch.rows_in, batch.rows_out, batch.lag) == (40, None, None)
    assert (batch.tasks_ms, batch.commit_ms) == (500, 0)


def test_an_event_without_data_repeats_no_rows():
    batch = read(event(numInputRows=0)).batch
    assert (batch.rows_in, batch.bad_rows) == (0, 0)


def test_rates_are_means_that_fall_when_no_batch_comes():
    monitor = Monitor("job", "sink", NOON - 100)
    monitor.add(read(event()))
    assert monitor.progress(NOON + 10).rows_in_per_s == pytest.approx(20 / 30)
    later = monitor.progress(NOON + 40)
    assert (later.rows_in_per_s, later.rows_in, later.rows_out) == (0, 20, 18)


def test_a_repeated_event_counts_once_and_renews_the_lag():
    monitor = Monitor("job", "sink", NOON)
    monitor.add(read(event()))
    monitor.add(read(event(sources=[])))
    monitor.add(read(event(6)))
    progress = monitor.progress(NOON + 1)
    assert (progress.batches, progress.rows_in, progress.bad_rows) == (2, 40, 4)
    assert monitor.last_batch == 6


def full_progress() -> Progress:
    monitor = Monitor("job", "sink", NOON)
    monitor.state = "running"
    monitor.add(read(event(), NOON + 0.83))
    kept = SinkTransaction("sink.a.0", 7, 3, 12.0, True)
    other = SinkTransaction("sink.a.1", 8, 0, 1.0, False)
    monitor.cluster = SinkState(
        LastDecision(5, "q", 2, 18, 40), DecisionCounts(5, 9, 1), (kept, other), None
    )
    return monitor.progress(NOON + 10)


@pytest.mark.parametrize(
    "progress", [full_progress(), Monitor("job", "sink", NOON).progress(NOON)], ids=["full", "new"]
)
def test_progress_is_read_back_from_its_line(progress):
    assert Progress.from_json(progress.to_json()) == progress


@pytest.mark.parametrize("text", ["{}", "[]", "1", "{"])
def test_a_line_that_is_no_progress_is_refused(text):
    with pytest.raises(ValueError, match="not a progress of this version: "):
        Progress.from_json(text)


@pytest.mark.parametrize(
    ("message", "line"),
    [
        (
            "[STREAM_FAILED] Query [id = 1] terminated with exception: x\n"
            "  File ..., line 3\n"
            "barnabas.pipeline.sink.protocol.SinkError: batch 3 is not committed: because\n"
            "\n\tat org.apache.spark.X",
            "batch 3 is not committed: because",
        ),
        (
            "Job aborted\norg.apache.spark.SparkRuntimeException: [USER_RAISED_EXCEPTION] bad"
            " record at in/0@4: value is null SQLSTATE: P0001\n\tat x",
            "bad record at in/0@4: value is null",
        ),
        ("trace\nValueError: no such thing\n\tat x", "ValueError: no such thing"),
        ("[CODE.X] It is so. SQLSTATE: 1234\n more", "It is so."),
        ("", "unknown failure"),
    ],
)
def test_the_cause_of_a_failed_query_is_one_line(message, line):
    assert failure_text(message) == line
