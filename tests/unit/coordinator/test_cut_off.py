"""An isolated coordinator may have a successor: it never answers with an error that is final."""

import pytest

from barnabas.coordinator.transaction.metadata import Producer
from tests.support.coordinator.harness import Groups, code_of
from tests.unit.coordinator.transactions import CLIENT_VERSIONS, FIRST_ID, A, B, Transactions

LATER = "COORDINATOR_NOT_AVAILABLE"


@pytest.mark.parametrize("version", CLIENT_VERSIONS)
async def test_isolated_coordinator_answers_end_txn_with_retriable_error(
    version: int,
) -> None:
    """INVALID_TXN_STATE would end the producer for good, though the successor had begun its
    transaction."""
    here = await Transactions().load()
    producer: Producer = here.init()
    assert code_of(lambda: here.end(producer, version=version)) == "INVALID_TXN_STATE"
    here.in_touch = False
    assert code_of(lambda: here.end(producer, version=version)) == LATER


@pytest.mark.parametrize(
    ("other", "refusal"),
    [
        (Producer(FIRST_ID, 1), "PRODUCER_FENCED"),
        (Producer(FIRST_ID + 9, 0), "INVALID_PRODUCER_ID_MAPPING"),
    ],
)
async def test_isolated_coordinator_fences_no_producer(other: Producer, refusal: str) -> None:
    here = await Transactions().load()
    here.ongoing(A)
    here.in_touch = False
    assert code_of(lambda: here.end(other)) == LATER
    assert code_of(lambda: here.lead(other, B)) == LATER
    assert code_of(lambda: here.verify(other, A)) == LATER
    here.in_touch = True
    assert code_of(lambda: here.verify(other, A)) == refusal


async def test_isolated_coordinator_denies_no_two_phase_commit() -> None:
    """The level of transaction.version may have been raised since."""
    here = await Transactions(version=1).load()
    here.in_touch = False
    assert code_of(here.keep) == LATER
    here.in_touch = True
    assert code_of(here.keep) == "UNSUPPORTED_VERSION"


async def test_isolated_coordinator_still_verifies_and_ends_transactions() -> None:
    here = await Transactions().load()
    producer = here.ongoing(A)
    here.in_touch = False
    assert here.verify(producer, A, B) == {A: "NONE", B: "TRANSACTION_ABORTABLE"}
    here.end(producer)
    assert here.state == "PrepareCommit"


async def test_isolated_coordinator_fences_no_static_member() -> None:
    groups = await Groups().load()
    (old,) = await groups.stable(instance="i")
    groups.in_touch = False
    assert code_of(lambda: groups.heartbeat("other", 1, "i")) == LATER
    assert code_of(lambda: groups.heartbeat("other", 1)) == "UNKNOWN_MEMBER_ID"
    groups.in_touch = True
    assert code_of(lambda: groups.heartbeat("other", 1, "i")) == "FENCED_INSTANCE_ID"
    groups.heartbeat(old, 1, "i")
