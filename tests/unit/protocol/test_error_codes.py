"""Error codes are found at every depth of a response."""

from barnabas.protocol.errors import errors_of
from barnabas.protocol.messages import (
    add_partitions_to_txn,
    create_topics,
    fetch,
    heartbeat,
    offset_fetch,
    produce,
    sync_group,
)


def test_error_of_a_whole_response() -> None:
    found = errors_of(heartbeat.HeartbeatResponse)
    assert found(heartbeat.HeartbeatResponse(error_code=25)) == [25]
    assert found(heartbeat.HeartbeatResponse(error_code=0)) == []
    assert errors_of(sync_group.SyncGroupResponse) is not found


def test_errors_of_partitions() -> None:
    partitions = [
        produce.PartitionProduceResponse(index=index, error_code=code, base_offset=0)
        for index, code in enumerate((0, 6, 6, 3))
    ]
    topic = produce.TopicProduceResponse(name="t", partition_responses=partitions)
    assert errors_of(produce.ProduceResponse)(produce.ProduceResponse(responses=[topic])) == [
        6,
        6,
        3,
    ]


def test_errors_of_the_whole_and_of_its_parts() -> None:
    topic = fetch.FetchableTopicResponse(
        topic="t",
        partitions=[
            fetch.PartitionData(
                partition_index=0,
                error_code=1,
                high_watermark=0,
                aborted_transactions=None,
                records=b"",
            )
        ],
    )
    answer = fetch.FetchResponse(error_code=70, responses=[topic])
    assert errors_of(fetch.FetchResponse)(answer) == [70, 1]


def test_response_with_null_or_default_arrays_has_no_errors() -> None:
    assert errors_of(offset_fetch.OffsetFetchResponse)(offset_fetch.OffsetFetchResponse()) == []


def test_errors_of_partitions_that_a_transaction_adds_have_another_name() -> None:
    topic = add_partitions_to_txn.AddPartitionsToTxnTopicResult(
        name="t",
        results_by_partition=[
            add_partitions_to_txn.AddPartitionsToTxnPartitionResult(
                partition_index=index, partition_error_code=code
            )
            for index, code in enumerate((0, 3, 55))
        ],
    )
    of_client = add_partitions_to_txn.AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[topic]
    )
    of_broker = add_partitions_to_txn.AddPartitionsToTxnResponse(
        error_code=31,
        results_by_transaction=[
            add_partitions_to_txn.AddPartitionsToTxnResult(
                transactional_id="x", topic_results=[topic]
            )
        ],
    )
    found = errors_of(add_partitions_to_txn.AddPartitionsToTxnResponse)
    assert found(of_client) == [3, 55]
    assert found(of_broker) == [31, 3, 55]


def test_configurations_that_may_not_be_shown_are_no_error() -> None:
    topic = create_topics.CreatableTopicResult(
        name="t", error_message=None, topic_config_error_code=29
    )
    answer = create_topics.CreateTopicsResponse(topics=[topic])
    assert errors_of(create_topics.CreateTopicsResponse)(answer) == []
