"""Fetch: the fields that have an error of the whole request."""

import pytest

from barnabas.broker.handlers.fetch import error_response
from barnabas.protocol.codec import decode, encode
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from tests.support.steps import all_taken

REQUEST = FetchRequest(
    max_wait_ms=0,
    min_bytes=0,
    topics=[
        FetchTopic(
            topic="t",
            topic_id=bytes(16),
            partitions=[FetchPartition(partition=3, fetch_offset=0, partition_max_bytes=1)],
        )
    ],
)


def told(code: ErrorCode, version: int) -> tuple[int, list[int]]:
    """Return the errors that a client of this version reads: of the request and its partitions."""
    sent = encode(all_taken(error_response(REQUEST, code, version)), version)
    answer = decode(FetchResponse, version, bytes(sent))
    return answer.error_code, [p.error_code for topic in answer.responses for p in topic.partitions]


@pytest.mark.parametrize(
    ("version", "whole", "partitions"), [(4, 0, [-1]), (7, -1, [-1]), (12, -1, [-1]), (13, -1, [])]
)
def test_failed_fetch_does_not_look_empty(version: int, whole: int, partitions: list[int]) -> None:
    assert told(ErrorCode.UNKNOWN_SERVER_ERROR, version) == (whole, partitions)


def test_session_error_is_not_repeated_by_partition() -> None:
    assert told(ErrorCode.INVALID_FETCH_SESSION_EPOCH, 12) == (71, [])
