"""Producers that a partition expects: their coordinator has told it."""

import pytest

from barnabas.protocol.errors import KafkaError
from barnabas.protocol.records.batch import NO_SEQUENCE
from barnabas.protocol.records.claim import Claim
from barnabas.storage.origin import Origin
from barnabas.storage.producers.verification import UNVERIFIED, Opener, VerificationGuard
from tests.unit.storage.producer_bench import PID, header
from tests.unit.storage.verifying_leader import TV2, Leader

OPENER = Opener("x", False, None)


@pytest.fixture
def leader() -> Leader:
    return Leader()


def expect(
    leader: Leader, epoch: int = 0, key: str = "x", *, coordinator_epoch: int = 0
) -> VerificationGuard | None:
    return leader.state.expect(Claim(key, PID, epoch, NO_SEQUENCE, False), coordinator_epoch)


def expected(leader: Leader, epoch: int = 0) -> VerificationGuard:
    expectation = expect(leader, epoch)
    assert expectation is not None
    return expectation


def asks(leader: Leader, sequence: int = 0, **options: object) -> bool:
    """Return whether the next batch has to be verified by the coordinator."""
    return not leader.guard(sequence, **options).answered  # type: ignore[arg-type]


def test_expected_producer_opens_its_transaction_without_a_question(leader: Leader) -> None:
    expectation = expected(leader)
    assert not expectation.written
    guard = leader.guard()
    assert guard.answered
    leader.send(0, guard)
    assert leader.open
    assert expectation.written
    assert leader.opener() == OPENER
    assert leader.begin(1) is None


def test_marker_voids_the_expectation(leader: Leader) -> None:
    expectation = expected(leader)
    guard = leader.guard()
    leader.mark()
    assert leader.state.expected(PID, 0, OPENER) is None
    with pytest.raises(KafkaError, match="not part of an ongoing transaction"):
        leader.send(0, guard)
    assert asks(leader)
    assert not expectation.written


def test_expectation_opens_one_transaction(leader: Leader) -> None:
    expected(leader)
    leader.send(0, leader.guard())
    leader.mark()
    assert asks(leader, 1)


def test_coordinator_voids_an_expectation(leader: Leader) -> None:
    expectation = expected(leader)
    guard = leader.guard()
    expectation.void()
    with pytest.raises(KafkaError, match="not part of an ongoing transaction"):
        leader.send(0, guard)
    assert asks(leader)


def test_voided_expectation_does_not_void_a_later_one(leader: Leader) -> None:
    earlier = expected(leader)
    leader.mark()
    expected(leader)
    earlier.void()
    assert not asks(leader)


def test_coordinator_before_the_one_that_sent_a_marker_vouches_for_nobody(leader: Leader) -> None:
    """Its message about a transaction that has ended may have been on its way for long."""
    leader.mark(coordinator_epoch=2)
    assert expect(leader, coordinator_epoch=1) is None
    assert expect(leader, coordinator_epoch=2) is not None


def test_new_leader_epoch_voids_expectations_but_not_guards(leader: Leader) -> None:
    expected(leader)
    leader.state.forget_expected()
    guard = leader.guard()
    assert not guard.answered
    leader.state.forget_expected()
    leader.send(0, guard)
    assert leader.open


def test_guard_of_an_earlier_leader_epoch_opens_nothing(leader: Leader) -> None:
    expectation = expected(leader)
    guard = leader.guard()
    leader.state.forget_expected()
    assert leader.state.expected(PID, 0, OPENER) is None
    with pytest.raises(KafkaError, match="not part of an ongoing transaction"):
        leader.send(0, guard)
    assert not expectation.written
    again = expected(leader)
    assert leader.guard() is again is not guard
    leader.send(0, again)
    assert leader.open


def test_guard_of_an_earlier_leader_epoch_is_no_opener_of_an_open_transaction(
    leader: Leader,
) -> None:
    """The batch belongs to a transaction that is open anyway, and the guard says nothing."""
    expected(leader)
    guard = leader.guard()
    leader.append(header(0, transactional=True), None, Origin.REPLICATION)
    leader.state.forget_expected()
    leader.send(1, guard)
    assert leader.opener() is None
    assert not guard.written


def test_voided_expectation_does_not_limit_the_first_sequence(leader: Leader) -> None:
    expectation = expected(leader)
    leader.guard(0)
    expectation.void()
    leader.append(header(1))
    assert leader.end == 1


@pytest.mark.parametrize(
    "claim",
    [
        Claim("other", PID, 0, 0, False),
        Claim("x", PID, 0, 0, False, "User:other"),
        Claim("x", PID, 1, 0, False),
        Claim("x", PID, 0, 0, True),
    ],
)
def test_other_claims_than_the_expected_one_are_asked_for(leader: Leader, claim: Claim) -> None:
    expectation = expected(leader)
    opener = Opener(claim.transactional_id, claim.epoch_per_transaction, claim.principal)
    assert leader.state.expected(PID, claim.producer_epoch, opener) is None
    guard = leader.state.begin_verification(claim)
    assert guard is not None
    assert not guard.answered
    leader.send(0, guard, epoch=claim.producer_epoch)
    assert not expectation.written


def test_open_transaction_is_not_expected_again(leader: Leader) -> None:
    leader.send(0, leader.guard())
    assert expect(leader) is None


def test_expected_producer_opens_its_next_transaction(leader: Leader) -> None:
    leader.send(0, leader.guard())
    leader.mark()
    expectation = expected(leader)
    first = leader.end
    leader.send(1, leader.state.expected(PID, 0, OPENER))
    assert leader.state.opened_in(0, 10) == [PID]
    assert leader.state.first_unstable_offset == min(first, 0)
    assert (leader.opener(), expectation.written) == (OPENER, True)
    leader.mark()
    assert leader.state.opened_in(0, 10) == []


def test_expected_producer_does_not_open_a_transaction_twice(leader: Leader) -> None:
    """A batch may open it without a guard, while verification is switched off."""
    expected(leader)
    leader.send(0, UNVERIFIED)
    leader.send(1, leader.state.expected(PID, 0, OPENER))
    leader.send(2, leader.begin(2))
    assert leader.state.opened_in(0, 10) == [PID]
    assert leader.state.first_unstable_offset == 0


def test_older_epoch_is_not_expected(leader: Leader) -> None:
    leader.send(0, leader.guard(epoch=1), epoch=1)
    leader.mark(epoch=2, version=TV2)
    assert expect(leader, epoch=1) is None


def test_verification_in_progress_is_not_answered_by_an_expectation(leader: Leader) -> None:
    guard = leader.guard()
    assert expect(leader) is None
    assert leader.guard() is guard
    assert leader.state.expected(PID, 0, OPENER) is None


def test_expectation_is_forgotten_by_the_second_sweep(leader: Leader) -> None:
    expected(leader)
    for _ in leader.state.expire(0, 1):
        pass
    assert leader.state.expected(PID, 0, OPENER) is not None
    for _ in leader.state.expire(0, 1):
        pass
    assert asks(leader)


def test_reset_forgets_expectations(leader: Leader) -> None:
    expected(leader)
    leader.state.reset(0)
    assert asks(leader)


def test_unknown_producer_begins_with_the_lowest_sequence_that_came(leader: Leader) -> None:
    expected(leader)
    guard = leader.guard(5)
    assert leader.guard(4) is guard
    with pytest.raises(KafkaError, match="earliest seen or expected"):
        leader.send(5, guard)
    leader.send(4, guard)
    assert leader.open
