"""The figures of a job from Spark's progress events."""

import json
from dataclasses import asdict

import pytest

from barnabas.pipeline.monitor.progress import (
    LastDecision,
    Monitor,
    Progress,
    SinkState,
    SinkTransaction,
    failure_text,
    read_event,
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
            "stateOperators": [{"numRowsTotal": 7, "numRowsDroppedByWatermark": 2}],
            "sources": [
                {
                    "endOffset": json.dumps({"in": {"0": 10, "1": 20}}),
                    "latestOffset": {"in": {"0": 15, "1": 20, "2": 3}},
                    "numInputRows": 40,
                }
            ],
            "sink": {"numOutputRows": 18},
            "observedMetrics": {
                "seen_0": {"rows": 15, "bad": 2},
                "seen_1": {"rows": 5, "bad": 0},
                "other": {"rows": 2},
            },
            **changes,
        }
    )


def test_an_event_has_the_figures_of_its_batch():
    batch = read_event(event(), "seen", tasks_ended=NOON + 0.83)
    assert (batch.number, batch.ended_at_seconds) == (5, NOON + 1)
    assert (batch.rows_in, batch.rows_out, batch.bad_rows, batch.late_rows) == (20, 18, 2, 2)
    assert (batch.source_ms, batch.tasks_ms, batch.commit_ms) == (10, 350, 150)
    assert (batch.checkpoint_ms, batch.total_ms, batch.state_rows) == (50, 1000, 7)
    assert batch.lag == 5 + 3
    assert batch.watermark == "2026-01-01T11:50:00.000Z"


def test_unknown_figures_are_left_open():
    sources = [{"endOffset": "7", "latestOffset": None}]
    text = event(sink={"numOutputRows": -1}, sources=sources, observedMetrics={})
    batch = read_event(text, "seen")
    assert (batch.rows_in, batch.rows_out, batch.lag) == (40, None, None)
    assert (batch.tasks_ms, batch.commit_ms) == (500, 0)


def test_an_event_without_data_repeats_no_rows():
    batch = read_event(event(numInputRows=0), "seen")
    assert (batch.rows_in, batch.bad_rows) == (0, 0)


def test_rates_are_means_that_fall_when_no_batch_comes():
    monitor = Monitor("job", "sink", NOON - 100)
    monitor.add(read_event(event(), "seen"))
    assert monitor.progress(NOON + 10).rows_in_per_s == pytest.approx(20 / 30)
    later = monitor.progress(NOON + 40)
    assert (later.rows_in_per_s, later.rows_in, later.rows_out) == (0, 20, 18)


def test_a_repeated_event_counts_once_and_renews_the_lag():
    monitor = Monitor("job", "sink", NOON)
    monitor.add(read_event(event(), "seen"))
    monitor.add(read_event(event(sources=[]), "seen"))
    monitor.add(read_event(event(6), "seen"))
    progress = monitor.progress(NOON + 1)
    assert (progress.batches, progress.rows_in, progress.bad_rows) == (2, 40, 4)
    assert monitor.last_batch == 6


def full_progress() -> Progress:
    monitor = Monitor("job", "sink", NOON)
    monitor.state = "running"
    monitor.add(read_event(event(), "seen", NOON + 0.83))
    kept = SinkTransaction("sink.a.0", 7, 3, 12.0, True)
    other = SinkTransaction("sink.a.1", 8, 0, 1.0, False)
    monitor.cluster = SinkState(LastDecision(5, "q", 2, 18, 40), (kept, other), None)
    return monitor.progress(NOON + 10)


@pytest.mark.parametrize(
    "progress", [full_progress(), Monitor("job", "sink", NOON).progress(NOON)], ids=["full", "new"]
)
def test_progress_is_read_back_from_its_line(progress):
    line = json.dumps(asdict(progress))
    assert Progress.from_json(line) == progress


@pytest.mark.parametrize("text", ["{}", "[]", "1", "{"])
def test_a_line_that_is_no_progress_is_refused(text):
    with pytest.raises(ValueError, match=r"not a progress|Expecting"):
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
