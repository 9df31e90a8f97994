"""Errors are found wherever an answer carries them."""

from barnabas.protocol.error_codes import errors_of
from barnabas.protocol.messages import fetch, heartbeat, offset_fetch, produce, sync_group


def test_the_error_of_a_whole_answer() -> None:
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


def test_an_answer_whose_arrays_are_null_or_defaulted_has_none() -> None:
    assert errors_of(offset_fetch.OffsetFetchResponse)(offset_fetch.OffsetFetchResponse()) == []
