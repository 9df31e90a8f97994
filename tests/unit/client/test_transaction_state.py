"""The state machine of a transactional producer and the classification of errors."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.client.transactions.state import (
    TRANSITIONS,
    AbortableError,
    ErrorKind,
    FatalError,
    State,
    StateMachine,
    TransactionStateError,
    as_error,
    classify,
)
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

COORDINATOR = (
    init_producer_id.API,
    add_partitions_to_txn.API,
    add_offsets_to_txn.API,
    end_txn.API,
    txn_offset_commit.API,
)
ABORTABLE = AbortableError(ErrorCode.TRANSACTION_ABORTABLE)
FATAL = FatalError(ErrorCode.PRODUCER_FENCED)


@given(st.lists(st.sampled_from([*State, ABORTABLE, FATAL]), max_size=30))
def test_state_machine_follows_its_table_until_a_fatal_error(
    steps: list[State | AbortableError | FatalError],
) -> None:
    machine = StateMachine()
    for step in steps:
        before = machine.state
        if isinstance(step, KafkaError):
            machine.fail(step)
            if before is State.FATAL_ERROR or isinstance(step, FatalError):
                assert machine.state is State.FATAL_ERROR
            elif State.ABORTABLE_ERROR in TRANSITIONS[before]:
                assert machine.state is State.ABORTABLE_ERROR
            else:
                assert machine.state is before
        elif step in TRANSITIONS[before]:
            machine.move_to(step)
            assert machine.state is step
        else:
            with pytest.raises((TransactionStateError, KafkaError)):
                machine.move_to(step)
            assert machine.state is before


def test_ready_is_reachable_from_every_state_but_fatal_error() -> None:
    for start in State:
        reached, ahead = {start}, [start]
        while ahead:
            for state in TRANSITIONS[ahead.pop()] - reached:
                reached.add(state)
                ahead.append(state)
        assert (State.READY in reached) is (start is not State.FATAL_ERROR)


def test_error_state_raises_its_first_error() -> None:
    machine = StateMachine()
    for state in (State.INITIALISING, State.READY, State.IN_TRANSACTION):
        machine.move_to(state)
    machine.fail(AbortableError(ErrorCode.MESSAGE_TOO_LARGE))
    machine.fail(AbortableError(ErrorCode.TRANSACTION_ABORTABLE))
    with pytest.raises(AbortableError, match="MESSAGE_TOO_LARGE"):
        machine.expect(State.IN_TRANSACTION)
    machine.move_to(State.ABORTING)
    assert machine.error is None


def test_commit_with_unknown_outcome_cannot_be_aborted() -> None:
    machine = StateMachine()
    for state in (State.INITIALISING, State.READY, State.IN_TRANSACTION, State.COMMITTING):
        machine.move_to(state)
    with pytest.raises(TransactionStateError):
        machine.move_to(State.ABORTING)
    machine.move_to(State.COMMITTING)


@pytest.mark.parametrize("api", COORDINATOR, ids=lambda api: api.name)
@pytest.mark.parametrize(
    ("code", "verdict"),
    [
        (ErrorCode.NOT_COORDINATOR, ErrorKind.RETRY),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorKind.RETRY),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorKind.RETRY),
        (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorKind.RETRY),
        (ErrorCode.TRANSACTION_ABORTABLE, ErrorKind.ABORTABLE),
        (ErrorCode.PRODUCER_FENCED, ErrorKind.FATAL),
        (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorKind.FATAL),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorKind.FATAL),
        (ErrorCode.INVALID_TXN_STATE, ErrorKind.FATAL),
        (ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, ErrorKind.FATAL),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_errors_of_coordinators_are_classified(
    api: Api, code: ErrorCode, verdict: ErrorKind
) -> None:
    assert classify(api, code) is verdict


@pytest.mark.parametrize(
    ("code", "verdict"),
    [
        (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorKind.ABORTABLE),  # KIP-588
        (ErrorCode.INVALID_TXN_STATE, ErrorKind.ABORTABLE),
        (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorKind.ABORTABLE),
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorKind.ABORTABLE),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorKind.ABORTABLE),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorKind.ABORTABLE),
        (ErrorCode.PRODUCER_FENCED, ErrorKind.FATAL),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorKind.FATAL),  # KAFKA-18019
        (ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, ErrorKind.FATAL),
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorKind.FATAL),
        (ErrorCode.UNSUPPORTED_VERSION, ErrorKind.FATAL),
    ],
    ids=lambda value: value.name,
)
def test_errors_of_leaders_are_classified(code: ErrorCode, verdict: ErrorKind) -> None:
    assert classify(produce.API, code) is verdict


@pytest.mark.parametrize(
    "code",
    [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.FENCED_INSTANCE_ID],
    ids=lambda code: code.name,
)
def test_errors_of_removed_members_are_abortable(code: ErrorCode) -> None:
    assert classify(txn_offset_commit.API, code) is ErrorKind.ABORTABLE


def test_invalid_epoch_from_coordinator_becomes_producer_fenced() -> None:
    error = as_error(end_txn.API, KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH, "older"))
    assert isinstance(error, FatalError)
    assert error.code is ErrorCode.PRODUCER_FENCED
