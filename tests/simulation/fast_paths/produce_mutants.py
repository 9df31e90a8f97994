"""The checks of the fast path of Produce, each with the test that finds it missing."""

from typing import Any

from barnabas.broker.fast_paths.produce import ProduceFastPath
from barnabas.broker.replication.partition import Partition
from barnabas.broker.security.authorizer import Authorizer
from barnabas.broker.server.connection import Connection
from barnabas.broker.server.dispatch import Dispatcher
from barnabas.protocol.records.batch import NO_TIMESTAMP
from barnabas.storage.log.log import Log
from barnabas.storage.log.segment import Segment
from barnabas.storage.producers.state import ProducerStateManager
from tests.simulation.fast_paths.produce import LINKED, TIME_MS, batch, changed
from tests.support.mutants import Mutant


def judged(records: bytes, expected: str) -> tuple[str, tuple[Any, ...]]:
    return "test_bad_or_odd_batch_is_judged_as_ever", (records, expected)


def configured(expected: str, records: bytes, **configs: str) -> tuple[str, tuple[Any, ...]]:
    arguments = configs, records, expected
    return "test_changed_configuration_holds_for_the_next_request", arguments


SERVE, LEARN, STILL = ProduceFastPath.serve, ProduceFastPath.learn, ProduceFastPath._still
BEGIN, NEXT, TAKES = Dispatcher.begin, Log.append_next, Log._takes
MUTANTS = (
    # The dispatcher.
    Mutant(
        BEGIN,
        "if peer.fast_paths and quotas is None and",
        "if peer.fast_paths and",
        "test_quota_that_is_set_holds_for_the_next_request",
    ),
    Mutant(
        BEGIN,
        " and len(frame) >= _KEY.size:",
        ":",
        "test_beginning_of_a_request_closes_the_connection",
        (3,),
    ),
    Mutant(
        BEGIN,
        "served.fast_path is not None and response is not None and",
        "served.fast_path is not None and",
        "test_acks_without_an_answer_is_not_served",
    ),
    # The request.
    Mutant(
        SERVE,
        "if rest < HEADER_SIZE + _LONGEST_LENGTH:",
        "if False:",
        "test_truncated_request_closes_the_connection",
        (70, 9),
    ),
    Mutant(
        SERVE,
        "known is None or (",
        "(",
        "test_another_partition_or_topic_is_another_one",
    ),
    Mutant(
        SERVE,
        "length != COMPACT_LENGTH(records + 1) or ",
        "",
        "test_wrong_length_of_records_is_refused",
        (-3, 9),
    ),
    Mutant(
        SERVE,
        "or _TAGS.unpack_from(frame, size - 3)[0] != _NO_TAGS",
        "",
        "test_tags_behind_the_records_are_read_as_ever",
        (b"\0\0\1",),
    ),
    Mutant(
        SERVE,
        "else length != LENGTH.pack(records)",
        "else False",
        "test_wrong_length_of_records_is_refused",
        (-3, 8),
    ),
    # The topic, the leader and the rights.
    Mutant(
        SERVE,
        "partition is None or ",
        "",
        "test_deleted_topic_has_no_partition",
    ),
    Mutant(
        SERVE,
        "or epoch != partition.leader_epoch",
        "",
        "test_leader_that_changes_is_asked_for",
    ),
    Mutant(
        SERVE,
        "or (topic_id is not None and self._cache.topic_name(topic_id) != place[0])",
        "",
        "test_topic_that_is_made_anew_is_another_one",
        (13,),
    ),
    Mutant(
        SERVE,
        " or asker.standing() is not standing",
        "",
        "test_rule_that_is_taken_away_holds_for_the_next_request",
    ),
    Mutant(
        SERVE,
        "standing is None or ",
        "",
        "test_audit_log_has_each_allowed_request",
        (0,),
    ),
    Mutant(
        Authorizer.standing,
        "None if _is_logged(logging.DEBUG) else ",
        "",
        "test_audit_log_has_each_allowed_request",
        (2,),
    ),
    Mutant(
        Authorizer._changed,
        "self._standing = object()",
        "pass",
        "test_rule_that_is_taken_away_holds_for_the_next_request",
    ),
    # The transaction.
    Mutant(
        SERVE,
        "if guard is None: return None",
        "pass",
        "test_coordinator_is_asked_about_a_transaction_of_an_unknown_owner",
    ),
    Mutant(
        SERVE,
        "elif opened != opener: return None",
        "",
        "test_transaction_of_another_id_is_not_joined",
    ),
    # What is remembered.
    Mutant(
        LEARN,
        "self._version < SINCE or ",
        "",
        "test_versions_with_other_rules_and_answers_are_not_served",
        (3,),
    ),
    Mutant(
        LEARN,
        "or len(request.topic_data) != 1",
        "",
        "test_request_for_two_partitions_or_topics_is_not_served",
    ),
    Mutant(
        LEARN,
        "or len(request.topic_data[0].partition_data) != 1",
        "",
        "test_request_for_two_partitions_or_topics_is_not_served",
    ),
    Mutant(
        LEARN,
        "answer.error_code or ",
        "",
        "test_refused_request_is_not_remembered",
    ),
    Mutant(
        LEARN,
        "if prefix_end > CONTENT_AT + LARGEST_PREFIX:",
        "if False:",
        "test_long_beginning_of_a_request_is_not_remembered",
        (513,),
    ),
    Mutant(
        LEARN,
        " and begins_transactional(records)",
        "",
        "test_right_to_a_transaction_is_not_taken_from_a_plain_batch",
    ),
    Mutant(
        LEARN,
        "len(self._known) >= MOST",
        "False",
        "test_some_partitions_are_remembered_and_others_take_their_place",
    ),
    Mutant(
        LEARN,
        "if not self._is_canonical(frame, request):",
        "if False:",
        "test_batch_behind_the_request_is_no_batch_of_the_request",
    ),
    Mutant(
        STILL,
        "partition is not None and known.leader_epoch == partition.leader_epoch",
        "True",
        "test_leader_that_changes_is_asked_for",
    ),
    Mutant(
        STILL,
        "and (opener is None or opener == known.opener)",
        "",
        "test_transaction_is_remembered_after_a_plain_batch_too",
    ),
    Mutant(
        STILL,
        "and known.standing is (None if asker is None else asker.standing())",
        "",
        "test_rule_of_another_resource_costs_one_request",
    ),
    Mutant(
        Connection.trim,
        "self.fast_paths.clear()",
        "pass",
        "test_silent_connection_remembers_nothing",
    ),
    # The partition.
    Mutant(
        Partition.append_next,
        "not self.is_leader or ",
        "",
        "test_broker_that_resigns_is_no_leader",
    ),
    Mutant(
        Partition.append_next,
        "or state.followers",
        "",
        "test_new_follower_is_waited_for",
    ),
    Mutant(
        Partition.append_next,
        "or self.flushes_first",
        "",
        "test_append_that_is_flushed_before_its_answer_fails_with_the_disk",
    ),
    Mutant(
        Partition.append_next,
        "or self.appends",
        "",
        "test_batch_waits_behind_one_that_is_queued",
    ),
    Mutant(
        Partition.append_next,
        "or len(state.isr) < self._min_isr",
        "",
        "test_too_small_isr_is_refused",
    ),
    Mutant(
        Partition.append_next,
        "self._log_grew()",
        "pass",
        "test_next_batch_of_a_connection_is_on_the_fast_path",
        (9,),
    ),
    # The batch.
    Mutant(
        TAKES,
        "base or ",
        "",
        *judged(changed(batch(), base_offset=1), "INVALID_RECORD"),
    ),
    Mutant(TAKES, "or magic != MAGIC", "", *judged(changed(batch(), magic=1), "INVALID_RECORD")),
    Mutant(
        TAKES,
        "or size != LOG_OVERHEAD + length",
        "",
        *judged(changed(batch(b"v" * 50), length=60), "INVALID_RECORD"),
    ),
    Mutant(
        TAKES, "or count != delta + 1", "", *judged(changed(batch(), delta=1), "INVALID_RECORD")
    ),
    Mutant(
        TAKES,
        "or not 0 < count * MIN_RECORD",
        "or not count * MIN_RECORD",
        *judged(changed(batch(), count=-1, delta=-2), "INVALID_RECORD"),
    ),
    Mutant(
        TAKES,
        "0 < count * MIN_RECORD <= size - HEADER_SIZE",
        "0 < count",
        *judged(changed(batch(), count=1000, delta=999), "INVALID_RECORD"),
    ),
    Mutant(
        TAKES,
        "or attributes & ~_OF_CLIENT",
        "",
        *judged(changed(batch(), attributes=0x20), "INVALID_RECORD"),
    ),
    Mutant(
        TAKES,
        "or ((codec := attributes & COMPRESSION_MASK) and codec_error(data, 0, codec))",
        "",
        *judged(changed(batch(), attributes=7), "UNSUPPORTED_COMPRESSION_TYPE"),
    ),
    Mutant(
        TAKES,
        "or ((codec := attributes & COMPRESSION_MASK) and codec_error(data, 0, codec))",
        "or attributes & COMPRESSION_MASK > 4",
        *judged(LINKED, "INVALID_RECORD"),
    ),
    Mutant(
        TAKES,
        "or not earliest <= base_ms <= latest",
        "",
        "test_each_timestamp_has_to_be_in_range",
        (5, TIME_MS),
    ),
    Mutant(
        TAKES,
        "or not earliest <= max_ms <= latest",
        "",
        "test_each_timestamp_has_to_be_in_range",
        (TIME_MS, 5),
    ),
    Mutant(
        NEXT,
        "or crc32c(data[ATTRIBUTES_AT:]) != crc",
        "",
        *judged(batch()[:-1] + b"?", "CORRUPT_MESSAGE"),
    ),
    # The topic's rules.
    Mutant(
        TAKES,
        "or rules.looks_inside",
        "",
        *configured("INVALID_RECORD", batch(), cleanup_policy="compact"),
    ),
    Mutant(
        TAKES,
        "or rules.log_append_time",
        "",
        *configured("NONE", batch(), message_timestamp_type="LogAppendTime"),
    ),
    Mutant(
        TAKES,
        "or size > rules.max_message_bytes",
        "",
        *configured("MESSAGE_TOO_LARGE", batch(b"v" * 100), max_message_bytes="80"),
    ),
    # The segment, and its disk.
    Mutant(
        TAKES,
        "or self.log_dir.failure is not None",
        "",
        "test_full_disk_refuses_this_batch_and_the_next_ones",
    ),
    Mutant(
        NEXT,
        "self.log_dir.take_offline(error)",
        "self.log_dir.fail(error)",
        "test_full_disk_refuses_this_batch_and_the_next_ones",
    ),
    Mutant(
        TAKES,
        "or segment.active_file is None",
        "",
        "test_closed_segment_is_opened_by_the_handler",
    ),
    Mutant(
        TAKES,
        "or first_ms is None",
        "",
        "test_age_of_a_segment_without_a_first_timestamp_is_that_of_its_file",
    ),
    Mutant(TAKES, "or first_ms < 0", "", "test_old_segment_rolls", (NO_TIMESTAMP, 5, 2)),
    Mutant(TAKES, "or max_ms < 0", "", "test_old_segment_rolls", (TIME_MS, NO_TIMESTAMP, 2)),
    Mutant(
        TAKES,
        "or max_ms - first_ms > self._roll_ms",
        "",
        "test_old_segment_rolls",
        (TIME_MS, TIME_MS + 10_001, 2),
    ),
    Mutant(
        TAKES,
        "or segment.size + size > rules.segment_bytes",
        "",
        "test_full_segment_rolls",
    ),
    Mutant(
        TAKES,
        "or last_offset - segment.base_offset > INT_MAX",
        "",
        "test_segment_has_no_more_offsets_than_its_index_can_tell",
    ),
    Mutant(TAKES, "or segment.index_full", "", "test_full_index_rolls"),
    Mutant(
        Segment.append_one,
        "self._note(last_offset, position, max_timestamp, size)",
        "self._note(last_offset, position, max_timestamp + 1, size)",
        "test_index_has_an_entry_for_some_batches",
    ),
    Mutant(
        Segment.append_one,
        "self._note(last_offset, position, max_timestamp, size)",
        "self._note(last_offset, position, max_timestamp, 0)",
        "test_index_has_an_entry_for_some_batches",
    ),
    Mutant(
        Segment.append_one,
        "self._hint(last_offset + 1, position)",
        "self._hint(last_offset + 1, position - size)",
        "test_many_batches_are_found_as_ever",
    ),
    # The producer.
    Mutant(
        NEXT,
        "if entry is None: return -1",
        "pass",
        "test_idempotent_producer_goes_on",
    ),
    Mutant(
        NEXT,
        "elif attributes & TRANSACTIONAL: return -1",
        "",
        "test_transaction_needs_a_producer",
    ),
    Mutant(
        NEXT,
        "self.producers.commit_next(entry, end_offset, guard)",
        "pass",
        "test_idempotent_producer_goes_on",
    ),
    Mutant(
        NEXT,
        "self.producers.map_end_offset = end_offset",
        "pass",
        "test_next_batch_of_a_connection_is_on_the_fast_path",
        (9,),
    ),
    Mutant(
        ProducerStateManager.next_entry,
        "if entry is None: return None",
        "pass",
        "test_idempotent_producer_goes_on",
    ),
    Mutant(
        ProducerStateManager.next_entry,
        "epoch != entry.producer_epoch or ",
        "",
        "test_fenced_producer_is_refused",
    ),
    Mutant(
        ProducerStateManager.next_entry,
        "or not batches",
        "",
        "test_producer_without_batches_of_its_epoch_begins_anew",
    ),
    Mutant(
        ProducerStateManager.next_entry,
        "or sequence != batches[-1][0] + 1",
        "",
        "test_repeated_batch_or_gap_is_found",
    ),
    Mutant(
        ProducerStateManager.next_entry,
        "or last_sequence > MAX_SEQUENCE",
        "",
        "test_sequence_wraps",
    ),
    Mutant(
        ProducerStateManager.next_entry,
        "or (open_txn is None and not opens) is bool(attributes & TRANSACTIONAL)",
        "",
        "test_plain_batch_in_a_transaction_is_refused",
    ),
    Mutant(
        ProducerStateManager.next_entry,
        "if open_txn is not None: return None",
        "pass",
        "test_open_transaction_is_not_opened_again",
    ),
    Mutant(
        ProducerStateManager.next_entry,
        "open_txn = first_offset",
        "pass",
        "test_batches_of_an_open_transaction_are_served",
        (9,),
    ),
    Mutant(
        ProducerStateManager.commit_next,
        "self._ongoing[first_offset] = entry.producer_id",
        "pass",
        "test_batches_of_an_open_transaction_are_served",
        (9,),
    ),
    Mutant(
        ProducerStateManager.next_entry,
        "opened_by = None if verification is None else verification.opener",
        "pass",
        "test_batches_of_an_open_transaction_are_served",
        (9,),
    ),
)
