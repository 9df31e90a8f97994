"""The table of a transactional producer's states, and what each error does to it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.client.transaction_state import (
    TRANSITIONS,
    AbortableError,
    FatalError,
    Machine,
    State,
    TransactionStateError,
    Verdict,
    as_error,
    judge,
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
def test_only_the_tables_ways_are_gone_and_a_fatal_error_ends_them(
    steps: list[State | AbortableError | FatalError],
) -> None:
    machine = Machine()
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
            machine.to(step)
            assert machine.state is step
        else:
            with pytest.raises((TransactionStateError, KafkaError)):
                machine.to(step)
            assert machine.state is before


def test_every_state_but_the_fatal_one_leads_back_to_ready() -> None:
    for start in State:
        reached, ahead = {start}, [start]
        while ahead:
            for state in TRANSITIONS[ahead.pop()] - reached:
                reached.add(state)
                ahead.append(state)
        assert (State.READY in reached) is (start is not State.FATAL_ERROR)


def test_calls_in_an_error_state_raise_its_first_error() -> None:
    machine = Machine()
    for state in (State.INITIALISING, State.READY, State.IN_TRANSACTION):
        machine.to(state)
    machine.fail(AbortableError(ErrorCode.MESSAGE_TOO_LARGE))
    machine.fail(AbortableError(ErrorCode.TRANSACTION_ABORTABLE))
    with pytest.raises(AbortableError, match="MESSAGE_TOO_LARGE"):
        machine.expect(State.IN_TRANSACTION)
    machine.to(State.ABORTING)
    assert machine.error is None


def test_a_commit_whose_outcome_is_unknown_cannot_be_aborted() -> None:
    machine = Machine()
    for state in (State.INITIALISING, State.READY, State.IN_TRANSACTION, State.COMMITTING):
        machine.to(state)
    with pytest.raises(TransactionStateError):
        machine.to(State.ABORTING)
    machine.to(State.COMMITTING)


@pytest.mark.parametrize("api", COORDINATOR, ids=lambda api: api.name)
@pytest.mark.parametrize(
    ("code", "verdict"),
    [
        (ErrorCode.NOT_COORDINATOR, Verdict.RETRY),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, Verdict.RETRY),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, Verdict.RETRY),
        (ErrorCode.CONCURRENT_TRANSACTIONS, Verdict.RETRY),
        (ErrorCode.TRANSACTION_ABORTABLE, Verdict.ABORTABLE),
        (ErrorCode.PRODUCER_FENCED, Verdict.FATAL),
        (ErrorCode.INVALID_PRODUCER_EPOCH, Verdict.FATAL),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, Verdict.FATAL),
        (ErrorCode.INVALID_TXN_STATE, Verdict.FATAL),
        (ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, Verdict.FATAL),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_what_coordinators_say(api: Api, code: ErrorCode, verdict: Verdict) -> None:
    assert judge(api, code) is verdict


@pytest.mark.parametrize(
    ("code", "verdict"),
    [
        (ErrorCode.INVALID_PRODUCER_EPOCH, Verdict.ABORTABLE),  # KIP-588
        (ErrorCode.INVALID_TXN_STATE, Verdict.ABORTABLE),
        (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, Verdict.ABORTABLE),
        (ErrorCode.NOT_ENOUGH_REPLICAS, Verdict.ABORTABLE),
        (ErrorCode.MESSAGE_TOO_LARGE, Verdict.ABORTABLE),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, Verdict.ABORTABLE),
        (ErrorCode.PRODUCER_FENCED, Verdict.FATAL),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, Verdict.FATAL),  # KAFKA-18019
        (ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, Verdict.FATAL),
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, Verdict.FATAL),
        (ErrorCode.UNSUPPORTED_VERSION, Verdict.FATAL),
    ],
    ids=lambda value: value.name,
)
def test_what_leaders_say(code: ErrorCode, verdict: Verdict) -> None:
    assert judge(produce.API, code) is verdict


@pytest.mark.parametrize(
    "code",
    [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.FENCED_INSTANCE_ID],
    ids=lambda code: code.name,
)
def test_a_member_that_is_gone_may_abort_and_join_again(code: ErrorCode) -> None:
    assert judge(txn_offset_commit.API, code) is Verdict.ABORTABLE


def test_an_old_epoch_at_the_coordinator_reads_as_fenced() -> None:
    error = as_error(end_txn.API, KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH, "older"))
    assert isinstance(error, FatalError)
    assert error.code is ErrorCode.PRODUCER_FENCED
