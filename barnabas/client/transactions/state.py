"""The state machine of a transactional producer and the classification of errors (KIP-98).

After an abortable error the application aborts the transaction and may begin another. After a fatal
error the producer cannot be used any more: another instance has its transactional id, or it is not
authorized. The classification follows Kafka's Java client 4.x.
"""

from collections.abc import Mapping
from enum import Enum, auto
from typing import NamedTuple

from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    end_txn,
    init_producer_id,
    produce,
    txn_offset_commit,
)
from barnabas.protocol.schema import Api


class State(Enum):
    """The state of a transactional producer."""

    UNINITIALISED = "uninitialised"
    INITIALISING = "initialising"
    READY = "ready"
    IN_TRANSACTION = "in transaction"
    PREPARED = "prepared"
    COMMITTING = "committing"
    ABORTING = "aborting"
    ABORTABLE_ERROR = "abortable error"
    FATAL_ERROR = "fatal error"


_S = State
TRANSITIONS: Mapping[State, frozenset[State]] = {
    _S.UNINITIALISED: frozenset({_S.INITIALISING}),
    _S.INITIALISING: frozenset({_S.READY, _S.PREPARED, _S.UNINITIALISED}),
    _S.READY: frozenset({_S.IN_TRANSACTION}),
    _S.IN_TRANSACTION: frozenset({_S.PREPARED, _S.COMMITTING, _S.ABORTING, _S.ABORTABLE_ERROR}),
    _S.PREPARED: frozenset({_S.COMMITTING, _S.ABORTING}),
    _S.COMMITTING: frozenset({_S.READY, _S.COMMITTING, _S.ABORTABLE_ERROR}),
    _S.ABORTABLE_ERROR: frozenset({_S.ABORTING, _S.ABORTABLE_ERROR}),
    _S.ABORTING: frozenset({_S.READY, _S.ABORTING, _S.ABORTABLE_ERROR}),
    _S.FATAL_ERROR: frozenset(),
}
"""The next states of each state. FATAL_ERROR may follow every other state. COMMITTING and ABORTING
follow themselves if a call timed out and is repeated: until then the outcome is unknown."""


class PreparedTransaction(NamedTuple):
    """The producer id and epoch of a prepared transaction (KIP-939); its text is Java's."""

    producer_id: int
    epoch: int

    def __str__(self) -> str:
        return f"{self.producer_id}:{self.epoch}"

    @classmethod
    def parse(cls, text: str) -> "PreparedTransaction":
        """Return the transaction of a text such as `1000:3`; ValueError for any other text."""
        producer_id, colon, epoch = text.partition(":")
        if not (colon and producer_id.isdecimal() and epoch.isdecimal()):
            raise ValueError(f"{text!r} is no prepared transaction: give PRODUCER_ID:EPOCH")
        return cls(int(producer_id), int(epoch))


class TransactionStateError(RuntimeError):
    """A call that the state of the producer does not allow, e.g. a commit outside a transaction."""


class AbortableError(KafkaError):
    """A failure of the transaction; `abort_transaction` makes the producer ready again."""


class FatalError(KafkaError):
    """A failure of the producer: close it. PRODUCER_FENCED: another has its transactional id."""


class ErrorKind(Enum):
    """The kind of an error of a transactional request."""

    RETRY = auto()
    ABORTABLE = auto()
    FATAL = auto()


_E = ErrorCode
_FENCED = dict.fromkeys((_E.INVALID_PRODUCER_EPOCH, _E.PRODUCER_FENCED), ErrorKind.FATAL)
_ABORTABLE_ALWAYS = dict.fromkeys(
    (_E.TRANSACTION_ABORTABLE, _E.UNKNOWN_PRODUCER_ID), ErrorKind.ABORTABLE
)
_TO_COORDINATOR = {**_FENCED, **_ABORTABLE_ALWAYS}

_ERROR_KINDS: Mapping[Api, tuple[Mapping[ErrorCode, ErrorKind], ErrorKind]] = {
    init_producer_id.API: (_TO_COORDINATOR, ErrorKind.FATAL),
    add_partitions_to_txn.API: (
        {
            **_TO_COORDINATOR,
            **dict.fromkeys(
                (
                    _E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
                    _E.INVALID_TXN_STATE,
                    _E.INVALID_PRODUCER_ID_MAPPING,
                ),
                ErrorKind.FATAL,
            ),
        },
        ErrorKind.ABORTABLE,
    ),
    add_offsets_to_txn.API: (
        {**_TO_COORDINATOR, _E.GROUP_AUTHORIZATION_FAILED: ErrorKind.ABORTABLE},
        ErrorKind.FATAL,
    ),
    txn_offset_commit.API: (
        {
            **_TO_COORDINATOR,
            **dict.fromkeys(
                (
                    _E.UNKNOWN_MEMBER_ID,
                    _E.ILLEGAL_GENERATION,
                    _E.FENCED_INSTANCE_ID,
                    _E.STALE_MEMBER_EPOCH,
                    _E.TOPIC_AUTHORIZATION_FAILED,
                    _E.GROUP_AUTHORIZATION_FAILED,
                ),
                ErrorKind.ABORTABLE,
            ),
        },
        ErrorKind.FATAL,
    ),
    end_txn.API: (_TO_COORDINATOR, ErrorKind.FATAL),
    produce.API: (
        dict.fromkeys(
            (
                _E.CLUSTER_AUTHORIZATION_FAILED,
                _E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
                _E.PRODUCER_FENCED,
                _E.UNSUPPORTED_VERSION,
                _E.INVALID_PRODUCER_ID_MAPPING,
            ),
            ErrorKind.FATAL,
        ),
        ErrorKind.ABORTABLE,
    ),
}
"""By API: the kinds of single errors, and the kind of all other errors."""


def classify(api: Api, code: ErrorCode) -> ErrorKind:
    """Return the kind of an error in the response to `api`.

    Retriable errors are retried, except those of Produce: Produce reports them after its own
    retries, when the transaction cannot be completed any more.
    """
    kinds, else_ = _ERROR_KINDS[api]
    if code in kinds:
        return kinds[code]
    if code.retriable and api is not produce.API:
        return ErrorKind.RETRY
    return else_


def as_error(api: Api, error: KafkaError) -> AbortableError | FatalError:
    """Return the error for the application; INVALID_PRODUCER_EPOCH becomes PRODUCER_FENCED."""
    if classify(api, error.code) is not ErrorKind.FATAL:
        return AbortableError(error.code, error.message)
    code = error.code
    if code is ErrorCode.INVALID_PRODUCER_EPOCH:
        code = ErrorCode.PRODUCER_FENCED
    return FatalError(code, error.message)


class StateMachine:
    """The state machine of a producer; `error` is the reason of an error state."""

    def __init__(self) -> None:
        self.state = State.UNINITIALISED
        self.error: AbortableError | FatalError | None = None

    def move_to(self, state: State) -> None:
        """Move to `state` if TRANSITIONS allows it; raises the current error otherwise.

        Without a current error it raises TransactionStateError.
        """
        if state not in TRANSITIONS[self.state]:
            self.refuse(f"{self.state.value} does not lead to {state.value}")
        self.state = state
        self.error = None

    def expect(self, *states: State) -> None:
        """Raise an error unless the state is one of `states`."""
        if self.state not in states:
            wanted = " or ".join(state.value for state in states)
            self.refuse(f"the producer is not {wanted} but {self.state.value}")

    def refuse(self, text: str) -> None:
        """Raise the current error, or TransactionStateError without one."""
        if self.error is not None:
            # A new exception each time: the traceback of one that is raised again would grow.
            raise type(self.error)(self.error.code, self.error.message)
        raise TransactionStateError(text)

    def fail(self, error: AbortableError | FatalError) -> None:
        """Record an error; an abortable error outside a transaction changes nothing."""
        if self.state is State.FATAL_ERROR:
            return
        if isinstance(error, FatalError):
            self.state, self.error = State.FATAL_ERROR, error
        elif State.ABORTABLE_ERROR in TRANSITIONS[self.state]:
            # Keep the first error: the later ones are its consequences.
            self.error = self.error or error
            self.state = State.ABORTABLE_ERROR
