"""The errors that clients of a coordinator get when its log fails or its leadership is in doubt."""

from typing import Final

from barnabas.protocol.errors import ErrorCode, KafkaError, ProtocolError

_LOG_ERRORS: Final = {
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
"""The error for the client, for each error of the coordinator's own log."""

_FATAL: Final = frozenset(
    {
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.PRODUCER_FENCED,
        # Two-phase commit below `transaction.version` 2, which may have been raised since.
        ErrorCode.UNSUPPORTED_VERSION,
    }
)
"""Errors after which a client gives up."""


def retriable(refusal: KafkaError) -> KafkaError:
    """Return COORDINATOR_NOT_AVAILABLE in place of an error after which a client gives up.

    A deposed leader's write cannot commit, but its refusal comes from memory and may be stale.
    """
    if refusal.code not in _FATAL:
        return refusal
    return KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "out of touch with the cluster")


def coordinator_error(error: KafkaError | ProtocolError) -> KafkaError:
    """Return the error for the client where the coordinator's own log refused a write.

    A ProtocolError is a name in the request that is longer than a record can hold.
    """
    if isinstance(error, ProtocolError):
        return KafkaError(ErrorCode.INVALID_REQUEST, str(error))
    return KafkaError(_LOG_ERRORS.get(error.code, error.code), error.message)
