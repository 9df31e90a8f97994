"""A coordinator that is out of touch may have a successor: what it knows ends nobody's work."""

import pytest

from barnabas.coordinator.transaction.metadata import Producer
from tests.unit.coordinator.harness import Groups, code_of
from tests.unit.coordinator.transactions import CLIENT_VERSIONS, FIRST_ID, A, B, Transactions

LATER = "COORDINATOR_NOT_AVAILABLE"


@pytest.mark.parametrize("version", CLIENT_VERSIONS)
async def test_a_deposed_coordinator_told_a_committing_producer_that_nothing_was_open(
    version: int,
) -> None:
    """Its successor had begun the transaction: INVALID_TXN_STATE ended the producer for good."""
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
async def test_nobody_is_fenced_by_one_who_may_be_deposed(other: Producer, refusal: str) -> None:
    here = await Transactions().load()
    here.ongoing(A)
    here.in_touch = False
    assert code_of(lambda: here.end(other)) == LATER
    assert code_of(lambda: here.lead(other, B)) == LATER
    assert code_of(lambda: here.verify(other, A)) == LATER
    here.in_touch = True
    assert code_of(lambda: here.verify(other, A)) == refusal


async def test_what_is_not_refused_goes_on() -> None:
    here = await Transactions().load()
    producer = here.ongoing(A)
    here.in_touch = False
    assert here.verify(producer, A, B) == {A: "NONE", B: "TRANSACTION_ABORTABLE"}
    here.end(producer)
    assert here.state == "PrepareCommit"


async def test_a_static_member_is_fenced_by_nobody_who_may_be_deposed() -> None:
    groups = await Groups().load()
    (old,) = await groups.stable(instance="i")
    groups.in_touch = False
    assert code_of(lambda: groups.heartbeat("other", 1, "i")) == LATER
    assert code_of(lambda: groups.heartbeat("other", 1)) == "UNKNOWN_MEMBER_ID"
    groups.in_touch = True
    assert code_of(lambda: groups.heartbeat("other", 1, "i")) == "FENCED_INSTANCE_ID"
    groups.heartbeat(old, 1, "i")
