"""Partitions that are added to a transaction or verified by their leaders (KIP-98, KIP-890)."""

from collections.abc import Callable

import pytest

from barnabas.coordinator.transaction.metadata import TV0, TV2, Producer
from barnabas.coordinator.transaction.partitions import VerifyPartitions
from barnabas.coordinator.transaction.states import TransactionState
from barnabas.protocol.errors import ErrorCode, KafkaError
from tests.support.coordinator.harness import code_of
from tests.unit.coordinator.transactions import (
    FIRST_ID,
    ID,
    NONE,
    A,
    B,
    C,
    Transactions,
    transaction,
)

PREPARED = (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)
STRANGER, STALE, FUTURE = Producer(7, 0), Producer(FIRST_ID, -1), Producer(FIRST_ID, 9)


@pytest.mark.parametrize("version", [TV0, TV2])
async def test_the_first_partitions_begin_the_transaction(version: int) -> None:
    here = await Transactions().load()
    producer = here.init()
    here.time.pass_ms(3)
    assert (here.lead if version else here.add)(producer, A, B) is None
    began = here.time.now_ms()
    here.time.pass_ms(3)
    (here.lead if version else here.add)(producer, C)
    assert here.state == "Ongoing"
    assert here.txn.partitions == {A, B, C}
    assert here.txn.start_ms == began
    assert here.txn.updated_ms == began + 3
    assert here.txn.client_version == version


async def test_known_partitions_are_not_written_again() -> None:
    """As in Kafka 4.4."""
    here = await Transactions().load()
    producer = here.ongoing(A, B)
    written = here.log.record_count
    here.log.refusal = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert here.lead(producer, B) is None
    assert here.add(producer, A) is None
    assert here.log.record_count == written


async def test_request_of_other_producer_is_refused() -> None:
    here = await Transactions().load()
    here.init()
    for ask in (here.add, here.lead, here.verify):
        assert code_of(lambda a=ask: a(STRANGER, A)) == "INVALID_PRODUCER_ID_MAPPING"
        for other in (STALE, FUTURE):
            assert code_of(lambda a=ask, o=other: a(o, A)) == "PRODUCER_FENCED"


async def test_unknown_transactional_id_is_refused() -> None:
    here = await Transactions().load()
    for ask in (here.add, here.lead, here.verify, lambda p, _: here.end(p)):
        assert code_of(lambda a=ask: a(STALE, A)) == "INVALID_PRODUCER_ID_MAPPING"
    assert not here.table.ids


@pytest.mark.parametrize("state", PREPARED)
async def test_adding_partitions_is_refused_while_markers_are_written(
    state: TransactionState,
) -> None:
    """As in Kafka 4.4: this check precedes those of id and epoch, because a TV2 client may hold the
    next ones."""
    here = await Transactions().write(transaction(state, partitions=frozenset({A}))).load()
    future = here.txn.producer._replace(epoch=9)
    for who in (here.txn.producer, STRANGER, future):
        assert code_of(lambda p=who: here.lead(p, A)) == "CONCURRENT_TRANSACTIONS"
        assert code_of(lambda p=who: here.add(p, A)) == "CONCURRENT_TRANSACTIONS"
    assert code_of(lambda: here.verify(here.txn.producer, A)) == "CONCURRENT_TRANSACTIONS"
    assert code_of(lambda: here.verify(STRANGER, A)) == "INVALID_PRODUCER_ID_MAPPING"
    assert code_of(lambda: here.verify(future, A)) == "PRODUCER_FENCED"


async def test_every_step_is_refused_while_another_is_written() -> None:
    here = await Transactions().load()
    producer = here.init()
    here.log.held = True
    first = here.lead(producer, A)
    assert code_of(lambda: here.lead(producer, B)) == "CONCURRENT_TRANSACTIONS"
    assert code_of(lambda: here.add(STRANGER, B)) == "CONCURRENT_TRANSACTIONS"
    assert code_of(here.init) == "CONCURRENT_TRANSACTIONS"
    assert code_of(lambda: here.end(producer)) == "CONCURRENT_TRANSACTIONS"
    here.log.release()
    assert await first is None
    assert here.lead(producer, B) is None


async def test_uncommitted_partition_is_not_in_transaction() -> None:
    """Redpanda #6018: a coordinator that answers before it has written loses it in a fail-over."""
    here = await Transactions().load()
    producer = here.init()
    here.log.held = True
    answer = here.lead(producer, A)
    assert here.verify(producer, A) == {A: "TRANSACTION_ABORTABLE"}
    assert not answer.done()
    assert here.state == "Empty"
    here.log.release()
    assert here.verify(producer, A) == {A: NONE}
    await answer


async def test_refused_step_changes_nothing() -> None:
    here = await Transactions().load()
    producer = here.ongoing(A)
    here.log.refusal = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert code_of(lambda: here.lead(producer, B)) == "COORDINATOR_NOT_AVAILABLE"
    assert here.txn.partitions == {A}
    here.log.refusal = None
    assert here.lead(producer, B) is None


# -- verification --------------------------------------------------------------------------------


async def test_only_added_partitions_are_verified() -> None:
    """KIP-890 part 1."""
    here = await Transactions().load()
    producer = here.ongoing(A, version=TV0)
    assert here.verify(producer, A, B) == {A: NONE, B: "TRANSACTION_ABORTABLE"}


@pytest.mark.parametrize("commits", [True, False])
async def test_verification_fails_after_end_of_transaction(commits: bool) -> None:
    """KAFKA-12671, KAFKA-14402: a Produce that comes after its marker must not open a hanging
    transaction."""
    here = await Transactions().load()
    _, producer = here.completed(commits=commits, version=TV0)
    assert here.verify(producer, A) == {A: "TRANSACTION_ABORTABLE"}


async def test_verification_ignores_pending_step() -> None:
    """As in Kafka 4.4: pending state is ignored."""
    here = await Transactions().load()
    producer = here.ongoing(A, version=TV0)
    here.log.held = True
    adding = here.add(producer, B)
    assert here.verify(producer, A, B) == {A: NONE, B: "TRANSACTION_ABORTABLE"}
    here.log.release()
    await adding
    here.log.held = True
    ending = here.end(producer, version=TV0)
    assert here.verify(producer, A, B) == {A: NONE, B: NONE}
    here.log.release()
    await ending
    assert here.sent[-1].partitions == {A, B}


# -- who coordinates -----------------------------------------------------------------------------


async def test_requests_are_refused_until_log_is_loaded() -> None:
    """KAFKA-9307: no request is answered from partly loaded state."""
    here = Transactions()
    assert code_of(here.init) == "NOT_COORDINATOR"
    here.runtime.elected(0, here.log)
    for ask in (here.add, here.lead, here.verify, lambda p, _: here.end(p)):
        assert code_of(lambda a=ask: a(STALE, A)) == "COORDINATOR_LOAD_IN_PROGRESS"
    assert code_of(here.init) == "COORDINATOR_LOAD_IN_PROGRESS"
    assert code_of(here.coordinator.require_loaded) == "COORDINATOR_LOAD_IN_PROGRESS"
    await here.load()
    here.coordinator.require_loaded()
    here.runtime.resigned(0)
    assert code_of(here.init) == "NOT_COORDINATOR"


async def test_an_unknown_id_is_not_described() -> None:
    """As in Kafka 4.4: error 105."""
    here = await Transactions().load()
    assert code_of(lambda: here.txn) == "TRANSACTIONAL_ID_NOT_FOUND"


async def test_partition_of_an_id_is_computed_once_for_each_request() -> None:
    here = await Transactions(version=TV0).load()
    producer = here.init()
    counted: list[None] = []

    def partitions() -> int:
        counted.append(None)
        return 1

    def asked(ask: Callable[[], object]) -> int:
        here.coordinator.partitions = partitions
        counted.clear()
        ask()
        here.coordinator.partitions = lambda: 1
        return len(counted)

    request = VerifyPartitions(ID, producer, (A,), None)
    assert asked(lambda: here.add(producer, A)) == 1
    assert asked(lambda: here.verify(producer, A)) == 1
    assert asked(lambda: here.coordinator.verify_all([request])) == 1
    assert asked(lambda: here.end(producer, version=TV0)) == 1
    assert asked(lambda: here.coordinator.note(0, ID, "marker in", A)) == 0
    assert asked(lambda: here.coordinator.markers_written(ID, producer, 0)) == 0
    assert here.state == "CompleteCommit"
