"""The checks of a Produce that is served again, each with the test that finds it missing."""

from typing import Any

from barnabas.broker.handlers import produce
from barnabas.broker.replication.partition import Partition
from barnabas.broker.security.authorizer import Authorizer
from barnabas.broker.server.connection import Connection
from barnabas.broker.server.dispatch import Dispatcher
from barnabas.broker.server.repeats import LARGEST, Repeats
from barnabas.protocol.template import Templates
from barnabas.storage.log.validator import is_sound
from barnabas.storage.producers.state import ProducerStateManager
from tests.simulation.repeats.produce import LINKED, TIME_MS, batch, changed
from tests.support.mutants import Mutant


def judged(records: bytes, expected: str) -> tuple[str, tuple[Any, ...]]:
    return "test_bad_or_odd_batch_is_judged_as_ever", (records, expected)


def configured(expected: str, records: bytes, **configs: str) -> tuple[str, tuple[Any, ...]]:
    arguments = configs, records, expected
    return "test_changed_configuration_holds_for_the_next_request", arguments


SERVE, AGAIN = produce._append_again, produce.again
FIND, MEMORY = Templates.find_with_records, Repeats.serve
BEGIN, STAND, SOUND = Dispatcher.begin, Partition._stand, is_sound
PREPARE = ProducerStateManager.prepare
SEVERAL = "test_request_for_two_partitions_or_topics_is_not_served"
TRUNCATED = "test_truncated_request_closes_the_connection"
MUTANTS = (
    # The dispatcher.
    Mutant(
        Dispatcher.again,
        " or (quotas is not None and quotas.limits)",
        "",
        "test_quota_that_is_set_holds_for_the_next_request",
    ),
    Mutant(
        Dispatcher.again,
        "len(frame) < _KEY.size or ",
        "",
        "test_beginning_of_a_request_closes_the_connection",
        (3,),
    ),
    Mutant(
        BEGIN,
        "served.again is not None and response is not None and",
        "served.again is not None and",
        "test_acks_without_an_answer_is_not_served",
    ),
    # The request.
    Mutant(FIND, "if rest > MOST_LENGTH:", "if True:", TRUNCATED, (70, 9)),
    Mutant(
        FIND,
        "meaning is not None and ",
        "",
        "test_another_partition_or_topic_is_another_one",
    ),
    Mutant(
        FIND,
        "and found == length",
        "",
        "test_wrong_length_of_records_is_refused",
        (-3, 9),
    ),
    Mutant(
        FIND,
        "and found == length",
        "",
        "test_wrong_length_of_records_is_refused",
        (-3, 8),
    ),
    Mutant(
        FIND,
        "and frame[behind:] == end",
        "",
        "test_tags_behind_the_records_are_read_as_ever",
        (b"\0\0\1",),
    ),
    Mutant(
        SERVE,
        "except CorruptRecordError:",
        "except ZeroDivisionError:",
        "test_short_records_are_refused",
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
        "or standing is not partition.standing",
        "",
        "test_new_follower_is_waited_for",
    ),
    Mutant(
        SERVE,
        "or standing is not partition.standing",
        "",
        "test_topic_that_is_made_anew_is_another_one",
        (13,),
    ),
    Mutant(
        MEMORY,
        "self._asker.standing() is not self._standing",
        "False",
        "test_rule_that_is_taken_away_holds_for_the_next_request",
    ),
    Mutant(
        Repeats.learn,
        "if asker is not None and standing is None:",
        "if False:",
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
        AGAIN,
        "version < REPEATS_SINCE or ",
        "",
        "test_versions_with_other_rules_and_answers_are_not_served",
        (5,),
    ),
    Mutant(AGAIN, "or len(request.topic_data) != 1", "", SEVERAL),
    Mutant(AGAIN, "or len(request.topic_data[0].partition_data) != 1", "", SEVERAL),
    Mutant(AGAIN, "answer.error_code or ", "", "test_refused_request_is_not_remembered"),
    Mutant(
        AGAIN,
        " and begins_transactional(records)",
        "",
        "test_right_to_a_transaction_is_not_taken_from_a_plain_batch",
    ),
    Mutant(
        AGAIN,
        "basis = (name, data.index), partition.standing, opener",
        "basis = (name, data.index), None, opener",
        "test_leader_that_changes_is_asked_for",
    ),
    Mutant(
        Repeats._learn_request,
        "found[0][2] == repeat.basis",
        "True",
        "test_transaction_is_remembered_after_a_plain_batch_too",
    ),
    Mutant(
        Repeats._learn_request,
        "if sum(map(len, template.constants)) > LARGEST:",
        "if False:",
        "test_long_beginning_of_a_request_is_not_remembered",
        (LARGEST - 20,),
    ),
    Mutant(
        Repeats._has_room,
        "self._templates.count >= most or ",
        "",
        "test_some_partitions_are_remembered_and_others_take_their_place",
    ),
    Mutant(
        Connection.trim,
        "self.repeats.clear()",
        "pass",
        "test_silent_connection_remembers_nothing",
    ),
    # The partition.
    Mutant(
        SERVE,
        "or partition.appends",
        "",
        "test_batch_waits_behind_one_that_is_queued",
    ),
    Mutant(
        AGAIN,
        " or not partition.standing.is_prompt",
        "",
        "test_new_follower_is_waited_for",
    ),
    Mutant(
        STAND,
        "at_once and not self.log.rules.looks_inside",
        "at_once",
        "test_batch_whose_records_are_read_is_left_to_the_handler",
    ),
    Mutant(
        STAND,
        "not (isr.followers or self.flushes_first)",
        "not self.flushes_first",
        "test_new_follower_is_waited_for",
    ),
    Mutant(
        STAND,
        "len(isr.isr) >= self._min_isr",
        "True",
        "test_too_small_isr_is_refused",
    ),
    Mutant(
        Partition.resign,
        "self._stand()",
        "pass",
        "test_broker_that_resigns_is_no_leader",
    ),
    Mutant(
        Partition.config_changed,
        "self._stand()",
        "pass",
        "test_append_that_is_flushed_before_its_answer_fails_with_the_disk",
    ),
    Mutant(
        SERVE,
        "if producer_id >= 0 and entry is None:",
        "if False:",
        "test_expected_producer_that_is_new_is_counted",
    ),
    Mutant(
        SERVE,
        "if not duplicate:",
        "if True:",
        "test_repeated_batch_or_gap_is_found",
    ),
    # The batch.
    Mutant(
        SOUND,
        "base or ",
        "",
        *judged(changed(batch(), base_offset=1), "INVALID_RECORD"),
    ),
    Mutant(
        SOUND,
        "size != LOG_OVERHEAD + length or ",
        "",
        *judged(changed(batch(b"v" * 50), length=60), "INVALID_RECORD"),
    ),
    Mutant(
        SOUND, "or count != delta + 1", "", *judged(changed(batch(), delta=1), "INVALID_RECORD")
    ),
    Mutant(
        SOUND,
        "or not 0 < count * MIN_RECORD",
        "or not count * MIN_RECORD",
        *judged(changed(batch(), count=-1, delta=-2), "INVALID_RECORD"),
    ),
    Mutant(
        SOUND,
        "0 < count * MIN_RECORD <= size - HEADER_SIZE",
        "0 < count",
        *judged(changed(batch(), count=1000, delta=999), "INVALID_RECORD"),
    ),
    Mutant(
        SOUND,
        "or attributes & ~_OF_CLIENT",
        "",
        *judged(changed(batch(), attributes=0x20), "INVALID_RECORD"),
    ),
    Mutant(
        SOUND,
        "or (codec and codec_error(data, codec))",
        "",
        *judged(changed(batch(), attributes=7), "UNSUPPORTED_COMPRESSION_TYPE"),
    ),
    Mutant(
        SOUND,
        "or (codec and codec_error(data, codec))",
        "or codec > 4",
        *judged(LINKED, "INVALID_RECORD"),
    ),
    Mutant(
        SOUND,
        "or not earliest <= base_ms <= latest",
        "",
        "test_each_timestamp_has_to_be_in_range",
        (5, TIME_MS),
    ),
    Mutant(
        SOUND,
        "or not earliest <= max_ms <= latest",
        "",
        "test_each_timestamp_has_to_be_in_range",
        (TIME_MS, 5),
    ),
    Mutant(
        SOUND,
        "or crc32c(memoryview(data)[ATTRIBUTES_AT:]) != crc",
        "",
        *judged(batch()[:-1] + b"?", "CORRUPT_MESSAGE"),
    ),
    # The topic's rules.
    Mutant(
        SOUND,
        "or rules.log_append_time",
        "",
        *configured("NONE", batch(), message_timestamp_type="LogAppendTime"),
    ),
    Mutant(
        SOUND,
        "or size > rules.max_batch_bytes",
        "",
        *configured("MESSAGE_TOO_LARGE", batch(b"v" * 100), max_message_bytes="80"),
    ),
    # The producer of the batch.
    Mutant(
        SOUND,
        "or (first < 0 or epoch < 0 if producer >= 0 else attributes & TRANSACTIONAL)",
        "or (first < 0 or epoch < 0 if producer >= 0 else False)",
        "test_transaction_needs_a_producer",
    ),
    Mutant(
        SOUND,
        "first < 0 or ",
        "",
        "test_producer_without_a_sequence_or_an_epoch_is_refused",
        ({"base_sequence": -1},),
    ),
    Mutant(
        SOUND,
        "or epoch < 0",
        "",
        "test_producer_without_a_sequence_or_an_epoch_is_refused",
        ({"producer_epoch": -1},),
    ),
    # What the log knows of the producer.
    Mutant(
        PREPARE,
        "and (known := entry.batches)",
        "and ((known := entry.batches) or True)",
        "test_producer_without_batches_of_its_epoch_begins_anew",
    ),
    Mutant(
        PREPARE,
        "and sequence == known[-1][0] + 1",
        "",
        "test_repeated_batch_or_gap_is_found",
    ),
    Mutant(
        PREPARE,
        "and epoch == entry.producer_epoch and entry.verification is None",
        "and entry.verification is None",
        "test_fenced_producer_is_refused",
    ),
    Mutant(
        PREPARE,
        "and attributes & _KIND == (0 if (txn_first := entry.current_txn_first_offset) is None "
        "else TRANSACTIONAL)",
        "and (txn_first := entry.current_txn_first_offset, True)[1]",
        "test_plain_batch_in_a_transaction_is_refused",
    ),
    Mutant(
        PREPARE,
        "((sequence + delta) & MAX_SEQUENCE, first + delta",
        "((sequence + delta), first + delta",
        "test_sequence_wraps",
    ),
)
