"""The sink's calls from Spark, without a session: checks that need no cluster, and checkpoints."""

from pathlib import Path

import pytest
from pyspark.sql.types import StringType, StructField, StructType

from barnabas.pipeline.sink.options import SinkOptions, SinkOptionsError, parse_options
from barnabas.pipeline.sink.planning import SinkPlan
from barnabas.pipeline.sink.port import Identity, Place
from barnabas.pipeline.sink.protocol import SinkError, Winner
from barnabas.pipeline.sink.task import TaskLabel
from barnabas.pipeline.spark import sink
from barnabas.pipeline.spark.sink import (
    QUERY_OF_WRITES,
    BatchWriter,
    Driver,
    SinkMessage,
    StreamWriter,
    digest_of,
    plan_sink,
    query_of,
)

OPTIONS = {"kafka.bootstrap.servers": "localhost:1", "sinkid": "orders", "topic": "out"}
SCHEMA = StructType([StructField("value", StringType())])
WINNER = Winner("orders.p.0", Identity(1, 2), 3, Place("out", 0, 5))


def plan(**options: str) -> SinkPlan:
    return SinkPlan(parse_options({**OPTIONS, **options}, streaming=True), 60_000, False)


class _Task:
    """The part of the context of a task that the sink asks."""

    def __init__(self, **properties: str) -> None:
        self._properties = properties

    def getLocalProperty(self, name: str) -> str | None:
        return self._properties.get(name)

    def partitionId(self) -> int:
        return 0

    attemptNumber = partitionId


def test_workers_that_are_not_used_again_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_REUSE_WORKER", raising=False)
    with pytest.raises(SinkOptionsError, match=r"spark\.python\.worker\.reuse=false .* set it to"):
        plan_sink(OPTIONS, SCHEMA, streaming=True, overwrite=False)


def test_cluster_is_asked_once_for_all_batches_of_foreach_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each number was a plan of its own, and a process kept them all."""
    asked = []

    def run(options: SinkOptions, _: object) -> SinkPlan:
        asked.append(options)
        return SinkPlan(options, 60_000, False)

    monkeypatch.setenv("SPARK_REUSE_WORKER", "1")
    monkeypatch.setattr(sink, "run", run)
    given = {**OPTIONS, "topic": "asked-once"}
    plans = [
        plan_sink({**given, "batchid": str(number)}, SCHEMA, streaming=False, overwrite=False)
        for number in range(3)
    ]
    assert [each.options.batch_number for each in plans] == [0, 1, 2]
    assert len(asked) == 1


def test_task_without_local_properties_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink.TaskContext, "get", classmethod(lambda _: _Task()))  # type: ignore[attr-defined]
    with pytest.raises(SinkError, match="use a micro-batch trigger of PySpark"):
        StreamWriter(Driver(plan())).write(iter(()))


@pytest.mark.parametrize(
    ("name", "value", "more"),
    [
        ("sql.streaming.queryId", "0e6b", ""),
        (
            "spark.job.tags",
            "SparkConnect_OperationTag_User_a_Session_b_Operation_c",
            ". Through Spark Connect every write needs it",
        ),
    ],
)
def test_write_that_may_be_a_batch_of_foreach_batch_needs_a_number(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, more: str
) -> None:
    """Through Spark Connect a repeated batch was written again, and no error came."""
    task = _Task(**{name: value})
    monkeypatch.setattr(sink.TaskContext, "get", classmethod(lambda _: task))  # type: ignore[attr-defined]
    with pytest.raises(SinkError) as refusal:
        BatchWriter(Driver(plan())).write(iter(()))
    assert str(refusal.value) == (
        "a repeated batch of foreachBatch would be written again: give the option batchId, the "
        f"second argument of the function{more}"
    )


def test_message_of_another_batch_is_refused() -> None:
    message = SinkMessage(TaskLabel("query", 6, 0, 0), WINNER)
    with pytest.raises(SinkError, match="of batch 6 has answered for batch 7"):
        StreamWriter(Driver(plan())).commit([message], 7)


@pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])
def test_commit_of_tasks_that_have_not_answered_is_refused(delivery: str) -> None:
    with pytest.raises(SinkError, match=r"trigger continuous: use trigger\(processingTime="):
        StreamWriter(Driver(plan(delivery=delivery))).commit([None], 7)


def test_at_least_once_asks_no_cluster_to_commit_or_abort() -> None:
    writer = StreamWriter(Driver(plan(delivery="at-least-once")))
    writer.commit([SinkMessage(TaskLabel("query", 7, 0, 0), None)], 7)
    writer.abort([None], 7)


@pytest.mark.parametrize("form", ["{}", "file:{}", "file://{}"])
def test_checkpoint_tells_query_and_offsets(tmp_path: Path, form: str) -> None:
    folder = tmp_path / "a checkpoint"
    (folder / "offsets").mkdir(parents=True)
    (folder / "metadata").write_text('{"id":"0e6b"}')
    (folder / "offsets" / "4").write_text("v1\n{}\n{}")
    checkpoint = form.format(str(folder) if form == "{}" else str(folder).replace(" ", "%20"))
    assert query_of(checkpoint) == "0e6b"
    digest = digest_of(checkpoint, 4)
    assert digest is not None
    (folder / "offsets" / "4").write_text("v1\n{}\n{1}")
    assert digest_of(checkpoint, 4) != digest


@pytest.mark.parametrize("checkpoint", [None, "s3a://bucket/c", "/missing"])
def test_checkpoint_that_cannot_be_read_has_no_digest(checkpoint: str | None) -> None:
    assert digest_of(checkpoint, 4) is None
    assert query_of(checkpoint) is None


def test_damaged_metadata_tells_no_query(tmp_path: Path) -> None:
    (tmp_path / "metadata").write_text("[")
    assert query_of(str(tmp_path)) is None
    (tmp_path / "metadata").write_text("[]")
    assert query_of(str(tmp_path)) is None


def test_batch_of_foreach_batch_has_the_digest_of_its_checkpoint(tmp_path: Path) -> None:
    """Its decision had none: a checkpoint that was brought back from a copy was not noticed."""
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "4").write_text("v1\n{}\n{}")
    given = {**OPTIONS, "batchid": "4", "checkpointlocation": str(tmp_path)}
    options = parse_options(given, streaming=False)
    batch = BatchWriter(Driver(SinkPlan(options, 60_000, False)))._batch([])
    assert batch.digest == digest_of(str(tmp_path), 4) is not None
    assert batch.query_id == QUERY_OF_WRITES


def test_checkpoint_names_the_query_of_a_batch_where_tasks_are_not_told(tmp_path: Path) -> None:
    """Through Spark Connect two queries could share a sink, and one lost its batches."""
    (tmp_path / "metadata").write_text('{"id":"0e6b"}')
    given = {**OPTIONS, "batchid": "4", "checkpointlocation": str(tmp_path)}
    options = parse_options(given, streaming=False)
    batch = BatchWriter(Driver(SinkPlan(options, 60_000, False)))._batch([])
    assert batch.query_id == "0e6b"


def test_error_that_repeats_a_name_with_a_line_break_is_one_line() -> None:
    assert str(SinkError("topic a\nb is missing")) == "topic a b is missing"
    with pytest.raises(SinkOptionsError) as caught:
        parse_options({**OPTIONS, "compression": "a\nb"}, streaming=True)
    assert "\n" not in str(caught.value)
