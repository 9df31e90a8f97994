"""Faults of a coordinator's own log, as its clients are told of them."""

from typing import Final

from barnabas.protocol.errors import ErrorCode, KafkaError, ProtocolError

_AS_COORDINATOR: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    # From the coordinator of transactions; older clients retry this one without a look-up.
    ErrorCode.NETWORK_EXCEPTION: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.UNKNOWN_SERVER_ERROR,
}
"""What a coordinator's client is told of a fault of the coordinator's own log."""


def as_coordinator(error: KafkaError | ProtocolError) -> KafkaError:
    """A fault of the log as the coordinator's client is told of it.

    Requests may hold names that are longer than records can: a ProtocolError.
    """
    if isinstance(error, ProtocolError):
        return KafkaError(ErrorCode.INVALID_REQUEST, str(error))
    return KafkaError(_AS_COORDINATOR.get(error.code, error.code), error.message)
