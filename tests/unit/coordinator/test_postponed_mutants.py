"""The checks of postponed records, each removed once: a test finds it."""

import asyncio
import inspect
import textwrap
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, NamedTuple

import pytest

from barnabas.broker.replication.coordinator_log import LedPartition
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.coordinator.hosted_shard import HostedShard
from barnabas.coordinator.postponed import PostponedRecords
from barnabas.coordinator.transaction import ending, partitions
from tests.unit.broker.replication import test_coordinator_log, test_replica_manager
from tests.unit.coordinator import test_postponed_records as tests
from tests.unit.coordinator.test_postponed_records import live

STORIES = {
    "delay": [("begin", "x"), ("end", "x", True), ("mark",), ("begin", "x"), ("pass", 100)],
    "too large": [
        ("begin", "x"), ("end", "x", True), ("mark",), ("shrink", True), ("begin", "x"),
        ("pass", 100),
    ],
    "gathered": [
        ("begin", "x"), ("end", "x", True), ("mark",), ("gather", True), ("begin", "x"),
        ("pass", 100),
    ],
    "resigned": [("begin", "x"), ("end", "x", False), ("mark",), ("resign",), ("begin", "x")],
}  # fmt: skip
"""Lives of a coordinator by what happens to a completion that is postponed."""


class Mutant(NamedTuple):
    """A function with other text in its source, and what finds it: a test with its arguments, or
    a story."""

    function: Callable[..., Any]
    old: str
    new: str
    found_by: Callable[..., Any] | str
    arguments: tuple[Any, ...] = ()

    @property
    def title(self) -> str:
        by = self.found_by if isinstance(self.found_by, str) else self.found_by.__name__
        return f"{self.function.__qualname__}: {' '.join(self.old.split())}, {by}"


ADD, BEFORE, WRITE = PostponedRecords.add, PostponedRecords.append_before, PostponedRecords.write
WRITTEN, RETRY = PostponedRecords._written, PostponedRecords._write_or_retry
EVERY = tests.test_every_append_writes_postponed_records_first
NEXT = tests.test_completion_is_written_with_the_next_record_before_it
REFUSES = tests.test_log_that_refuses_takes_no_further_postponed_records
RESIGNS = tests.test_completion_is_written_at_a_resignation
LED = test_replica_manager.test_observers_resign_while_the_partition_still_takes_records
ORDER = "(*self.records, record)", "(record, *self.records)"
MUTANTS = (
    # The order of the log.
    Mutant(BEFORE, *ORDER, NEXT),
    Mutant(BEFORE, *ORDER, "delay"),
    Mutant(BEFORE, "self._written()", "pass", NEXT),
    Mutant(BEFORE, "self._written()", "pass", "delay"),
    Mutant(
        BEFORE,
        "self.write()",
        "pass",
        tests.test_record_that_is_refused_alone_leaves_the_postponed_one_written,
    ),
    Mutant(BEFORE, "self.write()", "pass", "too large"),
    Mutant(HostedShard._append_record, "if self.postponed.records:", "if False:", NEXT),
    Mutant(HostedShard._append_record, "if self.postponed.records:", "if False:", "delay"),
    Mutant(HostedShard._append_record, "if self.postponed.records:", "if False:", "gathered"),
    Mutant(
        HostedShard._append_batch,
        "self.postponed.write()",
        "pass",
        EVERY,
        (lambda host: host.write(2, 3),),
    ),
    Mutant(
        HostedShard.write_marker,
        "self.postponed.write()",
        "pass",
        EVERY,
        (lambda host: host.end(),),
    ),
    Mutant(
        LedPartition.append_records,
        " and self._partition.leader_epoch == self._leader_epoch",
        "",
        test_coordinator_log.test_append_in_another_leader_epoch_is_refused,
        (Path,),
    ),
    # What may be postponed, and when.
    Mutant(
        HostedShard.write_directly,
        """\
        self.shard.replay(records[0], NO_PRODUCER_ID)
        if postpones:
            postponed.add(encoded, now.monotonic_ms)
""",
        """\
        if postpones:
            postponed.add(encoded, now.monotonic_ms)
        self.shard.replay(records[0], NO_PRODUCER_ID)
""",
        tests.test_replay_that_fails_is_not_written,
    ),
    Mutant(
        HostedShard.is_direct.fget,  # type: ignore[attr-defined]
        " and self.log.commits_at_once",
        "",
        tests.test_replicated_log_postpones_nothing,
    ),
    Mutant(
        ending.end,
        "partial(_mark, table, target))",
        "partial(_mark, table, target), postpones=True)",
        "delay",
    ),
    Mutant(
        partitions.add_partitions, "named=partitions)", "named=partitions, postpones=True)", "delay"
    ),
    # A log that refuses.
    Mutant(HostedShard.write_directly, " and not postponed.refused", "", REFUSES),
    Mutant(WRITE, "self.refused = True", "pass", REFUSES),
    Mutant(WRITTEN, "self.refused = False", "pass", REFUSES),
    Mutant(WRITTEN, "self._stop()", "pass", REFUSES),
    Mutant(
        WRITE,
        "self._write_each(self.records, now_ms)",
        "raise",
        tests.test_postponed_records_that_are_too_large_together_are_written_one_by_one,
    ),
    Mutant(
        RETRY,
        "self._start(RETRY_MS)",
        "pass",
        tests.test_refused_records_are_written_again_by_the_timer,
    ),
    # Time and number.
    Mutant(
        PostponedRecords._due,
        "if left_ms > 0:",
        "if False:",
        tests.test_completion_is_written_after_its_delay,
    ),
    Mutant(
        ADD,
        "if not self.records:",
        "if True:",
        tests.test_oldest_postponed_record_decides_when_they_are_written,
    ),
    Mutant(
        ADD,
        "len(self.records) >= AT_ONCE",
        "False",
        tests.test_many_postponed_records_are_written_at_once,
    ),
    # A resignation.
    Mutant(PostponedRecords.close, "self.write()", "pass", RESIGNS),
    Mutant(PostponedRecords.close, "self._stop()", "pass", RESIGNS),
    Mutant(HostedShard.close, "self.postponed.close()", "pass", RESIGNS),
    Mutant(ReplicaManager._resign, "self._resign_coordinators(partition)", "pass", LED),
    Mutant(ReplicaManager._apply, "self._resign_coordinators(partition)", "pass", LED),
)


def mutated(mutant: Mutant) -> CodeType:
    function = mutant.function
    assert isinstance(function, FunctionType)
    source = textwrap.dedent(inspect.getsource(function)).removeprefix("@property\n")
    assert mutant.old in source, f"{function.__qualname__} has no {mutant.old!r}"
    names: dict[str, Any] = dict(function.__globals__)
    exec("from __future__ import annotations\n" + source.replace(mutant.old, mutant.new, 1), names)
    code: CodeType = names[function.__name__].__code__
    return code


def finds(mutant: Mutant, directory: Path) -> None:
    """Run what finds the mutant. Raises what a test raises."""
    if isinstance(mutant.found_by, str):
        asyncio.run(live(STORIES[mutant.found_by]))
    else:
        arguments = [directory if each is Path else each for each in mutant.arguments]
        asyncio.run(mutant.found_by(*arguments))


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.title)
def test_missing_check_is_found(
    mutant: Mutant, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    finds(mutant, tmp_path / "whole")
    monkeypatch.setattr(mutant.function, "__code__", mutated(mutant))
    with pytest.raises((Exception, pytest.fail.Exception)):
        finds(mutant, tmp_path / "mutated")


@pytest.mark.parametrize("story", STORIES)
def test_stories_keep_every_outcome(story: str) -> None:
    asyncio.run(live(STORIES[story]))
