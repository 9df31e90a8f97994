"""The state of a transactional producer as a table, and what each error means for it (KIP-98).

An abortable error ends the transaction and leaves the producer: abort, and begin again. After a
fatal one the producer is of no use: another instance has taken over, or it is not allowed to go on.
Which error is which follows Kafka's Java client 4.x.
"""

from collections.abc import Mapping
from enum import Enum, auto

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
    """Where a transactional producer stands."""

    UNINITIALISED = "uninitialised"
    INITIALISING = "initialising"
    READY = "ready"
    IN_TRANSACTION = "in transaction"
    COMMITTING = "committing"
    ABORTING = "aborting"
    ABORTABLE_ERROR = "abortable error"
    FATAL_ERROR = "fatal error"


_S = State
TRANSITIONS: Mapping[State, frozenset[State]] = {
    _S.UNINITIALISED: frozenset({_S.INITIALISING}),
    _S.INITIALISING: frozenset({_S.READY, _S.UNINITIALISED}),
    _S.READY: frozenset({_S.IN_TRANSACTION}),
    _S.IN_TRANSACTION: frozenset({_S.COMMITTING, _S.ABORTING, _S.ABORTABLE_ERROR}),
    _S.COMMITTING: frozenset({_S.READY, _S.COMMITTING, _S.ABORTABLE_ERROR}),
    _S.ABORTABLE_ERROR: frozenset({_S.ABORTING, _S.ABORTABLE_ERROR}),
    _S.ABORTING: frozenset({_S.READY, _S.ABORTING, _S.ABORTABLE_ERROR}),
    _S.FATAL_ERROR: frozenset(),
}
"""Whither from each state; a fatal error comes after any but itself. COMMITTING and ABORTING follow
themselves where the call ran out of time and is made again: the outcome is unknown till then."""


class TransactionStateError(RuntimeError):
    """The call is not allowed in the producer's state, such as a commit outside a transaction."""


class AbortableError(KafkaError):
    """The transaction failed; `abort_transaction` makes the producer ready again."""


class FatalError(KafkaError):
    """The producer cannot go on; close it. PRODUCER_FENCED: another has its transactional id."""


class Verdict(Enum):
    """What an error is to a request of a transaction."""

    RETRY = auto()
    ABORTABLE = auto()
    FATAL = auto()


_E = ErrorCode
_FENCED = dict.fromkeys((_E.INVALID_PRODUCER_EPOCH, _E.PRODUCER_FENCED), Verdict.FATAL)
_ABORTABLE_ALWAYS = dict.fromkeys(
    (_E.TRANSACTION_ABORTABLE, _E.UNKNOWN_PRODUCER_ID), Verdict.ABORTABLE
)
_TO_COORDINATOR = {**_FENCED, **_ABORTABLE_ALWAYS}

_VERDICTS: Mapping[Api, tuple[Mapping[ErrorCode, Verdict], Verdict]] = {
    init_producer_id.API: (_TO_COORDINATOR, Verdict.FATAL),
    add_partitions_to_txn.API: (
        {
            **_TO_COORDINATOR,
            **dict.fromkeys(
                (
                    _E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
                    _E.INVALID_TXN_STATE,
                    _E.INVALID_PRODUCER_ID_MAPPING,
                ),
                Verdict.FATAL,
            ),
        },
        Verdict.ABORTABLE,
    ),
    add_offsets_to_txn.API: (
        {**_TO_COORDINATOR, _E.GROUP_AUTHORIZATION_FAILED: Verdict.ABORTABLE},
        Verdict.FATAL,
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
                Verdict.ABORTABLE,
            ),
        },
        Verdict.FATAL,
    ),
    end_txn.API: (_TO_COORDINATOR, Verdict.FATAL),
    produce.API: (
        dict.fromkeys(
            (
                _E.CLUSTER_AUTHORIZATION_FAILED,
                _E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
                _E.PRODUCER_FENCED,
                _E.UNSUPPORTED_VERSION,
                _E.INVALID_PRODUCER_ID_MAPPING,
            ),
            Verdict.FATAL,
        ),
        Verdict.ABORTABLE,
    ),
}
"""By API: the errors that are told apart, and what all others are."""


def judge(api: Api, code: ErrorCode) -> Verdict:
    """What an error in the answer to `api` means. Retriable ones are retried, except by Produce:

    there they count when its retries are used up, and the transaction cannot be completed.
    """
    told_apart, else_ = _VERDICTS[api]
    if code in told_apart:
        return told_apart[code]
    if code.retriable and api is not produce.API:
        return Verdict.RETRY
    return else_


def as_error(api: Api, error: KafkaError) -> AbortableError | FatalError:
    """The error as the application gets it; an old epoch at the coordinator reads as fenced."""
    if judge(api, error.code) is not Verdict.FATAL:
        return AbortableError(error.code, error.message)
    code = error.code
    if code is ErrorCode.INVALID_PRODUCER_EPOCH:
        code = ErrorCode.PRODUCER_FENCED
    return FatalError(code, error.message)


class Machine:
    """The state, moved along the table; `error` is why it is one of the two error states."""

    def __init__(self) -> None:
        self.state = State.UNINITIALISED
        self.error: AbortableError | FatalError | None = None

    def to(self, state: State) -> None:
        """Goes on, or raises: the error it stands in, or TransactionStateError."""
        if state not in TRANSITIONS[self.state]:
            self.refuse(f"{self.state.value} does not lead to {state.value}")
        self.state = state
        self.error = None

    def expect(self, *states: State) -> None:
        """Raises unless the state is one of these."""
        if self.state not in states:
            wanted = " or ".join(state.value for state in states)
            self.refuse(f"the producer is not {wanted} but {self.state.value}")

    def refuse(self, text: str) -> None:
        """Raises the error that the producer stands in, or TransactionStateError."""
        if self.error is not None:
            # A fresh one each time: a traceback grows on an exception that is raised again.
            raise type(self.error)(self.error.code, self.error.message)
        raise TransactionStateError(text)

    def fail(self, error: AbortableError | FatalError) -> None:
        """Takes an error in; an abortable one outside a transaction changes nothing."""
        if self.state is State.FATAL_ERROR:
            return
        if isinstance(error, FatalError):
            self.state, self.error = State.FATAL_ERROR, error
        elif State.ABORTABLE_ERROR in TRANSITIONS[self.state]:
            # The first error tells more than those that follow from it.
            self.error = self.error or error
            self.state = State.ABORTABLE_ERROR
