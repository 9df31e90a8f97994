"""The error table compared with kio's, and the errors that older clients get instead."""

import pytest
from kio.schema.errors import ErrorCode as ForeignErrorCode

from barnabas.protocol.errors import ErrorCode, KafkaError, downgrade

OF_KAFKA_4_4 = {
    (134, "GROUP_DELETION_FAILED", False),
    (135, "STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED", False),
    (136, "CONTROLLER_ID_NOT_REGISTERED", False),
}
"""Errors that kio, of Kafka 4.3, lacks."""


def test_has_kafkas_numbers_names_and_retries() -> None:
    ours = {(int(code), code.name, code.retriable) for code in ErrorCode}
    theirs = {(code.value, code.name.upper(), code.retriable) for code in ForeignErrorCode}
    assert ours - theirs == OF_KAFKA_4_4
    assert theirs <= ours


def test_every_error_has_a_text_of_its_own() -> None:
    texts = [code.text for code in ErrorCode]
    assert all(texts)
    assert len(set(texts)) == len(texts)


def test_an_error_reads_as_its_name_and_message() -> None:
    assert str(KafkaError(ErrorCode.NOT_COORDINATOR)) == (
        "NOT_COORDINATOR: another broker is the coordinator"
    )
    assert str(KafkaError(ErrorCode.INVALID_CONFIG, "no")) == "INVALID_CONFIG: no"


@pytest.mark.parametrize(
    ("key", "version", "code", "told"),
    [
        (22, 3, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH),
        (22, 4, ErrorCode.PRODUCER_FENCED, ErrorCode.PRODUCER_FENCED),
        (24, 1, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH),
        (24, 2, ErrorCode.PRODUCER_FENCED, ErrorCode.PRODUCER_FENCED),
        (25, 1, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH),
        (25, 2, ErrorCode.PRODUCER_FENCED, ErrorCode.PRODUCER_FENCED),
        (26, 1, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH),
        (26, 2, ErrorCode.PRODUCER_FENCED, ErrorCode.PRODUCER_FENCED),
        (0, 13, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH),
        (0, 10, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.INVALID_TXN_STATE),
        (0, 11, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.TRANSACTION_ABORTABLE),
        (27, 2, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (27, 2, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (27, 2, ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (28, 1, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (28, 2, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (28, 3, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.INVALID_TXN_STATE),
        (28, 4, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.TRANSACTION_ABORTABLE),
        (28, 5, ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.ILLEGAL_GENERATION),
        (28, 5, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH),
        (0, 13, ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_ENOUGH_REPLICAS),
        (0, 11, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_ENOUGH_REPLICAS),
        (0, 12, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.CONCURRENT_TRANSACTIONS),
        (1, 5, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (1, 6, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.KAFKA_STORAGE_ERROR),
        (3, 5, ErrorCode.LISTENER_NOT_FOUND, ErrorCode.LEADER_NOT_AVAILABLE),
        (12, 0, ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_COORDINATOR),
    ],
)
def test_old_clients_get_an_error_that_they_understand(
    key: int, version: int, code: ErrorCode, told: ErrorCode
) -> None:
    assert downgrade(key, version, code) is told
