"""The deliberate differences between the answers of Barnabas and Apache Kafka 4.4.

They are listed in docs/COMPATIBILITY.md. A difference names the scenarios that show it, and each of
them must show it: an obsolete difference fails the test.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Difference:
    """A deliberate difference.

    Attributes:
        scenarios: titles of scenarios (`Api/name`, `*` for any) that show it.
        path: the field, as `Api.field[0].field`, `*` for any.
        kafka: what Kafka does, in words.
        barnabas: what Barnabas does, in words.
        why: the reason.
        versions: the versions of the scenario that show it; empty for all.
    """

    scenarios: tuple[str, ...]
    path: str
    kafka: str
    barnabas: str
    why: str
    versions: tuple[int, ...] = ()

    @property
    def about(self) -> str:
        """Return the subject of the difference for the document: the names of its scenarios."""
        return "; ".join(name.replace("/", ": ").replace("_", " ") for name in self.scenarios)


WANTED = (
    Difference(
        scenarios=(
            "Metadata/the_request_creates_the_topic",
            "Metadata/the_request_creates_the_topic_if_allowed",
            "rights/metadata creates by * allowed",
        ),
        path="Metadata.topics*",
        kafka="starts to create the topic and answers UNKNOWN_TOPIC_OR_PARTITION",
        barnabas="creates the topic and answers with it",
        why="the client need not ask again",
    ),
    Difference(
        scenarios=("Metadata/neither_a_name_nor_an_id",),
        path="Metadata.*",
        kafka="UNKNOWN_SERVER_ERROR for the whole request",
        barnabas="INVALID_TOPIC_EXCEPTION for that topic",
        why="the request is wrong, and the other topics can be described",
    ),
    Difference(
        scenarios=("DescribeConfigs/the_same_resource_twice",),
        path="DescribeConfigs.results*",
        kafka="two results",
        barnabas="one result",
        why="100,000 names of one broker would be an answer of gigabytes",
    ),
    Difference(
        scenarios=("DescribeGroups/the_same_group_twice",),
        path="DescribeGroups.groups*",
        kafka="describes the group twice",
        barnabas="describes the group once",
        why="a request of a few kilobytes would have an answer of gigabytes",
    ),
    Difference(
        scenarios=(
            "JoinGroup/the_last_member_leaves_and_the_group_is_downgraded",
            "JoinGroup/a_member_is_removed_and_the_group_is_downgraded",
            "JoinGroup/the_last_static_member_changes_its_protocol_while_an_assignment_waits",
        ),
        path="DescribeGroups.groups*.member_assignment",
        kafka="a consumer group that becomes a classic one shows the targets of its members",
        barnabas="shows what each member may still use, until all have joined again",
        why="if it becomes a consumer group again before that, no partition has two members",
    ),
    Difference(
        scenarios=(
            "JoinGroup/a_static_member_upgrades_a_group_that_rebalances",
            "JoinGroup/a_static_member_upgrades_a_group_with_partitions_that_have_no_member",
        ),
        path="ConsumerGroupDescribe",
        kafka="the consumer group goes on with the assignment of the classic one",
        barnabas="the next epoch begins",
        why="a new member would get nothing, and new partitions or those of one that left no owner",
    ),
    Difference(
        scenarios=("OffsetFetch/the_same_group_twice", "OffsetFetch/the_same_partition_twice"),
        path="OffsetFetch.*",
        kafka="answers each group and partition as often as the request names it",
        barnabas="answers each once",
        why="the metadata of an offset, or the offsets of a group, may be long",
    ),
    Difference(
        scenarios=("rights/offsets group of one refused",),
        path="OffsetFetch.topics*",
        kafka="from v2 to v7 no topics beside the error of the group",
        barnabas="the error at every partition too",
        why="aiokafka reads only partitions: without them a group looks as if it never committed",
        versions=(2, 3, 4, 5, 6, 7),
    ),
    Difference(
        scenarios=(
            "rights/alter broker configs refused",
            "rights/change broker configs refused",
        ),
        path="*AlterConfigs.responses*.error_message",
        kafka="no text (until 4.3 there was one)",
        barnabas="the error with a text",
        why="people read it",
    ),
    Difference(
        scenarios=("rights/describe users refused",),
        path="DescribeUserScramCredentials.*",
        kafka="beside the error a result for a user without a name, and no message",
        barnabas="the error with a message",
        why="no user has an empty name",
    ),
    Difference(
        scenarios=(
            "Fetch/an_unknown_topic_and_partition",
            "Fetch/the_topic_was_deleted",
            "Fetch/a_session_takes_new_partitions",
            "Fetch/an_unknown_topic_in_a_session",
            "Fetch/a_partition_below_zero",
            "rights/fetch* refused",
        ),
        path="Fetch.responses*.aborted_transactions",
        kafka="an empty list beside some errors, null beside others",
        barnabas="null beside every error",
        why="no client reads it there",
    ),
    Difference(
        scenarios=("Fetch/a_topic_of_a_session_is_deleted",),
        path="Fetch.responses*",
        kafka="UNKNOWN_TOPIC_OR_PARTITION, for the name that the topic had",
        barnabas="UNKNOWN_TOPIC_ID, as outside of sessions",
        why="the request named the topic by its id",
    ),
    Difference(
        scenarios=("Fetch/limits_below_zero",),
        path="Fetch.responses*",
        kafka="UNKNOWN_SERVER_ERROR",
        barnabas="takes them for 0, which still returns one batch",
        why="the error would not tell a client what is wrong with its request",
    ),
    Difference(
        scenarios=(
            "Fetch/an_invalid_isolation_level",
            "ListOffsets/an_invalid_isolation_level",
        ),
        path="*",
        kafka="UNKNOWN_SERVER_ERROR",
        barnabas="INVALID_REQUEST",
        why="the request is wrong",
    ),
    Difference(
        scenarios=(
            "Produce/a_timestamp_too_far_away_inside_a_batch",
            "Produce/invalid_records",
        ),
        path="*",
        kafka="looks at every record of a batch",
        barnabas="looks at the batch's header, whose checksum covers the records",
        why="to look at each record costs more than all the rest of a request",
    ),
    Difference(
        scenarios=("FindCoordinator/of_a_share_group_that_is_switched_off",),
        path="FindCoordinator.*",
        kafka="COORDINATOR_NOT_AVAILABLE where share groups are switched off",
        barnabas="INVALID_REQUEST",
        why="there are no share groups, so a retry does not help",
        versions=(4, 6),
    ),
    Difference(
        scenarios=("Fetch/limits_cut_in_the_middle_of_the_second_batch",),
        path="Fetch.responses*.records",
        kafka="cuts the last batch at the limit",
        barnabas="sends whole batches",
        why="clients drop the cut batch",
    ),
    Difference(
        scenarios=(
            "Produce/an_old_message_format",
            "Produce/two_batches_for_one_partition",
            "Produce/no_batch_for_a_partition",
            "Produce/a_batch_that_is_cut_off",
        ),
        path="Produce.responses*.log_start_offset",
        kafka="-1",
        barnabas="the log start offset",
        why="every other refusal of a batch has it",
        versions=(8, 13),
    ),
    Difference(
        scenarios=("Produce/an_unknown_codec",),
        path="Produce.responses*.error_code",
        kafka="UNKNOWN_SERVER_ERROR",
        barnabas="UNSUPPORTED_COMPRESSION_TYPE",
        why="the request is wrong, and the code tells how",
    ),
    Difference(
        scenarios=("Produce/streams_that_java_clients_cannot_read",),
        path="Produce.responses*.error_code",
        kafka="UNKNOWN_SERVER_ERROR for LZ4 of linked blocks and the Snappy framing format",
        barnabas="INVALID_RECORD",
        why="the records are wrong, and the code tells so",
    ),
    Difference(
        scenarios=("Produce/a_batch_that_claims_log_append_time",),
        path="*",
        kafka="accepts the timestamps as the producer's",
        barnabas="INVALID_TIMESTAMP",
        why="the broker has not set these timestamps",
    ),
    Difference(
        scenarios=("Produce/bytes_behind_a_batch",),
        path="*",
        kafka="drops the bytes",
        barnabas="INVALID_RECORD",
        why="data that is not kept must not be acknowledged",
    ),
    Difference(
        scenarios=(
            "Produce/a_batch_of_the_transaction_before_is_sent_again",
            "Produce/a_forgotten_batch_comes_again_before_the_next_transaction",
        ),
        path="*",
        kafka="refuses the producer's next transaction with OUT_OF_ORDER_SEQUENCE_NUMBER, because "
        "the repeat had a lower sequence",
        barnabas="writes the next transaction: a known producer has exactly one next sequence",
        why="a late repeat must not cost a transaction",
        versions=(3, 8, 11),
    ),
    Difference(
        scenarios=("Produce/producer_fields_that_contradict_each_other",),
        path="*",
        kafka="writes a batch with a producer id and no epoch",
        barnabas="INVALID_RECORD",
        why="no producer sends it, and no later epoch could fence it",
    ),
    Difference(
        scenarios=("IncrementalAlterConfigs/an_operation_that_does_not_exist",),
        path="IncrementalAlterConfigs.responses*",
        kafka="UNKNOWN_SERVER_ERROR",
        barnabas="INVALID_REQUEST",
        why="the request is wrong, and the text tells how",
    ),
    Difference(
        scenarios=("DescribeTopicPartitions/names_that_no_topic_may_have",),
        path="DescribeTopicPartitions.topics*",
        kafka="UNKNOWN_SERVER_ERROR for every topic of the request",
        barnabas="INVALID_TOPIC_EXCEPTION for those names",
        why="the request is wrong, and the other topics can be described",
    ),
    Difference(
        scenarios=("InitProducerId/an_open_transaction_is_kept",),
        path="*",
        kafka="UNSUPPORTED_VERSION for KeepPreparedTxn, though it declares the field",
        barnabas="keeps the transaction, and names its producer and the client's",
        why="a process that goes on after a crash must be able to commit what it has prepared "
        "(KIP-939)",
    ),
    Difference(
        scenarios=(
            "InitProducerId/two_phase_commit_needs_level_2",
            "rights/init two phase allowed",
        ),
        path="*",
        kafka="takes Enable2Pc at every level of transaction.version",
        barnabas="UNSUPPORTED_VERSION below level 2",
        why="in the older protocol a late EndTxn may end another transaction of the same epoch, "
        "and the log has no place for the producer of a kept one",
    ),
    Difference(
        scenarios=("InitProducerId/worn_and_an_epoch_of_the_future",),
        path="InitProducerId.error_code",
        kafka="UNKNOWN_SERVER_ERROR for any epoch but the highest possible one",
        barnabas="PRODUCER_FENCED, or INVALID_PRODUCER_EPOCH up to version 3, as of any epoch",
        why="a newer producer exists, and the error says so",
    ),
    Difference(
        scenarios=(
            "EndTxn/a_zombie_whose_successor_speaks_the_older_protocol",
            "EndTxn/a_zombie_whose_successor_aborts_by_the_older_protocol",
        ),
        path="EndTxn.*",
        kafka="takes the successor's EndTxn for the zombie's: gives the zombie its epoch, or "
        "answers INVALID_TXN_STATE if the zombie asks for the other outcome (4.3 and 4.4)",
        barnabas="PRODUCER_FENCED: only an EndTxn of the newer protocol can be repeated in it. "
        "At level 0 of transaction.version the log does not keep the protocol: once "
        "another broker coordinates, a repeated EndTxn v5 is fenced too",
        why="a zombie with that epoch would write into its successor's transactions",
    ),
    Difference(
        scenarios=(
            "Produce/two_producers_in_one_request",
            "Produce/two_epochs_in_one_request",
        ),
        path="Produce.responses*.error_message",
        kafka="also explains the error in words",
        barnabas="the code alone, as for other requests that are refused as a whole",
        why="INVALID_PRODUCER_ID_MAPPING explains it",
        versions=(8, 11, 13),
    ),
    Difference(
        scenarios=("Produce/an_epoch_above_the_producers_own",),
        path="*",
        kafka="remembers the sequence of a batch that it refused, and then refuses lower ones",
        barnabas="forgets a batch that the coordinator did not admit",
        why="any client can make up an epoch, and would stop the producer with the real one",
    ),
    Difference(
        scenarios=("Produce/an_internal_topic",),
        path="Produce.responses*",
        kafka="first asks the coordinator whether the partition is in the transaction",
        barnabas="INVALID_TOPIC_EXCEPTION, as outside of transactions",
        why="the answer does not depend on the coordinator",
        versions=(3, 8, 11),
    ),
    Difference(
        scenarios=("Produce/a_transactional_batch_without_producer_id",),
        path="Produce.responses*",
        kafka="writes a transactional batch without a producer id",
        barnabas="INVALID_PRODUCER_ID_MAPPING",
        why="it belongs to no transaction, and no marker could end it",
    ),
    Difference(
        scenarios=(
            "WriteTxnMarkers/versions_below_zero",
            "WriteTxnMarkers/impossible_producers",
        ),
        path="WriteTxnMarkers.markers*.error_code",
        kafka="UNKNOWN_SERVER_ERROR",
        barnabas="INVALID_REQUEST",
        why="the request is wrong",
    ),
    Difference(
        scenarios=("WriteTxnMarkers/a_marker_for_no_partition",),
        path="WriteTxnMarkers.markers",
        kafka="leaves it out of the answer",
        barnabas="answers it, without partitions",
        why="every marker of the request gets an answer",
    ),
    Difference(
        scenarios=("DescribeProducers/several_partitions_and_unknown_ones",),
        path="DescribeProducers.*.error_message",
        kafka="for an unknown topic, not for an unknown partition",
        barnabas="for every error",
        why="people read it",
    ),
    Difference(
        scenarios=("DescribeProducers/the_same_partition_twice",),
        path="DescribeProducers.topics*",
        kafka="describes it twice",
        barnabas="describes it once",
        why="a request of a few kilobytes would have an answer of gigabytes",
    ),
    Difference(
        scenarios=("DescribeTransactions/the_same_twice",),
        path="DescribeTransactions.transaction_states",
        kafka="describes it twice",
        barnabas="describes it once",
        why="the second answer adds nothing",
    ),
    Difference(
        scenarios=("Fetch/interleaved_producers", "Fetch/some_batches_at_a_time"),
        path="Fetch.responses*.aborted_transactions",
        kafka="also lists aborted transactions that begin behind the records of the answer",
        barnabas="lists those that the records of the answer may belong to",
        why="the others are listed when their records are read",
    ),
    Difference(
        scenarios=("DescribeConfigs/every_key_of_a_group",),
        path="DescribeConfigs.results*",
        kafka="keys of the consumer, share and streams protocols",
        barnabas="keys of the consumer protocol",
        why="the other protocols come with later releases",
    ),
)
