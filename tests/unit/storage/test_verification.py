"""Guards: which one a transaction's first batch must present, and what voids it (KIP-890 part
1)."""

import pytest

from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.records.batch import read_header
from barnabas.protocol.records.claim import Claim
from barnabas.protocol.records.control import ControlType, TxnMarker
from barnabas.storage.origin import Origin
from barnabas.storage.producers.state import ProducerStateManager
from barnabas.storage.producers.verification import UNVERIFIED, VerificationGuard
from tests.unit.storage.producer_bench import PID, header, load
from tests.unit.storage.verifying_leader import TV1, TV2, Leader


@pytest.fixture
def leader() -> Leader:
    return Leader()


def refusal(error: pytest.ExceptionInfo[KafkaError]) -> str:
    return error.value.code.name


# -- one guard, one transaction --------------------------------------------------------------------


def test_transaction_opens_only_with_its_guard(leader: Leader) -> None:
    with pytest.raises(KafkaError, match="not part of an ongoing transaction") as caught:
        leader.send(0)
    assert refusal(caught) == "INVALID_TXN_STATE"
    guard = leader.guard()
    with pytest.raises(KafkaError):
        leader.send(0, VerificationGuard(Claim("x", PID, 0, 0, epoch_per_transaction=False)))
    assert leader.send(0, guard) is None
    assert leader.open


def test_batches_after_the_first_need_no_guard(leader: Leader) -> None:
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


def test_marker_between_the_answer_and_the_append_voids_the_guard(
    leader: Leader,
) -> None:
    """The hanging transaction of KIP-890: a late batch after the marker of its transaction."""
    guard = leader.guard()
    leader.mark(kind=ControlType.ABORT)
    with pytest.raises(KafkaError) as caught:
        leader.send(0, guard)
    assert refusal(caught) == "INVALID_TXN_STATE"
    assert not leader.open


def test_guard_of_an_older_transaction_does_not_open_a_newer_one(leader: Leader) -> None:
    """ABA: a marker came, and another transaction of the same epoch is being verified."""
    older = leader.guard()
    leader.mark()
    newer = leader.guard()
    assert newer is not older
    with pytest.raises(KafkaError):
        leader.send(0, older)
    leader.send(0, newer)


def test_marker_of_another_producer_keeps_the_guard(leader: Leader) -> None:
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


def test_lowest_sequence_counts_whichever_batch_came_first(leader: Leader) -> None:
    leader.begin(5)
    guard = leader.guard(0)
    with pytest.raises(KafkaError):
        leader.send(5, guard)
    leader.send(0, guard)


def test_newer_epoch_resets_the_expected_sequence(leader: Leader) -> None:
    leader.begin(0, epoch=0)
    guard = leader.guard(3, epoch=1)
    leader.send(3, guard, epoch=1)
    assert leader.open


def test_batch_of_an_older_epoch_does_not_lower_the_expected_sequence(leader: Leader) -> None:
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


def test_repeated_batch_is_a_duplicate_before_its_guard_is_checked(leader: Leader) -> None:
    leader.send(0, leader.guard())
    leader.mark()
    assert leader.send(0) is not None
    assert not leader.open


def test_batch_opens_a_transaction_if_verification_is_disabled(leader: Leader) -> None:
    leader.send(0, UNVERIFIED)
    assert leader.open


def test_newer_epoch_joins_no_open_transaction_if_verification_is_disabled(
    leader: Leader,
) -> None:
    leader.send(0, UNVERIFIED)
    with pytest.raises(KafkaError) as caught:
        leader.send(0, UNVERIFIED, epoch=1)
    assert caught.value.code is ErrorCode.INVALID_TXN_STATE


def test_offset_commits_of_a_coordinator_need_a_guard_too(leader: Leader) -> None:
    batch = header(0, transactional=True)._replace(base_sequence=-1)
    with pytest.raises(KafkaError) as caught:
        leader.append(batch, None, Origin.COORDINATOR)
    assert refusal(caught) == "INVALID_TXN_STATE"
    leader.append(batch, leader.guard(-1), Origin.COORDINATOR)


def test_replicated_batch_needs_no_guard(leader: Leader) -> None:
    leader.append(header(0, transactional=True), None, Origin.REPLICATION)
    assert leader.open


def test_late_repeat_leaves_the_next_transaction_its_sequence() -> None:
    """The producer's earlier batches are gone, because compaction removed them, and a new replica
    knows only the last one. Kafka 4.4 refuses the next transaction, too."""
    leader = Leader(ProducerStateManager(3))
    leader.append(header(2, transactional=True), None, Origin.REPLICATION)
    leader.mark()
    guard = leader.guard(0)
    with pytest.raises(KafkaError) as caught:
        leader.send(0, guard)
    assert refusal(caught) == "OUT_OF_ORDER_SEQUENCE_NUMBER"
    assert not leader.open
    leader.send(3, leader.guard(3))
    assert leader.open


def test_sequence_behind_a_late_repeat_is_still_out_of_order(leader: Leader) -> None:
    leader.append(header(2, transactional=True), None, Origin.REPLICATION)
    leader.mark()
    leader.begin(0)
    guard = leader.guard(4)
    with pytest.raises(KafkaError) as caught:
        leader.send(4, guard)
    assert refusal(caught) == "OUT_OF_ORDER_SEQUENCE_NUMBER"


def test_remembered_batch_is_a_duplicate_while_an_earlier_repeat_is_verified(
    leader: Leader,
) -> None:
    leader.append(header(0, transactional=True), None, Origin.REPLICATION)
    leader.append(header(1, transactional=True), None, Origin.REPLICATION)
    leader.mark()
    leader.begin(0)
    assert leader.send(1, leader.guard(1)) is not None


# -- the newer protocol ----------------------------------------------------------------------------


def test_unknown_producer_of_the_newer_protocol_begins_with_sequence_0(
    leader: Leader,
) -> None:
    """KAFKA-18202."""
    guard = leader.guard(4, newer=True)
    with pytest.raises(KafkaError) as caught:
        leader.send(4, guard)
    assert refusal(caught) == "OUT_OF_ORDER_SEQUENCE_NUMBER"
    leader.begin(0, newer=True)
    leader.send(0, guard)


def test_unknown_producer_of_the_older_protocol_may_begin_with_any_sequence(leader: Leader) -> None:
    leader.send(4, leader.guard(4))


def test_known_producer_of_the_newer_protocol_continues_its_sequence(leader: Leader) -> None:
    leader.append(header(0))
    leader.send(1, leader.guard(1, newer=True))


# -- epochs ----------------------------------------------------------------------------------------


def test_an_older_epoch_is_refused_before_the_coordinator_is_asked(leader: Leader) -> None:
    """KAFKA-19690."""
    leader.send(0, leader.guard(epoch=3), epoch=3)
    with pytest.raises(KafkaError) as caught:
        leader.begin(epoch=2)
    assert refusal(caught) == "INVALID_PRODUCER_EPOCH"


def test_newer_epoch_is_verified_even_if_an_older_epochs_transaction_is_open(
    leader: Leader,
) -> None:
    leader.send(0, leader.guard())
    guard = leader.guard(epoch=1)
    with pytest.raises(KafkaError):
        leader.send(0, None, epoch=1)
    leader.send(0, guard, epoch=1)


@pytest.mark.parametrize(("version", "fine"), [(TV1, True), (TV2, False)])
def test_marker_of_tv2_must_have_a_newer_epoch_than_its_transaction(
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
def test_repeated_marker_is_written_again(leader: Leader, version: int) -> None:
    """KAFKA-19999: a refusal would leave the coordinator's transaction incomplete for good."""
    leader.send(0, leader.guard())
    leader.mark(1, version=version)
    leader.mark(1, version=version)
    assert (leader.end, leader.open) == (3, False)


def test_repeated_marker_does_not_end_the_next_transaction(
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


def test_follower_accepts_markers_of_any_epoch(leader: Leader) -> None:
    leader.send(0, leader.guard(epoch=5), epoch=5)
    leader.mark(5, version=TV2, coordinator_epoch=9, origin=Origin.REPLICATION)
    assert not leader.open
    leader.mark(4, coordinator_epoch=3, origin=Origin.REPLICATION)
    entry = leader.state.entry(PID)
    assert entry is not None
    assert (entry.producer_epoch, entry.coordinator_epoch) == (4, 3)


# -- the transactional id of a transaction ---------------------------------------------------------


def test_other_transactional_id_cannot_write_into_an_open_transaction(leader: Leader) -> None:
    leader.send(0, leader.guard())
    with pytest.raises(KafkaError) as caught:
        leader.begin(1, key="other")
    assert refusal(caught) == "INVALID_PRODUCER_ID_MAPPING"
    assert leader.begin(1) is None


def test_after_a_restart_an_open_transaction_is_verified_again(leader: Leader) -> None:
    leader.send(0, leader.guard())
    again = Leader(load(leader.state, windows_known=True).state)
    assert again.open
    assert isinstance(again.begin(1, key="other"), VerificationGuard)
    guard = again.guard(1)
    again.send(1, guard)
    assert again.begin(2) is None
    with pytest.raises(KafkaError):
        again.begin(2, key="other")


def test_next_transaction_may_have_another_transactional_id(leader: Leader) -> None:
    leader.send(0, leader.guard())
    leader.mark()
    leader.send(1, leader.guard(1, key="y"))
    assert leader.begin(2, key="y") is None


def test_two_ids_that_claim_one_producer_do_not_share_a_guard(leader: Leader) -> None:
    mine = leader.guard()
    theirs = leader.guard(key="other")
    assert mine is not theirs
    with pytest.raises(KafkaError):
        leader.send(0, mine)


# -- forgotten verifications and producers --------------------------------------------------------


def test_unused_verification_is_forgotten_at_the_second_sweep(leader: Leader) -> None:
    guard = leader.guard()
    sum(leader.state.expire(0, 1000))
    assert leader.begin() is guard
    sum(leader.state.expire(0, 1000))
    with pytest.raises(KafkaError):
        leader.send(0, guard)


def test_verification_of_an_unknown_producer_is_forgotten_at_once(leader: Leader) -> None:
    """Producer ids can be made up: one guard for each, until the second sweep, would fill the
    memory."""
    guard = leader.guard()
    leader.state.forget_verification(PID, guard)
    assert leader.guard() is not guard


def test_only_the_guard_that_was_refused_is_forgotten(leader: Leader) -> None:
    older = leader.guard(key="other")
    current = leader.guard()
    leader.state.forget_verification(PID, older)
    leader.send(0, current)


def test_forgotten_verification_leaves_the_open_transaction_its_owner(leader: Leader) -> None:
    leader.send(0, leader.guard())
    leader.state.forget_verification(PID, leader.guard(1, newer=True))
    assert leader.begin(1) is None
    with pytest.raises(KafkaError):
        leader.begin(1, key="other")


def test_an_open_transaction_keeps_its_producer_however_long_it_is_idle(leader: Leader) -> None:
    leader.send(0, leader.guard())
    assert sum(leader.state.expire(10**12, 1)) == 0
    leader.mark()
    assert sum(leader.state.expire(10**12, 1)) == 1


def test_producer_expires_by_its_last_marker(leader: Leader) -> None:
    """KAFKA-9144: expired by its last batch, the producer lost the coordinator's epoch too
    early."""
    leader.send(0, leader.guard())
    leader.mark(coordinator_epoch=5)
    assert sum(leader.state.expire(2999, 1000)) == 0
    with pytest.raises(KafkaError) as caught:
        leader.mark(coordinator_epoch=4)
    assert caught.value.code is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert sum(leader.state.expire(3000, 1000)) == 1


def test_producer_stays_while_its_verification_is_in_progress(leader: Leader) -> None:
    """Its next batch must be the next one in the log, however late the coordinator answers."""
    leader.append(header(0))
    guard = leader.guard(1)
    assert sum(leader.state.expire(10**6, 1000)) == 0
    leader.send(1, guard)
    leader.mark()
    leader.begin(2)
    assert [sum(leader.state.expire(10**6, 1000)) for _ in range(2)] == [0, 1]


def test_truncation_voids_every_guard(leader: Leader) -> None:
    guard = leader.guard()
    leader.state.reset(0)
    with pytest.raises(KafkaError):
        leader.send(0, guard)


# -- the entry of a producer -----------------------------------------------------------------------


def test_producer_that_only_a_verification_knows_is_no_producer_of_the_log(leader: Leader) -> None:
    guard = leader.guard()
    assert (len(leader.state), list(leader.state), leader.state.entry(PID)) == (0, [], None)
    leader.send(0, guard)
    assert [each.producer_id for each in leader.state] == [PID]


@pytest.mark.parametrize("opens", [True, False])
def test_unused_verification_of_an_unknown_producer_leaves_nothing(
    leader: Leader, opens: bool
) -> None:
    guard = leader.guard()
    if opens:
        leader.send(0, guard)
        leader.mark()
        assert sum(leader.state.expire(10**12, 1)) == 1
    else:
        assert [sum(leader.state.expire(10**12, 1)) for _ in range(2)] == [0, 0]
    assert not leader.state._unlogged
    assert not leader.state.entries


def test_prepared_batch_changes_nothing_before_its_commit(leader: Leader) -> None:
    """A refusal or a failed write leaves the producer, and its guard, as they were."""
    leader.append(header(0))
    guard = leader.guard(1)
    (before,) = leader.state
    update = leader.state.prepare(
        b"", [(0, header(1, transactional=True))], Origin.CLIENT, leader.end, guard
    )
    assert list(leader.state) == [before]
    assert (before.verification, before.opened_by, guard.written) == (guard, None, False)
    assert leader.guard(1) is guard
    leader.state.commit(update, leader.end + 1)
    (after,) = leader.state
    assert (after.verification, after.opened_by, guard.written) == (None, guard.opener, True)
    assert list(leader.state) != [before]


def test_prepared_marker_voids_no_guard_before_its_commit(leader: Leader) -> None:
    guard = leader.guard()
    marker = TxnMarker(PID, 0, 0, True).packed(2000)[0]
    batches = [(0, read_header(marker))]
    leader.state.prepare(marker, batches, Origin.COORDINATOR, leader.end)
    leader.send(0, guard)
    leader.state.prepare(marker, batches, Origin.COORDINATOR, leader.end)
    assert leader.open
    assert leader.begin(1) is None


def test_entries_that_somebody_holds_do_not_change(leader: Leader) -> None:
    """A flush writes a snapshot from the entries of its moment, while the partition goes on."""
    leader.send(0, leader.guard())
    held = list(leader.state)
    shown = repr(held)
    leader.send(1)
    leader.mark()
    leader.begin(2)
    sum(leader.state.expire(10**12, 1))
    assert repr(held) == shown


def test_guard_does_not_outlive_a_truncation_in_an_entry_from_memory(leader: Leader) -> None:
    """A truncation reads a snapshot that no flush has written yet."""
    leader.append(header(0))
    guard = leader.guard(1)
    other = Leader(load(leader.state, windows_known=True).state)
    with pytest.raises(KafkaError):
        other.send(1, guard)
    other.send(1, other.guard(1))


# -- a client that changes the protocol (KAFKA-18227) ----------------------------------------------


def test_batch_of_the_newer_protocol_does_not_join_a_transaction_of_the_older(
    leader: Leader,
) -> None:
    """The transaction's marker is on its way: a batch before it would become part of the
    transaction."""
    leader.send(0, leader.guard())
    assert leader.begin(1) is None
    guard = leader.guard(1, newer=True)
    leader.mark()
    with pytest.raises(KafkaError) as caught:
        leader.send(1, guard)
    assert refusal(caught) == "INVALID_TXN_STATE"
    leader.send(1, leader.guard(1, newer=True))
    assert leader.begin(2, newer=True) is None


def test_late_batch_of_the_older_protocol_keeps_the_newer_verification_open(
    leader: Leader,
) -> None:
    leader.send(0, leader.guard())
    pending = leader.guard(2, newer=True)
    leader.send(1, leader.begin(1))
    assert leader.begin(2) is None
    assert leader.guard(2, newer=True) is pending


def test_after_a_restart_an_open_transaction_belongs_to_the_protocol_it_was_verified_for(
    leader: Leader,
) -> None:
    leader.send(0, leader.guard())
    again = Leader(ProducerStateManager())
    again.state.load(1, list(leader.state), windows_known=True, now_ms=0, expiration_ms=1000)
    again.send(1, again.guard(1))
    assert again.begin(2) is None
    assert again.begin(2, newer=True) is not None
