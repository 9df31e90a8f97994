"""The checks of postponed records, each with what finds it missing: a test or a story."""

from barnabas.coordinator.hosted_shard import HostedShard
from barnabas.coordinator.postponed import PostponedRecords
from barnabas.coordinator.transaction import ending, partitions
from tests.support.mutants import Mutant

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


ADD, APPEND, WRITE = PostponedRecords.add, PostponedRecords.append, PostponedRecords.write
WRITTEN, RETRY = PostponedRecords._written, PostponedRecords._write_or_retry
EVERY = "test_every_append_writes_postponed_records_first"
NEXT = "test_completion_is_written_with_the_next_record_before_it"
REFUSES = "test_log_that_refuses_takes_no_further_postponed_records"
RESIGNS = "test_completion_is_written_at_a_resignation"
ORDER = "(*before, *records)", "(*records, *before)"
MUTANTS = (
    # The order of the log.
    Mutant(APPEND, *ORDER, NEXT),
    Mutant(APPEND, *ORDER, "delay"),
    Mutant(APPEND, "self._written()", "pass", NEXT),
    Mutant(APPEND, "self._written()", "pass", "delay"),
    Mutant(
        APPEND,
        "self.write()",
        "pass",
        "test_record_that_is_refused_alone_leaves_the_postponed_one_written",
    ),
    Mutant(APPEND, "self.write()", "pass", "too large"),
    Mutant(APPEND, "if before:", "if False:", NEXT),
    Mutant(APPEND, "if before:", "if False:", "delay"),
    Mutant(APPEND, "if before:", "if False:", "gathered"),
    Mutant(
        HostedShard._append_batch,
        "self.postponed.write()",
        "pass",
        EVERY,
        (lambda host: host.write(*range(100)),),
    ),
    Mutant(
        HostedShard._append_batch,
        "self.postponed.write()",
        "pass",
        EVERY,
        (lambda host: host.end(),),
    ),
    # What may be postponed, and when.
    Mutant(
        HostedShard._replay_short,
        "if write.postponed:",
        "if False:",
        NEXT,
    ),
    Mutant(
        HostedShard._replay_short,
        "    producer, replay =",
        """\
    if write.postponed:
        self.postponed.add(write.encoded[0], write.now.monotonic_ms)
    producer, replay =""",
        "test_replay_that_fails_is_not_written",
    ),
    Mutant(
        HostedShard._carry_out,
        "if not write.at_once and producer is None:",
        "if False:",
        "test_replicated_log_postpones_nothing",
    ),
    Mutant(
        ending.end,
        "target.next_producer, now, event, mark)",
        "target.next_producer, now, event, mark, postpones=True)",
        "delay",
    ),
    Mutant(
        partitions.add_partitions, "named=partitions)", "named=partitions, postpones=True)", "delay"
    ),
    # A log that refuses.
    Mutant(PostponedRecords.takes, " and not self.refused", "", REFUSES),
    Mutant(WRITE, "self.refused = True", "pass", REFUSES),
    Mutant(WRITTEN, "self.refused = False", "pass", REFUSES),
    Mutant(WRITTEN, "self._stop()", "pass", REFUSES),
    Mutant(
        WRITE,
        "self._write_each(self.records, now_ms)",
        "raise",
        "test_postponed_records_that_are_too_large_together_are_written_one_by_one",
    ),
    Mutant(
        RETRY,
        "self._start(RETRY_MS)",
        "pass",
        "test_refused_records_are_written_again_by_the_timer",
    ),
    # Time and number.
    Mutant(
        PostponedRecords.takes,
        "monotonic_ms - before < DELAY_MS and ",
        "",
        "test_records_that_are_far_apart_are_written_at_once",
    ),
    Mutant(
        PostponedRecords._due,
        "if left_ms > 0:",
        "if False:",
        "test_completion_is_written_after_its_delay",
    ),
    Mutant(
        ADD,
        "if not self.records:",
        "if True:",
        "test_oldest_postponed_record_decides_when_they_are_written",
    ),
    Mutant(
        ADD,
        "len(self.records) >= AT_ONCE",
        "False",
        "test_many_postponed_records_are_written_at_once",
    ),
    # A resignation.
    Mutant(PostponedRecords.close, "self.write()", "pass", RESIGNS),
    Mutant(PostponedRecords.close, "self._stop()", "pass", RESIGNS),
    Mutant(HostedShard.close, "self.postponed.close()", "pass", RESIGNS),
)
