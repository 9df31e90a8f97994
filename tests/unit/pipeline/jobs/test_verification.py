"""The verdict about an output: faults, texts and exit codes."""

import json

import pytest

from barnabas.cli.commands.pipeline import verdict_of
from barnabas.cli.json_answers import to_json
from barnabas.operations.sinks.decisions import DecidedWinner, SinkDecision
from barnabas.operations.sinks.log import CommittedDecision
from barnabas.pipeline.jobs.checkpoint import Checkpoint, read_checkpoint
from barnabas.pipeline.jobs.lineage import RecordRange
from barnabas.pipeline.jobs.verification import Mismatch, Verdict, compare_decisions
from barnabas.pipeline.sink.port import Identity, Place
from barnabas.protocol.topic_partition import TopicPartition

A, B, C = (Identity(number, 0) for number in (1, 2, 3))
GOOD = Verdict("job", 10, 10, 10, [], [], 0, [], 2, True, [], 0, 0)


def decision(number: int, *winners: tuple[Identity, int], lost: int = 0) -> CommittedDecision:
    rows = tuple(
        DecidedWinner(f"sink.{who.producer_id}", who, who, rows, Place("out", 0, 0))
        for who, rows in winners
    )
    return CommittedDecision(number, SinkDecision("q", number, None, rows[lost:], rows[:lost]), 0)


def compared(decisions, found, pending=(), later=(), has_all=True) -> list[str]:
    return [
        str(each)
        for each in compare_decisions(
            decisions, found, pending=pending, known_later=later, has_all=has_all
        )
    ]


def test_rows_of_each_transaction_are_those_decided():
    decisions = [decision(0, (A, 3), (B, 4)), decision(1, (C, 2))]
    assert compared(decisions, {A: 3, B: 4, C: 2}) == []
    assert compared(decisions, {A: 3, B: 5}) == [
        "2:0 (sink.2, batch 0) has 5 rows, 4 were decided",
        "3:0 (sink.3, batch 1) has 0 rows, 2 were decided",
    ]


def test_a_transaction_that_is_not_carried_out_yet_is_no_fault():
    assert compared([decision(0, (A, 3))], {}, pending={A}) == []


def test_a_loss_that_the_operator_accepted_is_no_fault():
    both = ((A, 3), (B, 1))
    assert compared([decision(0, *both), decision(0, *both, lost=1)], {B: 1}) == []
    assert compared([decision(0, *both)], {B: 1}) != []


def test_a_decision_that_was_taken_back_is_no_fault():
    decisions = [decision(0), decision(1, (A, 3), (B, 1)), decision(0), decision(1, (C, 4))]
    assert compared(decisions, {B: 1, C: 4}) == []
    assert compared(decisions, {B: 1}) == ["3:0 (sink.3, batch 1) has 0 rows, 4 were decided"]


def test_rows_without_a_decision_are_a_fault_if_all_decisions_are_there():
    assert compared([decision(0, (A, 3))], {A: 3, B: 1}) == ["2:0 has 1 rows and no decision"]
    assert compared([decision(0, (A, 3))], {A: 3, B: 1}, later={B}) == []
    assert compared([decision(0, (A, 3))], {A: 3, B: 1}, has_all=False) == []


@pytest.mark.parametrize(
    ("changes", "code", "problem"),
    [
        ({}, 0, None),
        ({"rows": 0, "with_lineage": 0, "decisions": 0}, 4, None),
        (
            {"repeated": [RecordRange("in", 0, 1, 5, 3)]},
            3,
            "3 input records came more than once: in/0@1..5",
        ),
        (
            {"missing": [RecordRange("in", 0, 1, 1, 1)]},
            3,
            "1 input records came never, 0 may be missing: in/0@1",
        ),
        ({"missing": [RecordRange("in", 0, 1, 1, 1)], "allowed_missing": 1}, 0, None),
        ({"missing": [RecordRange("in", 0, 1, 1, 1)], "allowed_missing": None}, 0, None),
        (
            {"foreign": [RecordRange("in", 0, n, n, 1) for n in range(7)]},
            3,
            "7 input records are not in the input: in/0@0, in/0@1, in/0@2, in/0@3, in/0@4"
            " and 2 more ranges",
        ),
        (
            {"mismatches": [Mismatch(*A, "sink.1", 0, 3, 0)]},
            3,
            "transaction 1:0 (sink.1, batch 0) has 0 rows, 3 were decided",
        ),
    ],
)
def test_each_fault_has_its_text_and_exit_code(changes, code, problem):
    verdict = GOOD._replace(**changes)
    assert verdict.exit_code == code
    assert verdict.problems == ([problem] if problem else [])
    assert (
        json.loads(to_json("pipeline verify", verdict_of(verdict)))["problems"] == verdict.problems
    )
    assert verdict.lines[-1] == problem or code in (0, 4)


def test_a_checkpoint_has_query_batches_and_offsets(tmp_path):
    for folder in ("offsets", "commits"):
        (tmp_path / folder).mkdir()
    (tmp_path / "metadata").write_text('{"id": "q"}')
    assert read_checkpoint(str(tmp_path)) == Checkpoint("q", -1, -1, {})
    for number in (9, 10, 11):
        text = json.dumps({"in": {"0": number, "1": 2 * number}})
        (tmp_path / "offsets" / str(number)).write_text(f"v1\n{{}}\n{text}")
    (tmp_path / "offsets" / ".11.crc").write_text("")
    (tmp_path / "commits" / "10").write_text("v1\n{}")
    offsets = {TopicPartition("in", 0): 10, TopicPartition("in", 1): 20}
    assert read_checkpoint(tmp_path.as_uri()) == Checkpoint("q", 11, 10, offsets)


def test_a_checkpoint_of_several_sources_has_the_lower_offset_of_a_partition(tmp_path):
    for folder in ("offsets", "commits"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "0").write_text('v1\n{}\n{"a":{"0":5}}\n-\n{"a":{"0":3},"b":{"0":7}}')
    (tmp_path / "metadata").write_text('{"id": "q"}')
    offsets = {TopicPartition("a", 0): 3, TopicPartition("b", 0): 7}
    assert read_checkpoint(str(tmp_path)) == Checkpoint("q", 0, 0, offsets)


def test_a_checkpoint_that_is_elsewhere_or_not_there_is_none(tmp_path):
    assert read_checkpoint("s3a://a/b") is None
    assert read_checkpoint(str(tmp_path / "none")) is None


@pytest.mark.parametrize(
    ("metadata", "offsets"),
    [("{", ""), ("[]", ""), ('{"id": "q"}', "v2\n{}\n{}"), ('{"id": "q"}', "v1\n{}\n[1]")],
)
def test_a_damaged_checkpoint_is_refused(tmp_path, metadata, offsets):
    for folder in ("offsets", "commits"):
        (tmp_path / folder).mkdir()
    (tmp_path / "metadata").write_text(metadata)
    (tmp_path / "commits" / "0").write_text("v1\n{}")
    (tmp_path / "offsets" / "0").write_text(offsets)
    with pytest.raises(ValueError, match=r"checkpoint|no offsets of a barnabas source"):
        read_checkpoint(str(tmp_path))
