"""What a coordinator's clients are told in place of a fault of its log, or of its own doubt."""

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


_FOR_GOOD: Final = frozenset(
    {
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.PRODUCER_FENCED,
    }
)
"""Refusals after which a client gives up."""


def doubted(refusal: KafkaError) -> KafkaError:
    """A refusal by one who may have a successor that knows more: the client is to ask again.

    What is written needs no doubt, the other replicas refuse it; a refusal needs nobody.
    """
    if refusal.code not in _FOR_GOOD:
        return refusal
    return KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "cut off, and perhaps replaced")


def as_coordinator(error: KafkaError | ProtocolError) -> KafkaError:
    """A fault of the log as the coordinator's client is told of it.

    Requests may hold names that are longer than records can: a ProtocolError.
    """
    if isinstance(error, ProtocolError):
        return KafkaError(ErrorCode.INVALID_REQUEST, str(error))
    return KafkaError(_AS_COORDINATOR.get(error.code, error.code), error.message)
