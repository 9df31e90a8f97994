"""The checks of the fast path of Produce, each with the test that finds it missing."""

from typing import Any

from barnabas.broker.fast_paths.produce import ProduceFastPath
from barnabas.broker.replication.partition import Partition
from barnabas.broker.security.authorizer import Authorizer
from barnabas.broker.server.connection import Connection
from barnabas.broker.server.dispatch import Dispatcher
from barnabas.storage.log.validator import is_sound
from tests.simulation.fast_paths.produce import LINKED, TIME_MS, batch, changed
from tests.support.mutants import Mutant


def judged(records: bytes, expected: str) -> tuple[str, tuple[Any, ...]]:
    return "test_bad_or_odd_batch_is_judged_as_ever", (records, expected)


def configured(expected: str, records: bytes, **configs: str) -> tuple[str, tuple[Any, ...]]:
    arguments = configs, records, expected
    return "test_changed_configuration_holds_for_the_next_request", arguments


SERVE, LEARN, STILL = ProduceFastPath.serve, ProduceFastPath.learn, ProduceFastPath._still
BEGIN, STAND, SOUND = Dispatcher.begin, Partition._stand, is_sound
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
        SERVE,
        " or asker.standing() is not rights",
        "",
        "test_rule_that_is_taken_away_holds_for_the_next_request",
    ),
    Mutant(
        SERVE,
        "rights is None or ",
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
        "partition is not None and known.standing is partition.standing",
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
        "and known.rights is (None if asker is None else asker.standing())",
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
        SERVE,
        "or partition.appends",
        "",
        "test_batch_waits_behind_one_that_is_queued",
    ),
    Mutant(
        LEARN,
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
        Partition.append,
        "self._log_grew()",
        "pass",
        "test_next_batch_of_a_connection_is_on_the_fast_path",
        (9,),
    ),
    Mutant(
        SERVE,
        "if producer_id >= 0 and producers.entry(producer_id) is None:",
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
        "or (codec and codec_error(data, 0, codec))",
        "",
        *judged(changed(batch(), attributes=7), "UNSUPPORTED_COMPRESSION_TYPE"),
    ),
    Mutant(
        SOUND,
        "or (codec and codec_error(data, 0, codec))",
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
)
