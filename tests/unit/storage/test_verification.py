"""Guards: what a transaction's first batch must show, and what takes it away (KIP-890 part 1)."""

import pytest

from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.records.control import ControlType
from barnabas.storage.producer_state import ProducerStateManager
from barnabas.storage.validator import Origin
from barnabas.storage.verification import UNVERIFIED, Guard
from tests.unit.storage.producer_bench import PID, header, load
from tests.unit.storage.verifying_leader import TV1, TV2, Leader


@pytest.fixture
def leader() -> Leader:
    return Leader()


def refusal(error: pytest.ExceptionInfo[KafkaError]) -> str:
    return error.value.code.name


# -- one guard, one transaction --------------------------------------------------------------------


def test_a_transaction_opens_with_its_guard_only(leader: Leader) -> None:
    with pytest.raises(KafkaError, match="not part of an ongoing transaction") as caught:
        leader.send(0)
    assert refusal(caught) == "INVALID_TXN_STATE"
    guard = leader.guard()
    with pytest.raises(KafkaError):
        leader.send(0, Guard())
    assert leader.send(0, guard) is None
    assert leader.open


def test_what_follows_the_first_batch_needs_no_guard(leader: Leader) -> None:
    leader.send(0, leader.guard())
    assert leader.begin(1) is None
    leader.send(1)
    leader.send(2, None)
    assert leader.end == 3


def test_a_guard_opens_one_transaction(leader: Leader) -> None:
    guard = leader.guard()
    leader.send(0, guard)
    leader.mark()
    with pytest.raises(KafkaError) as caught:
        leader.send(1, guard)
    assert refusal(caught) == "INVALID_TXN_STATE"


def test_a_marker_between_the_answer_and_the_append_makes_the_answer_worthless(
    leader: Leader,
) -> None:
    """The hanging transaction of KIP-890: a late batch behind the marker of its transaction."""
    guard = leader.guard()
    leader.mark(kind=ControlType.ABORT)
    with pytest.raises(KafkaError) as caught:
        leader.send(0, guard)
    assert refusal(caught) == "INVALID_TXN_STATE"
    assert not leader.open


def test_the_guard_of_an_older_transaction_is_not_taken_for_a_newer_ones(leader: Leader) -> None:
    """ABA: a marker came, and another transaction of the same epoch is being verified."""
    older = leader.guard()
    leader.mark()
    newer = leader.guard()
    assert newer is not older
    with pytest.raises(KafkaError):
        leader.send(0, older)
    leader.send(0, newer)


def test_a_marker_of_another_producer_takes_nothing_away(leader: Leader) -> None:
    other = leader.guard(producer_id=PID + 1)
    leader.mark()
    leader.append(header(0, producer_id=PID + 1, transactional=True), other)


def test_first_batches_that_wait_together_share_the_guard_and_the_first_one_uses_it(
    leader: Leader,
) -> None:
    first, second = leader.guard(0), leader.guard(1)
    assert first is second
    leader.send(0, first)
    leader.send(1, second)
    assert leader.end == 2


def test_the_second_of_two_first_batches_cannot_be_the_first_in_the_log(leader: Leader) -> None:
    guard = leader.guard(0)
    leader.begin(5)
    with pytest.raises(KafkaError) as caught:
        leader.send(5, guard)
    assert refusal(caught) == "OUT_OF_ORDER_SEQUENCE_NUMBER"
    leader.send(0, guard)


def test_the_lowest_sequence_counts_whichever_came_first(leader: Leader) -> None:
    leader.begin(5)
    guard = leader.guard(0)
    with pytest.raises(KafkaError):
        leader.send(5, guard)
    leader.send(0, guard)


def test_a_newer_epoch_begins_the_count_of_sequences_anew(leader: Leader) -> None:
    leader.begin(0, epoch=0)
    guard = leader.guard(3, epoch=1)
    leader.send(3, guard, epoch=1)
    assert leader.open


def test_what_waits_is_not_lowered_by_an_older_epoch(leader: Leader) -> None:
    guard = leader.guard(3, epoch=1)
    leader.begin(0, epoch=0)
    leader.send(3, guard, epoch=1)


def test_a_refused_append_leaves_the_guard_for_the_retry(leader: Leader) -> None:
    leader.send(0, leader.guard())
    leader.mark()
    guard = leader.guard(1)
    with pytest.raises(KafkaError):
        leader.send(7, guard)
    leader.send(1, guard)


def test_a_repeated_batch_is_told_so_before_anybody_asks_for_its_guard(leader: Leader) -> None:
    leader.send(0, leader.guard())
    leader.mark()
    assert leader.send(0) is not None
    assert not leader.open


def test_an_unverified_batch_opens_a_transaction_where_nobody_verifies(leader: Leader) -> None:
    leader.send(0, UNVERIFIED)
    assert leader.open


def test_a_coordinators_offsets_need_a_guard_too(leader: Leader) -> None:
    batch = header(0, transactional=True)._replace(base_sequence=-1)
    with pytest.raises(KafkaError) as caught:
        leader.append(batch, None, Origin.COORDINATOR)
    assert refusal(caught) == "INVALID_TXN_STATE"
    leader.append(batch, leader.guard(-1), Origin.COORDINATOR)


def test_what_a_leader_has_accepted_needs_no_guard_at_a_follower(leader: Leader) -> None:
    leader.append(header(0, transactional=True), None, Origin.REPLICATION)
    assert leader.open


# -- the newer protocol ----------------------------------------------------------------------------


def test_a_producer_of_the_newer_protocol_begins_with_sequence_0_where_nothing_is_known(
    leader: Leader,
) -> None:
    """KAFKA-18202."""
    guard = leader.guard(4, newer=True)
    with pytest.raises(KafkaError) as caught:
        leader.send(4, guard)
    assert refusal(caught) == "OUT_OF_ORDER_SEQUENCE_NUMBER"
    leader.begin(0, newer=True)
    leader.send(0, guard)


def test_one_of_the_older_protocol_may_go_on_anywhere(leader: Leader) -> None:
    leader.send(4, leader.guard(4))


def test_a_known_producer_of_the_newer_protocol_goes_on_where_it_was(leader: Leader) -> None:
    leader.append(header(0))
    leader.send(1, leader.guard(1, newer=True))


# -- epochs ----------------------------------------------------------------------------------------


def test_an_older_epoch_is_refused_before_the_coordinator_is_asked(leader: Leader) -> None:
    """KAFKA-19690."""
    leader.send(0, leader.guard(epoch=3), epoch=3)
    with pytest.raises(KafkaError) as caught:
        leader.begin(epoch=2)
    assert refusal(caught) == "INVALID_PRODUCER_EPOCH"


def test_a_newer_epoch_is_verified_though_an_older_ones_transaction_is_open(
    leader: Leader,
) -> None:
    leader.send(0, leader.guard())
    guard = leader.guard(epoch=1)
    with pytest.raises(KafkaError):
        leader.send(0, None, epoch=1)
    leader.send(0, guard, epoch=1)


@pytest.mark.parametrize(("version", "fine"), [(TV1, True), (TV2, False)])
def test_the_epoch_of_a_marker_is_the_transactions_or_above_it(
    leader: Leader, version: int, fine: bool
) -> None:
    leader.send(0, leader.guard())
    if fine:
        leader.mark(0, version=version)
        assert not leader.open
        return
    with pytest.raises(KafkaError) as caught:
        leader.mark(0, version=version)
    assert refusal(caught) == "INVALID_PRODUCER_EPOCH"
    assert leader.open
    leader.mark(1, version=version)
    assert not leader.open


@pytest.mark.parametrize("version", [TV1, TV2])
def test_a_marker_of_an_older_epoch_ends_nothing(leader: Leader, version: int) -> None:
    leader.send(0, leader.guard(epoch=5), epoch=5)
    with pytest.raises(KafkaError) as caught:
        leader.mark(4, version=version)
    assert refusal(caught) == "INVALID_PRODUCER_EPOCH"
    assert leader.open


@pytest.mark.parametrize("version", [TV1, TV2])
def test_a_marker_that_is_sent_twice_is_written_twice(leader: Leader, version: int) -> None:
    """KAFKA-19999: refused, it would leave the coordinator's transaction undone for good."""
    leader.send(0, leader.guard())
    leader.mark(1, version=version)
    leader.mark(1, version=version)
    assert (leader.end, leader.open) == (3, False)


def test_a_marker_sent_twice_does_not_end_the_next_transaction_of_that_epoch(
    leader: Leader,
) -> None:
    leader.send(0, leader.guard())
    leader.mark(1, version=TV2)
    leader.send(0, leader.guard(epoch=1), epoch=1)
    with pytest.raises(KafkaError) as caught:
        leader.mark(1, version=TV2)
    assert refusal(caught) == "INVALID_PRODUCER_EPOCH"
    assert leader.open


def test_a_coordinator_that_was_replaced_is_fenced_even_in_the_newer_protocol(
    leader: Leader,
) -> None:
    leader.send(0, leader.guard())
    leader.mark(1, version=TV2, coordinator_epoch=7)
    with pytest.raises(KafkaError) as caught:
        leader.mark(2, version=TV2, coordinator_epoch=6)
    assert refusal(caught) == "TRANSACTION_COORDINATOR_FENCED"


def test_a_follower_takes_markers_as_they_come(leader: Leader) -> None:
    leader.send(0, leader.guard(epoch=5), epoch=5)
    leader.mark(5, version=TV2, coordinator_epoch=9, origin=Origin.REPLICATION)
    assert not leader.open
    leader.mark(4, coordinator_epoch=3, origin=Origin.REPLICATION)
    entry = leader.state.entry(PID)
    assert entry is not None
    assert (entry.producer_epoch, entry.coordinator_epoch) == (4, 3)


# -- whose transaction it is -----------------------------------------------------------------------


def test_another_transactional_id_cannot_write_into_an_open_transaction(leader: Leader) -> None:
    leader.send(0, leader.guard())
    with pytest.raises(KafkaError) as caught:
        leader.begin(1, key="thief")
    assert refusal(caught) == "INVALID_PRODUCER_ID_MAPPING"
    assert leader.begin(1) is None


def test_after_a_restart_an_open_transaction_is_verified_again(leader: Leader) -> None:
    leader.send(0, leader.guard())
    again = Leader(load(leader.state, windows_known=True).state)
    assert again.open
    assert isinstance(again.begin(1, key="thief"), Guard)
    guard = again.guard(1)
    again.send(1, guard)
    assert again.begin(2) is None
    with pytest.raises(KafkaError):
        again.begin(2, key="thief")


def test_the_next_transaction_may_be_another_ids(leader: Leader) -> None:
    leader.send(0, leader.guard())
    leader.mark()
    leader.send(1, leader.guard(1, key="y"))
    assert leader.begin(2, key="y") is None


def test_two_ids_that_claim_one_producer_do_not_share_a_guard(leader: Leader) -> None:
    mine = leader.guard()
    theirs = leader.guard(key="thief")
    assert mine is not theirs
    with pytest.raises(KafkaError):
        leader.send(0, mine)


# -- what stays in memory --------------------------------------------------------------------------


def test_what_nobody_comes_back_for_is_forgotten_at_the_second_sweep(leader: Leader) -> None:
    guard = leader.guard()
    leader.state.expire(0, 1000)
    assert leader.begin() is guard
    leader.state.expire(0, 1000)
    with pytest.raises(KafkaError):
        leader.send(0, guard)


def test_a_producer_that_nobody_knows_leaves_nothing_behind(leader: Leader) -> None:
    """Ids can be made up: a guard for each until the next sweep but one filled the memory."""
    guard = leader.guard()
    leader.state.forget_verification(PID, guard)
    assert leader.guard() is not guard


def test_only_the_guard_that_was_refused_is_forgotten(leader: Leader) -> None:
    older = leader.guard(key="thief")
    current = leader.guard()
    leader.state.forget_verification(PID, older)
    leader.send(0, current)


def test_an_open_transaction_keeps_its_producer_however_long_it_is_idle(leader: Leader) -> None:
    leader.send(0, leader.guard())
    assert leader.state.expire(10**12, 1) == 0
    leader.mark()
    assert leader.state.expire(10**12, 1) == 1


def test_a_marker_makes_its_producer_young_again(leader: Leader) -> None:
    """KAFKA-9144: expired by its last batch, the coordinator's epoch was forgotten too early."""
    leader.send(0, leader.guard())
    leader.mark(coordinator_epoch=5)
    assert leader.state.expire(2999, 1000) == 0
    with pytest.raises(KafkaError) as caught:
        leader.mark(coordinator_epoch=4)
    assert caught.value.code is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert leader.state.expire(3000, 1000) == 1


def test_a_truncated_log_makes_every_answer_worthless(leader: Leader) -> None:
    guard = leader.guard()
    leader.state.reset(0)
    with pytest.raises(KafkaError):
        leader.send(0, guard)


# -- a client that changes the protocol (KAFKA-18227) ----------------------------------------------


def test_what_the_newer_protocol_writes_is_not_of_the_transaction_that_the_older_opened(
    leader: Leader,
) -> None:
    """Its marker is on the way, and a batch that came before it would be part of it."""
    leader.send(0, leader.guard())
    assert leader.begin(1) is None
    guard = leader.guard(1, newer=True)
    leader.mark()
    with pytest.raises(KafkaError) as caught:
        leader.send(1, guard)
    assert refusal(caught) == "INVALID_TXN_STATE"
    leader.send(1, leader.guard(1, newer=True))
    assert leader.begin(2, newer=True) is None


def test_a_late_batch_of_the_older_protocol_answers_no_question_of_the_newer(
    leader: Leader,
) -> None:
    leader.send(0, leader.guard())
    asked = leader.guard(2, newer=True)
    leader.send(1, leader.begin(1))
    assert leader.begin(2) is None
    assert leader.guard(2, newer=True) is asked


def test_after_a_restart_an_open_transaction_belongs_to_the_protocol_it_was_verified_for(
    leader: Leader,
) -> None:
    leader.send(0, leader.guard())
    again = Leader(ProducerStateManager())
    again.state.load(1, list(leader.state), windows_known=True, now_ms=0, expiration_ms=1000)
    again.send(1, again.guard(1))
    assert again.begin(2) is None
    assert again.begin(2, newer=True) is not None
