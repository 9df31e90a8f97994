"""Partitions of this broker are told whom to expect, when AddPartitionsToTxn is committed."""

from collections.abc import Collection

import pytest

from barnabas.coordinator.transaction.metadata import TV0, Producer
from barnabas.coordinator.transaction.partitions import EXPECTED
from barnabas.coordinator.transaction.transactional_id import ELSEWHERE
from barnabas.protocol.topic_partition import TopicPartition
from tests.unit.coordinator.transactions import ID, TIMEOUT_MS, A, B, Transactions

C = TopicPartition("c", 0)


class Told:
    """A partition that was told."""

    def __init__(self) -> None:
        self.written = False
        self.voided = False

    def void(self) -> None:
        self.voided = True


class Local:
    """The partitions that this broker leads, A and B."""

    def __init__(self) -> None:
        self.told: dict[TopicPartition, Told] = {}
        self.calls: list[tuple[str, Producer, list[TopicPartition], str | None]] = []

    def expect(
        self,
        transactional_id: str,
        producer: Producer,
        partitions: Collection[TopicPartition],
        principal: str | None,
    ) -> dict[TopicPartition, Told]:
        self.calls.append((transactional_id, producer, list(partitions), principal))
        told = {each: Told() for each in partitions if each in (A, B)}
        self.told.update(told)
        return told


@pytest.fixture
def local() -> Local:
    return Local()


@pytest.fixture
async def transactions(local: Local) -> Transactions:
    transactions = Transactions()
    transactions.expect = local.expect
    return await transactions.load()


async def test_partitions_are_told_once_they_have_joined(
    transactions: Transactions, local: Local
) -> None:
    producer = transactions.init()
    transactions.log.held = True
    added = transactions.add(producer, A)
    assert local.calls == []
    transactions.log.release()
    await added
    transactions.add(producer, A, B)
    transactions.add(producer, A, B)
    assert local.calls == [(ID, producer, [A], None), (ID, producer, [B], None)]


async def test_partitions_are_not_told_while_leaders_do_not_ask(
    transactions: Transactions, local: Local
) -> None:
    transactions.verification = None
    transactions.ongoing(A, version=TV0)
    assert local.calls == []


async def test_leader_that_adds_its_partition_is_not_told(
    transactions: Transactions, local: Local
) -> None:
    transactions.ongoing(A)
    assert local.calls == []


async def test_large_request_tells_nobody(transactions: Transactions, local: Local) -> None:
    many = [TopicPartition("many", index) for index in range(EXPECTED + 1)]
    transactions.ongoing(*many, version=TV0)
    assert local.calls == []


async def test_partition_without_records_gets_no_marker_and_is_voided(
    transactions: Transactions, local: Local
) -> None:
    producer = transactions.ongoing(A, B, C, version=TV0)
    transactions.verify(producer, C)
    transactions.end(producer, version=TV0, written=[A])
    assert transactions.sent[-1].partitions == {A, C}
    assert (local.told[A].voided, local.told[B].voided) == (False, True)


async def test_partition_that_was_written_as_told_is_marked_whatever_the_client_reports(
    transactions: Transactions, local: Local
) -> None:
    producer = transactions.ongoing(A, B, version=TV0)
    local.told[B].written = True
    transactions.end(producer, version=TV0, written=[])
    assert transactions.sent[-1].partitions == {B}
    assert (local.told[A].voided, local.told[B].voided) == (True, False)


async def test_partition_that_another_broker_was_told_of_is_marked(
    transactions: Transactions,
) -> None:
    """It may have been written, and only a marker takes back what its leader was told."""
    transactions.expect = lambda *_: {B: ELSEWHERE}
    await transactions.load()
    producer = transactions.ongoing(A, B, version=TV0)
    transactions.end(producer, version=TV0, written=[])
    assert transactions.sent[-1].partitions == {B}


async def test_end_without_report_marks_all_and_voids_nothing(
    transactions: Transactions, local: Local
) -> None:
    producer = transactions.ongoing(A, B, version=TV0)
    transactions.end(producer, version=TV0)
    assert transactions.sent[-1].partitions == {A, B}
    assert [each.voided for each in local.told.values()] == [False, False]


async def test_transaction_that_is_kept_voids_what_its_partitions_were_told(
    transactions: Transactions, local: Local
) -> None:
    transactions.ongoing(A, version=TV0)
    transactions.keep(timeout_ms=TIMEOUT_MS)
    assert local.told[A].voided


async def test_verification_switched_off_and_on_marks_all(
    transactions: Transactions, local: Local
) -> None:
    producer = transactions.ongoing(A, B, version=TV0)
    transactions.verification = object()
    transactions.end(producer, version=TV0, written=[A])
    assert transactions.sent[-1].partitions == {A, B}
    assert not local.told[B].voided


async def test_next_transaction_is_told_again(transactions: Transactions, local: Local) -> None:
    producer = transactions.ongoing(A, version=TV0)
    transactions.end(producer, version=TV0)
    transactions.mark()
    transactions.add(producer, A)
    assert [partitions for _, _, partitions, _ in local.calls] == [[A], [A]]


async def test_loaded_transaction_marks_all_and_tells_no_partition(
    transactions: Transactions, local: Local
) -> None:
    producer = transactions.ongoing(A, version=TV0)
    await transactions.load()
    transactions.add(producer, B)
    transactions.end(producer, version=TV0, written=[])
    assert transactions.sent[-1].partitions == {A, B}
    assert len(local.calls) == 1
