"""Where Barnabas answers otherwise than Apache Kafka 4.3 on purpose: docs/COMPATIBILITY.md.

A difference names the scenarios that show it. Each of them must show it, so that none outlives
what it describes.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Difference:
    """One wanted difference.

    Attributes:
        scenarios: titles of scenarios (`Api/name`, `*` for any) that show it.
        path: the field, as `Api.field[0].field`, `*` for any.
        kafka: what Kafka does, in words.
        barnabas: what Barnabas does instead.
        why: the reason.
        versions: the versions of the scenario that show it; all where empty.
    """

    scenarios: tuple[str, ...]
    path: str
    kafka: str
    barnabas: str
    why: str
    versions: tuple[int, ...] = ()

    @property
    def about(self) -> str:
        """What it is about, for people: the names of its scenarios."""
        return "; ".join(name.replace("/", ": ").replace("_", " ") for name in self.scenarios)


WANTED = (
    Difference(
        scenarios=(
            "Metadata/asking_creates_the_topic",
            "Metadata/asking_creates_the_topic_where_it_is_allowed",
        ),
        path="Metadata.topics*",
        kafka="starts to create the topic and answers UNKNOWN_TOPIC_OR_PARTITION",
        barnabas="answers with the topic, which is there",
        why="the client need not ask again",
    ),
    Difference(
        scenarios=("Metadata/neither_a_name_nor_an_id",),
        path="Metadata.*",
        kafka="UNKNOWN_SERVER_ERROR for the whole request",
        barnabas="INVALID_TOPIC_EXCEPTION for that topic",
        why="it is the request's fault, and the other topics are described",
    ),
    Difference(
        scenarios=(
            "Fetch/an_unknown_topic_and_partition",
            "Fetch/the_topic_was_deleted",
            "Fetch/a_session_takes_new_partitions",
            "Fetch/an_unknown_topic_in_a_session",
            "Fetch/a_partition_below_zero",
        ),
        path="Fetch.responses*.aborted_transactions",
        kafka="an empty list beside some errors, null beside others",
        barnabas="null beside every error",
        why="nobody reads it there",
    ),
    Difference(
        scenarios=("Fetch/a_topic_of_a_session_is_deleted",),
        path="Fetch.responses*",
        kafka="UNKNOWN_TOPIC_OR_PARTITION, for the name that the topic had",
        barnabas="UNKNOWN_TOPIC_ID, as outside of sessions",
        why="the topic was asked for by its id",
    ),
    Difference(
        scenarios=("Fetch/limits_below_zero",),
        path="Fetch.responses*",
        kafka="UNKNOWN_SERVER_ERROR",
        barnabas="takes them for 0, which still brings one batch",
        why="a reader that is not told what is wrong with its request cannot mend it",
    ),
    Difference(
        scenarios=(
            "Fetch/an_isolation_that_there_is_not",
            "ListOffsets/an_isolation_that_there_is_not",
        ),
        path="*",
        kafka="UNKNOWN_SERVER_ERROR",
        barnabas="INVALID_REQUEST",
        why="it is the request's fault",
    ),
    Difference(
        scenarios=(
            "Produce/a_timestamp_too_far_away_inside_a_batch",
            "Produce/records_that_are_none",
        ),
        path="*",
        kafka="looks at every record of a batch",
        barnabas="looks at the batch's header, whose checksum covers the records",
        why="walking the records costs more than all the rest of a request",
    ),
    Difference(
        scenarios=("FindCoordinator/of_a_share_group_that_is_switched_off",),
        path="FindCoordinator.*",
        kafka="COORDINATOR_NOT_AVAILABLE where share groups are switched off",
        barnabas="INVALID_REQUEST",
        why="there are no share groups: asking again does not help",
        versions=(4, 6),
    ),
    Difference(
        scenarios=("Fetch/limits_cut_in_the_middle_of_the_second_batch",),
        path="Fetch.responses*.records",
        kafka="cuts the last batch where the limit is",
        barnabas="sends whole batches",
        why="clients throw the cut batch away",
    ),
    Difference(
        scenarios=(
            "Produce/a_format_of_the_past",
            "Produce/two_batches_for_one_partition",
            "Produce/no_batch_for_a_partition",
            "Produce/a_batch_that_is_cut_off",
        ),
        path="Produce.responses*.log_start_offset",
        kafka="-1",
        barnabas="the log start offset",
        why="as in every other refusal of a batch",
        versions=(8, 13),
    ),
    Difference(
        scenarios=("Produce/a_codec_that_nobody_knows",),
        path="Produce.responses*.error_code",
        kafka="UNKNOWN_SERVER_ERROR",
        barnabas="UNSUPPORTED_COMPRESSION_TYPE",
        why="it is the request's fault, and the code says which",
    ),
    Difference(
        scenarios=("Produce/a_batch_that_says_the_broker_stamped_it",),
        path="*",
        kafka="takes the time for the producer's",
        barnabas="INVALID_TIMESTAMP",
        why="the broker has not stamped it",
    ),
    Difference(
        scenarios=("Produce/bytes_behind_a_batch",),
        path="*",
        kafka="leaves the bytes away",
        barnabas="INVALID_RECORD",
        why="what was sent and is not kept must not be acknowledged",
    ),
    Difference(
        scenarios=("Produce/producer_fields_that_contradict_each_other",),
        path="*",
        kafka="writes a batch with a producer id and no epoch",
        barnabas="answers INVALID_RECORD",
        why="no producer sends it, and no later epoch could fence it",
    ),
    Difference(
        scenarios=("IncrementalAlterConfigs/an_operation_that_does_not_exist",),
        path="IncrementalAlterConfigs.responses*",
        kafka="UNKNOWN_SERVER_ERROR",
        barnabas="INVALID_REQUEST",
        why="it is the request's fault, and the text says which",
    ),
    Difference(
        scenarios=("DescribeTopicPartitions/names_that_no_topic_may_have",),
        path="DescribeTopicPartitions.topics*",
        kafka="UNKNOWN_SERVER_ERROR for every topic of the request",
        barnabas="INVALID_TOPIC_EXCEPTION for those names",
        why="it is the request's fault, and the other topics are described",
    ),
    Difference(
        scenarios=("InitProducerId/worn_and_an_epoch_of_the_future",),
        path="InitProducerId.error_code",
        kafka="UNKNOWN_SERVER_ERROR for another epoch than the last one of all",
        barnabas="PRODUCER_FENCED, or INVALID_PRODUCER_EPOCH up to version 3, as of any epoch",
        why="the producer has to give way, and is told so",
    ),
    Difference(
        scenarios=("EndTxn/a_zombie_whose_successor_speaks_the_older_protocol",),
        path="EndTxn.*",
        kafka="takes the successor's EndTxn for the zombie's, and tells it the successor's epoch",
        barnabas="PRODUCER_FENCED: only an EndTxn of the newer protocol can be sent again in it. "
        "At level 0 of transaction.version the log does not say which protocol it was: once "
        "another broker coordinates, an EndTxn v5 that is sent again is fenced too",
        why="a zombie with that epoch would write into its successor's transactions",
    ),
    Difference(
        scenarios=(
            "Produce/two_producers_in_one_request",
            "Produce/two_epochs_in_one_request",
        ),
        path="Produce.responses*.error_message",
        kafka="says what is wrong in words too",
        barnabas="the code alone, as for other requests that are refused whole",
        why="INVALID_PRODUCER_ID_MAPPING says it",
        versions=(8, 11, 13),
    ),
    Difference(
        scenarios=("Produce/an_epoch_above_the_producers_own",),
        path="*",
        kafka="remembers the sequence of a batch that it refused, and refuses lower ones after it",
        barnabas="forgets what the coordinator did not admit",
        why="anybody can make up an epoch, and would stop the producer that holds the real one",
    ),
    Difference(
        scenarios=("Produce/an_internal_topic",),
        path="Produce.responses*",
        kafka="asks the coordinator whether it is in the transaction first",
        barnabas="INVALID_TOPIC_EXCEPTION, as outside of transactions",
        why="the answer is the same whatever the coordinator says",
        versions=(3, 8, 11),
    ),
    Difference(
        scenarios=("Produce/a_transactional_batch_of_nobody",),
        path="Produce.responses*",
        kafka="writes a transactional batch without a producer id",
        barnabas="INVALID_PRODUCER_ID_MAPPING",
        why="it belongs to no transaction, and no marker could end it",
    ),
    Difference(
        scenarios=(
            "WriteTxnMarkers/versions_below_zero",
            "WriteTxnMarkers/producers_that_cannot_be",
        ),
        path="WriteTxnMarkers.markers*.error_code",
        kafka="UNKNOWN_SERVER_ERROR",
        barnabas="INVALID_REQUEST",
        why="it is the request's fault",
    ),
    Difference(
        scenarios=("WriteTxnMarkers/a_marker_for_no_partition",),
        path="WriteTxnMarkers.markers",
        kafka="leaves it out of the answer",
        barnabas="answers it, with no partition",
        why="every marker of the request has its answer",
    ),
    Difference(
        scenarios=("DescribeProducers/several_partitions_and_unknown_ones",),
        path="DescribeProducers.*.error_message",
        kafka="beside an unknown topic, not beside an unknown partition",
        barnabas="beside every error",
        why="people read it",
    ),
    Difference(
        scenarios=("DescribeTransactions/the_same_twice",),
        path="DescribeTransactions.transaction_states",
        kafka="describes it twice",
        barnabas="describes it once",
        why="the second answer says nothing more",
    ),
    Difference(
        scenarios=("Fetch/interleaved_producers", "Fetch/some_batches_at_a_time"),
        path="Fetch.responses*.aborted_transactions",
        kafka="lists aborted transactions that begin behind the records of the answer as well",
        barnabas="lists those that the records of the answer may belong to",
        why="the others are listed when their records are read",
    ),
    Difference(
        scenarios=("DescribeConfigs/keys_of_a_group",),
        path="DescribeConfigs.results*",
        kafka="keys of the consumer, share and streams protocols",
        barnabas="none",
        why="those protocols come with later releases",
    ),
)
